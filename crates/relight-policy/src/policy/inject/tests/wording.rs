//! Whether a note is written, and its text.

use super::{
    super::{
        Finding, InjectionPolicy, MAX_NOTE_CHARS, Mismatch, Placement, inject, may_blame_note,
        note::is_actionable, note_text, why_not_needed,
    },
    *,
};
use crate::domain::{
    adaptation::Adaptation,
    failure::{InvalidRequestDetail, TransportFault},
    ids::Operation,
    invocation::InjectionMode,
    message::ResponseFormat,
};

fn note(operation: &str, failures: &[&Failure]) -> String {
    note_text(
        &InjectionPolicy::default(),
        &operation.into(),
        &call(Vec::new()),
        failures,
    )
}

fn found(class: FailureClass, finding: &Finding) -> Failure {
    let mut failure = failure(class);
    finding.mark(&mut failure);
    failure
}

fn is_placed(mode: InjectionMode, failures: &[&Failure]) -> bool {
    let (_, call) = histories().remove(0);
    let target = target(Dialect::OpenaiChat, "openai", true, true);
    let operation = Operation::from("executor");
    match inject(
        &InjectionPolicy::default(),
        mode,
        &operation,
        &call,
        &target,
        failures,
    ) {
        Placement::Injected { .. } => true,
        Placement::NotNeeded => false,
        Placement::Skipped { reason } => panic!("{reason}"),
    }
}

#[test]
fn the_default_note_is_the_given_sentence() {
    let mut failure = failure(FailureClass::ServerError);
    failure.message = "internal".into();
    assert_eq!(
        note("executor", &[&failure]),
        "The previous model call failed: The provider failed internally. Adjust your approach — try a simpler action \
         or different tool."
    );
    assert_eq!(
        note("planner", &[&failure]),
        "The previous call failed: The provider failed internally. Adjust your approach."
    );
}

#[test]
fn a_note_states_what_must_differ_next_time() {
    let date = Mismatch {
        path: "/date".into(),
        keyword: "pattern".into(),
        limit: "^\\d{4}-\\d{2}-\\d{2}$".into(),
    };
    let cases = [
        (
            Finding::OutputLimit,
            "(it was cut at the output limit)",
            "Be shorter",
        ),
        (
            Finding::Empty,
            "(it was empty)",
            "Answer with text or a tool call.",
        ),
        (
            Finding::UnreadableToolCall,
            "(the tool call could not be read)",
            "one valid JSON object",
        ),
        (
            Finding::RepeatedCall {
                tool: "search".into(),
            },
            "(it repeated an identical call of tool `search`)",
            "Do not repeat the identical call",
        ),
        (
            Finding::NotJson { line: 2, column: 7 },
            "(not valid JSON at line 2, column 7)",
            "valid JSON only",
        ),
        (
            Finding::ToolArguments {
                tool: "search".into(),
                mismatch: date,
            },
            "(arguments of tool `search`: field `date` must match `^\\d{4}-\\d{2}-\\d{2}$`)",
            "do not repeat the identical call",
        ),
        (
            Finding::ToolArgumentsNotJson {
                tool: "search".into(),
                line: 1,
                column: 9,
            },
            "(the arguments of tool `search` were not valid JSON at line 1, column 9)",
            "one valid JSON object",
        ),
        (
            Finding::UnknownTool {
                tool: "search".into(),
            },
            "(tool `search` is not available)",
            "Available tools: `weather`, `calendar`.",
        ),
        (
            Finding::UnknownTool {
                tool: "invented".into(),
            },
            "(the tool does not exist)",
            "Available tools: `search`, `weather`, `calendar`.",
        ),
    ];
    for (finding, fact, hint) in cases {
        let note = note(
            "executor",
            &[&found(FailureClass::MalformedResponse, &finding)],
        );
        assert!(
            note.contains(&format!("failed: The answer could not be used {fact}.")),
            "{note}"
        );
        assert!(note.contains(hint), "{note}");
    }
}

