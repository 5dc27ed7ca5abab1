//! Where notes go: legal in every dialect, one at a time, the history before the tail untouched.

use super::{
    super::{
        InjectionPolicy, MAX_NOTE_CHARS, NotePosition, Placement, history_patch, inject, repair,
        validators,
    },
    *,
};
use crate::domain::{ids::Operation, invocation::InjectionMode};

pub(super) fn place(
    mode: InjectionMode,
    call: &ModelCall,
    target: &Target,
    failures: &[&Failure],
) -> Placement {
    inject(
        &InjectionPolicy::default(),
        mode,
        &Operation::from("executor"),
        call,
        target,
        failures,
    )
}

fn occurrences(call: &ModelCall, needle: &str) -> usize {
    let quoted = serde_json::Value::from(needle).to_string();
    serde_json::to_string(call)
        .unwrap()
        .matches(quoted.trim_matches('"'))
        .count()
}

fn parts(messages: &[Message]) -> Vec<Part> {
    messages
        .iter()
        .flat_map(|message| message.parts.clone())
        .collect()
}

/// Messages before the tail: the last one, or the run of tool results.
fn before_tail(messages: &[Message]) -> usize {
    let tools = messages
        .iter()
        .rev()
        .take_while(|message| message.role == Role::Tool)
        .count();
    messages.len() - tools.max(1)
}

#[test]
fn every_dialect_accepts_every_note_at_every_end_of_a_history() {
    let mut placed = 0;
    for target in targets() {
        for (end, call) in histories() {
            if end == "user right after tools" && !target.capabilities.user_after_tool {
                // The caller's own history is refused there, with or without a note.
                continue;
            }
            for class in FailureClass::ALL {
                for mode in [InjectionMode::WhenActionable, InjectionMode::Always] {
                    let failure = failure(class);
                    let at = format!(
                        "{:?}, {end}, {class}, {mode:?}",
                        (target.dialect, &target.capabilities)
                    );
                    let Placement::Injected {
                        call: sent,
                        note,
                        vehicle,
                    } = place(mode, &call, &target, &[&failure])
                    else {
                        continue;
                    };
                    placed += 1;
                    let body = render::body(target.dialect, &sent.messages);
                    let verdict = validators::check(target.dialect, &target.capabilities, &body);
                    assert_eq!(verdict, Ok(()), "{at}: {vehicle:?} in {body:#}");
                    assert!(note.chars().count() <= MAX_NOTE_CHARS, "{at}: {note}");
                    assert_eq!(occurrences(&sent, &note), 1, "{at}");
                    let history = repair(&call);
                    if vehicle != NotePosition::ToolResult {
                        let noted = [parts(&history.messages), vec![Part::Text(note)]].concat();
                        assert_eq!(
                            parts(&sent.messages),
                            noted,
                            "{at}: the note does not come last, alone"
                        );
                    }
                    let kept = before_tail(&history.messages);
                    assert_eq!(
                        serde_json::to_string(&sent.messages[..kept]).unwrap(),
                        serde_json::to_string(&history.messages[..kept]).unwrap(),
                        "{at}"
                    );
                }
            }
        }
    }
    assert!(placed > 1_000, "only {placed} notes were placed");
}

#[test]
fn a_history_with_turns_always_has_a_place() {
    for target in targets() {
        for (end, call) in histories() {
            let placement = place(
                InjectionMode::Always,
                &call,
                &target,
                &[&failure(FailureClass::Timeout)],
            );
            let is_skipped = matches!(placement, Placement::Skipped { .. });
            assert_eq!(
                is_skipped,
                matches!(end, "empty" | "instructions only"),
                "{end}: {placement:?}"
            );
        }
    }
}

fn vehicle(dialect: Dialect, family: &str, (tail, after): Abilities, end: &str) -> NotePosition {
    let (_, call) = histories()
        .into_iter()
        .find(|(name, _)| *name == end)
        .unwrap();
    let target = target(dialect, family, tail, after);
    match place(
        InjectionMode::WhenActionable,
        &call,
        &target,
        &[&failure(FailureClass::Timeout)],
    ) {
        Placement::Injected { vehicle, .. } => vehicle,
        other => panic!("{other:?}"),
    }
}

/// Whether a target takes a system message at the end, and a user's message after tool results.
type Abilities = (bool, bool);

const ABLE: Abilities = (true, true);
const BARE: Abilities = (false, true);
const STRICT: Abilities = (false, false);

