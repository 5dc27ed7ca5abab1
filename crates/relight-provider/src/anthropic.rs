//! The Messages API as Anthropic defined it and as compatible servers implement it.
//!
//! A response counts as complete only with `message_delta`'s stop reason and `message_stop`.
//! Thinking is sent back to this dialect alone, with its signature, byte by byte; that of other
//! providers is removed. Prefill is not used.

mod answer;
mod finish;
mod messages;
mod request;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    BuildError, ProviderFuture,
    document::DocumentReader,
    http::{Post, accepted, lasting},
    keys::{KeyedClients, with_header},
    reading::{self, ReadLimits},
    spec::{ProviderSpec, StreamMode},
};
use crate::domain::{
    failure::ProviderError,
    message::{Endpoint, ModelCall},
    wire::ProviderRequest,
};

/// Kind of a thinking block's signature.
pub const SIGNATURE: &str = "anthropic.signature";
/// Kind of a redacted thinking block's data.
pub const REDACTED: &str = "anthropic.redacted_thinking";
/// Kind of a whole block, as JSON, that the neutral conversation cannot represent (server tools and
/// their results).
pub const BLOCK: &str = "anthropic.block";

const VERSION: &str = "2023-06-01";
/// The header that names betas of the API.
const BETA: &str = "anthropic-beta";

/// A client of the Messages API for one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct MessagesClient {
    clients: KeyedClients,
    path: &'static str,
    stream: StreamMode,
    /// The betas of every call, as the configuration has them.
    betas: String,
}

// === impl MessagesClient ===

impl MessagesClient {
    /// Returns a client for one provider; nothing is connected yet. Keys go into `x-api-key`, OAuth
    /// tokens (`sk-ant-oat…`) into `authorization`.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let base = spec
            .base_url
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_end_matches('/');
        let path = if base.ends_with("/v1") {
            "/messages"
        } else {
            "/v1/messages"
        };
        let versioned = with_header(spec.clone(), "anthropic-version", VERSION);
        let clients = KeyedClients::build(&versioned, |key| {
            if key.starts_with("sk-ant-oat") {
                ("authorization", format!("Bearer {key}"))
            } else {
                ("x-api-key", key.to_owned())
            }
        })?;
        let betas = spec
            .extra_headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(BETA));
        let betas = betas.map(|(_, betas)| betas.clone()).unwrap_or_default();
        Ok(Self {
            clients,
            path,
            stream: spec.chat.stream,
            betas,
        })
    }

    /// Returns the betas of the configuration and those of the call, none twice; empty if the call
    /// has none of its own.
    fn headers(&self, call: &ModelCall) -> HeaderMap {
        let mut betas: Vec<&str> = self
            .betas
            .split(',')
            .map(str::trim)
            .filter(|beta| !beta.is_empty())
            .collect();
        for beta in &call.betas {
            if !betas.contains(&beta.as_str()) {
                betas.push(beta);
            }
        }
        let value = HeaderValue::from_str(&betas.join(","))
            .ok()
            .filter(|_| !call.betas.is_empty());
        value
            .map(|value| (HeaderName::from_static(BETA), value))
            .into_iter()
            .collect()
    }

    /// Sends the call; fails at once if it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        let stream = self.stream.streams(&call);
        let body = request::body(&call, stream)?;
        let http = self.clients.of(&call)?.clone();
        let path = self.path.to_owned();
        let accept = accepted(stream);
        let headers = self.headers(&call.call);
        if call.call.endpoint == Endpoint::CountTokens {
            let path = format!("{path}/count_tokens");
            let body = request::count(&call)?;
            return Ok(Box::pin(async move {
                let reply = http
                    .post(
                        &call,
                        Post {
                            path,
                            body,
                            accept: accepted(false),
                            headers,
                        },
                    )
                    .await?;
                let parser = DocumentReader::new(lasting(&reply.headers), &call.call);
                Ok(reading::read(
                    reply,
                    ReadLimits::of(&call, http.settings()),
                    parser,
                ))
            }));
        }
        Ok(Box::pin(async move {
            let reply = http
                .post(
                    &call,
                    Post {
                        path,
                        body,
                        accept,
                        headers,
                    },
                )
                .await?;
            let parser = answer::MessageReader::new(lasting(&reply.headers));
            Ok(reading::read(
                reply,
                ReadLimits::of(&call, http.settings()),
                parser,
            ))
        }))
    }
}
