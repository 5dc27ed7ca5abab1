//! A refused key, a used-up quota or a missing model is reported to every caller at once, and ends
//! when its cause does.

use std::time::Duration;

use hyper::Method;
use relight::internals::{
    config::{GivenEnvironment, load_text},
    grpc::v1::{
        Failure, GateKind, GetStatusRequest, ListTargetsRequest, ResetCircuitRequest, ServiceState,
        invoke_with_recovery_response::Outcome,
    },
};
use serde_json::json;
use tokio::time::timeout;

use crate::support::{
    front::{Front, question},
    relight::Relight,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Far less than any wait that a closed gate used to cause.
const AT_ONCE: Duration = Duration::from_secs(8);
/// Refusals after the first that close a gate that nothing is known of: three, and a probe.
const HANDFUL: usize = 4;
const GOOD_KEY: &str = "a-better-key";

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    Reply::refusal(
        status,
        &[],
        &json!({"error": {"message": message, "code": code, "type": code}}),
    )
}

fn refused_key() -> Reply {
    refusal(401, "invalid_api_key", "Incorrect API key provided")
}

async fn failure(relight: &Relight) -> Failure {
    let response = timeout(AT_ONCE, relight.ask("Hello"))
        .await
        .expect("nobody waits for a closed gate");
    match response.outcome {
        Some(Outcome::Failure(failure)) => failure,
        other => panic!("no failure but {other:?}"),
    }
}

/// Has the gate closed, and its first probe refused, after one refusal.
async fn close(relight: &Relight) {
    for _ in 0..HANDFUL {
        failure(relight).await;
    }
}

async fn is_answered(relight: &Relight) -> bool {
    let response = timeout(AT_ONCE, relight.ask("Hello"))
        .await
        .expect("the gate is open");
    matches!(response.outcome, Some(Outcome::Completion(_)))
}

async fn state(relight: &Relight) -> (ServiceState, String) {
    let status = relight
        .admin()
        .get_status(GetStatusRequest::default())
        .await
        .unwrap()
        .into_inner();
    (
        status.state(),
        status
            .reasons
            .into_iter()
            .map(|reason| reason.message)
            .collect(),
    )
}

#[tokio::test]
async fn after_a_handful_of_refusals_a_caller_gets_the_same_at_once_and_the_status_names_it() {
    let cases = [
        (
            refused_key(),
            GateKind::Credential,
            "credential gate of main",
        ),
        (
            refusal(429, "insufficient_quota", "You exceeded your current quota"),
            GateKind::Credential,
            "quota",
        ),
        (
            refusal(404, "model_not_found", "The model `m-1` does not exist"),
            GateKind::Configuration,
            "not_found",
        ),
    ];
    for (reply, kind, reason) in cases {
        let upstream = Upstream::start().await;
        upstream.otherwise(reply);
        let relight = Relight::start(&one_target(&upstream)).await;
        let first = failure(&relight).await;
        close(&relight).await;
        let second = failure(&relight).await;
        assert_eq!(second.failure_class, first.failure_class);
        assert_eq!(second.code, first.code);
        assert!(
            second
                .message
                .ends_with("as an earlier call found; this one was not sent"),
            "{second:?}"
        );
        assert_eq!(
            (&second.user_message, &second.recovery_hint),
            (&first.user_message, &first.recovery_hint)
        );
        assert!(
            !first.recovery_hint.is_empty() && !second.retryable,
            "{second:?}"
        );
        assert!(
            second.retry_after_ms.is_some_and(|wait| wait > 0),
            "{second:?}"
        );
        assert_eq!(
            upstream.requests().len(),
            1 + HANDFUL,
            "the last one was not sent"
        );
        let (state, reasons) = state(&relight).await;
        assert!(
            state == ServiceState::Degraded && reasons.contains(reason),
            "{reasons}"
        );
        let listed = relight
            .admin()
            .list_targets(ListTargetsRequest::default())
            .await
            .unwrap()
            .into_inner();
        let gates = listed.targets[0]
            .gates
            .iter()
            .filter(|gate| gate.closed)
            .collect::<Vec<_>>();
        assert!(
            gates.len() == 1 && gates[0].kind() == kind && gates[0].cause == first.failure_class,
            "{gates:?}"
        );
    }
}

#[tokio::test]
async fn a_key_that_was_refused_once_is_named_until_it_is_answered() {
    let upstream = Upstream::start().await;
    upstream.push(refused_key());
    upstream.otherwise(Reply::text("Hello."));
    let relight = Relight::start(&one_target(&upstream)).await;
    failure(&relight).await;
    let doubted = state(&relight).await;
    assert_eq!(
        doubted,
        (
            ServiceState::Degraded,
            "the credential of main is in doubt: authentication, and no answer since".to_owned()
        )
    );
    assert!(is_answered(&relight).await);
    assert_eq!(state(&relight).await.0, ServiceState::Healthy);
}

