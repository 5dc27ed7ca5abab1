//! The three decisions for a client of any HTTP library: hand over the status, the headers and the
//! body of a response that failed, and do what is decided.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads the clock and prints"
)]

use std::{sync::Arc, time::Duration};

use relight_policy::{
    Candidate, Circuit, CircuitPolicy, Classifier, Decision, ProviderError, ReportContext,
    RetryPolicy, SeededRng, Signal, Situation, Surface, TargetId, plan,
};
use tokio::time::Instant;

fn main() {
    let classifier = Classifier::new();
    let policy = RetryPolicy::default();
    let mut circuit = Circuit::new(Arc::new(CircuitPolicy::default()));
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut retries_made = 0;
    loop {
        let now = Instant::now();
        let context = ReportContext {
            now,
            rng: 0.5,
            alternative_healthy: false,
        };
        let permit = match circuit.admit(now, 0.5) {
            Ok(permit) => permit,
            Err(reject) => return println!("left alone for {:?}", reject.retry_in),
        };
        // With `reqwest`: `response.status().as_u16()`, `response.headers()`, `response.text()`.
        let (status, body) = send(retries_made);
        if status < 400 {
            circuit.report(&permit, Signal::FirstToken, context);
            return println!("{body}");
        }
        let error = ProviderError {
            surface: Surface::Http,
            status: Some(status),
            headers: vec![("retry-after".to_owned(), "0".to_owned())],
            body: Some(body.to_owned()),
            ..ProviderError::default()
        };
        let failure = classifier.classify(&error, jiff::Timestamp::now());
        println!("{:?} by rule {}", failure.class, failure.rule);
        circuit.report(&permit, Signal::of(&failure, false, false, false), context);
        let candidates = [Candidate::new(TargetId::from("openai"))];
        let situation = Situation {
            retries_made,
            ..Situation::new(now, deadline, &failure, &candidates)
        };
        let mut rng = SeededRng::new(7, &"call-1".into(), retries_made);
        match plan(&policy, &situation, &mut rng) {
            Decision::Again { wait, .. } => std::thread::sleep(wait.duration),
            Decision::Park { until, .. } => std::thread::sleep(until - now),
            Decision::Stop(reason) => return println!("no other attempt: {reason:?}"),
        }
        retries_made += 1;
    }
}

/// A provider that is overloaded once.
fn send(attempt: u32) -> (u16, &'static str) {
    match attempt {
        0 => (
            503,
            r#"{"error": {"message": "The engine is overloaded."}}"#,
        ),
        _ => (200, "Hello."),
    }
}
