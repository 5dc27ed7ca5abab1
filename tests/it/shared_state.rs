//! What all callers share: one circuit per target, its probes, and what an operator sees and turns.

mod circuit_events;

use relight::internals::grpc::v1::{
    CircuitForce, CircuitState, FailureClass, ForceCircuitRequest, GetStatusRequest,
    ListTargetsRequest, Overrides, ResetCircuitRequest, RewindMode, ServiceState, Target,
    WaitSource, invoke_with_recovery_response::Outcome, recovery_event::Body,
    watch_recovery_request::Start,
};

use crate::support::{
    folding::Folding,
    relight::{Relight, asking, kind_of, streaming},
    targets::{one_target, two_targets},
    upstream::{Reply, Upstream},
};

async fn target(relight: &Relight, id: &str) -> Target {
    let request = ListTargetsRequest {
        targets: vec![id.to_owned()],
        ..ListTargetsRequest::default()
    };
    relight
        .admin()
        .list_targets(request)
        .await
        .unwrap()
        .into_inner()
        .targets
        .remove(0)
}

fn circuit_state(target: &Target) -> CircuitState {
    target.circuit.as_ref().map_or(
        CircuitState::Unspecified,
        relight::internals::grpc::v1::Circuit::state,
    )
}

#[tokio::test]
async fn five_callers_share_one_circuit_and_the_fallback_answers_while_it_is_open() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::status(500));
    second.otherwise(Reply::text("From the second."));
    let yaml = format!(
        "{}circuit: {{ mode: consecutive, consecutive_failures: 5, consecutive_open: 60s }}\n",
        two_targets(&first, &second)
    );
    let relight = Relight::start(&yaml).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    // Five callers, one failure each: no caller alone has seen enough, all together have.
    for _ in 0..5 {
        let response = relight.ask("Hello").await;
        assert_eq!(response.final_target, "second");
    }
    watch.until("circuit_opened").await;
    assert_eq!(first.requests().len(), 5);
    assert_eq!(
        circuit_state(&target(&relight, "first").await),
        CircuitState::Open
    );
    let response = relight.ask("Hello").await;
    assert!(matches!(response.outcome, Some(Outcome::Completion(_))));
    assert_eq!(
        response.attempts.len(),
        1,
        "the open circuit costs no attempt"
    );
    assert_eq!(
        first.requests().len(),
        5,
        "nobody asks the target whose circuit is open"
    );
}

#[tokio::test]
async fn at_half_open_a_hundred_callers_send_no_more_probes_than_allowed() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(500));
    let yaml = format!(
        "{}circuit: {{ mode: consecutive, consecutive_failures: 2, consecutive_open: 300ms }}\n",
        one_target(&upstream).replace("400ms", "30s")
    );
    let relight = std::sync::Arc::new(Relight::start(&yaml).await);
    relight.ask("Hello").await;
    assert_eq!(
        circuit_state(&target(&relight, "main").await),
        CircuitState::Open
    );
    let before = upstream.requests().len();
    // The probe hangs, so that it is still out while all the others come.
    upstream.otherwise(Reply::silence());
    tokio::time::sleep(std::time::Duration::from_millis(350)).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let relight = std::sync::Arc::clone(&relight);
        callers.spawn(async move {
            let mut invocation = crate::support::relight::asking("Hello");
            let overrides = relight::internals::grpc::v1::Overrides {
                deadline_ms: Some(3000),
                ..Default::default()
            };
            invocation.overrides = Some(overrides);
            relight.invoke(invocation).await
        });
    }
    let mut answered = 0;
    while let Some(response) = callers.join_next().await {
        response.unwrap();
        answered += 1;
    }
    assert_eq!(answered, 100, "every caller gets an outcome");
    assert_eq!(
        upstream.requests().len() - before,
        1,
        "one probe at a time, whoever asks"
    );
}

#[tokio::test]
async fn a_callers_own_faults_never_move_a_circuit() {
    let upstream = Upstream::start().await;
    let yaml = format!(
        "{}circuit: {{ mode: consecutive, consecutive_failures: 2 }}\n",
        one_target(&upstream)
    );
    let relight = Relight::start(&yaml).await;
    let quota =
        br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    for (status, body) in [
        (400, &b"{\"error\":{\"message\":\"bad\"}}"[..]),
        (413, b"{}"),
        (422, b"{}"),
        (429, quota),
    ] {
        upstream.otherwise(Reply::body(status, &[], body));
        for _ in 0..3 {
            relight.ask("Hello").await;
        }
        assert_eq!(
            circuit_state(&target(&relight, "main").await),
            CircuitState::Closed,
            "{status}"
        );
    }
}

#[tokio::test]
async fn an_operator_forces_and_resets_a_circuit() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.otherwise(Reply::text("From the second."));
    let relight = Relight::start(&two_targets(&first, &second)).await;
    let force = ForceCircuitRequest {
        target: "first".to_owned(),
        force: CircuitForce::Open.into(),
        reason: "maintenance".to_owned(),
    };
    relight.admin().force_circuit(force).await.unwrap();
    assert_eq!(
        circuit_state(&target(&relight, "first").await),
        CircuitState::ForcedOpen
    );
    assert_eq!(relight.ask("Hello").await.final_target, "second");
    assert!(first.requests().is_empty());
    relight
        .admin()
        .reset_circuit(ResetCircuitRequest {
            target: "first".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        circuit_state(&target(&relight, "first").await),
        CircuitState::Closed
    );
    assert_eq!(relight.ask("Hello").await.final_target, "first");
    let unknown = ResetCircuitRequest {
        target: "frist".to_owned(),
    };
    let status = relight.admin().reset_circuit(unknown).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    assert!(status.message().contains("first"), "{}", status.message());
}

