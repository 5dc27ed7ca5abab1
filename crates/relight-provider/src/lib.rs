//! Model providers: each attempt becomes exactly one request to one provider, and its response a
//! stream of deltas.
//!
//! Providers report facts only. They do not retry, classify failures or time out a slow response
//! (the timers above do), and hide no header or body that the classifier could need. Resuming a
//! background response (`responses`) is not a second request for one: nothing is generated or paid
//! for again.
//!
//! The wire types are own code. The providers' SDKs for Rust, and the crates that support several
//! of them, retry or time out by themselves, drop the headers and the body of an error, or know
//! only the fields of their day; recovery needs each of these. Libraries are used for HTTP
//! (`hyper`), TLS (`rustls`), JSON (`serde_json`), checksums (`crc32fast`) and signatures (`ring`).

pub mod anthropic;
mod aws_sign;
pub mod bedrock;
mod blocks;
mod call_ids;
mod capabilities;
mod document;
pub mod gemini;
mod http;
mod identity;
mod identity_spec;
mod json_demand;
mod keys;
pub mod known;
pub mod openai;
mod reading;
pub mod responses;
pub mod scripted;
mod spec;
mod split_character;
pub mod sse;
mod stop_cut;
mod tool_media;
#[cfg(test)]
mod toy;
mod turns;
mod vectors;

use std::{
    collections::HashMap,
    fmt,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;

use relight_outbound as outbound;
use relight_policy::{domain, policy::shown_url::shown_url};

use domain::{
    failure::ProviderError,
    target::Dialect,
    wire::{DeltaStream, ProviderRequest},
};

pub use self::{
    capabilities::CapabilityOverrides,
    identity_spec::{Cloud, IdentitySpec, Variables},
    spec::{ChatOptions, HttpSettings, KeyHeader, ProviderSpec, StreamMode},
};

/// The future of a call; resolves once the response head is received.
pub type ProviderFuture = Pin<Box<dyn Future<Output = Result<DeltaStream, ProviderError>> + Send>>;

/// All configured providers as one service; cheap to clone, shared by all attempts.
///
/// The future of a call resolves when the response head has come; dropping it, or the stream that
/// it resolves to, cancels the request upstream.
#[derive(Clone)]
pub struct Providers {
    clients: Arc<HashMap<Arc<str>, Client>>,
}

/// Error returned if the providers cannot be built from their specifications.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Two providers have the same name.
    #[error("provider `{0}` is configured twice")]
    Twice(Arc<str>),
    /// The base URL is not valid, or its scheme is not allowed.
    #[error("provider `{provider}`: `{}` is no usable base URL: {why}", shown_url(.url))]
    BaseUrl {
        /// The provider's name.
        provider: Arc<str>,
        /// The URL as configured.
        url: String,
        /// Fault of the URL.
        why: String,
    },
    /// An extra header, or a credential, is not what HTTP allows.
    #[error("provider `{provider}`: {what} is not allowed in an HTTP header")]
    Header {
        /// The provider's name.
        provider: Arc<str>,
        /// Description of the fault, without the values of credentials.
        what: String,
    },
    /// TLS cannot be set up.
    #[error("provider `{provider}`: TLS cannot be set up")]
    Tls {
        /// The provider's name.
        provider: Arc<str>,
        /// The TLS library's error.
        source: rustls::Error,
    },
}

enum Client {
    Anthropic(Box<anthropic::MessagesClient>),
    Bedrock(Box<bedrock::ConverseClient>),
    Gemini(Box<gemini::GeminiClient>),
    OpenaiChat(Box<openai::ChatClient>),
    Responses(Box<responses::ResponsesClient>),
    Scripted(scripted::Player),
}

// === impl Providers ===

impl Providers {
    /// Builds one client per specification; no connection is made yet.
    ///
    /// # Errors
    /// When a specification cannot work, whatever the provider responds.
    pub fn build(specs: &[ProviderSpec]) -> Result<Self, BuildError> {
        let mut clients = HashMap::with_capacity(specs.len());
        for spec in specs {
            let client = Client::build(spec)?;
            if clients.insert(Arc::clone(&spec.name), client).is_some() {
                return Err(BuildError::Twice(Arc::clone(&spec.name)));
            }
        }
        Ok(Self {
            clients: Arc::new(clients),
        })
    }

    /// Returns the names of all providers, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.clients.keys().map(AsRef::as_ref)
    }

    fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        match self.clients.get(&call.target.provider) {
            Some(Client::Anthropic(client)) => client.answer(call),
            Some(Client::Bedrock(client)) => client.answer(call),
            Some(Client::Gemini(client)) => client.answer(call),
            Some(Client::OpenaiChat(client)) => client.answer(call),
            Some(Client::Responses(client)) => client.answer(call),
            Some(Client::Scripted(player)) => Ok(player.answer(call)),
            None => Err(ProviderError {
                provider: Arc::clone(&call.target.family),
                message: Some(format!(
                    "no provider is configured under the name `{}`",
                    call.target.provider
                )),
                ..ProviderError::default()
            }),
        }
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.clients.keys()).finish()
    }
}

impl tower::Service<ProviderRequest> for Providers {
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = Either<ProviderFuture, Ready<Result<DeltaStream, ProviderError>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ProviderRequest) -> Self::Future {
        let call = call_ids::fitted(call);
        let conversation = Arc::clone(&call.call);
        let invocation = call.invocation.clone();
        let dialect = call.target.dialect;
        match self.answer(call) {
            Ok(answer) => Either::Left(Box::pin(async move {
                let deltas = stop_cut::cut(answer.await?, &conversation, dialect);
                Ok(call_ids::made_unique(deltas, conversation, invocation))
            })),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}

// === impl Client ===

impl Client {
    fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        match spec.dialect {
            Dialect::Anthropic => Ok(Self::Anthropic(Box::new(anthropic::MessagesClient::build(
                spec,
            )?))),
            Dialect::Bedrock => Ok(Self::Bedrock(Box::new(bedrock::ConverseClient::build(
                spec,
            )?))),
            Dialect::Gemini => Ok(Self::Gemini(Box::new(gemini::GeminiClient::build(spec)?))),
            Dialect::OpenaiResponses => Ok(Self::Responses(Box::new(
                responses::ResponsesClient::build(spec)?,
            ))),
            Dialect::OpenaiChat => Ok(Self::OpenaiChat(Box::new(openai::ChatClient::build(spec)?))),
            Dialect::Scripted => Ok(Self::Scripted(scripted::Player::new(
                spec.scripted.clone().unwrap_or_default(),
                spec.chat.stream,
            ))),
            Dialect::Tool => Err(BuildError::BaseUrl {
                provider: Arc::clone(&spec.name),
                url: spec.base_url.clone(),
                why: "tool servers are configured under `tools`".to_owned(),
            }),
        }
    }
}
