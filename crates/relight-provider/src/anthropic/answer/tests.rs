//! Fields of a call that only this dialect knows go back with it as they came.

use super::*;
use crate::{
    anthropic::messages::translate,
    domain::message::{Message, Part, Role, ToolCall},
};

#[test]
fn fields_of_a_call_that_are_not_read_here_go_back_with_it() {
    let by_code = json!({"type": "code_execution_20250825", "tool_id": "srvtoolu_1"});
    for caller in [json!({"type": "direct"}), by_code] {
        let call = json!({
            "type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}, "caller": caller,
        });
        let document = json!({
            "type": "message", "id": "m", "model": "m", "stop_reason": "tool_use", "content": [call],
        });
        let mut out = Vec::new();
        let mut reader = MessageReader::new(Vec::new());
        reader.document(&document, &mut out).unwrap();
        let opaque = out.iter().find_map(|delta| match delta {
            Delta::BlockStop { opaque, .. } => opaque.clone(),
            _ => None,
        });
        let kept = Part::ToolCall(ToolCall {
            id: "t".to_owned(),
            name: "look".to_owned(),
            arguments: "{\"a\":1}".to_owned(),
            opaque,
        });
        let sent = translate(&[Message::new(Role::Assistant, vec![kept])], false);
        assert_eq!(sent.unwrap().messages[0]["content"], json!([call]));
    }
}
