//! Fetches one small document over HTTP from a server that is not a provider: the keys of an
//! identity provider.

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::{ConnectionSettings, dial::Dialer};

/// Fetches the body at this URL. Redirects are not followed: a document that says who may call
/// comes from the configured place.
///
/// # Errors
/// Returns the reason if there is none, in plain words.
pub async fn fetch(url: &str, max_bytes: usize) -> Result<Vec<u8>, String> {
    let uri: http::Uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
    let settings = ConnectionSettings {
        allow_private: true,
        ..ConnectionSettings::default()
    };
    let dialer = Dialer::build(&settings).map_err(|error| error.to_string())?;
    let client: Client<Dialer, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(dialer);
    let response = client.get(uri).await.map_err(|error| chain(&error))?;
    if !response.status().is_success() {
        return Err(response.status().to_string());
    }
    let body = Limited::new(response.into_body(), max_bytes)
        .collect()
        .await;
    body.map(|body| body.to_bytes().to_vec())
        .map_err(|error| format!("no whole document of {max_bytes} bytes: {error}"))
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
