//! Spans of the traffic over the wire: the model call as a provider's client sees it, and the HTTP
//! request under it.
//!
//! Usage is reported here and nowhere above, so that no UI counts it twice. The spans take names,
//! numbers and marks from the deltas that pass; texts, tool arguments and prompts are looked at
//! only if content is to be captured.

use std::time::Duration;

use http::Uri;
use opentelemetry::{
    Array, KeyValue, StringValue, Value,
    trace::{SpanBuilder, SpanKind},
};
use parking_lot::Mutex;

use super::{
    CANCELLED, SpanGuard, SpanNode,
    content::{self, CapturedAnswer},
    count,
};
use crate::domain::{
    completion::{Delta, Usage},
    failure::Failure,
    ids::ThreadId,
    invocation::TraceContext,
    message::ModelCall,
    semconv::{attr, relight},
    target::Target,
};

/// The span of one model or tool call.
#[derive(Debug)]
pub struct ChatSpan {
    guard: SpanGuard,
    /// Answer as far as it came, if content is captured.
    answer: Option<Mutex<CapturedAnswer>>,
}

/// The span of one HTTP request.
#[derive(Debug)]
pub struct HttpSpan {
    guard: SpanGuard,
}

/// Data that a model call's span holds from its start.
#[derive(Debug, Clone, Copy)]
pub struct ChatStart<'a> {
    /// The target that is called.
    pub target: &'a Target,
    /// Request; only its numbers are read, unless content is captured.
    pub call: &'a ModelCall,
    /// The conversation.
    pub thread: Option<&'a ThreadId>,
    /// 1 for the invocation's first attempt.
    pub attempt: u32,
    /// `true` if a stream is requested.
    pub stream: bool,
}

/// Data that a tool call's span holds from its start.
#[derive(Debug, Clone, Copy)]
pub struct ToolStart<'a> {
    /// The tool, as a target.
    pub server: &'a Target,
    /// Its name at its server.
    pub tool: &'a str,
    /// 1 for the invocation's first attempt.
    pub attempt: u32,
}

pub(super) fn open_chat(parent: &SpanNode, start: ChatStart<'_>) -> ChatSpan {
    let node = parent.open_child(|| {
        let target = start.target;
        let mut attributes = vec![
            KeyValue::new(attr::OPENINFERENCE_KIND, "LLM"),
            KeyValue::new(attr::GEN_AI_OPERATION, "chat"),
            KeyValue::new(attr::GEN_AI_PROVIDER, target.family.to_string()),
            KeyValue::new(attr::GEN_AI_REQUEST_MODEL, target.model.to_string()),
            KeyValue::new(relight::ATTEMPT_NUMBER, i64::from(start.attempt)),
            KeyValue::new(relight::TARGET, target.id.to_string()),
        ];
        if start.stream {
            attributes.push(KeyValue::new(attr::GEN_AI_REQUEST_STREAM, true));
        }
        if let Some(thread) = start.thread {
            attributes.push(KeyValue::new(attr::GEN_AI_CONVERSATION, thread.to_string()));
        }
        if let Some(limit) = start.call.max_output_tokens {
            attributes.push(KeyValue::new(
                attr::GEN_AI_REQUEST_MAX_TOKENS,
                i64::from(limit),
            ));
        }
        if let Some(temperature) = start.call.sampling.temperature {
            attributes.push(KeyValue::new(attr::GEN_AI_REQUEST_TEMPERATURE, temperature));
        }
        if let Some(top_p) = start.call.sampling.top_p {
            attributes.push(KeyValue::new(attr::GEN_AI_REQUEST_TOP_P, top_p));
        }
        attributes.extend(server_attributes(&target.endpoint));
        if parent.captures_content() {
            attributes.push(KeyValue::new(
                attr::GEN_AI_INPUT_MESSAGES,
                content::input_messages(&start.call.messages),
            ));
        }
        SpanBuilder::from_name(format!("chat {}", target.model))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes)
    });
    let answer = node.captures_content().then(Mutex::default);
    ChatSpan {
        guard: SpanGuard::new(node, CANCELLED),
        answer,
    }
}

