//! Parts of a completion made in the background that are gone on with, by what was recorded.

use super::*;
use crate::domain::{
    completion::Exactness, failure::Wait, failure::WaitSource, invocation::RecoveryStrategy,
    tool::ExecutedTool,
};

const CLASS: FailureClass = FailureClass::StreamInterrupted;

fn started(attempt: u32, cause: AttemptCause) -> StreamStep {
    StreamStep::AttemptStarted {
        attempt,
        target: "main".into(),
        cause,
        model: "m-1".to_owned(),
        repaired: None,
        tool: None,
    }
}

fn decided(attempt: u32) -> StreamStep {
    StreamStep::Recovery {
        attempt,
        class: CLASS,
        strategy: RecoveryStrategy::Retry,
        wait: Wait {
            duration: Duration::ZERO,
            source: WaitSource::Backoff,
        },
        display: String::new(),
        budget_left: 1.0,
        adaptation: None,
    }
}

fn left(steps: Vec<StreamStep>) -> RecoveredState {
    let mut left = RecoveredState::default();
    for (seq, step) in (1..).zip(steps) {
        left.see(&Entry {
            epoch: 1,
            seq,
            attempt: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            step,
        })
        .unwrap();
    }
    left.orphan_last();
    left
}

#[test]
fn an_execution_of_a_tool_that_ran_when_its_replica_died_is_one_of_its_attempts() {
    let executed = ExecutedTool {
        arguments: r#"{"amount":5}"#.to_owned(),
        goal: "pay".to_owned(),
        release: "1".to_owned(),
    };
    let mut step = started(1, AttemptCause::Initial);
    if let StreamStep::AttemptStarted { tool, .. } = &mut step {
        *tool = Some(Box::new(executed.clone()));
    }
    let left = left(vec![step]);
    assert_eq!(left.attempts[0].tool.as_deref(), Some(&executed));
    assert!(left.attempts[0].lost_with_replica);
}

fn handle(attempt: u32) -> UpstreamHandle {
    UpstreamHandle {
        attempt,
        target: "main".into(),
        id: "resp_1".to_owned(),
    }
}

#[test]
fn an_answer_is_read_on_whatever_its_attempt_was_made_for_unless_it_is_only_the_rest_of_one() {
    for (cause, is_whole) in [
        (AttemptCause::Initial, true),
        (AttemptCause::Retry(CLASS), true),
        (AttemptCause::Fallback(CLASS), true),
        (AttemptCause::Hedge, true),
        (AttemptCause::Adapt(CLASS), true),
        (AttemptCause::Attach(CLASS), true),
        (AttemptCause::Rotate(CLASS), true),
        (AttemptCause::Continue(CLASS), false),
        (AttemptCause::Extend, false),
    ] {
        let left = left(vec![
            started(1, AttemptCause::Initial),
            decided(1),
            started(2, cause),
        ]);
        assert_eq!(left.may_be_read_on(&handle(2)), is_whole, "{cause:?}");
    }
}

#[test]
fn what_a_note_had_asked_for_is_asked_for_anew() {
    let note = StreamStep::ContextInjected {
        attempt: 1,
        note: "n".to_owned(),
        vehicle: "v".to_owned(),
        message: 1,
    };
    assert!(!left(vec![started(1, AttemptCause::Initial), note]).may_be_read_on(&handle(1)));
}

#[test]
fn an_attempt_that_was_given_up_is_not_under_way_any_more() {
    let left = left(vec![
        started(1, AttemptCause::Initial),
        decided(1),
        started(2, AttemptCause::Retry(CLASS)),
    ]);
    assert!(!left.is_under_way(&handle(1)));
    assert!(left.is_under_way(&handle(2)));
}

#[test]
fn of_an_invocation_whose_first_steps_were_lost_only_the_first_answer_is_known_to_be_whole() {
    assert!(left(Vec::new()).may_be_read_on(&handle(1)));
    assert!(!left(Vec::new()).may_be_read_on(&handle(2)));
    assert!(!left(vec![started(1, AttemptCause::Initial)]).may_be_read_on(&handle(2)));
}

#[test]
fn an_answer_that_kills_its_readers_is_not_read_for_ever() {
    let attached = (2..10).map(|number| started(number, AttemptCause::Attach(CLASS)));
    let mut steps = vec![started(1, AttemptCause::Initial)];
    steps.extend(attached);
    let last = handle(9);
    assert!(!left(steps.clone()).may_be_read_on(&last));
    steps.pop();
    assert!(left(steps).may_be_read_on(&handle(8)));
}

#[test]
fn what_an_answer_cost_is_counted_with_the_attempt_that_brings_it() {
    let usage = Usage {
        input_tokens: 10,
        output_tokens: 8,
        exactness: Exactness::Exact,
        ..Usage::default()
    };
    let spent = |attempt| StreamStep::Usage { attempt, usage };
    let again = started(2, AttemptCause::Retry(CLASS));
    let mut left = left(vec![
        started(1, AttemptCause::Initial),
        spent(1),
        decided(1),
        again,
        spent(2),
    ]);
    left.count_once(&handle(2));
    let counted: Vec<Usage> = left.attempts.iter().map(|record| record.usage).collect();
    assert_eq!(counted, [usage, Usage::default()]);
}
