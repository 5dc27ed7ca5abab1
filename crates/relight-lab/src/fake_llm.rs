//! A model provider that fails on demand, in five dialects at one address.
//!
//! It plays a script: one turn per request, then a last turn for all others. The path of a request
//! tells its dialect, and the request whether it streams. A model's text is a row of numbered
//! words, so that whoever reads it sees a duplicate, a gap and a seam; a request whose
//! conversation holds the beginning of the text already is answered with its rest.

use std::{
    collections::{HashSet, VecDeque},
    io,
    net::SocketAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    domain::target::Dialect,
    wire_server::{Reply, Request, WireServer, answers},
};

/// Path of the script of a running server: `PUT` replaces it, `GET` returns what was asked since.
const CONTROL: &str = "/fake/script";

/// Name of the tool that is called.
pub const TOOL: &str = "get_weather";

/// Arguments of the call of [`TOOL`].
pub const ARGUMENTS: &str =
    r#"{"city":"Oslo","unit":"celsius","days":[1,2,3],"note":"a ∑ of \"all\""}"#;

/// One turn of the script.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, default)]
pub struct FakeTurn {
    /// Answer of the provider.
    pub answer: FakeAnswer,
    /// Fault on its way.
    pub fault: FakeFault,
    /// Pause before each piece of the body, in milliseconds.
    pub pace_ms: u64,
}

/// Answer of the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FakeAnswer {
    /// The whole text.
    #[default]
    Text,
    /// Another text, as a model that is asked once more returns another one.
    OtherText,
    /// A call of a tool.
    ToolCall,
    /// The text up to its output limit (chat completions only).
    Length,
    /// A text that a filter ended (chat completions only).
    Filtered,
    /// The text with comments, fields in another order and other line ends (chat completions only).
    OddFraming,
    /// The provider's rate limit, for a second if it states a time.
    RateLimited,
    /// Half of the text, then the provider's own error inside the stream.
    OverloadedAmid,
    /// The provider does not take the request.
    Unfit,
    /// A refusal of this status, with the text of an error.
    Refused {
        /// Its status.
        status: u16,
        /// Its `code`.
        #[serde(default)]
        code: String,
        /// Its `retry-after`, in seconds.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// This body with this status, whatever was asked.
    Body {
        /// Its status.
        status: u16,
        /// Its content type.
        content_type: String,
        /// Its bytes.
        body: String,
    },
}

/// Fault of an answer on its way. Shares are of the bytes of the body, from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FakeFault {
    /// Nothing.
    #[default]
    None,
    /// The connection is closed within the body.
    CutAt(f64),
    /// The connection is reset within the body.
    ResetAt(f64),
    /// The body ends early, and cleanly.
    EndAt(f64),
    /// Nothing more comes.
    StallAt(f64),
    /// The closing mark of the stream is missing, and the connection is closed.
    CutBeforeDone,
    /// Bytes that are not JSON stand in place of an event.
    MalformedAt(f64),
    /// The body comes in pieces of that many bytes.
    Pieces(usize),
    /// The connection is reset before a response.
    Reset,
    /// The connection is closed before a response.
    Close,
    /// No response ever comes.
    Silence,
}

/// The turns of a provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeScript {
    /// One per request, in order.
    pub turns: VecDeque<FakeTurn>,
    /// For every request after them.
    pub then: FakeTurn,
}

/// Requests since the script was set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FakeRecord {
    /// Requests for a completion.
    pub attempts: usize,
    /// Words that were generated for them, as many tokens are paid.
    pub tokens: usize,
}

/// A running provider; stops when it is dropped.
pub struct FakeLlm {
    server: WireServer,
    state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
struct FakeState {
    script: FakeScript,
    record: FakeRecord,
}

// === impl FakeLlm ===

impl FakeLlm {
    /// Starts a provider at this address; port 0 takes a free one.
    ///
    /// # Errors
    /// Returns an error if the address is taken.
    pub async fn start(address: SocketAddr) -> io::Result<Self> {
        let server = WireServer::start_on(address).await?;
        let state = Arc::<Mutex<FakeState>>::default();
        let shared = Arc::clone(&state);
        server.otherwise(move |request| shared.lock().reply(request));
        Ok(Self { server, state })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Plays this script from now on, and counts anew.
    pub fn play(&self, script: FakeScript) {
        *self.state.lock() = FakeState::playing(script);
    }

    /// Returns what was asked since the script was set.
    #[must_use]
    pub fn record(&self) -> FakeRecord {
        self.state.lock().record
    }

    /// Returns the number of requests whose client left before its reply was over.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        let requests = self.server.requests();
        requests
            .iter()
            .filter(|request| request.cancelled_at.is_some())
            .count()
    }
}

// === impl FakeState ===

impl FakeState {
    fn playing(script: FakeScript) -> Self {
        Self {
            script,
            record: FakeRecord::default(),
        }
    }

