//! `OpenAI`'s Responses API, stateless: the whole conversation goes with each request, nothing is stored.
//!
//! An answer counts as whole only with `response.completed` or `response.incomplete`. Reasoning items go back to this
//! dialect alone, as they came, with their encrypted content. It never polls: a background response is no answer.

mod answer;
mod finish;
mod items;
mod request;

use std::sync::Arc;

use super::{
    Answer, BuildError,
    http::{HttpClient, Post, rate_limits},
    reading,
    spec::ProviderSpec,
};
use crate::domain::{failure::ProviderError, wire::WireCall};

/// Kind of a reasoning item with encrypted content: the item's JSON as it came.
pub(super) const REASONING: &str = "openai.encrypted_content";

/// Speaks the Responses API with one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ResponsesClient {
    http: HttpClient,
}

// === impl ResponsesClient ===

impl ResponsesClient {
    /// A client for one provider; nothing is connected yet.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        Ok(Self { http: HttpClient::build(spec)? })
    }

    /// Asks; fails at once where the call cannot be put into this dialect's words.
    pub(super) fn answer(&self, call: WireCall) -> Result<Answer, ProviderError> {
        let body = request::body(&call)?;
        let http = self.http.clone();
        Ok(Box::pin(async move {
            let post = Post { path: "/responses".to_owned(), body, accept: "text/event-stream", ..Post::default() };
            let reply = http.post(&call, post).await?;
            let dialog = answer::ResponseReader::new(rate_limits(&reply.headers));
            Ok(reading::read(reply, Arc::clone(&call.target.family), http.settings(), dialog))
        }))
    }
}
