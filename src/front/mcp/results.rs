//! The result of a call as MCP has it: what the tool's server sent, word for word, with Relight's
//! own account in `_meta`; after a failure, its explanation as the last piece of the content.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue, value::to_raw_value};

use super::{
    listing::{self, SERVER_INFO},
    revision::Revision,
};
use crate::{
    domain::{
        failure::Failure,
        invocation::{Outcome, RecoveryStrategy},
        message::{Media, MediaSource},
        tool::{Coverage, RawMembers, ToolContent, ToolReply},
    },
    policy::{schema, tool_recovery::told},
};

/// Bytes of a response beside the members of its result, for most.
const ROOM_BESIDE: usize = 256;

/// Returns a JSON value as text.
fn raw(value: impl Serialize) -> Box<RawValue> {
    to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A response to a call.
#[derive(Serialize)]
struct CallMessage<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: RawMembers,
}

/// Returns the response to a call with its result, written once: a result may be long.
pub(super) fn response(
    id: &Value,
    outcome: &Outcome,
    schema: Option<&Value>,
    revision: Revision,
) -> String {
    let result = result(outcome, schema, revision);
    let length = result
        .values()
        .map(|member| member.get().len())
        .sum::<usize>();
    let mut written = Vec::with_capacity(length + ROOM_BESIDE);
    let message = CallMessage {
        jsonrpc: "2.0",
        id,
        result,
    };
    // A vector takes whatever is written, and JSON is text.
    let _ = serde_json::to_writer(&mut written, &message);
    String::from_utf8(written).unwrap_or_default()
}

/// Returns the members of the result of a call, as a revision has it: what the tool returned, or why it
/// did not. `schema`: that of its results, as it was listed for the caller.
fn result(outcome: &Outcome, schema: Option<&Value>, revision: Revision) -> RawMembers {
    let mut about = about(outcome);
    let mut members = match &outcome.result {
        Ok(completion) => {
            about.insert("relight/reasoning".to_owned(), json!(outcome.reasoning));
            let output = completion.tool_output.as_deref();
            let mut members = match output {
                Some(output) => members(&output.reply),
                None => members(&ToolReply::default()),
            };
            if let Some(missing) = output.and_then(|output| incomplete(output.coverage.as_ref()?)) {
                put_content(&mut members, |content| content.insert(0, missing));
            }
            members
        }
        Err(failure) => failed(failure, outcome, schema, &mut about),
    };
    put_own(&mut members, &mut about, revision);
    put_meta(&mut members, about);
    members
}

