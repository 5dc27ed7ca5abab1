//! Parses the events of a response into deltas; a complete document is parsed like the response in
//! its last event.
//!
//! Events are numbered, if the server numbers them, and none may be missing or come twice. Each
//! item comes again, complete, when it is done: that fills in what was not streamed, and it alone
//! holds the encrypted reasoning. Items that the neutral answer has no word for (those of built-in
//! tools) are kept as they came; unknown events are ignored.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    attach::Hold,
    finish,
    item_fields::{Content, list, text_of},
    numbers::EventNumbers,
    output::ResponseOutput,
};
use crate::{
    domain::{
        completion::{BlockKind, Break, Delta, FinishReason},
        failure::ProviderError,
        message::Opaque,
        own_fields, stop_reason,
        target::Dialect,
    },
    {
        http::ProviderResponse,
        reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
        sse::SseEvent,
    },
};

/// Fields of a response that are read here, that repeat the request in the words of who called the
/// provider, or that concern the provider's own store.
const RESPONSE_FIELDS: [&str; 26] = [
    "background",
    "conversation",
    "created_at",
    "error",
    "id",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "object",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "status",
    "store",
    "text.format",
    "tool_choice",
    "tools",
    "truncation",
    "usage.input_tokens",
    "usage.input_tokens_details.cached_tokens",
    "usage.output_tokens",
    "usage.output_tokens_details.reasoning_tokens",
    "usage.total_tokens",
    "user",
];

/// The parser of one response.
#[derive(Debug)]
pub(super) struct ResponseReader {
    headers: Vec<(String, String)>,
    started: bool,
    numbers: EventNumbers,
    output: ResponseOutput,
    /// Of a response that is made in the background.
    register: Option<Hold>,
}

// === impl ResponseReader ===

impl ResponseReader {
    /// Parses a response with these headers; with `register`, one that is generated in the
    /// background.
    pub(super) fn new(headers: Vec<(String, String)>, register: Option<Hold>) -> Self {
        Self {
            headers,
            started: false,
            numbers: EventNumbers::default(),
            output: ResponseOutput::default(),
            register,
        }
    }

    fn start(&mut self, response: Option<&Value>, out: &mut Vec<Delta>) {
        if !std::mem::replace(&mut self.started, true) {
            let text = |name: &str| {
                response
                    .and_then(|it| it.get(name))
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            let headers = std::mem::take(&mut self.headers);
            out.push(Delta::Start {
                model: text("model"),
                response_id: text("id"),
                headers,
            });
        }
    }

    /// Takes a piece of the output, or what is said of it again.
    fn piece(&mut self, kind: &str, event: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        let index = number("output_index");
        let place = (index, number("content_index"));
        let summary = (true, number("summary_index"));
        let thought = (false, number("content_index"));
        let part = |name: &str| event.get(name).unwrap_or(&Value::Null);
        let text = |name: &str| event.get(name).and_then(Value::as_str);
        let delta = || text("delta").ok_or_else(|| ParseError::Cut(format!("a {kind} is empty")));
        if event.get("output_index").is_some() || kind.rsplit('.').next() == Some("delta") {
            self.start(None, out);
        }
        let output = &mut self.output;
        let again = match kind {
            "response.output_item.added" => return output.added(index, part("item"), out),
            "response.output_item.done" => return output.done(index, part("item"), out),
            "response.output_text.delta" => {
                return output.text(place, BlockKind::Text, delta()?, out);
            }
            "response.refusal.delta" => {
                return output.text(place, BlockKind::Refusal, delta()?, out);
            }
            "response.reasoning_summary_text.delta" => {
                return output.thought(index, summary, delta()?, out);
            }
            "response.reasoning_text.delta" => {
                return output.thought(index, thought, delta()?, out);
            }
            "response.function_call_arguments.delta" => {
                return output.arguments(index, delta()?, out);
            }
            "response.custom_tool_call_input.delta" => {
                output.input(index, delta()?);
                return Ok(());
            }
            "response.content_part.done" => {
                return output.content_done(place, part("part"), out);
            }
            "response.output_text.annotation.added" => {
                output.annotation(place, part("annotation"));
                return Ok(());
            }
            "response.output_text.done" => Content::named(event, BlockKind::Text, "text"),
            "response.refusal.done" => Content::named(event, BlockKind::Refusal, "refusal"),
            _ => None,
        };
        match (kind, again, text("text")) {
            (_, Some(content), _) => output.text_again(place, content, out),
            ("response.reasoning_summary_text.done", _, Some(text)) => {
                output.thought_again(index, summary, text, out)
            }
            ("response.reasoning_text.done", _, Some(text)) => {
                output.thought_again(index, thought, text, out)
            }
            ("response.function_call_arguments.done", ..) => {
                text("arguments").map_or(Ok(()), |whole| output.arguments_again(index, whole, out))
            }
            ("response.custom_tool_call_input.done", ..) => {
                text("input").map_or(Ok(()), |whole| output.input_again(index, whole))
            }
            _ => Ok(()),
        }
    }

    /// Takes the end of a response that is whole, whatever it holds.
    fn seal(
        &mut self,
        response: &Value,
        reason: FinishReason,
        raw: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.start(Some(response), out);
        self.output.confirm(list(response, "output"), out)?;
        out.extend(finish::usage(response).map(Delta::Usage));
        out.extend(around(response).map(Delta::Around));
        self.output.seal(reason, raw, out)
    }

    /// Returns the error of a response that failed, without the response around it: that repeats
    /// the whole request.
    fn failed_response(&self, response: &Value) -> ParseError {
        let error = response.get("error").cloned().unwrap_or_default();
        let status = text_of(response, "status");
        if status == "cancelled" && self.register.as_ref().is_some_and(Hold::is_taken_over) {
            // The cancellation concerned that one response, and not this call.
            return ParseError::Cut("the answer that was being made was cancelled".to_owned());
        }
        let whole = if error.is_null() {
            json!({"error": {"code": status}})
        } else {
            json!({"error": error})
        };
        failed(&whole, &whole.to_string())
    }

    fn completed(&mut self, response: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        self.seal(response, FinishReason::Stop, "completed", out)
    }

    fn incomplete(&mut self, response: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let raw = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str)
            .unwrap_or("incomplete");
        // However the reason reads, the response says that it is not whole.
        let reason = stop_reason::read(Dialect::OpenaiResponses, raw)
            .filter(|reason| *reason != FinishReason::Stop)
            .unwrap_or(FinishReason::Other);
        self.seal(response, reason, raw, out)
    }
}

