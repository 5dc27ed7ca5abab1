//! One line for people from one event of the API.
//!
//! A recovery carries its own display text; the others are worded here, as the server's log words them.

use relight::grpc::v1::{self, recovery_event::Body};

use super::{
    terminal::{Paint, one_line, span},
    words,
};

/// What happened, without when and to whom; `None` for a bookmark, which tells people nothing.
pub(super) fn what(event: &v1::RecoveryEvent) -> Option<String> {
    let body = event.body.as_ref();
    if matches!(body, Some(Body::Bookmark(_))) {
        return None;
    }
    let text =
        body.map_or_else(|| "Something that this version has no words for".to_owned(), |body| worded(event, body));
    Some(one_line(&text))
}

/// The words, in the colour of what they mean.
pub(super) fn painted(event: &v1::RecoveryEvent, words: &str, paint: Paint) -> String {
    match &event.body {
        Some(Body::InvocationSucceeded(_) | Body::InvocationRecovered(_) | Body::CircuitClosed(_)) => {
            paint.green(words)
        }
        Some(Body::InvocationFailed(_) | Body::AttemptFailed(_) | Body::CircuitOpened(_)) => paint.red(words),
        Some(Body::RecoveryAttempted(_) | Body::GateClosed(_) | Body::Missed(_)) => paint.yellow(words),
        Some(Body::InvocationStarted(_) | Body::AttemptStarted(_)) => paint.dim(words),
        _ => words.to_owned(),
    }
}

fn worded(event: &v1::RecoveryEvent, body: &Body) -> String {
    match body {
        Body::InvocationStarted(_)
        | Body::InvocationSucceeded(_)
        | Body::InvocationRecovered(_)
        | Body::InvocationFailed(_) => invocation(event, body),
        Body::AttemptStarted(_)
        | Body::AttemptFailed(_)
        | Body::RecoveryAttempted(_)
        | Body::ContextInjected(_)
        | Body::ContextInjectionSkipped(_)
        | Body::FallbackChosen(_)
        | Body::HedgeStarted(_) => attempt(event, body),
        _ => around(event, body),
    }
}

fn invocation(event: &v1::RecoveryEvent, body: &Body) -> String {
    let operation = &event.operation;
    match body {
        Body::InvocationSucceeded(ended) => format!("{operation} answered in {}", span(ended.duration_ms)),
        Body::InvocationRecovered(ended) => format!(
            "{operation} recovered: answered by attempt {} after {} ({})",
            ended.attempts,
            span(ended.duration_ms),
            words::strategies(&ended.recovery_applied)
        ),
        Body::InvocationFailed(ended) => format!(
            "{operation} failed after {} {}: {}: {}",
            ended.attempts,
            if ended.attempts == 1 { "attempt" } else { "attempts" },
            words::class(ended.failure_class),
            ended.message
        ),
        _ => format!("{operation} started"),
    }
}

fn attempt(event: &v1::RecoveryEvent, body: &Body) -> String {
    let (number, target) = (event.attempt, &event.target);
    match body {
        Body::AttemptStarted(started) => {
            format!("Attempt {number} asks {target} ({}): {}", started.model, words::cause(started.cause))
        }
        Body::AttemptFailed(failed) => {
            let verb = if failed.sent { "failed" } else { "was refused before anything was sent" };
            format!("Attempt {number} on {target} {verb}: {}: {}", words::class(failed.failure_class), failed.message)
        }
        Body::RecoveryAttempted(recovery) => {
            let wait = match (recovery.wait_ms, words::wait_source(recovery.wait_source)) {
                (0, _) => "; at once".to_owned(),
                (ms, "") => format!("; waiting {}", span(ms)),
                (ms, source) => format!("; waiting {} {source}", span(ms)),
            };
            format!("{}{wait}", recovery.display_text)
        }
        Body::ContextInjectionSkipped(skipped) => {
            format!("Did not tell the model: {}", words::skip_reason(skipped.reason))
        }
        // Nothing failed in this call: what is known of the target is reason enough.
        Body::FallbackChosen(v1::FallbackChosenEvent { from_target: from, to_target: to, failure_class, .. })
            if *failure_class == i32::from(v1::FailureClass::CircuitOpen) =>
        {
            format!("Going straight to {to}: {from} takes no calls now")
        }
        Body::FallbackChosen(chosen) => {
            format!("Falling back from {} to {}: {}", chosen.from_target, chosen.to_target, chosen.reason)
        }
        Body::HedgeStarted(hedge) => {
            format!("Asking {} too: {} is silent after {}", hedge.hedge_target, hedge.slow_target, span(hedge.delay_ms))
        }
        _ => format!("Told the model what went wrong (attempt {number})"),
    }
}

