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
mod item_fields;
mod items;
mod numbers;
mod output;
mod request;

pub use self::items::translate;

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use super::{
    BuildError, ProviderFuture,
    http::{HttpClient, Post, accepted, lasting},
    openai::embeddings,
    reading::{self, ReadLimits},
    spec::{ProviderSpec, StreamMode},
};
pub use crate::domain::left_out::{ITEM, NAMESPACE};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    message::Endpoint,
    wire::{DeltaStream, ProviderRequest},
};

/// Kind of a part of a message that only this dialect knows: its JSON as it came.
pub const BLOCK: &str = "openai_responses.block";
/// Kind of a reasoning item with encrypted content: the item's JSON as it came.
pub const REASONING: &str = "openai.encrypted_content";
/// The field of a text that holds its annotations.
pub const ANNOTATIONS: &str = "annotations";
/// Fields of a message that are read here; any other one is its provider's own.
pub const MESSAGE_FIELDS: [&str; 5] = ["content", "id", "role", "status", "type"];
/// Name of the one argument of a custom tool, which takes a text and not JSON, if it is offered as
/// a function.
pub const CUSTOM_INPUT: &str = "input";

const TOOL_SEARCH: &str = "tool_search_call";
/// Items of a completion that the caller executes, and for which it returns an item that ends in
/// `_output`.
const ACTIONS: [&str; 5] = [
    TOOL_SEARCH,
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
];

/// Returns whether the caller executes this item of a completion: a tool call, though not one of a
/// function.
#[must_use]
pub fn is_action(item: &Value) -> bool {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    match text("type") {
        Some(TOOL_SEARCH) => text("execution") == Some("client"),
        kind => kind.is_some_and(|kind| ACTIONS.contains(&kind)),
    }
}

/// Returns a custom tool's input as the arguments of a function.
#[must_use]
pub fn custom_arguments(input: &str) -> String {
    json!({ CUSTOM_INPUT: input }).to_string()
}

/// Returns the input of a custom tool in the arguments of a function; all of them if they are
/// something else.
#[must_use]
pub fn custom_input(arguments: &str) -> String {
    let read = serde_json::from_str::<Value>(arguments).ok();
    let input = read
        .as_ref()
        .and_then(|read| read.get(CUSTOM_INPUT)?.as_str());
    input.unwrap_or(arguments).to_owned()
}

/// Returns the names of the custom tools among these.
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
    stream: StreamMode,
    cancels: attach::Cancels,
}

// === impl ResponsesClient ===

impl ResponsesClient {
    /// Returns a client for one provider; nothing is connected yet.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let http = HttpClient::build(spec)?;
        let stream = spec.chat.stream;
        Ok(Self {
            http,
            stream,
            cancels: attach::Cancels::default(),
        })
    }

    /// Sends the call; fails at once if it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        if call.attach.is_some() {
            return self.take_over(call);
        }
        if call.call.endpoint == Endpoint::Embeddings {
            return embeddings(&self.http, call);
        }
        let stream = self.stream.streams(&call);
        let request::RequestBody {
            body,
            in_background,
        } = request::body(&call, stream)?;
        let http = self.http.clone();
        let cancels = self.cancels.clone();
        let accept = accepted(stream);
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
        let family = Arc::clone(&call.target.family);
        let limits = ReadLimits::of(&call, self.http.settings());
        let able = self.stream != StreamMode::Never && call.target.capabilities.background;
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
                Some(TransportFault::Protocol) => Box::new(ProviderError {
                    fault: Some(TransportFault::Cut),
                    ..*error
                }),
                _ => error,
            })) as DeltaStream)
        }))
    }
}
