//! Tests of `invocation`, one for each guarantee.

use super::*;
use crate::{domain::invocation::InjectionMode, layers::spans::EntryPoint};

fn tool(name: &str) -> v1::invocation::Call {
    v1::invocation::Call::Tool(v1::ToolCall {
        name: name.to_owned(),
        ..v1::ToolCall::default()
    })
}

fn arrival() -> Arrival {
    Arrival::new("acme".into(), EntryPoint::Grpc("test"))
}

fn fields(wire: v1::Invocation) -> Vec<String> {
    request(wire, arrival())
        .unwrap_err()
        .kept()
        .iter()
        .map(|fault| fault.field.clone())
        .collect()
}

#[test]
fn what_is_left_out_takes_the_contract_s_default() {
    let read = request(
        v1::Invocation {
            call: Some(tool("search")),
            ..v1::Invocation::default()
        },
        arrival(),
    )
    .unwrap();
    let call = ToolInvocation {
        name: "search".to_owned(),
        arguments: "{}".to_owned(),
        ..ToolInvocation::default()
    };
    let expected = InvocationRequest::new(arrival(), Call::Tool(call));
    assert_eq!(read, expected);
}

#[test]
fn every_field_of_a_request_arrives() {
    let wire = v1::Invocation {
        answer_view: v1::AnswerView::Once.into(),
        route: "fast".to_owned(),
        operation: "planner".to_owned(),
        request_id: "r1".to_owned(),
        thread_id: "t1".to_owned(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        call: Some(v1::invocation::Call::Model(v1::ModelCall::default())),
        overrides: Some(v1::Overrides {
            max_retries: Some(0),
            injection_mode: v1::InjectionMode::Always.into(),
            deadline_ms: Some(1500),
            allowed_targets: vec!["b".to_owned()],
            targets: vec!["c".to_owned(), "a".to_owned()],
            rewind_mode: v1::RewindMode::Holdback.into(),
            hold_back_bytes: Some(64),
            resumable: Some(v1::Resumable { grace_ms: Some(9) }),
            allow_continuation_prompt: true,
            preset: "patient".to_owned(),
        }),
    };
    let read = request(wire, arrival()).unwrap();
    assert_eq!(read.route, Some("fast".into()));
    assert_eq!(
        (read.request_id, read.thread),
        (Some("r1".into()), Some("t1".into()))
    );
    assert_eq!(
        (read.lifetime.deadline, read.lifetime.resumable),
        (Some(Duration::from_millis(1500)), true)
    );
    assert_eq!(read.labels.get("team").map(String::as_str), Some("a"));
    let expected = Overrides {
        max_retries: Some(0),
        injection: Some(InjectionMode::Always),
        allowed_targets: vec!["b".into()],
        targets: vec!["c".into(), "a".into()],
        preset: Some("patient".to_owned()),
        rewind_mode: Some(RewindMode::HoldBack { bytes: 64 }),
        resumable_grace: Some(Duration::from_millis(9)),
        allow_continuation_prompt: true,
    };
    assert_eq!(read.overrides, expected);
}

#[test]
fn every_fault_of_an_invocation_is_reported_at_once() {
    let wire = v1::Invocation {
        route: "r".repeat(257),
        operation: "o".repeat(65),
        request_id: "r".repeat(129),
        thread_id: "a\nb".to_owned(),
        labels: [
            ("k".repeat(65), String::new()),
            ("v".to_owned(), "v".repeat(257)),
        ]
        .into(),
        call: Some(v1::invocation::Call::Tool(v1::ToolCall {
            name: String::new(),
            arguments_json: "[]".to_owned(),
            goal: "g".repeat(1025),
            side_effects: None,
            call_id: "c".repeat(129),
            meta_json: "[]".to_owned(),
        })),
        overrides: Some(v1::Overrides {
            max_retries: Some(6),
            injection_mode: 9,
            deadline_ms: Some(0),
            allowed_targets: vec!["ok".to_owned(), String::new()],
            targets: vec!["t".repeat(257)],
            rewind_mode: 8,
            hold_back_bytes: Some(0),
            resumable: Some(v1::Resumable { grace_ms: Some(0) }),
            ..v1::Overrides::default()
        }),
        ..v1::Invocation::default()
    };
    let key = format!("invocation.labels[{:?}]", "k".repeat(64));
    let expected = [
        "invocation.route",
        "invocation.operation",
        "invocation.request_id",
        "invocation.thread_id",
        "invocation.tool.name",
        "invocation.tool.call_id",
        "invocation.tool.goal",
        "invocation.tool.arguments_json",
        "invocation.tool.meta_json",
        &key,
        r#"invocation.labels["v"]"#,
        "invocation.overrides.max_retries",
        "invocation.overrides.deadline_ms",
        "invocation.overrides.hold_back_bytes",
        "invocation.overrides.resumable.grace_ms",
        "invocation.overrides.allowed_targets[1]",
        "invocation.overrides.targets[0]",
        "invocation.overrides.injection_mode",
        "invocation.overrides.rewind_mode",
    ];
    assert_eq!(fields(wire), expected);
}

#[test]
fn an_invocation_that_calls_nothing_is_refused() {
    assert_eq!(fields(v1::Invocation::default()), ["invocation"]);
}

#[test]
fn only_a_kept_thread_lets_a_call_go_without_messages() {
    let call = Some(v1::invocation::Call::Model(v1::ModelCall::default()));
    let wire = v1::Invocation {
        call,
        ..v1::Invocation::default()
    };
    assert_eq!(fields(wire.clone()), ["invocation.model.messages"]);
    assert!(
        request(
            v1::Invocation {
                thread_id: "t1".to_owned(),
                ..wire
            },
            arrival()
        )
        .is_ok()
    );
}

#[test]
fn too_many_labels_are_refused() {
    let labels: HashMap<String, String> = (0..17).map(|n| (n.to_string(), String::new())).collect();
    let wire = v1::Invocation {
        call: Some(tool("f")),
        labels,
        ..v1::Invocation::default()
    };
    assert_eq!(fields(wire), ["invocation.labels"]);
}

#[test]
fn stated_side_effects_keep_what_is_not_known_apart_from_no() {
    let stated = v1::SideEffects {
        read_only: Some(false),
        idempotent: Some(true),
        ..v1::SideEffects::default()
    };
    let call = v1::ToolCall {
        name: "f".to_owned(),
        side_effects: Some(stated),
        ..v1::ToolCall::default()
    };
    let call = Some(v1::invocation::Call::Tool(call));
    let read = request(
        v1::Invocation {
            call,
            ..v1::Invocation::default()
        },
        arrival(),
    )
    .unwrap();
    let Call::Tool(tool) = read.call else {
        panic!("a tool call")
    };
    let expected = SideEffects {
        read_only: Some(false),
        idempotent: Some(true),
        ..SideEffects::default()
    };
    assert_eq!(tool.side_effects, Some(expected));
}