/// A dialect, its family, the target's abilities, the end of the history, and where the note goes.
const VEHICLES: &[(Dialect, &str, Abilities, &str, NotePosition)] = &[
    (
        Dialect::OpenaiChat,
        "openai",
        ABLE,
        "user",
        NotePosition::DeveloperMessage,
    ),
    (
        Dialect::OpenaiChat,
        "mistral",
        ABLE,
        "user",
        NotePosition::SystemMessage,
    ),
    (
        Dialect::OpenaiChat,
        "local",
        BARE,
        "user",
        NotePosition::UserMessage,
    ),
    (
        Dialect::OpenaiChat,
        "local",
        STRICT,
        "user",
        NotePosition::UserTextBlock,
    ),
    (
        Dialect::OpenaiChat,
        "openai",
        ABLE,
        "failed tool result",
        NotePosition::ToolResult,
    ),
    (
        Dialect::OpenaiChat,
        "openai",
        ABLE,
        "tool results",
        NotePosition::DeveloperMessage,
    ),
    (
        Dialect::OpenaiChat,
        "local",
        BARE,
        "tool results",
        NotePosition::UserMessage,
    ),
    (
        Dialect::OpenaiChat,
        "mistral",
        (true, false),
        "tool results",
        NotePosition::ToolResult,
    ),
    (
        Dialect::OpenaiChat,
        "openai",
        ABLE,
        "dangling tool calls",
        NotePosition::ToolResult,
    ),
    (
        Dialect::OpenaiResponses,
        "openai",
        ABLE,
        "failed tool result",
        NotePosition::DeveloperMessage,
    ),
    (
        Dialect::Anthropic,
        "anthropic",
        ABLE,
        "user",
        NotePosition::SystemMessage,
    ),
    (
        Dialect::Anthropic,
        "anthropic",
        BARE,
        "user",
        NotePosition::UserTextBlock,
    ),
    (
        Dialect::Anthropic,
        "anthropic",
        ABLE,
        "tool results",
        NotePosition::AfterToolResults,
    ),
    (
        Dialect::Anthropic,
        "anthropic",
        ABLE,
        "assistant",
        NotePosition::UserMessage,
    ),
    (
        Dialect::Gemini,
        "google",
        ABLE,
        "user",
        NotePosition::UserTextBlock,
    ),
    (
        Dialect::Gemini,
        "google",
        ABLE,
        "tool results",
        NotePosition::ToolResult,
    ),
    (
        Dialect::Bedrock,
        "bedrock",
        ABLE,
        "tool results",
        NotePosition::AfterToolResults,
    ),
    (
        Dialect::Bedrock,
        "bedrock",
        (true, false),
        "tool results",
        NotePosition::ToolResult,
    ),
    (
        Dialect::Scripted,
        "scripted",
        ABLE,
        "user",
        NotePosition::SystemMessage,
    ),
];

#[test]
fn the_vehicle_is_the_first_legal_one_of_the_table() {
    for (dialect, family, able, end, expected) in VEHICLES {
        assert_eq!(
            vehicle(*dialect, family, *able, end),
            *expected,
            "{dialect:?} {family} {able:?} {end}"
        );
    }
}

#[test]
fn the_note_of_the_third_attempt_replaces_that_of_the_second() {
    let first = failure(FailureClass::Timeout);
    let second = failure(FailureClass::MalformedResponse);
    for target in targets() {
        for (_, call) in histories() {
            let Placement::Injected {
                call: two,
                note: earlier,
                ..
            } = place(InjectionMode::WhenActionable, &call, &target, &[&first])
            else {
                continue;
            };
            let placement = place(
                InjectionMode::WhenActionable,
                &call,
                &target,
                &[&first, &second],
            );
            let Placement::Injected {
                call: three, note, ..
            } = placement
            else {
                panic!("{placement:?}")
            };
            assert_eq!(three.messages.len(), two.messages.len());
            assert_eq!(occurrences(&three, &earlier), 0);
            assert_eq!(occurrences(&three, &note), 1);
        }
    }
}

#[test]
fn a_note_goes_into_the_result_of_the_tool_that_failed_and_leaves_its_json_whole() {
    let (_, call) = histories()
        .into_iter()
        .find(|(end, _)| *end == "failed tool result")
        .unwrap();
    let target = target(Dialect::Gemini, "google", false, true);
    let mut failure = failure(FailureClass::ToolFailed);
    failure.message = "no\u{202e} index\n at line 1".into();
    let Placement::Injected {
        call: sent, note, ..
    } = place(InjectionMode::WhenActionable, &call, &target, &[&failure])
    else {
        panic!("not placed")
    };
    let contents: Vec<&str> = sent
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.content.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(contents[1], "rain");
    assert!(
        contents[0].starts_with("{\"error\":\"no index\","),
        "{}",
        contents[0]
    );
    let value: serde_json::Value = serde_json::from_str(contents[0]).unwrap();
    assert_eq!(value["relight_note"], note);
    assert_eq!(value["untrusted_excerpt"], "no index at line 1");
}

#[test]
fn reasoning_without_what_it_led_to_gets_no_note() {
    let parts = vec![Part::Reasoning(Reasoning {
        text: "hm".into(),
        opaque: None,
    })];
    let call = call(vec![
        Message::text(Role::User, "hi"),
        Message::new(Role::Assistant, parts),
    ]);
    let target = target(Dialect::OpenaiResponses, "openai", true, true);
    let placement = place(
        InjectionMode::WhenActionable,
        &call,
        &target,
        &[&failure(FailureClass::Timeout)],
    );
    assert!(
        matches!(placement, Placement::Skipped { .. }),
        "{placement:?}"
    );
}

#[test]
fn the_history_patch_makes_the_next_request_begin_with_what_the_model_saw() {
    let answer = Message::text(Role::Assistant, "done");
    for target in targets() {
        for (end, call) in histories() {
            let Placement::Injected { call: sent, .. } = place(
                InjectionMode::WhenActionable,
                &call,
                &target,
                &[&failure(FailureClass::Timeout)],
            ) else {
                continue;
            };
            let patch = history_patch(&sent, &call, &answer);
            let mut history = call.messages.clone();
            patch.apply(&mut history);
            assert_eq!(
                history,
                [sent.messages.clone(), vec![answer.clone()]].concat(),
                "{end}"
            );
            assert!(
                patch.replace_tail as usize <= call.messages.len() - before_tail(&call.messages),
                "{end}"
            );
        }
    }
}

#[test]
fn without_a_note_the_history_patch_is_the_answer_alone() {
    let (_, call) = histories().remove(0);
    let answer = Message::text(Role::Assistant, "done");
    let patch = history_patch(&call, &call, &answer);
    assert_eq!((patch.replace_tail, patch.messages), (0, vec![answer]));
}
