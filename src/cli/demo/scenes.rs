//! The five scenes: what fails, and what Relight promises to do about it.
//!
//! Each promise is checked against what the caller really got, so that the demo cannot show a
//! recovery that did not happen.

use crate::grpc::v1::{self, FailureClass, WaitSource, recovery_event::Body};

use super::scene::{
    Played, Scene, TOOL, all_answered, ensure, failed_by, stated_second_passed, two_attempts,
};

/// Most calls of an account whose credit is used up: a few refusals in a row, and the probes of the
/// first seconds.
const MOST_REFUSALS: usize = 6;

/// Scenes that the demo shows, in this order.
pub(super) const SCENES: [Scene; 5] = [
    Scene {
        title: "The model hangs",
        story: "It says nothing for 1 s, which is all that this demo allows. Relight gives up on that attempt, tells \
                the model what went wrong and asks again.",
        moral: "Answered on the second attempt, because the note requested a brief answer.",
        name: "timeout",
        route: "timeout",
        question: "Why is the sky blue? Explain everything.",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |_| {},
        promise: model_is_informed_of_timeout,
    },
    Scene {
        title: "The provider returns 429 with a wait of 1 s",
        story: "Relight waits as long as stated, and a little more so that not all callers return at once.",
        moral: "Waited as the provider stated, then answered; no caller had to handle a 429.",
        name: "rate-limit",
        route: "rate-limit",
        question: "What is the capital of France?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |_| {},
        promise: stated_wait_is_kept,
    },
    Scene {
        title: "The model breaks off in the middle of a tool call",
        story: "The arguments are no JSON. Relight names the tool and the position to the model, and retries.",
        moral: "The caller never saw the broken call, only the right one.",
        name: "tool-call",
        route: "tool-call",
        question: "What is the weather in Oslo?",
        with_tool: true,
        max_output_tokens: None,
        calls: 1,
        prepare: |_| {},
        promise: tool_call_is_repaired,
    },
    Scene {
        title: "A provider is down",
        story: "Each call falls back to a spare. After three failures in a row the circuit opens: from then on calls go \
                straight to the spare, and the sick provider is left alone until it is time to probe it.",
        moral: "No call failed, and after the third none lost time on the failing provider.",
        name: "outage",
        route: "outage",
        question: "Who is there?",
        with_tool: false,
        max_output_tokens: None,
        calls: 6,
        prepare: |_| {},
        promise: outage_is_bridged,
    },
    Scene {
        title: "The credit of one account is used up",
        story: "Waiting does not help: the other account answers, at once. After a few refusals in a row and no answer \
                between, calls do not even try the spent one; a probe finds out when it is topped up.",
        moral: "No call failed, and the spent account was called a handful of times.",
        name: "quota",
        route: "quota",
        question: "Who pays?",
        with_tool: false,
        max_output_tokens: None,
        calls: 9,
        prepare: |_| {},
        promise: spent_account_is_left_alone,
    },
];

fn model_is_informed_of_timeout(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::Timeout),
        "the first attempt did not time out",
    )?;
    ensure(
        !second.injected_note.is_empty(),
        "the model was not informed of its failure",
    )
}

fn stated_wait_is_kept(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::RateLimited),
        "the first attempt was not rate limited",
    )?;
    let stated = [WaitSource::RetryAfter, WaitSource::Gate].map(i32::from);
    stated_second_passed(first, second)?;
    ensure(
        stated.contains(&second.wait_source),
        "the wait was not the provider's",
    )
}

fn tool_call_is_repaired(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::MalformedResponse),
        "the first answer was not malformed",
    )?;
    ensure(
        second.injected_note.contains(TOOL),
        "the note does not name the tool",
    )?;
    ensure(
        played.last_reply().contains("Oslo"),
        "the tool call was not repaired",
    )
}

fn outage_is_bridged(played: &Played) -> Result<(), String> {
    all_answered(played)?;
    ensure(
        played.saw(|body| matches!(body, Body::CircuitOpened(_))),
        "the circuit did not open",
    )?;
    let straight = |response: &v1::InvokeWithRecoveryResponse| {
        response.final_target == "spare"
            && response
                .attempts
                .iter()
                .all(|attempt| attempt.target == "spare")
    };
    let after_the_third = played.responses.iter().skip(3);
    ensure(
        after_the_third.clone().all(straight),
        "a call went to the sick provider while its circuit was open",
    )?;
    ensure(after_the_third.count() == 3, "there were not six calls")
}

fn spent_account_is_left_alone(played: &Played) -> Result<(), String> {
    all_answered(played)?;
    let attempts = played
        .responses
        .iter()
        .flat_map(|response| &response.attempts);
    let on_spent: Vec<_> = attempts
        .filter(|attempt| attempt.target == "account-a" && attempt.sent)
        .collect();
    ensure(
        (1..=MOST_REFUSALS).contains(&on_spent.len()),
        "the spent account was called more than a handful of times",
    )?;
    ensure(
        on_spent
            .iter()
            .all(|attempt| failed_by(attempt, FailureClass::QuotaExceeded)),
        "its failure was not a spent quota",
    )?;
    let straight = |response: &v1::InvokeWithRecoveryResponse| {
        let mut attempts = response.attempts.iter();
        attempts.all(|attempt| attempt.target == "account-b" || !attempt.sent)
    };
    ensure(
        played.responses.iter().any(straight),
        "every call tried the spent account",
    )?;
    ensure(
        played
            .responses
            .iter()
            .all(|response| response.final_target == "account-b"),
        "another account answered",
    )
}