#[tokio::test]
async fn a_new_key_or_a_new_model_opens_the_gate_and_what_the_old_one_met_does_not_close_it_again()
{
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        let is_good = request
            .header("authorization")
            .is_some_and(|key| key.ends_with(GOOD_KEY));
        match request.body.to_string().contains("m-2") {
            _ if !is_good => refused_key(),
            true => Reply::text("Hello."),
            false => refusal(404, "model_not_found", "The model `m-1` does not exist"),
        }
    });
    let old = one_target(&upstream);
    let relight = Relight::start(&old).await;
    let reload = |yaml: &str| {
        let loaded = load_text(yaml, None, &GivenEnvironment::new())
            .unwrap_or_else(|faults| panic!("{faults}"));
        relight.running.engine().reload(loaded.config).unwrap();
    };
    let refused = failure(&relight).await;
    let keyed = old.replace("api_key: k", &format!("api_key: {GOOD_KEY}"));
    reload(&keyed);
    let missing = failure(&relight).await;
    assert_ne!(
        missing.failure_class, refused.failure_class,
        "the new key is used at once"
    );
    reload(&keyed.replace("m-1", "m-2"));
    assert!(is_answered(&relight).await);
    assert_eq!(state(&relight).await.0, ServiceState::Healthy);
}

#[tokio::test]
async fn a_reset_by_an_operator_opens_the_gate() {
    let upstream = Upstream::start().await;
    upstream.otherwise(refused_key());
    let relight = Relight::start(&one_target(&upstream)).await;
    failure(&relight).await;
    close(&relight).await;
    failure(&relight).await;
    assert_eq!(upstream.requests().len(), 1 + HANDFUL);
    upstream.otherwise(Reply::text("Hello."));
    relight
        .admin()
        .reset_circuit(ResetCircuitRequest {
            target: "main".to_owned(),
        })
        .await
        .unwrap();
    assert!(is_answered(&relight).await);
}

#[tokio::test]
async fn an_http_client_is_refused_alike_by_a_closed_gate() {
    for reply in [
        refused_key(),
        refusal(429, "insufficient_quota", "You exceeded your current quota"),
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(reply);
        let front = Front::start(&one_target(&upstream)).await;
        let first = front.ask("default", false).await;
        for _ in 0..HANDFUL {
            front.ask("default", false).await;
        }
        let second = timeout(AT_ONCE, front.ask("default", false))
            .await
            .expect("nobody waits for a closed gate");
        assert_eq!(second.status, first.status);
        assert_eq!(
            (
                second.header("x-should-retry"),
                first.header("x-should-retry")
            ),
            (Some("false"), Some("false"))
        );
        assert_eq!(second.error()["code"], first.error()["code"]);
        assert!(
            !second.error()["message"]
                .as_str()
                .unwrap()
                .contains("You exceeded"),
            "{second:?}"
        );
    }
}

#[tokio::test]
async fn what_one_request_names_in_vain_keeps_no_other_caller_out() {
    let upstream = Upstream::start().await;
    upstream.push(refusal(404, "not_found", "File 'file-abc' not found"));
    upstream.push(refusal(
        402,
        "402",
        "This request requires more credits, or fewer max_tokens",
    ));
    let relight = Relight::start(&one_target(&upstream)).await;
    for words in ["File 'file-abc' not found", "fewer max_tokens"] {
        let failed = failure(&relight).await;
        assert!(failed.message.contains(words), "{failed:?}");
    }
    assert!(is_answered(&relight).await);
    assert_eq!(state(&relight).await.0, ServiceState::Healthy);
}

#[tokio::test]
async fn an_http_client_whose_limit_outlasts_its_deadline_is_told_when_and_not_to_retry_before() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::body(
            429,
            &[("retry-after", "20")],
            b"{\"error\":{\"message\":\"slow down\"}}",
        ));
        let front = Front::start(&one_target(&upstream)).await;
        for number in 0..2 {
            let headers = [("x-relight-deadline-ms", "3000")];
            let body = question("default", stream).to_string();
            let answer = timeout(
                AT_ONCE,
                front.send(Method::POST, "/v1/chat/completions", &headers, body),
            );
            let answer = answer.await.expect("the wait ends with the deadline");
            assert_eq!(
                (answer.status, answer.header("x-should-retry")),
                (429, Some("false")),
                "{number}: {answer:?}"
            );
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!(wait > 3, "{number}: {answer:?}");
        }
    }
}
