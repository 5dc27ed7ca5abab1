//! Requests for tokens: to metadata services on this host, and to the clouds' token services.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;
use tokio::time::timeout;

use super::{IdentityError, refused};
use crate::{
    outbound::{self, ConnectionSettings, HttpConnections},
    spec::HttpSettings,
};

/// Longest time of one exchange.
const WITHIN: Duration = Duration::from_secs(5);
/// Time to connect to a metadata service, which is on this host or nowhere.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Longest response, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Longest text of a refusal that is repeated, in bytes.
const MAX_WORDS: usize = 300;

/// Connections for exchanges.
#[derive(Debug, Clone)]
pub(super) struct TokenExchange {
    /// To metadata services: never through a proxy.
    direct: HttpConnections,
    /// To token services: as the provider itself is reached.
    outward: HttpConnections,
}

/// Place of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeWay {
    /// A metadata service of the host, in plain HTTP.
    Metadata,
    /// A token service.
    Service,
}

/// A response.
#[derive(Debug)]
pub(super) struct ExchangeReply {
    pub(super) status: StatusCode,
    pub(super) body: String,
    pub(super) after: Option<Duration>,
}

// === impl TokenExchange ===

impl TokenExchange {
    /// Connections for one provider; nothing is connected yet.
    pub(super) fn build(http: &HttpSettings) -> Result<Self, rustls::Error> {
        let direct = ConnectionSettings {
            connect_timeout: CONNECT_WITHIN,
            allow_private: true,
            ..ConnectionSettings::default()
        };
        let outward = ConnectionSettings {
            connect_timeout: http.connect_timeout,
            allow_private: true,
            proxy: http.proxy.clone(),
            tls: http.tls.clone(),
            ..ConnectionSettings::default()
        };
        Ok(Self {
            direct: outbound::connections(&direct)?,
            outward: outbound::connections(&outward)?,
        })
    }

    /// Sends a request and reads the response, whatever its status.
    pub(super) async fn send(
        &self,
        way: ExchangeWay,
        (method, url): (Method, &str),
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<ExchangeReply, IdentityError> {
        let uri: Uri = url
            .parse()
            .map_err(|_| refused(format!("`{}` is no URL", shown(url))))?;
        let host = uri.host().unwrap_or_default();
        let is_plain = uri.scheme_str() != Some("https");
        if way == ExchangeWay::Service && is_plain && !outbound::is_loopback(host) {
            let why = format!("secrets are not sent to {host} in plain http");
            return Err(refused(why));
        }
        let mut request = Request::builder().method(method).uri(&uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| refused(format!("a request to {host}: {error}")))?;
        let client = match way {
            ExchangeWay::Metadata => &self.direct,
            ExchangeWay::Service => &self.outward,
        };
        let away = |why: String| IdentityError::away(format!("{host}: {why}"));
        let read = async {
            let response = client.request(request).await;
            let response = response.map_err(|error| away(error.to_string()))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_BYTES).collect().await;
            let body = body.map_err(|error| away(error.to_string()))?.to_bytes();
            Ok(ExchangeReply {
                status: head.status,
                body: String::from_utf8_lossy(&body).into_owned(),
                after: stated_wait(&head.headers),
            })
        };
        timeout(WITHIN, read)
            .await
            .unwrap_or_else(|_| Err(away("no response in time".to_owned())))
    }

    /// Gets a document.
    pub(super) async fn get(
        &self,
        way: ExchangeWay,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Value, IdentityError> {
        let reply = self
            .send(way, (Method::GET, url), headers, String::new())
            .await?;
        reply.json(url)
    }

    /// Posts a form to a token service.
    pub(super) async fn form(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> Result<ExchangeReply, IdentityError> {
        let kind = (CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded");
        let headers = [headers, &[kind]].concat();
        self.send(
            ExchangeWay::Service,
            (Method::POST, url),
            &headers,
            form_of(fields),
        )
        .await
    }
}

// === impl ExchangeReply ===

impl ExchangeReply {
    /// Returns the document of a success.
    pub(super) fn json(self, url: &str) -> Result<Value, IdentityError> {
        let body = self.success(url)?;
        serde_json::from_str(&body)
            .map_err(|_| IdentityError::away(format!("{}: the response is no JSON", shown(url))))
    }

    /// Returns the body of a success.
    pub(super) fn success(self, url: &str) -> Result<String, IdentityError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let why = format!("{}: {}: {}", shown(url), self.status, self.words());
        let is_passing = self.status.is_server_error()
            || matches!(
                self.status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::GONE
            )
            || [
                "Throttling",
                "IDPCommunicationError",
                "temporarily_unavailable",
                "slow_down",
            ]
            .iter()
            .any(|code| self.body.contains(code));
        Err(if is_passing {
            IdentityError::Away {
                why,
                after: self.after,
            }
        } else {
            refused(why)
        })
    }

    /// Returns what a refusal says of itself.
    fn words(&self) -> String {
        let document: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let stated = ["/error_description", "/error/message", "/message", "/error"]
            .iter()
            .find_map(|place| document.pointer(place)?.as_str());
        let text = stated
            .or_else(|| tag(&self.body, "Message"))
            .unwrap_or(&self.body)
            .trim();
        text[..text.floor_char_boundary(MAX_WORDS)].to_owned()
    }
}

/// Returns the text of the first element of this name in a document of XML.
pub(super) fn tag<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// Returns a text field of a document.
pub(super) fn text<'a>(document: &'a Value, name: &str) -> Result<&'a str, IdentityError> {
    document[name]
        .as_str()
        .filter(|text| !text.is_empty())
        .ok_or_else(|| refused(format!("`{name}` is missing")))
}

/// Returns a number of seconds, which some services write as a text.
pub(super) fn seconds(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| value.as_str()?.trim().parse().ok())
}

/// Returns a bearer token as an OAuth 2.0 server hands it out.
pub(super) fn bearer(document: &Value) -> Result<super::IdentityToken, IdentityError> {
    let life = seconds(&document["expires_in"]).and_then(|life| u64::try_from(life).ok());
    let life = Duration::from_secs(life.unwrap_or(3600));
    super::IdentityToken::bearer(text(document, "access_token")?, life)
}

/// Reads a file.
pub(super) async fn file(path: &str) -> Result<String, IdentityError> {
    let read = tokio::fs::read_to_string(path).await;
    read.map_err(|error| refused(format!("{path}: {error}")))
}

/// Returns the fields as a form, or as a query.
pub(super) fn form_of(fields: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", encoded(value));
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn stated_wait(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Returns a URL without its query, which may hold a secret.
fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}
