//! Signs by which a tool reports that it failed in a result that is not marked as an error.
//!
//! Many tools were functions before they were tools: errors that they caught are in their result. Such
//! a result is a failure for the caller, for the recovery from it, and for the version of the
//! tool. Each reading holds only if the whole result says so; a result that is read so nevertheless and
//! is not a failure is still handed to the caller, as an error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    domain::{
        failure::TransportFault,
        tool::{ToolContent, ToolReply},
    },
    policy::schema::{self, SchemaFault},
};

/// Longest result that is read as words about a failure, in bytes; data are longer.
const MAX_OBJECT_BYTES: usize = 64 << 10;
/// Longest text that is read as an error, in bytes; a longer one is a document that starts so.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// Members of an object that hold its error in words, the first one that has any.
const ERRORS: [&str; 5] = [
    "error",
    "errors",
    "error_message",
    "errorMessage",
    "message",
];

/// Members that say more about a failure, and are not data.
const ABOUT: [&str; 18] = [
    "success",
    "ok",
    "status",
    "code",
    "status_code",
    "statusCode",
    "error_code",
    "errorCode",
    "type",
    "error_type",
    "detail",
    "details",
    "hint",
    "reason",
    "trace",
    "request_id",
    "requestId",
    "timestamp",
];

/// Signs by which a tool reports that it failed in a result that is not marked as an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a way of saying it, which a tool has or has not"
)]
pub struct FailureReading {
    /// An object that says so: `{"success": false, "error": "…"}` (or `ok`), or `{"status":
    /// "error"}`, `{"status": "failed", "message": "…"}` and `{"error": "…"}` if it holds nothing
    /// else; default true. It must be the whole result. To be switched off for a tool that returns such an object about
    /// something else, such as the outcome of a job.
    pub object: bool,
    /// A text that is one line, starts with `Error:` or the name of an error (`ValueError:`, `Error
    /// 500:`), and is the whole result; default true. To be switched off for a tool that returns
    /// the lines of a log.
    pub text: bool,
    /// A result without any content; default false: a tool may have nothing to say. To be switched
    /// on for a tool whose result is what it is called for. One that declares an `outputSchema` has
    /// to return something in any case, unless `output_schema` is switched off.
    pub empty: bool,
    /// A result that does not fit the `outputSchema` that the tool declares; default true. To be
    /// switched off for a tool that declares another one than it keeps to.
    pub output_schema: bool,
}

/// A failure that is read in a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedFailure {
    /// Description of the failure.
    pub words: String,
    /// Set if the tool said nothing of it and its result breaks its promise.
    pub fault: Option<TransportFault>,
}

// === impl FailureReading ===

impl Default for FailureReading {
    fn default() -> Self {
        Self {
            object: true,
            text: true,
            empty: false,
            output_schema: true,
        }
    }
}

impl FailureReading {
    /// Returns a result's statement about a failure, in its own words if it has some; `None` if it
    /// says nothing of one.
    #[must_use]
    pub fn read(self, reply: &ToolReply, output_schema: Option<&Value>) -> Option<ReportedFailure> {
        let only_text = match reply.content.as_slice() {
            [ToolContent::Text(text)] => Some(text.as_str()),
            _ => None,
        };
        let is_blank = |content: &ToolContent| matches!(content, ToolContent::Text(text) if text.trim().is_empty());
        let is_empty = reply.structured.is_none() && reply.content.iter().all(is_blank);
        if is_empty {
            let is_demanded = self.empty || (self.output_schema && output_schema.is_some());
            return is_demanded
                .then(|| ReportedFailure::unusable("the tool returned an empty result"));
        }
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
        // If there is no structured data, its text may be that data.
        let raw = reply
            .structured
            .as_deref()
            .or(only_text)
            .unwrap_or_default();
        if self.object
            && raw.len() <= MAX_OBJECT_BYTES
            && let Some(words) = object(raw).and_then(|object| of_object(&object))
        {
            return Some(ReportedFailure::said(words));
        }
        if self.text
            && reply.structured.is_none()
            && let Some(words) = only_text.and_then(of_text)
        {
            return Some(ReportedFailure::said(words));
        }
        let schema = output_schema.filter(|_| self.output_schema)?;
        misfit(schema, reply.structured.as_deref().or(only_text)).map(ReportedFailure::unusable)
    }
}

// === impl ReportedFailure ===

impl ReportedFailure {
    /// One in the tool's own words, which are judged like any other.
    fn said(words: String) -> Self {
        Self { words, fault: None }
    }

    /// A result that cannot be used, as is seen here.
    fn unusable(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            fault: Some(TransportFault::Protocol),
        }
    }
}