    fn reply(&mut self, request: &Request) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        if path == CONTROL {
            return self.control(request);
        }
        if request.method != "POST" {
            return Reply::document(
                &json!({"object": "list", "data": [{"id": "fake", "object": "model"}]}),
            );
        }
        let Some(dialect) = dialect_of(path) else {
            return Reply::status(404);
        };
        let next = self.script.turns.pop_front();
        let turn = next.unwrap_or_else(|| self.script.then.clone());
        let reply = turn.reply(dialect, request);
        self.record.attempts += 1;
        self.record.tokens += generated(&reply.body_bytes());
        reply
    }

    fn control(&mut self, request: &Request) -> Reply {
        if request.method == "PUT" {
            match serde_json::from_value(request.body.clone()) {
                Ok(script) => *self = Self::playing(script),
                Err(fault) => {
                    return Reply::refusal(
                        400,
                        &[],
                        &json!({"error": {"message": fault.to_string()}}),
                    );
                }
            }
        }
        Reply::document(&json!(self.record))
    }
}

// === impl FakeTurn ===

impl FakeTurn {
    fn reply(&self, dialect: Dialect, request: &Request) -> Reply {
        let pause = std::time::Duration::from_millis(self.pace_ms);
        let reply = self.answer.reply(dialect, request);
        let reply = if pause.is_zero() {
            reply
        } else {
            reply.paced(pause)
        };
        self.fault.change(reply)
    }
}

// === impl FakeAnswer ===

impl FakeAnswer {
    fn reply(&self, dialect: Dialect, request: &Request) -> Reply {
        let table = answers::of(dialect);
        match self {
            Self::RateLimited => (table.rate_limited)(),
            Self::Unfit => (table.unfit)(),
            Self::Refused {
                status,
                code,
                retry_after,
            } => refused(*status, code, *retry_after),
            Self::Body {
                status,
                content_type,
                body,
            } => Reply::body(*status, &[("content-type", content_type)], body.as_bytes()),
            _ if !streams(request) => self.document(dialect, request),
            Self::ToolCall => (table.tool_call)(TOOL, ARGUMENTS),
            Self::OverloadedAmid => (table.overloaded_amid)(half(&rest_for(&text(), request))),
            Self::OtherText => (table.text)(&rest_for(&other_text(), request)),
            Self::Length => finished(half(&text()), "length"),
            Self::Filtered => finished(half(&text()), "content_filter"),
            Self::OddFraming => oddly_framed(&rest_for(&text(), request)),
            Self::Text => (table.text)(&rest_for(&text(), request)),
        }
    }

    /// Returns the answer to a request that does not stream.
    fn document(&self, dialect: Dialect, request: &Request) -> Reply {
        let document = answers::of(dialect).document;
        Reply::document(&match self {
            Self::OverloadedAmid => return Reply::status(503),
            Self::ToolCall => document("", "tool_calls", Some((TOOL, ARGUMENTS))),
            Self::OtherText => document(&rest_for(&other_text(), request), "stop", None),
            Self::Length => document(half(&text()), "length", None),
            Self::Filtered => document(half(&text()), "content_filter", None),
            _ => document(&rest_for(&text(), request), "stop", None),
        })
    }
}

// === impl FakeFault ===

impl FakeFault {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of the length of a body is a number of its bytes"
    )]
    fn change(&self, reply: Reply) -> Reply {
        let body = reply.body_bytes();
        let bytes = |share: &f64| (body.len() as f64 * share.clamp(0.0, 1.0)) as usize;
        match self {
            Self::None => reply,
            Self::CutAt(share) => reply.cut_after(bytes(share)),
            Self::ResetAt(share) => reply.reset_after(bytes(share)),
            Self::EndAt(share) => reply.ended_after(bytes(share)),
            Self::StallAt(share) => reply.stall_after(bytes(share)),
            Self::CutBeforeDone => {
                reply.cut_after(body.len().saturating_sub("data: [DONE]\n\n".len()))
            }
            Self::MalformedAt(share) => malformed(&body, bytes(share)),
            Self::Pieces(size) => reply.in_pieces_of((*size).max(1)),
            Self::Reset => Reply::reset(),
            Self::Close => Reply::raw(b""),
            Self::Silence => Reply::silence(),
        }
    }
}

/// Returns the text of a model: numbered words.
#[must_use]
pub fn text() -> String {
    numbered("word")
}

