//! Chat completions as `OpenAI` defined them and as the compatible servers speak them.
//!
//! Requests are translated from the neutral conversation, answers into deltas. A completion counts as
//! whole only with the dialect's own marks: a `finish_reason` for each choice that started, then
//! `[DONE]` or a clean end. For a server that never sends a `finish_reason`, `[DONE]` is the mark.

mod answer;
mod assemble;
mod chunk;
mod ends;
mod finish;
mod inband;
mod json;
mod messages;
mod repeated;
mod request;
#[cfg(test)]
mod tests;
mod tool_calls;

use std::sync::Arc;

use super::{
    BuildError, ProviderFuture,
    document::DocumentReader,
    http::{HttpClient, Post, accepted, lasting},
    reading::{self, ReadLimits},
    spec::{ChatOptions, ProviderSpec},
};
use crate::domain::{
    adaptation::{DialectOverrides, OutputLimitField},
    failure::ProviderError,
    message::Endpoint,
    target::{Capabilities, PrefillMark},
    wire::ProviderRequest,
};

/// Kind of a part of a message that only this dialect knows: its JSON as it came.
pub const BLOCK: &str = "openai_chat.block";

/// Speaks chat completions with one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ChatClient {
    http: HttpClient,
    options: Arc<ChatOptions>,
    ends: ends::StreamEnds,
}

/// Differences of one attempt's chat completions: what the provider's configuration says, else what
/// is known of the target, without the words that it was found not to take.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent difference"
)]
pub(super) struct ChatDialect<'a> {
    pub(super) options: &'a ChatOptions,
    pub(super) stream: bool,
    pub(super) output_limit_field: OutputLimitField,
    pub(super) developer_role: bool,
    pub(super) stream_usage: bool,
    pub(super) parallel_tools: bool,
    pub(super) prefill_mark: PrefillMark,
}

// === impl ChatClient ===

impl ChatClient {
    /// Returns a client for one provider; nothing is connected yet.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        Ok(Self {
            http: HttpClient::build(spec)?,
            options: Arc::new(spec.chat.clone()),
            ends: ends::StreamEnds::default(),
        })
    }

    /// Sends the request; fails at once if the call cannot be written in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        if call.call.endpoint == Endpoint::Embeddings {
            return embeddings(&self.http, call);
        }
        let stream = self.options.stream.streams(&call);
        let body = request::body(
            &call,
            &ChatDialect::of(
                &self.options,
                stream,
                &call.target.capabilities,
                &call.wording,
            ),
        );
        let client = self.clone();
        Ok(Box::pin(async move {
            let path = client.options.path.clone();
            let reply = client
                .http
                .post(
                    &call,
                    Post {
                        path,
                        body,
                        accept: accepted(stream),
                        ..Post::default()
                    },
                )
                .await?;
            let ends = client.ends.of(&call.target.model);
            let parser = answer::ChatReader::new(lasting(&reply.headers), ends);
            Ok(reading::read(
                reply,
                ReadLimits::of(&call, client.http.settings()),
                parser,
            ))
        }))
    }
}

/// Passes a request for embeddings on: `extra` under the target's own name of the model.
pub(super) fn embeddings(
    http: &HttpClient,
    call: ProviderRequest,
) -> Result<ProviderFuture, ProviderError> {
    let mut fields = call.call.extra.clone();
    fields.insert("model".to_owned(), call.target.model.to_string().into());
    let body = serde_json::to_vec(&fields).map_err(|error| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(format!("the request cannot be written as JSON: {error}")),
        ..ProviderError::default()
    })?;
    let http = http.clone();
    Ok(Box::pin(async move {
        let post = Post {
            path: "/embeddings".to_owned(),
            body,
            accept: accepted(false),
            ..Post::default()
        };
        let reply = http.post(&call, post).await?;
        let parser = DocumentReader::new(lasting(&reply.headers), &call.call);
        Ok(reading::read(
            reply,
            ReadLimits::of(&call, http.settings()),
            parser,
        ))
    }))
}

// === impl ChatDialect ===

impl<'a> ChatDialect<'a> {
    pub(super) fn of(
        options: &'a ChatOptions,
        stream: bool,
        able: &Capabilities,
        wording: &DialectOverrides,
    ) -> Self {
        Self {
            options,
            stream,
            output_limit_field: wording
                .output_limit_field
                .unwrap_or(able.output_limit_field),
            developer_role: able.developer_role && !wording.developer_as_system,
            stream_usage: stream && !wording.without_stream_usage,
            parallel_tools: able.parallel_tools,
            prefill_mark: if able.assistant_prefill {
                able.prefill_mark
            } else {
                PrefillMark::None
            },
        }
    }
}
