//! Chat completions as `OpenAI` defined them and as the compatible servers speak them.
//!
//! Requests are translated from the neutral conversation, answers into deltas. An answer counts as whole only with
//! the dialect's own marks: a `finish_reason` for each choice that began, then `[DONE]` or a clean end.

mod answer;
mod assemble;
mod finish;
mod inband;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod tool_calls;

use std::{borrow::Cow, sync::Arc};

use super::{
    Answer, BuildError,
    http::{HttpClient, Post},
    spec::{ChatOptions, ProviderSpec},
};
use crate::domain::{
    adaptation::{OutputLimitField, Wording},
    failure::ProviderError,
    wire::WireCall,
};

/// Speaks chat completions with one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ChatClient {
    http: HttpClient,
    dialect: Arc<ChatDialect>,
}

/// What this provider's chat completions differ in, all defaults resolved.
#[derive(Debug, Clone)]
pub(super) struct ChatDialect {
    pub(super) options: ChatOptions,
    pub(super) max_tokens_field: OutputLimitField,
    pub(super) developer_role: bool,
}

// === impl ChatClient ===

impl ChatClient {
    /// A client for one provider; nothing is connected yet.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        Ok(Self { http: HttpClient::build(spec)?, dialect: Arc::new(ChatDialect::of(spec)) })
    }

    /// Asks; fails at once where the call cannot be put into this dialect's words.
    pub(super) fn answer(&self, call: WireCall) -> Result<Answer, ProviderError> {
        let body = request::body(&call, &self.dialect)?;
        let client = self.clone();
        Ok(Box::pin(async move {
            let path = client.dialect.options.path.clone();
            let accept = if client.dialect.options.stream { "text/event-stream" } else { "application/json" };
            let reply = client.http.post(&call, Post { path, body, accept }).await?;
            Ok(answer::read(reply, Arc::clone(&call.target.family), client.http.settings()))
        }))
    }
}

// === impl ChatDialect ===

impl ChatDialect {
    pub(super) fn of(spec: &ProviderSpec) -> Self {
        let options = spec.chat.clone();
        let uri: Option<http::Uri> = spec.base_url.split('?').next().and_then(|base| base.parse().ok());
        let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
        let by_openai = host == "api.openai.com" || host.ends_with(".openai.azure.com");
        let by_host = if by_openai { OutputLimitField::MaxCompletionTokens } else { OutputLimitField::MaxTokens };
        let max_tokens_field = options.max_tokens_field.unwrap_or(by_host);
        let developer_role = options.developer_role.unwrap_or(by_openai);
        Self { options, max_tokens_field, developer_role }
    }

    /// The same, without the words that a target was found not to take.
    fn worded(&self, wording: &Wording) -> Cow<'_, Self> {
        if *wording == Wording::default() {
            return Cow::Borrowed(self);
        }
        let mut dialect = self.clone();
        dialect.max_tokens_field = wording.output_limit_field.unwrap_or(dialect.max_tokens_field);
        dialect.options.include_usage &= !wording.without_stream_usage;
        dialect.developer_role &= !wording.developer_as_system;
        Cow::Owned(dialect)
    }
}
