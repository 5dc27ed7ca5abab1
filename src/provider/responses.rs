//! `OpenAI`'s Responses API, stateless: the whole conversation is sent with each request, and
//! nothing that is stored is referred to.
//!
//! A response counts as complete only with `response.completed` or `response.incomplete`. Reasoning
//! items, and those of tools that the neutral call has no word for, are sent back to this dialect
//! alone, unchanged. Targets with the capability `background` store their responses for as long as
//! they are read: one whose connection breaks is resumed (`attach`). There is no polling.

mod answer;
mod attach;
mod finish;
mod items;
mod request;

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use super::{
    BuildError, ProviderFuture,
    http::{HttpClient, Post, accepted, lasting},
    openai::embeddings,
    reading::{self, ReadLimits},
    spec::ProviderSpec,
};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    message::Endpoint,
    wire::{DeltaStream, ProviderRequest},
};

/// Kind of a reasoning item with encrypted content: the item's JSON as it came.
pub const REASONING: &str = "openai.encrypted_content";
/// Kind of any other item that the neutral call has no word for: the item's JSON as it came.
pub const ITEM: &str = "openai.item";
/// Kind of the namespace of a tool call: its name.
pub const NAMESPACE: &str = "openai.namespace";
/// The name of the one argument of a custom tool, which takes a text and no JSON, where it is
/// offered as a function.
pub const CUSTOM_INPUT: &str = "input";

const TOOL_SEARCH: &str = "tool_search_call";
/// Items of an answer that the caller executes, and for which it returns an item that ends in
/// `_output`.
const ACTIONS: [&str; 5] = [
    TOOL_SEARCH,
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
];

/// Whether the caller executes this item of an answer: a tool call, though not one of a function.
#[must_use]
pub fn is_action(item: &Value) -> bool {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    match text("type") {
        Some(TOOL_SEARCH) => text("execution") == Some("client"),
        kind => kind.is_some_and(|kind| ACTIONS.contains(&kind)),
    }
}

/// A custom tool's input as the arguments of a function.
#[must_use]
pub fn custom_arguments(input: &str) -> String {
    json!({ CUSTOM_INPUT: input }).to_string()
}

/// The input of a custom tool in the arguments of a function; all of them where they are something
/// else.
#[must_use]
pub fn custom_input(arguments: &str) -> String {
    let read = serde_json::from_str::<Value>(arguments).ok();
    let input = read
        .as_ref()
        .and_then(|read| read.get(CUSTOM_INPUT)?.as_str());
    input.unwrap_or(arguments).to_owned()
}

/// The names of the custom tools among these.
pub fn custom_names(tools: &[Value]) -> impl Iterator<Item = &str> {
    let is_custom = |tool: &&Value| tool.get("type").is_some_and(|kind| kind == "custom");
    tools
        .iter()
        .filter(is_custom)
        .filter_map(|tool| tool.get("name")?.as_str())
}

/// A client of the Responses API for one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ResponsesClient {
    http: HttpClient,
    stream: bool,
    cancels: attach::Cancels,
}

// === impl ResponsesClient ===

impl ResponsesClient {
    /// A client for one provider; nothing is connected yet.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let (http, stream) = (HttpClient::build(spec)?, spec.chat.stream);
        Ok(Self {
            http,
            stream,
            cancels: attach::Cancels::default(),
        })
    }

    /// Sends the call; fails at once where it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        if call.attach.is_some() {
            return self.take_over(call);
        }
        if call.call.endpoint == Endpoint::Embeddings {
            return embeddings(&self.http, call);
        }
        let request::RequestBody {
            body,
            in_background,
        } = request::body(&call, self.stream)?;
        let (http, cancels) = (self.http.clone(), self.cancels.clone());
        let accept = accepted(self.stream);
        Ok(Box::pin(async move {
            let post = Post {
                path: "/responses".to_owned(),
                body,
                accept,
                ..Post::default()
            };
            let reply = http.post(&call, post).await?;
            let limits = ReadLimits::of(&call, http.settings());
            let register = in_background.then(|| attach::Hold::new(http, call, cancels));
            let parser = answer::ResponseReader::new(lasting(&reply.headers), register);
            Ok(reading::read(reply, limits, parser))
        }))
    }

    /// Reads the response that an earlier owner of the invocation requested. Any fault of that
    /// response counts as a cut: the response is to be requested anew.
    fn take_over(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        let (family, limits) = (
            Arc::clone(&call.target.family),
            ReadLimits::of(&call, self.http.settings()),
        );
        let able = self.stream && call.target.capabilities.background;
        let register = attach::Hold::taking_over(self.http.clone(), call, self.cancels.clone())
            .filter(|_| able);
        let Some(mut register) = register else {
            let words = "the target's answers cannot be read on any more";
            return Err(ProviderError::transport(family, TransportFault::Cut, words));
        };
        Ok(Box::pin(async move {
            let reply = register.take_over().await?;
            let parser = answer::ResponseReader::new(lasting(&reply.headers), Some(register));
            let deltas = reading::read(reply, limits, parser);
            Ok(Box::pin(deltas.map_err(|error| match error.fault {
                Some(TransportFault::Protocol) => ProviderError {
                    fault: Some(TransportFault::Cut),
                    ..error
                },
                _ => error,
            })) as DeltaStream)
        }))
    }
}