impl ResponseParser for ResponseReader {
    type Frames = SseFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        let value = match serde_json::from_str::<Value>(&event.data) {
            Ok(value) => value,
            Err(_) if event.name == "error" => {
                return Err(ParseError::Failed(Failed::new(None, &event.data)));
            }
            Err(_) if event.data.trim() == "[DONE]" => return Ok(ParseStep::More),
            Err(error) => return Err(ParseError::torn(self.started, &error)),
        };
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or(&event.name);
        let number = value.get("sequence_number").and_then(Value::as_u64);
        if self.register.as_ref().is_some_and(|it| it.was_read(number)) {
            return Ok(ParseStep::More);
        }
        let is_error = reports_error(kind, &event.name, &value);
        if !is_error {
            self.numbers.follow(number)?;
        }
        if let Some(register) = &mut self.register {
            register.follow(kind, &value)?;
        }
        let response = value.get("response").unwrap_or(&Value::Null);
        match kind {
            "response.failed" | "response.cancelled" => return Err(self.failed_response(response)),
            "response.created" | "response.in_progress" => {
                let is_first = !self.started;
                self.start(Some(response), out);
                out.extend(around(response).filter(|_| is_first).map(Delta::Around));
            }
            "response.completed" => {
                self.completed(response, out)?;
                return Ok(ParseStep::Complete);
            }
            "response.incomplete" => {
                self.incomplete(response, out)?;
                return Ok(ParseStep::Complete);
            }
            _ if is_error => return Err(failed(&value, &event.data)),
            _ => self.piece(kind, &value, out)?,
        }
        Ok(ParseStep::More)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let status = text_of(document, "status");
        if let Some(register) = self
            .register
            .as_mut()
            .filter(|_| !matches!(status, "queued" | "in_progress"))
        {
            register.ended();
        }
        match status {
            "completed" => self.completed(document, out),
            "incomplete" => self.incomplete(document, out),
            "failed" | "cancelled" => Err(self.failed_response(document)),
            _ if document.get("error").is_some_and(|error| !error.is_null()) => {
                Err(failed(document, &document.to_string()))
            }
            "queued" | "in_progress" => {
                // It is known only to be cancelled.
                if let Some(register) = &mut self.register {
                    register.note(document);
                }
                Err(ParseError::Unusable(
                    "the response continues in the background".to_owned(),
                ))
            }
            _ => Err(ParseError::NotUnderstood),
        }
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        if self.started {
            Err(ParseError::Cut(
                "the answer ended without a response.completed".to_owned(),
            ))
        } else {
            Err(ParseError::NotUnderstood)
        }
    }

    fn silence_limit(&self) -> Option<Duration> {
        // A response that waits in a queue, or reasons before its first token, is silent for good
        // reasons.
        self.register
            .as_ref()
            .filter(|_| !self.output.is_empty())
            .and_then(Hold::silence_limit)
    }

    async fn read_on(
        &mut self,
        cut: ProviderError,
    ) -> Result<(ProviderResponse, Break), ProviderError> {
        match &mut self.register {
            Some(register) => register.read_on(cut).await,
            None => Err(cut),
        }
    }
}

/// Returns the fields around the answer that only this dialect knows.
fn around(response: &Value) -> Option<Opaque> {
    let fields = own_fields::unread(&RESPONSE_FIELDS, response);
    own_fields::kept(Dialect::OpenaiResponses, fields)
}

/// Returns whether an event ends the response with an error, which it does whatever its number:
/// nothing that is missing before it would be delivered.
fn reports_error(kind: &str, name: &str, event: &Value) -> bool {
    match kind {
        "error" | "response.failed" | "response.cancelled" => true,
        "response.created"
        | "response.in_progress"
        | "response.completed"
        | "response.incomplete" => false,
        _ => name == "error" || event.get("error").is_some_and(Value::is_object),
    }
}

/// Returns an `error` event, flat or with the error inside.
fn failed(value: &Value, text: &str) -> ParseError {
    let error = value
        .get("error")
        .filter(|error| error.is_object())
        .unwrap_or(value);
    let stated = value
        .get("status")
        .and_then(Value::as_u64)
        .and_then(|status| u16::try_from(status).ok());
    let stated = stated.filter(|status| (400..600).contains(status));
    let named = || {
        [text_of(error, "code"), text_of(error, "type")]
            .into_iter()
            .find_map(finish::status)
    };
    ParseError::Failed(Failed::new(stated.or_else(named), text))
}