pub(super) fn open_tool(parent: &SpanNode, start: ToolStart<'_>) -> ChatSpan {
    let ToolStart {
        server,
        tool,
        attempt,
    } = start;
    let node = parent.open_child(|| {
        let mut attributes = vec![
            KeyValue::new(attr::OPENINFERENCE_KIND, "TOOL"),
            KeyValue::new(attr::GEN_AI_OPERATION, "execute_tool"),
            KeyValue::new(attr::GEN_AI_TOOL_NAME, tool.to_owned()),
            KeyValue::new(relight::ATTEMPT_NUMBER, i64::from(attempt)),
            KeyValue::new(relight::TARGET, server.id.to_string()),
        ];
        if &*server.family == "mcp" {
            attributes.push(KeyValue::new(attr::MCP_METHOD, "tools/call"));
        }
        attributes.extend(server_attributes(&server.endpoint));
        let name = format!("execute_tool {tool}");
        SpanBuilder::from_name(name)
            .with_kind(SpanKind::Client)
            .with_attributes(attributes)
    });
    ChatSpan {
        guard: SpanGuard::new(node, CANCELLED),
        answer: None,
    }
}

// === impl ChatSpan ===

impl ChatSpan {
    /// Takes from a delta the data that the span holds: the model that responds, the cost, the
    /// reason why it ended, and if content is captured the text.
    pub fn read(&self, delta: &Delta) {
        if let Some(answer) = &self.answer {
            answer.lock().add(delta);
        }
        match delta {
            Delta::Start {
                model,
                response_id,
                headers: _,
            } => {
                self.guard.node.set(|| {
                    let model = model
                        .clone()
                        .map(|model| KeyValue::new(attr::GEN_AI_RESPONSE_MODEL, model));
                    let id = response_id
                        .clone()
                        .map(|id| KeyValue::new(attr::GEN_AI_RESPONSE_ID, id));
                    model.into_iter().chain(id)
                });
            }
            Delta::Usage(usage) => self.guard.node.set(|| usage_attributes(*usage)),
            Delta::ReadOn(cut) => {
                self.guard.node.event(relight::READ_ON, || {
                    vec![KeyValue::new(relight::READ_ON_REASON, cut.words())]
                });
            }
            Delta::Finish { reason, raw: _ } => {
                self.guard.node.set(|| {
                    let reasons = vec![StringValue::from(reason.as_str())];
                    [KeyValue::new(
                        attr::GEN_AI_FINISH_REASONS,
                        Value::Array(Array::String(reasons)),
                    )]
                });
            }
            Delta::BlockStart { .. }
            | Delta::BlockDelta { .. }
            | Delta::BlockStop { .. }
            | Delta::Around(_)
            | Delta::ToolReply(_) => {}
        }
    }

    /// Records the time that the first piece of the completion took.
    pub fn first_chunk(&self, after: Duration) {
        self.guard
            .node
            .set(|| [KeyValue::new(attr::GEN_AI_FIRST_CHUNK, after.as_secs_f64())]);
    }

    /// Opens the span of the HTTP request; `resend` is how many attempts of the invocation were
    /// sent before it.
    #[must_use]
    pub fn http(&self, method: &'static str, url: &str, resend: u32) -> HttpSpan {
        let node = self.guard.node.open_child(|| {
            let mut attributes = vec![
                KeyValue::new(attr::HTTP_METHOD, method),
                KeyValue::new(attr::URL_FULL, redacted_url(url)),
            ];
            attributes.extend(server_attributes(url));
            if resend > 0 {
                attributes.push(KeyValue::new(attr::HTTP_RESEND_COUNT, i64::from(resend)));
            }
            SpanBuilder::from_name(method)
                .with_kind(SpanKind::Client)
                .with_attributes(attributes)
        });
        HttpSpan {
            guard: SpanGuard::new(node, CANCELLED),
        }
    }

    /// Returns this span as W3C context, for the provider.
    #[must_use]
    pub fn outgoing(&self) -> TraceContext {
        self.guard.node.outgoing()
    }