/// Returns the text of a model that is asked once more and says something else.
#[must_use]
pub fn other_text() -> String {
    numbered("other")
}

/// Returns the text as far as it goes if its output limit or a filter ends it.
#[must_use]
pub fn half(text: &str) -> &str {
    let middle = text.len() / 2;
    text.split_at(text[..middle].rfind(' ').map_or(middle, |space| space + 1))
        .0
}

fn numbered(word: &str) -> String {
    let words: Vec<String> = (1..=24)
        .map(|number| format!("{word}-{number:02}"))
        .collect();
    words.join(" ")
}

/// Counts the words that a body holds; some dialects repeat the whole text at its end.
fn generated(body: &[u8]) -> usize {
    let body = String::from_utf8_lossy(body);
    let words = ["word-", "other-"]
        .map(|word| body.split(word).skip(1).map(|rest| rest.get(..2)).collect());
    words.iter().map(HashSet::<Option<&str>>::len).sum()
}

fn dialect_of(path: &str) -> Option<Dialect> {
    if path.ends_with("/chat/completions") {
        Some(Dialect::OpenaiChat)
    } else if path.ends_with("/responses") {
        Some(Dialect::OpenaiResponses)
    } else if path.ends_with("/messages") {
        Some(Dialect::Anthropic)
    } else if path.contains("enerateContent") {
        Some(Dialect::Gemini)
    } else if path.contains("/converse") {
        Some(Dialect::Bedrock)
    } else {
        None
    }
}

fn streams(request: &Request) -> bool {
    let by_path = ["streamGenerateContent", "converse-stream"];
    request.body["stream"] == true || by_path.iter().any(|name| request.path.contains(name))
}

/// Returns what of a text is left to be generated, after what the conversation holds of it already.
fn rest_for(text: &str, request: &Request) -> String {
    let body = &request.body;
    let messages = ["messages", "contents", "input"]
        .iter()
        .find_map(|field| body[*field].as_array());
    let own = |message: &&Value| message["role"] == "assistant" || message["role"] == "model";
    let last = messages.and_then(|messages| messages.iter().rfind(own));
    let held = last.map(text_of).unwrap_or_default();
    let rest = text.strip_prefix(held.trim_end()).unwrap_or(text);
    // A text that was trimmed is continued with the space between two words.
    let rest = if held.ends_with(' ') {
        rest.trim_start()
    } else {
        rest
    };
    rest.to_owned()
}

fn text_of(message: &Value) -> String {
    let content = if message["parts"].is_null() {
        &message["content"]
    } else {
        &message["parts"]
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn refused(status: u16, code: &str, retry_after: Option<u32>) -> Reply {
    let error = json!({"message": format!("the provider refuses: {code}"), "type": code, "param": null, "code": code});
    let seconds = retry_after.map(|seconds| seconds.to_string());
    let headers: Vec<(&str, &str)> = seconds
        .iter()
        .map(|value| ("retry-after", value.as_str()))
        .collect();
    Reply::refusal(status, &headers, &json!({ "error": error }))
}

fn finished(text: &str, reason: &str) -> Reply {
    let words = text.split_inclusive(' ');
    let mut events: Vec<String> = words
        .map(|word| answers::openai::chunk(&json!({"content": word}), None))
        .collect();
    events.push(answers::openai::chunk(&json!({}), Some(reason)));
    events.push(answers::openai::usage_chunk(
        10,
        text.split_whitespace().count(),
    ));
    events.push("[DONE]".to_owned());
    Reply::events(&events)
}

fn oddly_framed(text: &str) -> Reply {
    let mut body = String::from(": keep-alive\r\n\r\n");
    for word in text.split_inclusive(' ') {
        let chunk = answers::openai::chunk(&json!({"content": word}), None);
        body.extend(["id: 7\r\ndata:", &chunk, "\r\n\r\n: ping\r\n\r\n"]);
    }
    let last = answers::openai::chunk(&json!({}), Some("stop"));
    body.extend(["data:", &last, "\r\n\r\ndata: [DONE]\r\n\r\n"]);
    Reply::stream(vec![(std::time::Duration::ZERO, body.into_bytes())]).in_pieces_of(7)
}

/// Puts what is no JSON in place of an event, at the end of a line at that place or after it.
fn malformed(body: &[u8], at: usize) -> Reply {
    let rest = &body[at..];
    let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") else {
        return Reply::body(200, &[("content-type", "application/json")], &body[..at]);
    };
    let event = b"data: {\"choices\": [{\"delta\": {\"conte\n\n";
    let bytes = [&body[..at + end + 2], event, &rest[end + 2..]].concat();
    Reply::stream(vec![(std::time::Duration::ZERO, bytes)])
}
