//! What callers and operators read: plain words about what happened, without raw numbers or a
//! library's own texts.

use relight::internals::grpc::v1::{
    CircuitForce, CircuitState, Failure, ForceCircuitRequest, GetStatusRequest, Invocation,
    InvokeWithRecoveryRequest, InvokeWithRecoveryResponse, Overrides, RecoveryEventFilter,
    WatchRecoveryRequest, invoke_with_recovery_response::Outcome, recovery_event::Body,
    watch_recovery_request::Start,
};
use serde_json::json;

use crate::support::{
    binary::run,
    process::{Process, Serve, with_key},
    relight::{Relight, asking},
    targets::{one_target, two_targets},
    upstream::{Reply, Upstream},
};

fn failing(status: u16, headers: &[(&str, &str)]) -> Reply {
    Reply::refusal(
        status,
        headers,
        &json!({"error": {"message": "Something is off"}}),
    )
}

fn once(text: &str) -> Invocation {
    Invocation {
        overrides: Some(Overrides {
            max_retries: Some(0),
            ..Overrides::default()
        }),
        ..asking(text)
    }
}

fn failure(response: InvokeWithRecoveryResponse) -> Failure {
    match response.outcome {
        Some(Outcome::Failure(failure)) => failure,
        other => panic!("no failure but {other:?}"),
    }
}

#[tokio::test]
async fn a_second_target_that_overtook_a_slow_one_is_named() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let relight = Relight::start(&two_targets(&first, &second)).await;
    first.push(Reply::silence());
    let response = relight.ask("Hello").await;
    assert_eq!(response.final_target, "second", "{response:?}");
    assert!(
        !response.reasoning.contains("first attempt"),
        "{}",
        response.reasoning
    );
    assert!(
        response.reasoning.contains("attempt 2"),
        "{}",
        response.reasoning
    );
}

#[tokio::test]
async fn going_straight_to_another_target_is_no_retry() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let relight = Relight::start(&two_targets(&first, &second)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let target = "first".to_owned();
    let request = ForceCircuitRequest {
        target,
        force: CircuitForce::Open.into(),
        reason: "moving-4711".to_owned(),
    };
    relight.admin().force_circuit(request).await.unwrap();
    let Some(Body::CircuitOpened(opened)) = watch.until("circuit_opened").await.body else {
        panic!("it opened")
    };
    assert_eq!(
        (opened.rule.as_str(), opened.forced),
        ("forced open by an operator: moving-4711", true)
    );
    assert!(matches!(
        relight.ask("Hello").await.outcome,
        Some(Outcome::Completion(_))
    ));
    watch
        .until_any(&["invocation_succeeded", "invocation_recovered"])
        .await;
    assert!(
        !watch.kinds().contains(&"recovery_attempted".to_owned()),
        "{:?}",
        watch.kinds()
    );
}

#[tokio::test]
async fn a_watcher_sees_that_a_circuit_is_held_closed_and_that_it_is_given_back() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    for (force, from, words) in [
        (
            CircuitForce::Closed,
            CircuitState::Closed,
            "An operator closed the circuit of main",
        ),
        (
            CircuitForce::Auto,
            CircuitState::ForcedClosed,
            "An operator no longer holds the circuit of main closed",
        ),
    ] {
        let request = ForceCircuitRequest {
            target: "main".to_owned(),
            force: force.into(),
            reason: String::new(),
        };
        relight.admin().force_circuit(request).await.unwrap();
        let event = watch.until("circuit_closed").await;
        let Some(Body::CircuitClosed(closed)) = event.body else {
            panic!("it closed")
        };
        assert_eq!((closed.previous_state(), closed.forced), (from, true));
        assert!(
            event.display_text.starts_with(words),
            "{}",
            event.display_text
        );
    }
}