#[test]
fn a_schema_violation_names_the_field_only_if_the_schema_does() {
    let schema = "{\"type\":\"object\",\"properties\":{\"items\":{\"items\":{\"properties\":{\"age\":{\"maximum\":150}}}}}}";
    let call = ModelCall {
        response_format: ResponseFormat::JsonSchema {
            name: "people".into(),
            description: None,
            schema: schema.into(),
            strict: true,
        },
        ..ModelCall::default()
    };
    let note_about = |path: &str, limit: &str| {
        let mismatch = Mismatch {
            path: path.into(),
            keyword: "maximum".into(),
            limit: limit.into(),
        };
        let failure = found(FailureClass::MalformedResponse, &Finding::Schema(mismatch));
        note_text(
            &InjectionPolicy::default(),
            &"executor".into(),
            &call,
            &[&failure],
        )
    };
    assert!(
        note_about("/items/0/age", "150")
            .contains("(field `items.0.age` is above its maximum `150`)")
    );
    assert!(note_about("/items/0/pwned", "150").contains("(a field is above its maximum `150`)"));
    assert!(
        note_about("/items/0/age", "151").contains("(field `items.0.age` does not fit the schema)")
    );
}

#[test]
fn an_unknown_outcome_is_described_in_neutral_words() {
    let note = note("planner", &[&failure(FailureClass::OutcomeUnknown)]);
    assert!(!note.contains("failed"), "{note}");
    assert!(
        note.contains("Check whether it took effect before repeating it."),
        "{note}"
    );
}

#[test]
fn the_last_three_failures_are_listed_newest_last_and_the_same_in_a_row_once() {
    let server = failure(FailureClass::ServerError);
    let timeout = failure(FailureClass::Timeout);
    let empty = found(FailureClass::MalformedResponse, &Finding::Empty);
    let note = note("planner", &[&server, &timeout, &timeout, &empty]);
    assert!(
        note.ends_with(
            "What was tried, newest last: Request timeout (2 times); The answer could not be used (it was empty)."
        ),
        "{note}"
    );
    assert!(
        note.starts_with("The previous call failed: The answer could not be used (it was empty)."),
        "{note}"
    );
}

#[test]
fn a_note_that_is_too_long_leaves_out_the_list_then_the_hint_then_the_facts() {
    let tool = ToolDefinition {
        name: "t".repeat(64),
        ..tool("x")
    };
    let call = ModelCall {
        tools: vec![tool.clone(); 9],
        ..ModelCall::default()
    };
    let failure = found(
        FailureClass::MalformedResponse,
        &Finding::ToolArgumentsNotJson {
            tool: tool.name,
            line: 1,
            column: 1,
        },
    );
    let failures = [&failure; 9];
    let mut lengths = Vec::new();
    for taken in [0, 100, 200, 300, 320, 390, 400] {
        let usual = InjectionPolicy::default().template;
        let policy = InjectionPolicy {
            template: format!("{usual}{}", "-".repeat(taken)),
            ..InjectionPolicy::default()
        };
        let note = note_text(&policy, &"executor".into(), &call, &failures);
        assert!(note.chars().count() <= MAX_NOTE_CHARS, "{taken}: {note}");
        lengths.push((
            note.contains("What was tried"),
            note.contains("one valid JSON"),
            note.contains("ttt"),
        ));
    }
    assert_eq!(lengths[0], (true, true, true));
    assert_eq!(lengths[3], (false, false, false));
}

#[test]
fn a_template_that_is_too_long_is_cut() {
    let policy = InjectionPolicy {
        template: format!("{}{{error}}", "long ".repeat(200)),
        ..InjectionPolicy::default()
    };
    let note = note_text(
        &policy,
        &"executor".into(),
        &call(Vec::new()),
        &[&failure(FailureClass::Timeout)],
    );
    assert_eq!(note.chars().count(), 400);
}

#[test]
fn the_template_of_a_class_goes_before_all_others() {
    let mut policy = InjectionPolicy::default();
    policy
        .templates
        .insert("timeout".into(), "Hurry: {error}!".into());
    let note = note_text(
        &policy,
        &"planner".into(),
        &call(Vec::new()),
        &[&failure(FailureClass::Timeout)],
    );
    assert_eq!(note, "Hurry: Request timeout! Be shorter and simpler.");
}

#[test]
fn only_what_a_model_can_act_upon_is_actionable() {
    let actionable: Vec<&str> = FailureClass::ALL
        .into_iter()
        .filter(|class| is_actionable(*class, &failure(*class)))
        .map(FailureClass::as_str)
        .collect();
    assert_eq!(
        actionable,
        [
            "timeout",
            "crash",
            "malformed_response",
            "tool_failed",
            "outcome_unknown",
            "unknown"
        ]
    );
    let arguments = Failure {
        detail: Some(InvalidRequestDetail::ParameterMismatch),
        ..failure(FailureClass::InvalidRequest)
    };
    assert!(is_actionable(arguments.class, &arguments));
    let tool = found(
        FailureClass::NotFound,
        &Finding::UnknownTool {
            tool: "invented".into(),
        },
    );
    assert!(is_actionable(tool.class, &tool));
    let cut = found(FailureClass::StreamInterrupted, &Finding::OutputLimit);
    assert!(is_actionable(cut.class, &cut));
    let unreached = Failure {
        never_sent: true,
        ..failure(FailureClass::Timeout)
    };
    assert!(!is_actionable(unreached.class, &unreached));
}

