//! The validators reject what providers reject, so that their approval means something.

use serde_json::{Value, json};

use super::{super::validators::check, Capabilities, Dialect};

fn broken(dialect: Dialect, able: &Capabilities, body: &Value) -> &'static str {
    check(dialect, able, body)
        .expect_err("a provider refuses this")
        .rule
}

#[test]
fn chat_refuses_messages_between_calls_and_results() {
    let able = Capabilities::default();
    let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "ok"});
    let note = json!({"role": "developer", "content": "note"});
    let refused =
        |messages: Value| broken(Dialect::OpenaiChat, &able, &json!({"messages": messages}));
    assert_eq!(
        refused(json!([call, note, result])),
        "a message is between tool calls and their results"
    );
    assert_eq!(refused(json!([call])), "a tool call is not answered");
    assert_eq!(
        refused(json!([result])),
        "a tool message answers no open call"
    );
    assert_eq!(refused(json!([])), "there is no message");
    assert_eq!(
        refused(json!([{"role": "user", "content": ""}])),
        "a user message is empty"
    );
    assert_eq!(
        check(
            Dialect::OpenaiChat,
            &able,
            &json!({"messages": [call, result, note]})
        ),
        Ok(())
    );
}

#[test]
fn a_strict_template_refuses_late_instructions_users_after_tools_and_doubled_roles() {
    let strict = Capabilities {
        tail_system_message: false,
        user_after_tool: false,
        ..Capabilities::default()
    };
    let user = json!({"role": "user", "content": "hi"});
    let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "ok"});
    let refused =
        |messages: Value| broken(Dialect::OpenaiChat, &strict, &json!({"messages": messages}));
    assert_eq!(
        refused(json!([user, {"role": "system", "content": "x"}])),
        "instructions come after the first turn"
    );
    assert_eq!(
        refused(json!([user, call, result, user])),
        "a user message follows a tool message"
    );
    assert_eq!(refused(json!([user, user])), "roles do not alternate");
}

#[test]
fn responses_refuse_a_gap_after_reasoning_and_before_an_output() {
    let able = Capabilities::default();
    let note = json!({"type": "message", "role": "developer", "content": "note"});
    let refused = |items: Value| broken(Dialect::OpenaiResponses, &able, &json!({"input": items}));
    assert_eq!(
        refused(json!([{"type": "reasoning"}, note])),
        "an item is between reasoning and the item it led to"
    );
    let call = json!({"type": "function_call", "call_id": "a"});
    assert_eq!(
        refused(json!([call, note])),
        "a message comes before a call is answered"
    );
    assert_eq!(refused(json!([call])), "a call is not answered");
    assert_eq!(
        refused(json!([{"type": "reasoning"}])),
        "reasoning is not followed by what it led to"
    );
}

#[test]
fn anthropic_refuses_text_before_results_prefill_and_misplaced_system_messages() {
    let able = Capabilities::default();
    let user = json!({"role": "user", "content": "hi"});
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]});
    let text = json!({"type": "text", "text": "note"});
    let result = json!({"type": "tool_result", "tool_use_id": "a"});
    let system = json!({"role": "system", "content": "note"});
    let answer = json!({"role": "assistant", "content": "ok"});
    let refused = |able: &Capabilities, messages: Value| {
        broken(Dialect::Anthropic, able, &json!({"messages": messages}))
    };
    assert_eq!(
        refused(
            &able,
            json!([user, call, {"role": "user", "content": [text, result]}])
        ),
        "a tool result does not stand first in a user turn"
    );
    assert_eq!(
        refused(&able, json!([user, answer])),
        "the conversation ends in a prefill"
    );
    assert_eq!(
        refused(&able, json!([system, user])),
        "a system message does not follow a user turn"
    );
    assert_eq!(
        refused(&able, json!([user, system, user])),
        "a system message is before a user turn"
    );
    assert_eq!(
        refused(&able, json!([user, answer, system])),
        "a system message does not follow a user turn"
    );
    let old = Capabilities {
        tail_system_message: false,
        ..Capabilities::default()
    };
    assert_eq!(
        refused(&old, json!([user, system])),
        "the model takes no system message in a conversation"
    );
    let fine = json!({"messages": [user, call, {"role": "user", "content": [result]}, {"role": "user", "content": [text]}]});
    assert_eq!(check(Dialect::Anthropic, &able, &fine), Ok(()));
}

#[test]
fn bedrock_refuses_roles_that_do_not_alternate_and_texts_beside_results_of_strict_models() {
    let able = Capabilities::default();
    let user = json!({"role": "user", "content": [{"text": "hi"}]});
    let call = json!({"role": "assistant", "content": [{"toolUse": {"toolUseId": "a"}}]});
    let mixed =
        json!({"role": "user", "content": [{"toolResult": {"toolUseId": "a"}}, {"text": "note"}]});
    assert_eq!(
        broken(Dialect::Bedrock, &able, &json!({"messages": [user, user]})),
        "roles do not alternate"
    );
    let body = json!({"messages": [user, call, mixed]});
    assert_eq!(check(Dialect::Bedrock, &able, &body), Ok(()));
    let strict = Capabilities {
        user_after_tool: false,
        ..Capabilities::default()
    };
    assert_eq!(
        broken(Dialect::Bedrock, &strict, &body),
        "the model takes nothing beside tool results"
    );
}

#[test]
fn gemini_refuses_another_number_of_responses_and_texts_beside_them() {
    let able = Capabilities::default();
    let user = json!({"role": "user", "parts": [{"text": "hi"}]});
    let call = json!({"role": "model", "parts": [{"functionCall": {"name": "f"}}]});
    let response = json!({"functionResponse": {"name": "f", "response": {"output": "ok"}}});
    let refused = |contents: Value| broken(Dialect::Gemini, &able, &json!({"contents": contents}));
    let wrong_count = "the responses are not those of the calls before, one for each";
    assert_eq!(
        refused(json!([user, call, {"role": "user", "parts": [response, response]}])),
        wrong_count
    );
    assert_eq!(refused(json!([user, call, user])), wrong_count);
    assert_eq!(
        refused(json!([user, call, {"role": "user", "parts": [response, {"text": "note"}]}])),
        "something is beside responses"
    );
    assert_eq!(
        refused(json!([user, {"role": "model", "parts": [{"text": "ok"}]}])),
        "the conversation does not end with the user"
    );
}