#[tokio::test]
async fn who_forced_a_circuit_is_in_the_event_and_the_status_and_not_in_what_callers_read() {
    let upstream = Upstream::start().await;
    let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; // of `secret`
    let server = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", \
         keys: [{{ tenant: ops, sha256: {sha256}, admin: true }}] }}\n"
    );
    let relight = Relight::start_whole(&format!("{server}{}", one_target(&upstream))).await;
    let target = "main".to_owned();
    let request = ForceCircuitRequest {
        target,
        force: CircuitForce::Open.into(),
        reason: "moving-4711".to_owned(),
    };
    relight
        .admin()
        .force_circuit(with_key("secret", request))
        .await
        .unwrap();
    let watch = WatchRecoveryRequest {
        filter: None,
        start: Some(Start::FromStart(true)),
    };
    let mut events = relight
        .recovery()
        .watch_recovery(with_key("secret", watch))
        .await
        .unwrap()
        .into_inner();
    let (opened, line) = loop {
        let event = events.message().await.unwrap().unwrap().event.unwrap();
        if let Some(Body::CircuitOpened(opened)) = event.body {
            break (opened, event.display_text);
        }
    };
    assert_eq!(opened.rule, "forced open by an operator (ops): moving-4711");
    assert!(
        line.starts_with("An operator (ops) opened the circuit of main (moving-4711)"),
        "{line}"
    );
    let status = relight
        .admin()
        .get_status(with_key("secret", GetStatusRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert!(
        status
            .reasons
            .iter()
            .any(|reason| reason.message.ends_with("an operator (ops): moving-4711")),
        "{status:?}"
    );
    let invocation = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    };
    let refused = relight
        .recovery()
        .invoke_with_recovery(with_key("secret", invocation))
        .await
        .unwrap()
        .into_inner();
    let Some(Outcome::Failure(refused)) = refused.outcome else {
        panic!("it is refused")
    };
    assert!(!format!("{refused:?}").contains("(ops)"), "{refused:?}");
}

#[tokio::test]
async fn a_watch_of_a_route_or_target_that_does_not_exist_is_refused_with_the_nearest_name() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let watch = async |filter: RecoveryEventFilter| {
        let request = WatchRecoveryRequest {
            filter: Some(filter),
            start: Some(Start::Live(true)),
        };
        relight.recovery().watch_recovery(request).await.map(drop)
    };
    let target = |name: &str| RecoveryEventFilter {
        targets: vec![name.to_owned()],
        ..RecoveryEventFilter::default()
    };
    let route = RecoveryEventFilter {
        routes: vec!["defualt".to_owned()],
        ..RecoveryEventFilter::default()
    };
    assert!(watch(target("main")).await.is_ok());
    for (filter, nearest) in [(target("mian"), "main"), (route, "default")] {
        let refused = watch(filter).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound);
        assert!(refused.message().contains(nearest), "{}", refused.message());
    }
}

#[tokio::test]
async fn who_is_refused_by_an_operator_reads_why_and_what_to_do() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let target = "main".to_owned();
    let request = ForceCircuitRequest {
        target,
        force: CircuitForce::Open.into(),
        reason: "moving-4711".to_owned(),
    };
    relight.admin().force_circuit(request).await.unwrap();
    let refused = failure(relight.ask("Hello").await);
    assert!(refused.message.contains("moving-4711"), "{refused:?}");
    assert!(
        refused
            .recovery_hint
            .contains("relight circuits force main auto"),
        "{refused:?}"
    );
    assert!(!refused.user_message.is_empty());
}

