//! Google's `streamGenerateContent`, at AI Studio and at Vertex.
//!
//! A response counts as complete only with a candidate's `finishReason`, or if the prompt was
//! blocked. Thought signatures are sent back to this dialect alone, on the part that they came
//! with; tool calls of other models get the documented placeholder if the server would reject
//! them without one. Only the first candidate is read.

mod answer;
mod contents;
mod finish;
mod frames;
mod request;

use super::{
    BuildError, ProviderFuture,
    http::{HttpClient, Post, accepted, lasting},
    keys::KeyedClients,
    reading::{self, ReadLimits},
    spec::{KeyHeader, ProviderSpec, StreamMode},
};
use crate::domain::{failure::ProviderError, wire::ProviderRequest};

/// Kind of a part's thought signature.
pub(super) const SIGNATURE: &str = "gemini.thought_signature";

/// Kind of a part that only this API knows (a picture of the model, executed code), as JSON.
pub(super) const BLOCK: &str = "gemini.block";

/// A client of `streamGenerateContent` for one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct GeminiClient {
    clients: Clients,
    /// The base URL's own query, sent behind `alt=sse`.
    query: String,
    stream: StreamMode,
}

#[derive(Debug, Clone)]
enum Clients {
    /// AI Studio, and Vertex with API keys: `x-goog-api-key`.
    Keyed(KeyedClients),
    /// Vertex: `authorization: Bearer`, with an access token as the key.
    Bearer(HttpClient),
}

// === impl GeminiClient ===

impl GeminiClient {
    /// Builds a client for one provider; no connection is made yet.
    ///
    /// The base URL ends before `/models`: `https://generativelanguage.googleapis.com/v1beta`, or,
    /// for Vertex,
    /// `https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/google`.
    /// At a base URL that names a project, keys are sent as bearer tokens unless the specification
    /// requires API keys.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let (base, query) = spec
            .base_url
            .split_once('?')
            .unwrap_or((&spec.base_url, ""));
        let spec = ProviderSpec {
            base_url: base.to_owned(),
            ..spec.clone()
        };
        let is_bearer = spec.api_key_header == KeyHeader::Bearer && base.contains("/projects/");
        let clients = if is_bearer {
            Clients::Bearer(HttpClient::build(&spec)?)
        } else {
            Clients::Keyed(KeyedClients::build(&spec, |key| {
                ("x-goog-api-key", key.to_owned())
            })?)
        };
        Ok(Self {
            clients,
            query: query.to_owned(),
            stream: spec.chat.stream,
        })
    }

    /// Sends the call; fails at once if it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        let stream = self.stream.streams(&call);
        let body = request::body(&call)?;
        let http = match &self.clients {
            Clients::Keyed(clients) => clients.of(&call)?.clone(),
            Clients::Bearer(http) => http.clone(),
        };
        let model = call.target.model.trim_start_matches("models/");
        let (method, query) = match (stream, self.query.as_str()) {
            (true, "") => ("streamGenerateContent", "?alt=sse".to_owned()),
            (true, more) => ("streamGenerateContent", format!("?alt=sse&{more}")),
            (false, "") => ("generateContent", String::new()),
            (false, more) => ("generateContent", format!("?{more}")),
        };
        let path = format!("/models/{model}:{method}{query}");
        let accept = accepted(stream);
        Ok(Box::pin(async move {
            let reply = http
                .post(
                    &call,
                    Post {
                        path,
                        body,
                        accept,
                        ..Post::default()
                    },
                )
                .await?;
            let parser = answer::ContentReader::new(lasting(&reply.headers));
            Ok(reading::read(
                reply,
                ReadLimits::of(&call, http.settings()),
                parser,
            ))
        }))
    }
}