#[tokio::test]
async fn the_status_names_each_unhealthy_target_and_its_state() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let relight = Relight::start(&format!(
        "{}circuit: {{ slow_threshold: 1ms }}\n",
        two_targets(&first, &second)
    ))
    .await;
    let status = async || {
        relight
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
    };
    first.otherwise(Reply::text("From the first.").slow_head(std::time::Duration::from_millis(20)));
    second.otherwise(Reply::text("From the second."));
    assert_eq!(
        (status().await.state(), status().await.reasons),
        (ServiceState::Healthy, Vec::new())
    );
    // Twenty slow answers are called degraded; the circuit itself is closed.
    for _ in 0..20 {
        relight.ask("Hello").await;
    }
    let degraded = status().await;
    assert_eq!(degraded.state(), ServiceState::Degraded);
    let told: Vec<_> = degraded
        .reasons
        .iter()
        .map(|reason| (&*reason.component, &*reason.message))
        .collect();
    assert_eq!(
        told,
        [(
            "circuit:first",
            "the target is degraded: others are preferred"
        )]
    );
    let force = ForceCircuitRequest {
        target: "second".to_owned(),
        force: CircuitForce::Open.into(),
        ..Default::default()
    };
    relight.admin().force_circuit(force).await.unwrap();
    let told: Vec<_> = status()
        .await
        .reasons
        .into_iter()
        .map(|reason| (reason.component, reason.message))
        .collect();
    assert!(
        told.contains(&(
            "circuit:second".to_owned(),
            "the circuit is forced open by an operator".to_owned()
        )),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_target_whose_limit_is_reached_is_passed_over_for_that_reason() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::body(
        429,
        &[("retry-after", "60")],
        b"{\"error\":{\"message\":\"Rate limit reached\"}}",
    ));
    second.otherwise(Reply::text("From the second."));
    let relight = Relight::start(&two_targets(&first, &second)).await;
    // The gate of the first closes after a handful of refusals, and then lets one probe pass.
    for _ in 0..6 {
        relight.ask("Hello").await;
    }
    let refused = first.requests().len();
    let mut watch = relight.watch(Start::Live(true)).await;
    relight.ask("Hello").await;
    let Some(Body::FallbackChosen(chosen)) = watch.until("fallback_chosen").await.body else {
        unreachable!()
    };
    assert_eq!(
        (chosen.from_target.as_str(), chosen.failure_class()),
        ("first", FailureClass::RateLimited)
    );
    assert_eq!(first.requests().len(), refused, "it is not called");
}

#[tokio::test]
async fn the_first_of_equal_targets_is_no_fallback() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let yaml = two_targets(&first, &second).replace(
        "deadline: 20s",
        "deadline: 20s, select: { order: shuffled }",
    );
    let relight = Relight::start(&yaml).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    while first.requests().is_empty() || second.requests().is_empty() {
        relight.ask("Hello").await;
        watch.until("invocation_succeeded").await;
    }
    assert!(
        !watch.kinds().contains(&"fallback_chosen".to_owned()),
        "{:?}",
        watch.kinds()
    );
}

#[tokio::test]
async fn a_wait_for_a_closed_target_is_reported_once_to_watchers_and_to_the_caller() {
    let upstream = Upstream::start().await;
    let limited = Reply::body(
        429,
        &[("retry-after", "1")],
        b"{\"error\":{\"message\":\"Rate limit reached\"}}",
    );
    for _ in 0..5 {
        upstream.push(limited.clone());
    }
    upstream.otherwise(Reply::text("Here I am."));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    // The first ones fail at once, and leave a closed gate to the others.
    let mut once = asking("Hello");
    once.overrides = Some(Overrides {
        max_retries: Some(0),
        ..Overrides::default()
    });
    for _ in 0..5 {
        assert!(matches!(
            relight.invoke(once.clone()).await.outcome,
            Some(Outcome::Failure(_))
        ));
    }
    let (folding, ended) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(ended.is_none() && folding.is_completed(), "{ended:?}");
    watch.until("invocation_succeeded").await;
    let parked: Vec<_> = watch
        .seen
        .iter()
        .filter(|event| kind_of(event) == "invocation_parked")
        .collect();
    let [event] = &parked[..] else {
        panic!("{:?}", watch.kinds())
    };
    let Some(Body::InvocationParked(told)) = &event.body else {
        unreachable!()
    };
    assert_eq!(
        (event.target.as_str(), told.failure_class()),
        ("main", FailureClass::RateLimited)
    );
    assert_eq!(told.wait_source(), WaitSource::Gate);
    assert!(
        told.wait_ms > 0 && event.display_text.contains("rate limit reached"),
        "{event:?}"
    );
    assert_eq!(folding.parked, std::slice::from_ref(&event.display_text));
}