#[tokio::test]
async fn durations_are_rounded_and_no_text_of_a_library_is_shown() {
    let upstream = Upstream::start().await;
    let yaml = one_target(&upstream).replace(
        "first_token: 400ms, first_token_alone: 400ms",
        "first_token: 2s",
    );
    let relight = Relight::start(&yaml).await;
    upstream.push(Reply::silence());
    let mut invocation = once("Hello");
    invocation.overrides = Some(Overrides {
        deadline_ms: Some(1234),
        ..Overrides::default()
    });
    let silent = failure(relight.invoke(invocation).await);
    let shown = format!("{} {}", silent.message, silent.reasoning);
    assert!(shown.contains("1.2 s") && !shown.contains("1.1"), "{shown}");
    for (reply, words) in [
        (
            Reply::text("a text that breaks off").cut_in_the_middle(),
            "the connection broke in the middle of the reply",
        ),
        (Reply::reset(), "reset the connection"),
    ] {
        upstream.push(reply);
        let broken = failure(relight.invoke(once("Hello")).await);
        assert!(broken.message.contains(words), "{broken:?}");
        for library in ["hyper", "chunk", "EOF", "reading a body", "os error"] {
            assert!(!broken.message.contains(library), "{broken:?}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_forbids_retries_is_obeyed() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    upstream.push(failing(500, &[("x-should-retry", "false")]));
    let failed = failure(relight.ask("Hello").await);
    assert_eq!(
        (upstream.requests().len(), failed.retryable),
        (1, false),
        "{failed:?}"
    );
    upstream.push(failing(500, &[("x-should-retry", "true")]));
    assert!(matches!(
        relight.ask("Hello").await.outcome,
        Some(Outcome::Completion(_))
    ));
}

#[tokio::test]
async fn a_cancellation_that_a_provider_reports_is_not_the_callers_own() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let relight = Relight::start(&two_targets(&first, &second)).await;
    first.otherwise(failing(499, &[]));
    let response = relight.ask("Hello").await;
    assert_eq!(response.final_target, "second", "{response:?}");
}

#[tokio::test]
async fn routes_need_no_default_where_all_callers_name_one() {
    let upstream = Upstream::start().await;
    let yaml = one_target(&upstream).replace("default: {", "left: { targets: [main] }, right: {");
    let relight = Relight::start(&yaml).await;
    let on_left = Invocation {
        route: "left".to_owned(),
        ..asking("Hello")
    };
    assert!(matches!(
        relight.invoke(on_left).await.outcome,
        Some(Outcome::Completion(_))
    ));
    let request = relight::internals::grpc::v1::InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    };
    let refused = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert!(
        refused.message().contains("no route was named"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_log_of_a_retry_has_the_retries_left_and_that_of_a_failure_its_tenant() {
    let upstream = Upstream::start().await;
    upstream.otherwise(failing(500, &[]));
    let server = Process::start(&format!(
        "{}telemetry: {{ log: {{ format: json }} }}\n",
        one_target(&upstream)
    ))
    .await;
    let asked = [
        "invoke",
        "--address",
        &server.address,
        "--label",
        "user=u-4711",
        "--label",
        "node=supervisor",
    ];
    let ran = run(&[&asked[..], &["--thread", "thread-9", "Hello"]].concat()).await;
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let lines = server
        .log_until(|log| log.iter().any(|line| line["event"] == "invocation_failed"))
        .await;
    assert!(lines.iter().all(serde_json::Value::is_object), "{lines:?}");
    let line = |event: &str| lines.iter().find(|line| line["event"] == event).unwrap();
    let retry = line("recovery_attempted");
    assert_eq!(
        (&retry["attempt"], &retry["remaining"]),
        (&json!(1), &json!(1)),
        "{retry}"
    );
    assert_eq!(retry["detail"]["class"], "server_error");
    assert!(
        retry["recovery_hint"]
            .as_str()
            .is_some_and(|hint| !hint.is_empty()),
        "{retry}"
    );
    assert!(line("attempt_failed")["recovery_hint"].is_string());
    let failed = line("invocation_failed");
    for (key, value) in [
        ("thread", "thread-9"),
        ("tenant", "default"),
        ("operation", "executor"),
        ("target", "main"),
    ] {
        assert_eq!(failed[key], value, "{failed}");
    }
    assert_eq!(
        (&failed["labels"]["user"], &failed["labels"]["node"]),
        (&json!("u-4711"), &json!("supervisor"))
    );
    assert!(
        failed["recovery_hint"].is_string() && failed["detail"]["class"] == "server_error",
        "{failed}"
    );
}

#[tokio::test]
async fn a_listener_may_be_named_by_its_host() {
    let server = Serve::new(
        &["--listen", "localhost:0", "--admin-listen", "localhost:0"],
        "",
    )
    .start()
    .await;
    assert!(
        server.address.starts_with("127.0.0.1:"),
        "{}",
        server.address
    );
    let ran = run(&["serve", "--listen", "localhost"]).await;
    assert!(
        ran.err
            .contains("is no IP address or host name of this machine"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_call_to_the_port_of_health_is_refused_with_the_reason() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let ran = run(&[
        "circuits",
        "--address",
        &relight.running.admin_address.to_string(),
    ])
    .await;
    assert!(
        ran.code == Some(1) && ran.err.contains("this port serves no such call"),
        "{}",
        ran.err
    );
}
