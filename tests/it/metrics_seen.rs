//! What an operator's Prometheus scrapes: series from the start, refused callers, forced circuits,
//! the process, the front.

use relight::internals::grpc::v1::{
    CircuitForce, ForceCircuitRequest, GetInvocationRequest, UsageExactness,
    get_invocation_request, invoke_with_recovery_response::Outcome,
};

use serde_json::Value;

use crate::support::{
    front::question,
    http::{look_up, metrics, post},
    process::{KEY, Serve, key, with_key},
    relight::{Relight, asking},
    targets::one_target,
    upstream::{Reply, Upstream},
};

const REST: &str = "\
providers:
  p: { dialect: scripted, script: { otherwise: { answer: { text: Well. } } } }
  q: { dialect: scripted, script: { otherwise: { status: { code: 400, body: { error: { type: invalid_request_error } } } } } }
targets: { main: { provider: p, model: m }, spare: { provider: p, model: n }, denied: { provider: q, model: m } }
routes: { default: { targets: [main, spare] }, other: { targets: [spare] }, denied: { targets: [denied] } }
";

fn serve() -> Serve {
    let keys = format!(
        "  keys: [{}, {}]\n",
        key("acme", KEY, ""),
        key("ops", "ops-key", ", admin: true")
    );
    Serve::with_front(&format!("{keys}{REST}"))
}

/// The value of the first series with this name and these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    text.lines().find(is_it)?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn series_are_there_before_their_first_event_with_the_labels_of_the_configuration() {
    let server = serve().start().await;
    let text = metrics(&server.admin_address).await;
    for (name, labels) in [
        (
            "relight_invocations_total",
            &[
                "route=\"other\"",
                "outcome=\"failed\"",
                "class=\"rate_limited\"",
            ][..],
        ),
        (
            "relight_invocations_total",
            &["route=\"default\"", "outcome=\"recovered\""],
        ),
        (
            "relight_attempts_total",
            &["target=\"spare\"", "outcome=\"answered\""],
        ),
        (
            "relight_recoveries_total",
            &["strategy=\"fallback\"", "class=\"timeout\""],
        ),
        (
            "relight_circuit_transitions_total",
            &["target=\"main\"", "to=\"open\""],
        ),
        ("relight_config_reloads_total", &["result=\"rejected\""]),
    ] {
        assert_eq!(
            value(&text, name, labels),
            Some(0.0),
            "{name} {labels:?}\n{text}"
        );
    }
    assert_eq!(
        value(
            &text,
            "relight_circuit_state",
            &["target=\"main\"", "state=\"closed\""]
        ),
        Some(1.0),
        "{text}"
    );
}

#[tokio::test]
async fn the_process_and_the_build_are_metrics() {
    let server = serve().start().await;
    let text = metrics(&server.admin_address).await;
    let resident = value(&text, "process_resident_memory_bytes", &[]).unwrap();
    assert!(resident > 1e6, "{resident}");
    assert!(value(&text, "process_open_fds", &[]).unwrap() > 3.0);
    assert!(value(&text, "process_start_time_seconds", &[]).is_some());
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        value(&text, "relight_build_info", &[&version, "commit=\""]),
        Some(1.0),
        "{text}"
    );
}

#[tokio::test]
async fn refused_callers_are_counted_on_both_interfaces_and_logged_once() {
    let server = serve().start().await;
    let mut recovery = server.recovery();
    let body = || question("default", false).to_string().into_bytes();
    let json = ("content-type", "application/json");
    let status = async |path: &str, headers: &[(&str, &str)], body: Vec<u8>| {
        post(&server.front_address, path, headers, false, body)
            .await
            .unwrap()
            .0
    };
    let chat = "/v1/chat/completions";
    for _ in 0..5 {
        let request = with_key(
            "nobody",
            relight::internals::grpc::v1::InvokeWithRecoveryRequest::default(),
        );
        assert_eq!(
            recovery
                .invoke_with_recovery(request)
                .await
                .unwrap_err()
                .code(),
            tonic::Code::Unauthenticated
        );
        let wrong = [json, ("authorization", "Bearer nobody")];
        assert_eq!(status(chat, &wrong, body()).await, 401);
    }
    let authorization = format!("Bearer {KEY}");
    let right = [json, ("authorization", authorization.as_str())];
    assert_eq!(status(chat, &right, body()).await, 200);
    let denied = question("denied", false).to_string().into_bytes();
    assert_eq!(status(chat, &right, denied).await, 400);
    assert_eq!(status("/v1/nothing", &right, body()).await, 404);
    let text = metrics(&server.admin_address).await;
    let rpc = "rpc_server_call_duration_seconds_count";
    assert_eq!(
        value(&text, rpc, &["InvokeWithRecovery", "\"UNAUTHENTICATED\""]),
        Some(5.0),
        "{text}"
    );
    let http = "http_server_request_duration_seconds_count";
    let route = "http_route=\"/v1/chat/completions\"";
    assert_eq!(
        value(&text, http, &[route, "status_code=\"401\""]),
        Some(5.0),
        "{text}"
    );
    assert_eq!(
        value(&text, http, &[route, "status_code=\"200\""]),
        Some(1.0),
        "{text}"
    );
    assert_eq!(
        value(&text, http, &["status_code=\"404\""]),
        Some(1.0),
        "{text}"
    );
    assert!(!text.contains("/v1/nothing"), "a caller's path is no label");
    let log = server.log();
    let logged = |status: &str| {
        log.iter()
            .filter(|line| {
                line["message"] == "callers were refused" && line["fields"]["status"] == status
            })
            .count()
    };
    assert_eq!(
        [logged("UNAUTHENTICATED"), logged("401"), logged("404")],
        [1, 1, 0],
        "{log:?}"
    );
    assert_eq!(logged("400"), 0, "the provider refused it: {log:?}");
}