/// What happens to targets and to Relight itself.
fn around(event: &v1::RecoveryEvent, body: &Body) -> String {
    let target = &event.target;
    let in_time = |ms: Option<u64>| ms.map_or_else(String::new, |ms| format!(" for {}", span(ms)));
    match body {
        Body::CircuitOpened(opened) => {
            let next = opened
                .retry_in_ms
                .map_or_else(|| "an operator holds it open".to_owned(), |ms| format!("probing in {}", span(ms)));
            format!("Circuit of {target} opened: {}; {next}", opened.rule)
        }
        Body::CircuitHalfOpen(_) => format!("Circuit of {target} is half-open: probing"),
        Body::CircuitRecovering(stage) => {
            format!("Circuit of {target} is recovering: {:.0} % admitted", stage.admitted_ratio * 100.0)
        }
        Body::CircuitClosed(_) => format!("Circuit of {target} closed: calls pass again"),
        Body::GateClosed(gate) => format!(
            "The {} gate of {target} closed{}: {}",
            words::gate(gate.kind),
            in_time(gate.reopens_in_ms),
            words::class(gate.cause)
        ),
        Body::GateOpened(gate) => format!("The {} gate of {target} opened", words::gate(gate.kind)),
        Body::BudgetExhausted(_) => format!("The retry budget of {target} is empty"),
        Body::ReleaseRolledBack(release) => {
            format!("Release {} was rolled back to {}", release.release_id, release.to_release_id)
        }
        Body::ConfigurationReloaded(_) => "A new configuration is in force".to_owned(),
        Body::ConfigurationRejected(rejected) => {
            let reasons: Vec<&str> = rejected.faults.iter().map(|fault| fault.reason.as_str()).collect();
            format!("A new configuration was refused: {}", reasons.join("; "))
        }
        Body::StoreLost(lost) => format!("The {} store is away: {}", words::store(lost.kind), lost.reason),
        Body::StoreFound(found) => format!("The {} store is back", words::store(found.kind)),
        Body::Missed(missed) if missed.caught_up => format!("{} events were missed; they follow", missed.count),
        Body::Missed(missed) => format!("{} events were missed", missed.count),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: Body) -> v1::RecoveryEvent {
        v1::RecoveryEvent {
            operation: "executor".to_owned(),
            target: "gpt".to_owned(),
            attempt: 1,
            body: Some(body),
            ..v1::RecoveryEvent::default()
        }
    }

    #[test]
    fn a_recovery_is_told_in_its_own_words_with_the_wait_and_its_source() {
        let recovery = v1::RecoveryAttemptedEvent {
            display_text: "Retrying executor (attempt 1/2): Rate limit reached".to_owned(),
            wait_ms: 1200,
            wait_source: v1::WaitSource::RetryAfter.into(),
            ..v1::RecoveryAttemptedEvent::default()
        };
        assert_eq!(
            what(&event(Body::RecoveryAttempted(recovery))).unwrap(),
            "Retrying executor (attempt 1/2): Rate limit reached; waiting 1.2 s as the provider's retry-after says"
        );
    }

    #[test]
    fn upstream_words_cannot_break_the_line() {
        let failed = v1::AttemptFailedEvent {
            failure_class: v1::FailureClass::ServerError.into(),
            message: "broken\n\u{1b}[2Jpipe".to_owned(),
            sent: true,
            ..v1::AttemptFailedEvent::default()
        };
        let line = what(&event(Body::AttemptFailed(failed))).unwrap();
        assert_eq!(line, "Attempt 1 on gpt failed: server_error: broken  [2Jpipe");
    }

    #[test]
    fn a_bookmark_says_nothing_and_an_event_of_a_newer_server_says_that_something_happened() {
        assert_eq!(what(&event(Body::Bookmark(v1::Bookmark {}))), None);
        assert!(what(&v1::RecoveryEvent::default()).is_some());
    }
}
