//! Messages of servers, read so that the result of a tool stays as it was sent.
//!
//! The SDK's types drop what they do not know (members, kinds of content) and refuse a result with
//! one piece that they cannot read. So a result of a tool goes past them: it is noted with the facts
//! of its request, and the SDK gets an empty one in its place, which ends the request. A list of
//! tools is noted, too, and read by the SDK, which sends arguments in headers by it.

use rmcp::model::{JsonRpcVersion2_0, RequestId, ServerJsonRpcMessage, ServerResult};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::facts::RequestFacts;

/// A response that may have the result of a tool.
#[derive(Deserialize)]
struct SentResponse<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The kind of a result, by the members that only results of other kinds have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultKind<'a> {
    #[serde(borrow, default)]
    result_type: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    task: Option<serde::de::IgnoredAny>,
}

/// One message; `facts_of` finds those of an open request.
///
/// # Errors
/// When the text is not a message of the protocol.
pub(super) fn message(
    text: &[u8],
    facts_of: impl Fn(&RequestId) -> Option<RequestFacts>,
) -> serde_json::Result<ServerJsonRpcMessage> {
    if let Ok(sent) = serde_json::from_slice::<SentResponse<'_>>(text)
        && is_whole_result(sent.result)
        && facts_of(&sent.id).is_some_and(|facts| facts.keep_result(sent.result.get()))
    {
        return Ok(ServerJsonRpcMessage::response(
            ServerResult::empty(()),
            sent.id,
        ));
    }
    let read = serde_json::from_slice(text);
    if read.as_ref().is_ok_and(|message| !is_null(message)) {
        return read;
    }
    without_null(text).map_or(read, Ok)
}

fn is_null(message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Response(response) = message else {
        return false;
    };
    matches!(&response.result, ServerResult::CustomResult(result) if result.0.is_null())
}

/// Returns a response that has both `result` and `error`, of which the one is null.
fn without_null(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    let mut message: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let mut members = ["error", "result"].into_iter();
    let null = members.find(|name| message.get(*name) == Some(&Value::Null))?;
    message.remove(null);
    serde_json::from_value(Value::Object(message)).ok()
}

/// Returns whether a result of a tool is complete: nothing more is to be sent or waited for.
fn is_whole_result(result: &RawValue) -> bool {
    let kind = serde_json::from_str::<ResultKind<'_>>(result.get());
    result.get().starts_with('{')
        && kind.is_ok_and(|kind| {
            kind.task.is_none() && kind.result_type.is_none_or(|kind| kind == "complete")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_tool_is_kept_as_it_was_sent_and_every_other_message_is_the_sdks() {
        let result =
            r#"{"content":[{"type":"hologram","n":1.0}],"later":[12345678901234567890123]}"#;
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
        let facts = RequestFacts::of_call();
        let read = message(text.as_bytes(), |_| Some(facts.clone())).unwrap();
        assert!(
            matches!(read, ServerJsonRpcMessage::Response(it) if it.id == RequestId::Number(7))
        );
        assert_eq!(facts.take_result().as_deref(), Some(result));
        for other in [
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","requestState":"s"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        ] {
            let facts = RequestFacts::of_call();
            message(other.as_bytes(), |_| Some(facts.clone())).unwrap();
            assert_eq!(facts.take_result(), None, "{other}");
        }
        let listed = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}"#;
        let facts = RequestFacts::of_list();
        let read = message(listed.as_bytes(), |_| Some(facts.clone())).unwrap();
        let ServerJsonRpcMessage::Response(read) = read else {
            panic!("{read:?}")
        };
        assert!(matches!(read.result, ServerResult::ListToolsResult(_)));
        assert_eq!(facts.take_result().as_deref(), Some(r#"{"tools":[]}"#));
    }

    #[test]
    fn a_null_beside_what_a_response_says_is_passed_over() {
        let refused = r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}"#;
        let pong = r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#;
        let read = |text: &str| message(text.as_bytes(), |_| None);
        assert!(matches!(read(refused), Ok(ServerJsonRpcMessage::Error(_))));
        assert!(matches!(read(pong), Ok(ServerJsonRpcMessage::Response(_))));
        assert!(read("null").is_err());
    }
}