#[test]
fn no_note_follows_a_refusal_or_an_overflow_even_with_always() {
    let timeout = failure(FailureClass::Timeout);
    for class in [FailureClass::ContentFiltered, FailureClass::ContextLength] {
        let refused = failure(class);
        for mode in [
            InjectionMode::WhenActionable,
            InjectionMode::Always,
            InjectionMode::Never,
        ] {
            assert!(!is_placed(mode, &[&refused]), "{class} {mode:?}");
            assert!(!is_placed(mode, &[&timeout, &refused]), "{class} {mode:?}");
        }
        let note = note_of(&[&refused, &timeout]);
        assert!(!note.contains(class.phrase()), "{note}");
    }
}

fn note_of(failures: &[&Failure]) -> String {
    let (_, call) = histories().remove(0);
    let target = target(Dialect::OpenaiChat, "openai", true, true);
    let policy = InjectionPolicy::default();
    match inject(
        &policy,
        InjectionMode::Always,
        &"executor".into(),
        &call,
        &target,
        failures,
    ) {
        Placement::Injected { note, .. } => note,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mode_always_notes_every_retryable_failure_and_mode_never_none() {
    let limit = failure(FailureClass::RateLimited);
    assert!(is_placed(InjectionMode::Always, &[&limit]));
    assert!(!is_placed(InjectionMode::WhenActionable, &[&limit]));
    let key = Failure {
        retryable: false,
        ..failure(FailureClass::Authentication)
    };
    assert!(!is_placed(InjectionMode::Always, &[&key]));
    assert!(!is_placed(
        InjectionMode::Never,
        &[&failure(FailureClass::Timeout)]
    ));
    assert!(!is_placed(InjectionMode::Always, &[]));
}

#[test]
fn an_attempt_without_a_note_states_why() {
    use {FailureClass as C, InjectionMode as M};
    for (mode, last, expected) in [
        (M::Never, C::ContentFiltered, "content_policy"),
        (M::Always, C::ContextLength, "context_full"),
        (M::Never, C::Timeout, "never"),
        (M::WhenActionable, C::RateLimited, "not_actionable"),
        (M::Always, C::Authentication, "not_actionable"),
    ] {
        assert_eq!(
            why_not_needed(mode, last),
            expected,
            "{mode:?} after {last}"
        );
    }
}

#[test]
fn a_note_is_blamed_only_for_a_bad_request_that_names_no_other_cause() {
    let adaptation = Some(Adaptation::DeveloperAsSystem);
    for (class, status, adaptation, expected) in [
        (FailureClass::InvalidRequest, Some(400), None, true),
        (FailureClass::InvalidRequest, Some(422), None, false),
        (FailureClass::InvalidRequest, None, None, false),
        (FailureClass::InvalidRequest, Some(400), adaptation, false),
        (FailureClass::NotFound, Some(400), None, false),
    ] {
        let failure = Failure {
            status,
            adaptation,
            ..failure(class)
        };
        assert_eq!(may_blame_note(&failure), expected, "{failure:?}");
    }
}

#[test]
fn local_refusals_are_ignored() {
    let timeout = failure(FailureClass::Timeout);
    for class in FailureClass::ALL
        .into_iter()
        .filter(|class| class.is_local_refusal())
    {
        let refusal = failure(class);
        assert!(!is_placed(InjectionMode::Always, &[&refusal]), "{class}");
        assert_eq!(
            note_of(&[&timeout, &refusal]),
            note_of(&[&timeout]),
            "{class}"
        );
    }
}

#[test]
fn an_earlier_actionable_failure_is_still_noted_after_one_that_is_not() {
    let malformed = failure(FailureClass::MalformedResponse);
    assert!(is_placed(
        InjectionMode::WhenActionable,
        &[&malformed, &failure(FailureClass::RateLimited)]
    ));
}

#[test]
fn a_note_on_a_too_large_answer_requests_a_shorter_one() {
    let large = Failure {
        fault: Some(TransportFault::TooLarge),
        ..failure(FailureClass::MalformedResponse)
    };
    let note = note("planner", &[&large]);
    assert!(
        note.contains("(it exceeded a size limit)") && note.ends_with("Be shorter."),
        "{note}"
    );
}
