//! What a line of a child's output is.

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::Value;

use super::{facts::RequestFacts, sent};

/// Most places in a line at which a message is looked for.
const MAX_STARTS: usize = 8;

/// Returns the message of a line, or at its end behind a text that was printed without an end of
/// its own; `facts_of` finds the facts of an open request.
pub(super) fn message_in(
    line: &str,
    facts_of: impl Fn(&RequestId) -> Option<RequestFacts>,
) -> Option<ServerJsonRpcMessage> {
    let message = |text: &str| sent::message(text.as_bytes(), &facts_of).ok();
    let whole = message(line);
    whole.or_else(|| {
        let starts = line.match_indices("{\"").take(MAX_STARTS);
        let mut ends = starts.map(|(at, _)| &line[at..]);
        ends.find_map(message)
    })
}

/// Returns the number of the request that a line responds to which is not a message of the
/// protocol.
pub(super) fn response_id(line: &str) -> Option<i64> {
    let response: Value = serde_json::from_str(line).ok()?;
    response.get("result").or_else(|| response.get("error"))?;
    match response.get("id")? {
        Value::String(text) => text.parse().ok(),
        id => id.as_i64(),
    }
}

/// Returns the beginning of a line up to what it responds; `None` if it asks or tells something.
fn before_result(head: &str) -> Option<&str> {
    let before = ["\"result\"", "\"error\""]
        .into_iter()
        .find_map(|key| head.split_once(key))
        .map_or(head, |(before, _)| before);
    (!before.contains("\"method\"")).then_some(before)
}

/// Returns whether a line of which only the beginning and the end are known may be a response.
pub(super) fn may_be_response(head: &str, tail: &str) -> bool {
    before_result(head).is_some()
        && [head, tail]
            .iter()
            .any(|piece| piece.contains("\"jsonrpc\""))
}

/// Returns the number of the request that a line responds to of which only the beginning and the
/// end are known.
pub(super) fn cut_response_id(head: &str, tail: &str) -> Option<i64> {
    let before_result = before_result(head)?;
    let of = |behind: &str| {
        let behind = behind.trim_start().strip_prefix(':')?.trim_start();
        let digits = behind.find(|c: char| !c.is_ascii_digit())?;
        behind[..digits].parse().ok()
    };
    let at_head = before_result
        .split_once("\"id\"")
        .and_then(|(_, behind)| of(behind));
    at_head.or_else(|| {
        tail.rsplit_once("\"id\"")
            .and_then(|(_, behind)| of(behind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_behind_a_text_without_an_end_of_its_own() {
        let message =
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"{\"a\":1}"}]}}"#;
        for before in ["", "progress 1/3", "{\"level\":\"info\"}", "  "] {
            assert!(
                message_in(&format!("{before}{message}"), |_| None).is_some(),
                "{before}"
            );
        }
        let logged = r#"{"level":"info","seen":{"jsonrpc":"2.0","method":"ping"}}"#;
        for none in ["Traceback:", "{\"a\": 1}", "[1]", "\"text\"", logged] {
            assert!(message_in(none, |_| None).is_none(), "{none}");
        }
    }

    #[test]
    fn the_request_of_a_response_that_is_too_long_is_known_by_its_beginning_or_its_end() {
        for (head, tail, id) in [
            (
                r#"{"jsonrpc":"2.0","id":3,"result":{"id":9,"#,
                "}}",
                Some(3),
            ),
            (
                r#"{"result":{"id":9,"#,
                r#""}]},"jsonrpc":"2.0","id":12}"#,
                Some(12),
            ),
            (r#"{"id": 4 ,"error":{"#, "x", Some(4)),
            (r#"{"result":{"content":["#, "no id", None),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":3,"#,
                r#""id":3}}"#,
                None,
            ),
        ] {
            assert_eq!(cut_response_id(head, tail), id, "{head}");
        }
    }
}
