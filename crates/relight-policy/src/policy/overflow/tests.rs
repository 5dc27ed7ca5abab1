//! Shortened conversations: whole pairs, named drops, patches that replay.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    domain::message::{ToolCall, ToolResult},
    policy::inject::{history_patch, repair},
};

/// A turn of a conversation: a user's words, and exchanges with tools, each with the bytes of its
/// results.
type Turn = (usize, Vec<Vec<usize>>);

fn conversation(turns: &[Turn], has_system: bool) -> ModelCall {
    let mut messages = Vec::new();
    if has_system {
        messages.push(Message::text(Role::System, "Be brief."));
    }
    let mut id = 0;
    for (number, (words, exchanges)) in turns.iter().enumerate() {
        messages.push(Message::text(
            Role::User,
            format!("{number} {}", "w".repeat(*words)),
        ));
        for results in exchanges {
            let mut calls = Vec::new();
            let mut replies = Vec::new();
            for bytes in results {
                id += 1;
                calls.push(Part::ToolCall(ToolCall {
                    id: format!("call-{id}"),
                    name: "look".into(),
                    arguments: "{}".into(),
                    opaque: None,
                }));
                replies.push(Message {
                    parts: vec![Part::ToolResult(ToolResult {
                        call_id: format!("call-{id}"),
                        name: "look".into(),
                        content: "r".repeat(*bytes),
                        is_error: false,
                    })],
                    ..Message::text(Role::Tool, "")
                });
            }
            messages.push(Message {
                parts: calls,
                ..Message::text(Role::Assistant, "")
            });
            messages.extend(replies);
        }
        if number + 1 < turns.len() {
            messages.push(Message::text(Role::Assistant, "So it is."));
        }
    }
    ModelCall {
        messages,
        ..ModelCall::default()
    }
}

fn ids(call: &ModelCall, of: fn(&Part) -> Option<&str>) -> BTreeSet<String> {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(of).map(str::to_owned).collect()
}

fn call_id(part: &Part) -> Option<&str> {
    match part {
        Part::ToolCall(call) => Some(&call.id),
        _ => None,
    }
}

fn result_id(part: &Part) -> Option<&str> {
    match part {
        Part::ToolResult(result) => Some(&result.call_id),
        _ => None,
    }
}

fn turn() -> impl Strategy<Value = Turn> {
    let results = prop::collection::vec(0usize..3_000, 1..4);
    (0usize..400, prop::collection::vec(results, 0..4))
}

proptest! {
    #[test]
    fn a_conversation_is_shortened_to_its_room_with_its_pairs_whole_and_its_drops_named(
        turns in prop::collection::vec(turn(), 1..100), has_system: bool, share in 0.05f64..1.2, middle: bool,
    ) {
        let call = conversation(&turns, has_system);
        let bytes = prompt_bytes(&call);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let room = (bytes as f64 * share) as u64;
        let overflow = if middle { Overflow::DropMiddle } else { Overflow::DropToolResults };
        let Some(short) = shorten(&call, overflow, room) else {
            return Ok(());
        };
        prop_assert!(prompt_bytes(&short.call) <= room || bytes <= room);
        prop_assert_eq!(ids(&short.call, call_id), ids(&short.call, result_id));
        prop_assert!(matches!(repair(&short.call), std::borrow::Cow::Borrowed(_)));
        prop_assert_eq!(short.call.messages.last(), call.messages.last());
        let first = |call: &ModelCall| call.messages.iter().find(|one| one.role == Role::User).cloned();
        prop_assert_eq!(first(&short.call), first(&call));
        if middle {
            let left = call.messages.len() + 1 - short.call.messages.len();
            prop_assert_eq!(&short.words, &format!("{} left out", were(left, "older message")));
        } else {
            prop_assert_eq!(short.call.messages.len(), call.messages.len());
            let changed = short.call.messages.iter().zip(&call.messages).filter(|(one, other)| one != other);
            let words = format!("the contents of {} were left out", counted(changed.count(), "old tool result"));
            prop_assert_eq!(&short.words, &words);
        }
        // The caller's history, with the patch of the answer, is what the model saw and said.
        let answer = Message::text(Role::Assistant, "Done.");
        let mut history = call.messages.clone();
        history_patch(&short.call, &call, &answer).apply(&mut history);
        let mut seen = short.call.messages.clone();
        seen.push(answer);
        prop_assert_eq!(history, seen);
    }

    #[test]
    fn nothing_is_dropped_from_what_fits_or_where_it_must_fail(turns in prop::collection::vec(turn(), 1..20)) {
        let call = conversation(&turns, true);
        let bytes = prompt_bytes(&call);
        prop_assert_eq!(shorten(&call, Overflow::Fail, bytes / 2), None);
        prop_assert_eq!(shorten(&call, Overflow::DropMiddle, bytes + 1), None);
        prop_assert_eq!(shorten(&call, Overflow::DropToolResults, bytes + 1), None);
    }
}

#[test]
fn the_oldest_goes_first_and_the_model_reads_that_it_did() {
    let call = conversation(&[(10, vec![vec![2_000], vec![2_000], vec![2_000]])], true);
    let short = shorten(&call, Overflow::DropToolResults, 4_500).unwrap();
    let Part::ToolResult(result) = &short.call.messages[3].parts[0] else {
        panic!("{:?}", short.call.messages)
    };
    assert_eq!(
        result.content,
        "[This result of 2000 bytes was left out, because the conversation outgrew the context window.]"
    );
    assert_eq!(
        short.words,
        "the contents of 1 old tool result were left out"
    );
    let short = shorten(&call, Overflow::DropMiddle, 4_500).unwrap();
    assert_eq!(short.call.messages.len(), call.messages.len() - 1);
    assert_eq!(
        short.call.messages[2],
        Message::text(
            Role::User,
            "[2 older messages of this conversation were left out here, because it outgrew the context window.]"
        )
    );
    assert_eq!(short.words, "2 older messages were left out");
    assert_eq!(shorten(&call, Overflow::DropMiddle, 100), None);
}
