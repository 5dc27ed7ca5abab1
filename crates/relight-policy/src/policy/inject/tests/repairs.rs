//! Repair: legal afterwards, idempotent, and no signed part or result is lost.

use std::borrow::Cow;

use proptest::prelude::*;

use super::{
    super::{repair, repair::INTERRUPTED, validators},
    *,
};
use crate::domain::message::{Media, MediaSource};

#[test]
fn a_whole_history_is_borrowed() {
    for (end, call) in histories() {
        assert_eq!(
            matches!(repair(&call), Cow::Borrowed(_)),
            end != "dangling tool calls",
            "{end}"
        );
    }
}

#[test]
fn a_lost_result_is_answered_in_neutral_words_right_after_its_call() {
    let calling = Message::new(
        Role::Assistant,
        vec![tool_call("a", "search"), tool_call("b", "weather")],
    );
    let user = Message::text(Role::User, "go on");
    let broken = call(vec![
        user.clone(),
        calling.clone(),
        tool_result("b", "weather", "rain", false),
        user.clone(),
    ]);
    assert_eq!(
        repair(&broken).messages,
        [
            user.clone(),
            calling,
            tool_result("a", "search", INTERRUPTED, true),
            tool_result("b", "weather", "rain", false),
            user
        ]
    );
}

#[test]
fn what_a_tool_returned_beside_text_moves_with_its_result() {
    let media = |name: &str| Media {
        mime_type: "image/png".to_owned(),
        source: MediaSource::Bytes(vec![1]),
        name: Some(name.to_owned()),
        detail: None,
    };
    let calling = Message::new(
        Role::Assistant,
        vec![tool_call("a", "draw"), tool_call("b", "draw")],
    );
    let mut first = tool_result("a", "draw", "", false);
    first.parts.push(Part::Image(media("one")));
    let mut second = tool_result("b", "draw", "", false);
    second.parts.push(Part::File(media("two")));
    let mut both = second.clone();
    both.parts.extend(first.parts.clone());
    let user = Message::text(Role::User, "go on");
    let late = call(vec![calling.clone(), user.clone(), both]);
    assert_eq!(repair(&late).messages, [calling, first, second, user]);
}

#[test]
fn a_result_that_came_late_moves_up_to_its_call() {
    let calling = Message::new(Role::Assistant, vec![tool_call("a", "search")]);
    let user = Message::text(Role::User, "well?");
    let reply = Message::text(Role::Assistant, "One moment.");
    let result = tool_result("a", "search", "found", false);
    let late = call(vec![
        user.clone(),
        calling.clone(),
        reply.clone(),
        user.clone(),
        result.clone(),
    ]);
    assert_eq!(
        repair(&late).messages,
        [user.clone(), calling, result, reply, user]
    );
}

#[test]
fn a_message_of_the_user_whose_only_result_moves_is_left_out() {
    let calling = Message::new(Role::Assistant, vec![tool_call("a", "search")]);
    let reply = Message::text(Role::Assistant, "One moment.");
    let user = Message::text(Role::User, "well?");
    let result = tool_result("a", "search", "found", false);
    let by_user = Message {
        role: Role::User,
        ..result.clone()
    };
    let late = call(vec![calling.clone(), reply.clone(), by_user, user.clone()]);
    assert_eq!(repair(&late).messages, [calling, result, reply, user]);
}

#[test]
fn a_result_without_a_call_is_dropped_and_so_is_a_second_one() {
    let calling = Message::new(Role::Assistant, vec![tool_call("a", "search")]);
    let user = Message::text(Role::User, "hi");
    let result = tool_result("a", "search", "found", false);
    let again = tool_result("a", "search", "again", false);
    let orphan = tool_result("x", "search", "lost", false);
    let broken = call(vec![
        orphan,
        user.clone(),
        calling.clone(),
        result.clone(),
        again,
    ]);
    assert_eq!(repair(&broken).messages, [user, calling, result]);
}

fn part() -> impl Strategy<Value = Part> {
    let id = prop::sample::select(vec!["a", "b", "c", ""]);
    prop_oneof![
        "[a-z]{1,4}".prop_map(Part::Text),
        Just(Part::Reasoning(Reasoning {
            text: "hm".into(),
            opaque: Some(Opaque {
                kind: "anthropic.signature".into(),
                bytes: vec![7]
            })
        })),
        id.clone().prop_map(|id| tool_call(id, "search")),
        (id, any::<bool>())
            .prop_map(|(id, failed)| tool_result(id, "search", "found", failed).parts.remove(0)),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec![
        Role::System,
        Role::Developer,
        Role::User,
        Role::Assistant,
        Role::Tool,
    ]);
    (role, prop::collection::vec(part(), 0..4)).prop_map(|(role, parts)| Message::new(role, parts))
}

/// Messages with only the parts that their roles may hold: calls and reasoning only from the model,
/// results only from tools or the user.
fn without_calls(mut message: Message) -> Option<Message> {
    message.parts.retain(|part| match (message.role, part) {
        (Role::Assistant, Part::ToolResult(_)) => false,
        (Role::Assistant, Part::ToolCall(call)) => !call.id.is_empty(),
        (Role::Assistant, _) | (Role::User | Role::Tool, Part::ToolResult(_)) => true,
        (role, part) => role != Role::Tool && matches!(part, Part::Text(_)),
    });
    let is_bare = matches!(message.parts.last(), Some(Part::Reasoning(_)));
    (!message.parts.is_empty() && !is_bare).then_some(message)
}

proptest! {
    #[test]
    fn repair_is_idempotent_and_never_touches_an_assistant_turn(messages in prop::collection::vec(message(), 0..12)) {
        let broken = call(messages);
        let once = repair(&broken).into_owned();
        prop_assert!(matches!(repair(&once), Cow::Borrowed(_)));
        let assistant = |call: &ModelCall| -> Vec<Message> {
            call.messages.iter().filter(|message| message.role == Role::Assistant).cloned().collect()
        };
        prop_assert_eq!(assistant(&once), assistant(&broken));
        let texts = |call: &ModelCall| -> Vec<String> {
            let others = call.messages.iter().filter(|message| !matches!(message.role, Role::Assistant | Role::Tool));
            others.flat_map(|message| &message.parts).filter_map(Part::as_text).map(str::to_owned).collect()
        };
        prop_assert_eq!(texts(&once), texts(&broken));
    }

    #[test]
    fn a_repaired_history_pairs_calls_and_results_as_every_provider_wants(
        messages in prop::collection::vec(message(), 0..12),
    ) {
        let broken = call(messages.into_iter().filter_map(without_calls).collect());
        let mut repaired = repair(&broken).into_owned().messages;
        // What repair does not guarantee is corrected here: who begins, who ends, where
        // instructions are.
        repaired.retain(|message| !matches!(message.role, Role::System | Role::Developer));
        repaired.insert(0, Message::text(Role::User, "begin"));
        repaired.push(Message::text(Role::User, "end"));
        for dialect in [Dialect::OpenaiResponses, Dialect::Anthropic, Dialect::Bedrock] {
            let body = render::body(dialect, &repaired);
            let verdict = validators::check(dialect, &Capabilities::default(), &body);
            prop_assert_eq!(verdict, Ok(()), "{:?}: {:#}", dialect, body);
        }
    }
}