/// Returns Relight's statements about a call.
fn about(outcome: &Outcome) -> Map<String, Value> {
    let strategies = match &outcome.recovery_applied[..] {
        [] => &[RecoveryStrategy::None],
        applied => applied,
    };
    let strategies = strategies.iter().map(|strategy| strategy.as_str());
    let about = [
        ("relight/invocation", json!(outcome.invocation.as_str())),
        ("relight/attempts", json!(outcome.attempts.len())),
        (
            "relight/recovery_applied",
            strategies.collect::<Vec<_>>().into(),
        ),
    ];
    about
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the members of a call that failed: what the tool returned as its error, then the
/// explanation.
fn failed(
    failure: &Failure,
    outcome: &Outcome,
    schema: Option<&Value>,
    about: &mut Map<String, Value>,
) -> RawMembers {
    let mut members = match &failure.tool.reply {
        Some(reply) => members(reply),
        None => members(&said(failure)),
    };
    members.insert("isError".to_owned(), raw(true));
    // Clients refuse a result that does not fit the schema, and would hide the error.
    if let Some(structured) = members.get("structuredContent")
        && let Some(schema) = schema
    {
        let value: Value = serde_json::from_str(structured.get()).unwrap_or_default();
        if schema::check(schema, &value).is_err() {
            members.remove("structuredContent");
            about.insert("relight/structuredContent".to_owned(), value);
        }
    }
    let explanation = json!({
        "type": "text",
        "text": told::explanation(failure, outcome),
        "_meta": { "relight/explanation": true },
    });
    put_content(&mut members, |content| content.push(raw(explanation)));
    members
}

/// Returns the known facts of a failure after which the tool returned nothing.
fn said(failure: &Failure) -> ToolReply {
    match told::own_words(failure) {
        words if words.is_empty() => ToolReply::default(),
        words => ToolReply::of_text(words),
    }
}

/// Returns the members of a result: those that an MCP server sent, else the same in the forms of
/// MCP.
fn members(reply: &ToolReply) -> RawMembers {
    if let Some(sent) = reply.sent_members() {
        return sent;
    }
    let content: Vec<Value> = reply.content.iter().map(piece).collect();
    let mut members = RawMembers::from([("content".to_owned(), raw(content))]);
    let structured = reply.structured.as_deref().map(serde_json::from_str);
    // Clients of older versions take objects alone.
    if let Some(Ok(structured @ Value::Object(_))) = structured {
        members.insert("structuredContent".to_owned(), raw(structured));
    }
    members
}

/// Puts what the protocol says of one connection in place of what the tool's server said of its own.
fn put_own(members: &mut RawMembers, about: &mut Map<String, Value>, revision: Revision) {
    members.remove("resultType");
    if revision == Revision::Modern {
        members.insert("resultType".to_owned(), raw("complete"));
        about.insert(SERVER_INFO.to_owned(), listing::own_info());
    }
}

/// Adds to the `_meta` that a server sent.
fn put_meta(members: &mut RawMembers, about: Map<String, Value>) {
    let sent = members.get("_meta").map(|meta| meta.get());
    let mut meta: RawMembers = sent
        .and_then(|meta| serde_json::from_str(meta).ok())
        .unwrap_or_default();
    meta.remove(SERVER_INFO);
    meta.extend(about.into_iter().map(|(name, value)| (name, raw(value))));
    members.insert("_meta".to_owned(), raw(meta));
}

/// Adds to the content that a server sent.
fn put_content(members: &mut RawMembers, add: impl FnOnce(&mut Vec<Box<RawValue>>)) {
    let sent = members.get("content").map(|content| content.get());
    let mut content = sent
        .and_then(|content| serde_json::from_str(content).ok())
        .unwrap_or_default();
    add(&mut content);
    members.insert("content".to_owned(), raw(content));
}

/// Returns the statement that comes first in a result that is not all that was requested.
fn incomplete(coverage: &Coverage) -> Option<Box<RawValue>> {
    let missing = coverage.missing.join(", ");
    let text = format!(
        "Incomplete: {} of {} parts; missing: {missing}.",
        coverage.done, coverage.total
    );
    (!coverage.missing.is_empty()).then(|| raw(json!({ "type": "text", "text": text })))
}

fn piece(content: &ToolContent) -> Value {
    match content {
        ToolContent::Text(text) => json!({ "type": "text", "text": text }),
        ToolContent::Image(media) => of_media("image", media),
        ToolContent::File(media) if media.mime_type.starts_with("audio/") => {
            of_media("audio", media)
        }
        ToolContent::File(media) => resource(media),
        ToolContent::Other(json) => serde_json::from_str(json).unwrap_or_default(),
    }
}

fn of_media(kind: &str, media: &Media) -> Value {
    match &media.source {
        MediaSource::Bytes(bytes) => {
            json!({ "type": kind, "data": BASE64.encode(bytes), "mimeType": media.mime_type })
        }
        MediaSource::Url(_) => resource(media),
    }
}

fn resource(media: &Media) -> Value {
    let name = media.name.as_deref().unwrap_or("file");
    match &media.source {
        MediaSource::Bytes(bytes) => json!({ "type": "resource", "resource": {
            "uri": format!("file:///{name}"), "mimeType": media.mime_type, "blob": BASE64.encode(bytes),
        } }),
        MediaSource::Url(url) => {
            json!({ "type": "resource_link", "uri": url, "name": name, "mimeType": media.mime_type })
        }
    }
}