/// Returns the words of an object that says that something failed.
fn of_object(object: &Map<String, Value>) -> Option<String> {
    let flag = |value: bool| {
        ["success", "ok"]
            .iter()
            .any(|name| object.get(*name) == Some(&Value::Bool(value)))
    };
    if flag(true) {
        return None;
    }
    let error = ERRORS
        .iter()
        .find_map(|name| Some((*name, words(object.get(*name)?)?)));
    // An object with data of its own is about something else, unless it names its error.
    if flag(false) && matches!(error, Some((name, _)) if name != "message") {
        return error.map(|(_, words)| words);
    }
    if !object.iter().all(is_about_a_failure) {
        return None;
    }
    let status = object.get("status").and_then(Value::as_str);
    let status = status.map(str::to_ascii_lowercase);
    let has_failed = matches!(status.as_deref(), Some("error" | "failed" | "failure"));
    match error {
        Some((name, words)) => {
            let says_so =
                flag(false) || has_failed || (name.starts_with("error") && status.is_none());
            says_so.then_some(words)
        }
        None => (status.as_deref() == Some("error"))
            .then(|| "the tool failed: its result states an error and nothing else".to_owned()),
    }
}

/// Returns whether a member of an object says something of a failure, or nothing at all.
fn is_about_a_failure((name, value): (&String, &Value)) -> bool {
    let holds_nothing = match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    holds_nothing || ERRORS.contains(&name.as_str()) || ABOUT.contains(&name.as_str())
}

/// Returns the words of an error: a text, or those of an object or of the first of several.
fn words(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
        Value::Object(members) => ["message", "error", "detail", "reason", "description"]
            .iter()
            .find_map(|name| members.get(*name)?.as_str())
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned),
        Value::Array(errors) => errors
            .first()
            .filter(|first| !first.is_array())
            .and_then(words),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns a text that is an error and nothing else.
fn of_text(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > MAX_TEXT_BYTES || text.contains('\n') {
        return None;
    }
    let (name, rest) = text.split_once(':')?;
    if rest.trim().is_empty() {
        return None;
    }
    // `Error 500`, `HTTP Error`, `requests.exceptions.HTTPError`
    let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let names_error = |word: &str| {
        word.eq_ignore_ascii_case("error") || word.ends_with("Error") || word.ends_with("Exception")
    };
    let is_one_name = !name.contains(' ') && words.clone().next_back().is_some_and(names_error);
    let is_error = words
        .next()
        .is_some_and(|first| first.eq_ignore_ascii_case("error"))
        && words.all(is_number);
    (is_one_name || is_error).then(|| text.to_owned())
}