#[tokio::test]
async fn a_lookup_of_what_does_not_exist_is_counted_and_not_logged_as_a_refused_caller() {
    let server = serve().start().await;
    let invocation = Some(get_invocation_request::Invocation::InvocationId(
        "unknown".to_owned(),
    ));
    let looked_up = server
        .recovery()
        .get_invocation(with_key(KEY, GetInvocationRequest { invocation }))
        .await;
    assert_eq!(looked_up.unwrap_err().code(), tonic::Code::NotFound);
    let over_http = look_up(
        &server.front_address,
        "/v1/responses/resp_unknown",
        &[("x-api-key", KEY)],
    )
    .await;
    assert_eq!(over_http.unwrap().0, 404);
    // A later refusal is in the log once that one would be.
    let refused = server
        .recovery()
        .get_invocation(with_key("nobody", GetInvocationRequest::default()))
        .await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unauthenticated);
    let refusals = |log: &[Value]| -> Vec<Value> {
        let refused = log
            .iter()
            .filter(|line| line["message"] == "callers were refused");
        refused
            .map(|line| line["fields"]["status"].clone())
            .collect()
    };
    let log = server.log_until(|log| !refusals(log).is_empty()).await;
    assert_eq!(refusals(&log), ["UNAUTHENTICATED"]);
    let text = metrics(&server.admin_address).await;
    let rpc = "rpc_server_call_duration_seconds_count";
    assert_eq!(
        value(&text, rpc, &["GetInvocation\"", "\"NOT_FOUND\""]),
        Some(1.0),
        "{text}"
    );
}

#[tokio::test]
async fn a_forced_circuit_has_a_state_of_its_own_until_it_is_released() {
    let server = serve().start().await;
    for (force, state) in [
        (CircuitForce::Open, "forced_open"),
        (CircuitForce::Closed, "forced_closed"),
        (CircuitForce::Auto, "closed"),
    ] {
        let force = ForceCircuitRequest {
            target: "main".to_owned(),
            force: force.into(),
            ..Default::default()
        };
        server
            .admin()
            .force_circuit(with_key("ops-key", force))
            .await
            .unwrap();
        let text = metrics(&server.admin_address).await;
        let state = format!("state=\"{state}\"");
        assert_eq!(
            value(&text, "relight_circuit_state", &["target=\"main\"", &state]),
            Some(1.0),
            "{text}"
        );
        let on = |line: &&str| {
            line.starts_with("relight_circuit_state{")
                && line.contains("\"main\"")
                && line.ends_with(" 1")
        };
        assert_eq!(
            text.lines().filter(on).count(),
            1,
            "in one state at a time\n{text}"
        );
    }
}

#[tokio::test]
async fn the_environment_names_the_service() {
    let server = serve()
        .env("OTEL_SERVICE_NAME", "kept-by-ops")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=blue");
    let server = server.start().await;
    let text = metrics(&server.admin_address).await;
    let info = text
        .lines()
        .find(|line| line.starts_with("target_info{"))
        .unwrap();
    assert!(
        info.contains("service_name=\"kept-by-ops\"") && info.contains("team=\"blue\""),
        "{info}"
    );
}

#[tokio::test]
async fn what_a_cut_answer_cost_is_estimated_and_is_the_price_of_recovery() {
    let upstream = Upstream::start().await;
    let paid_for = "many words that were paid for ".repeat(20);
    upstream
        .push(Reply::text(&paid_for).cut_in_the_middle())
        .otherwise(Reply::text("Short."));
    let relight = Relight::start(&one_target(&upstream)).await;
    let response = relight.invoke(asking("Hello")).await;
    let Some(Outcome::Completion(completion)) = &response.outcome else {
        panic!("{response:?}")
    };
    let (all, kept) = (response.usage.unwrap(), completion.usage.unwrap());
    assert!(
        all.output_tokens() > kept.output_tokens() + 10,
        "{all:?} {kept:?}"
    );
    assert_eq!(
        (all.exactness(), kept.exactness()),
        (UsageExactness::Estimated, UsageExactness::Exact)
    );
    assert_eq!(
        response.attempts[0].usage.unwrap().exactness(),
        UsageExactness::Estimated
    );
    let address = relight.running.admin_address;
    let output = |text: &str, name: &str| value(text, name, &["type=\"output\"", "model=\"m-1\""]);
    let counted = async {
        loop {
            let text = metrics(address).await;
            let spent = output(&text, "relight_tokens_spent_total");
            if let Some((spent, delivered)) =
                spent.zip(output(&text, "relight_tokens_delivered_total"))
            {
                assert!(spent > delivered + 10.0, "{spent} {delivered}");
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), counted)
        .await
        .expect("tokens are not counted");
}