    /// Puts the completion on the span, if content is captured.
    fn set_answer(&self) {
        if let Some(answer) = &self.answer {
            let messages = answer.lock().output_messages();
            self.guard
                .node
                .set(|| [KeyValue::new(attr::GEN_AI_OUTPUT_MESSAGES, messages)]);
        }
    }

    /// Ends the span of a call that succeeded.
    pub fn finish_ok(self) {
        self.set_answer();
        self.guard.end();
    }

    /// Ends the span of a call that failed.
    pub fn finish_failed(self, failure: &Failure) {
        self.set_answer();
        self.guard.node.fail(failure);
        self.guard.end();
    }
}

// === impl HttpSpan ===

impl HttpSpan {
    /// Returns this span as W3C context, for the provider.
    #[must_use]
    pub fn outgoing(&self) -> TraceContext {
        self.guard.node.outgoing()
    }

    /// Records the destination of the request.
    pub fn sent_to(&self, url: &str) {
        self.guard
            .node
            .set(|| [KeyValue::new(attr::URL_FULL, redacted_url(url))]);
    }

    /// Ends the span of a request that got a response with this status; 400 and more is an error of
    /// a client.
    pub fn finish(self, status: u16) {
        let node = &self.guard.node;
        node.set(|| [KeyValue::new(attr::HTTP_STATUS, i64::from(status))]);
        if status >= 400 {
            node.error(&status.to_string(), String::new);
        }
        self.guard.end();
    }

    /// Ends the span of a request that failed: with its status if there was one, else with the
    /// class.
    pub fn finish_failed(self, failure: &Failure) {
        let status = failure.status;
        if let Some(refused) = status.filter(|&status| status >= 400) {
            return self.finish(refused);
        }
        self.guard
            .node
            .set(|| status.map(|status| KeyValue::new(attr::HTTP_STATUS, i64::from(status))));
        self.guard.node.fail(failure);
        self.guard.end();
    }
}

fn usage_attributes(usage: Usage) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new(attr::GEN_AI_INPUT_TOKENS, count(usage.input_tokens)),
        KeyValue::new(attr::GEN_AI_OUTPUT_TOKENS, count(usage.output_tokens)),
    ];
    for (name, tokens) in [
        (attr::GEN_AI_CACHE_READ_TOKENS, usage.cached_input_tokens),
        (attr::GEN_AI_CACHE_WRITE_TOKENS, usage.cache_write_tokens),
        (attr::GEN_AI_REASONING_TOKENS, usage.reasoning_tokens),
    ] {
        if let Some(tokens) = tokens.filter(|tokens| *tokens > 0) {
            attributes.push(KeyValue::new(name, count(tokens)));
        }
    }
    attributes
}

fn server_attributes(url: &str) -> Vec<KeyValue> {
    let Ok(uri) = url.parse::<Uri>() else {
        return Vec::new();
    };
    let Some(host) = uri.host() else {
        return Vec::new();
    };
    let port = uri.port_u16().or(match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    });
    let mut attributes = vec![KeyValue::new(attr::SERVER_ADDRESS, host.to_owned())];
    attributes.extend(port.map(|port| KeyValue::new(attr::SERVER_PORT, i64::from(port))));
    attributes
}

/// Returns the URL without user, password, and values of its query: keys travel in all three.
pub(super) fn redacted_url(url: &str) -> String {
    let Ok(uri) = url.parse::<Uri>() else {
        return "REDACTED".to_owned();
    };
    let host = uri.host().unwrap_or_default();
    let port = uri
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let scheme = uri
        .scheme_str()
        .map(|scheme| format!("{scheme}://"))
        .unwrap_or_default();
    let query = uri.query().map(redacted_query).unwrap_or_default();
    format!("{scheme}{host}{port}{}{query}", uri.path())
}

fn redacted_query(query: &str) -> String {
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| {
            pair.split_once('=').map_or_else(
                || "REDACTED".to_owned(),
                |(key, _)| format!("{key}=REDACTED"),
            )
        })
        .collect();
    format!("?{}", pairs.join("&"))
}
