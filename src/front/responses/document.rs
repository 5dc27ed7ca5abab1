//! A response as a document: what was requested, as far as it got, and its end.

use serde_json::{Map, Value, json};

use super::items;
use crate::{
    domain::{
        completion::{Completion, Exactness, Usage},
        ids::InvocationId,
        message::{Part, ToolCall},
        own_fields, stop_reason,
        target::Dialect,
    },
    provider::responses::custom_names,
};

/// Writes the documents of one response.
#[derive(Debug, Clone)]
pub(super) struct ResponseDocument {
    invocation: InvocationId,
    created_unix: i64,
    /// Part of the request that the response repeats.
    echo: Map<String, Value>,
    is_stored: bool,
    /// The names of the tools that take a text and no JSON.
    custom_tools: Vec<String>,
}

// === impl ResponseDocument ===

impl ResponseDocument {
    /// The document of this invocation; `echo` is what of its request is repeated.
    pub(super) fn new(
        invocation: &InvocationId,
        created_unix: i64,
        echo: Map<String, Value>,
        is_stored: bool,
    ) -> Self {
        let tools = echo
            .get("tools")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let custom_tools = custom_names(tools).map(str::to_owned).collect();
        Self {
            invocation: invocation.clone(),
            created_unix,
            echo,
            is_stored,
            custom_tools,
        }
    }

    /// The same, of a request with these tools that take a text and no JSON.
    #[must_use]
    pub(super) fn with_custom_tools(mut self, names: Vec<String>) -> Self {
        self.custom_tools = names;
        self
    }

    /// Returns the items of these parts of its completion.
    pub(super) fn items(&self, parts: impl IntoIterator<Item = Part>) -> Vec<Value> {
        items::of_parts(&self.invocation, &self.custom_tools, parts)
    }

    /// Returns the items of one part, of which the first is the item `index` of the output.
    pub(super) fn items_of(&self, index: usize, part: &Part) -> Vec<Value> {
        items::of_part(&self.invocation, &self.custom_tools, index, part)
    }

    /// Returns the item of a tool call that has begun.
    pub(super) fn begun_call(&self, index: usize, call: &ToolCall) -> Value {
        items::tool_call(
            &self.invocation,
            &self.custom_tools,
            index,
            "in_progress",
            call,
        )
    }

    /// Returns the invocation that it belongs to.
    pub(super) fn invocation(&self) -> &InvocationId {
        &self.invocation
    }

    /// Returns a response that ended well, or was cut short by a limit or a filter.
    pub(super) fn ended(&self, completion: &Completion, output: &[Value]) -> Value {
        let why = stop_reason::in_responses(completion.finish, &completion.finish_raw);
        let status = if why.is_some() {
            "incomplete"
        } else {
            "completed"
        };
        let mut response = self.in_state(status, &completion.model, output);
        response["incomplete_details"] = why.map_or(Value::Null, |why| json!({"reason": why}));
        response["usage"] = usage(completion.usage);
        if let Some(last) = response["output"]
            .as_array_mut()
            .and_then(|all| all.last_mut())
            && last["type"] == "message"
            && why.is_some()
        {
            last["status"] = json!("incomplete");
        }
        let around = completion.around.as_ref();
        let around = own_fields::fields_in(Dialect::OpenaiResponses, around);
        own_fields::merge(&mut response, &around);
        response
    }

    /// Returns a response in this state.
    pub(super) fn in_state(&self, status: &str, model: &str, output: &[Value]) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.invocation),
            "object": "response",
            "created_at": self.created_unix,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "max_output_tokens": null,
            "model": model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": self.is_stored,
            "temperature": null,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": null,
            "metadata": {},
        });
        for (name, value) in &self.echo {
            response[name] = value.clone();
        }
        response
    }
}

/// Returns the cost of the completion, without the attempts that failed; null if nothing is known. This
/// protocol requires the details, so that counts that the provider does not state are 0.
fn usage(usage: Usage) -> Value {
    if usage.exactness == Exactness::Unknown && usage.input_tokens == 0 && usage.output_tokens == 0
    {
        return Value::Null;
    }
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens.unwrap_or(0)},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens.unwrap_or(0)},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}