/// Returns the reason for which a result does not fit the schema that its tool declares.
fn misfit(schema: &Value, structured: Option<&str>) -> Option<String> {
    let Some(value) = structured.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return Some(
            "the result does not fit the tool's output schema: it holds no data".to_owned(),
        );
    };
    match schema::check(schema, &value) {
        Err(fault @ SchemaFault::Misfit(_)) => Some(format!(
            "the result does not fit the tool's output schema: {fault}"
        )),
        // What cannot be judged is believed.
        Ok(()) | Err(SchemaFault::Unreadable | SchemaFault::TooCostly) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(text: &str) -> ToolReply {
        ToolReply {
            content: vec![ToolContent::Text(text.to_owned())],
            ..ToolReply::default()
        }
    }

    fn data(value: &Value) -> ToolReply {
        ToolReply {
            structured: Some(value.to_string()),
            ..of(&value.to_string())
        }
    }

    fn read(reply: &ToolReply) -> Option<String> {
        let read = FailureReading::default().read(reply, None);
        read.map(|failure| failure.words)
    }

    #[test]
    fn an_object_that_says_so_is_a_failure_in_its_words() {
        for (value, words) in [
            (
                json!({"success": false, "result": null, "error": "Request timeout"}),
                "Request timeout",
            ),
            (
                json!({"success": false, "error": "x", "attempts": 3, "log": ["a"]}),
                "x",
            ),
            (
                json!({"ok": false, "error": "channel_not_found"}),
                "channel_not_found",
            ),
            (
                json!({"success": false, "message": "No such user", "code": 404}),
                "No such user",
            ),
            (
                json!({"success": false, "error": {"code": 7, "message": "deep"}}),
                "deep",
            ),
            (json!({"status": "error", "error": "boom"}), "boom"),
            (
                json!({"status": "Failed", "message": "boom", "data": null}),
                "boom",
            ),
            (
                json!({"status": "error", "errors": [{"message": "first"}, {"message": "second"}]}),
                "first",
            ),
            (
                json!({"error": "rate limit exceeded"}),
                "rate limit exceeded",
            ),
            (
                json!({"error": {"message": "denied"}, "request_id": "r-1"}),
                "denied",
            ),
        ] {
            for reply in [
                data(&value),
                of(&value.to_string()),
                of(&format!("\n{value:#}\n")),
            ] {
                assert_eq!(read(&reply).as_deref(), Some(words), "{value}");
            }
        }
    }

    #[test]
    fn a_status_of_an_error_and_nothing_else_is_a_failure() {
        for value in [
            json!({"status": "error"}),
            json!({"status": "ERROR", "code": 7, "data": null}),
        ] {
            assert!(read(&data(&value)).is_some(), "{value}");
        }
    }

    #[test]
    fn an_object_about_something_else_is_a_result() {
        for value in [
            json!({"success": true, "error": "none"}),
            json!({"success": false}),
            json!({"success": false, "error": ""}),
            json!({"success": false, "error": null}),
            json!({"success": false, "message": "2 of 7 tests failed", "tests": [{"name": "a"}]}),
            json!({"success": "false", "error": "a text is no truth value", "rows": [1]}),
            json!({"id": 7, "status": "failed", "error": "the job ran out of memory"}),
            json!({"status": "failed"}),
            json!({"status": "error", "device": "printer"}),
            json!({"status": "done", "message": "error"}),
            json!({"status": "ok", "error": "0 errors"}),
            json!({"error": null, "rows": [1]}),
            json!({"error": "a column of this name", "rows": [1]}),
            json!({"message": "hello"}),
            json!({"result": {"success": false, "error": "within"}}),
            json!([{"success": false, "error": "one of many"}]),
            json!("success"),
        ] {
            assert_eq!(read(&data(&value)), None, "{value}");
        }
    }

    #[test]
    fn a_line_that_is_an_error_and_nothing_else_is_a_failure() {
        for text in [
            "Error: 500 Internal Server Error",
            "error: connection refused",
            "ERROR: no such table",
            "Error 500: upstream failed",
            "Error (429): slow down",
            "ValueError: invalid literal",
            "requests.exceptions.HTTPError: 404 Client Error",
            "java.lang.NullPointerException: x",
        ] {
            assert_eq!(read(&of(text)).as_deref(), Some(text.trim()));
        }
        for text in [
            "Errors: none",
            "Error rate: 5 %",
            "Error:",
            "No error: all is well",
            "Terror: a film",
            "Note: Error: is a prefix",
            "Error: first line of a log\nINFO: second",
            "The tool failed with Error: x",
            "Errors",
            "",
        ] {
            assert_eq!(read(&of(text)), None, "{text}");
        }
        assert_eq!(
            read(&of(&format!("Error: {}", "long ".repeat(1_000)))),
            None
        );
        let two = ToolReply {
            content: vec![
                ToolContent::Text("Error: x".to_owned()),
                ToolContent::Text("y".to_owned()),
            ],
            ..ToolReply::default()
        };
        assert_eq!(read(&two), None, "it is not the whole result");
    }

    #[test]
    fn a_result_that_is_demanded_is_there_and_fits_its_schema() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let by_default = |reply: &ToolReply| FailureReading::default().read(reply, Some(&schema));
        assert_eq!(by_default(&data(&json!({"n": 5}))), None);
        assert_eq!(
            by_default(&of(r#"{"n": 5}"#)),
            None,
            "as older servers write it"
        );
        for wrong in [
            data(&json!({"n": "5"})),
            data(&json!({})),
            of("five"),
            of(" "),
            ToolReply::default(),
        ] {
            assert!(by_default(&wrong).is_some(), "{wrong:?}");
            let off = FailureReading {
                output_schema: false,
                ..FailureReading::default()
            };
            assert_eq!(off.read(&wrong, Some(&schema)), None, "{wrong:?}");
        }
        let unusable = json!({"type": "nonsense"});
        assert_eq!(
            FailureReading::default().read(&data(&json!({})), Some(&unusable)),
            None
        );
        assert_eq!(read(&ToolReply::default()), None, "it has nothing to say");
        let demanding = FailureReading {
            empty: true,
            ..FailureReading::default()
        };
        assert!(demanding.read(&of("\n"), None).is_some());
        assert_eq!(demanding.read(&of("fine"), None), None);
    }

    proptest! {
        #[test]
        fn what_is_switched_off_is_not_read(text in ".{0,40}", says in any::<bool>()) {
            let off = FailureReading { object: false, text: false, empty: false, output_schema: false };
            let reply = if says { data(&json!({"success": false, "error": text})) } else { of(&format!("Error: {text}")) };
            prop_assert_eq!(off.read(&reply, Some(&json!({"type": "array"}))), None);
        }

        #[test]
        fn the_words_are_those_of_the_tool(error in "[a-zA-Z]{1,40}", more in "[a-z]{1,8}") {
            let value = json!({"success": false, "error": error.clone(), more: 7});
            prop_assume!(value["success"] == false && value["error"] == error.as_str());
            prop_assert_eq!(read(&data(&value)), Some(error));
        }
    }
}
