//! What a watcher reads of a circuit: why it moved, from where, for how long, and that an operator
//! moved it.

use relight::internals::grpc::v1::{
    CircuitForce, CircuitState, FailureClass, ForceCircuitRequest, ResetCircuitRequest,
    recovery_event::Body, watch_recovery_request::Start,
};

use super::target;
use crate::support::{
    relight::Relight,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// The generation in a circuit event; all of them have it.
fn generation(body: &Body) -> Option<u64> {
    match body {
        Body::CircuitOpened(opened) => Some(opened.generation),
        Body::CircuitHalfOpen(half_open) => Some(half_open.generation),
        Body::CircuitRecovering(recovering) => Some(recovering.generation),
        Body::CircuitClosed(closed) => Some(closed.generation),
        _ => None,
    }
}

#[tokio::test]
async fn a_watcher_sees_why_a_circuit_moved_from_where_and_for_how_long() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(503));
    let yaml = format!(
        "{}circuit: {{ run_at_low_rate: 2, open_base: 50ms }}\n",
        one_target(&upstream)
    );
    let relight = Relight::start(&yaml).await;
    let began = target(&relight, "main").await.circuit.unwrap();
    assert!(
        began.since.is_some(),
        "it is closed since its target is known"
    );
    let mut watch = relight.watch(Start::Live(true)).await;
    while !watch.kinds().contains(&"circuit_opened".to_owned()) {
        relight.ask("Hello").await;
        watch.until("invocation_failed").await;
    }
    let opened = watch.seen.iter().find_map(|event| match &event.body {
        Some(Body::CircuitOpened(opened)) => Some(opened.clone()),
        _ => None,
    });
    let opened = opened.unwrap();
    assert_eq!(
        (opened.previous_state(), opened.streak, opened.forced),
        (CircuitState::Closed, 1, false)
    );
    assert_eq!(opened.cause(), FailureClass::Overloaded);
    let retry_in = opened.retry_in_ms.unwrap();
    assert!((40..=60).contains(&retry_in), "{retry_in} ms");
    assert_eq!(
        opened
            .evidence
            .map(|evidence| (evidence.failures, evidence.window_ms > 0)),
        Some((2, true))
    );
    let stands = target(&relight, "main").await.circuit.unwrap();
    assert!(stands.streak >= 1 && stands.since.unwrap().seconds >= began.since.unwrap().seconds);
    assert_eq!(stands.cause(), FailureClass::Overloaded);
    // It is well again.
    upstream.otherwise(Reply::text("Here I am."));
    while !watch.kinds().contains(&"circuit_closed".to_owned()) {
        relight.ask("Hello").await;
        watch
            .until_any(&[
                "invocation_succeeded",
                "invocation_recovered",
                "invocation_failed",
            ])
            .await;
    }
    let moves: Vec<&Body> = watch
        .seen
        .iter()
        .filter_map(|event| event.body.as_ref())
        .filter(|body| generation(body).is_some())
        .collect();
    let generations: Vec<u64> = moves.iter().filter_map(|body| generation(body)).collect();
    assert!(
        generations.is_sorted() && generations[0] == 1,
        "{generations:?}"
    );
    let mut seen = (0, 0, 0);
    for body in &moves {
        match body {
            Body::CircuitHalfOpen(half_open) => {
                assert!(
                    half_open.open_ms >= 40 && half_open.probes >= 1,
                    "{half_open:?}"
                );
                seen.0 += 1;
            }
            Body::CircuitRecovering(recovering) => {
                assert!(
                    recovering
                        .evidence
                        .is_some_and(|evidence| evidence.committed >= 1),
                    "{recovering:?}"
                );
                seen.1 += 1;
            }
            Body::CircuitClosed(closed) => {
                assert_eq!(
                    (closed.previous_state(), closed.forced),
                    (CircuitState::Recovering, false)
                );
                assert!(closed.disturbed_ms >= 40, "{closed:?}");
                seen.2 += 1;
            }
            _ => {}
        }
    }
    assert!(seen.0 >= 1 && seen.1 >= 2 && seen.2 == 1, "{moves:?}");
}

#[tokio::test]
async fn changes_of_a_circuit_by_an_operator_are_reported_as_such() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let force = |force: CircuitForce| ForceCircuitRequest {
        target: "main".to_owned(),
        force: force.into(),
        reason: "maintenance".to_owned(),
    };
    relight
        .admin()
        .force_circuit(force(CircuitForce::Open))
        .await
        .unwrap();
    let event = watch.until("circuit_opened").await;
    let Some(Body::CircuitOpened(opened)) = event.body else {
        unreachable!()
    };
    assert_eq!(
        (opened.generation, opened.previous_state(), opened.forced),
        (1, CircuitState::Closed, true)
    );
    assert_eq!(
        (opened.retry_in_ms, opened.cause()),
        (None, FailureClass::Unspecified)
    );
    assert!(
        event.display_text.starts_with("An operator opened"),
        "{}",
        event.display_text
    );
    relight
        .admin()
        .force_circuit(force(CircuitForce::Closed))
        .await
        .unwrap();
    let event = watch.until("circuit_closed").await;
    let Some(Body::CircuitClosed(closed)) = event.body else {
        unreachable!()
    };
    assert_eq!(
        (closed.generation, closed.previous_state(), closed.forced),
        (2, CircuitState::ForcedOpen, true)
    );
    assert!(
        event.display_text.starts_with("An operator closed"),
        "{}",
        event.display_text
    );
    relight
        .admin()
        .reset_circuit(ResetCircuitRequest {
            target: "main".to_owned(),
        })
        .await
        .unwrap();
    let Some(Body::CircuitClosed(reset)) = watch.until("circuit_closed").await.body else {
        unreachable!()
    };
    assert_eq!(
        (reset.previous_state(), reset.forced, reset.disturbed_ms),
        (CircuitState::ForcedClosed, true, 0)
    );
}
