//! What callers, watchers and administrators may do, at every method and at the HTTP front.

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        CancelInvocationRequest, CircuitForce, ClassifyFailureRequest, DeleteThreadRequest,
        ForceCircuitRequest, GetInvocationRequest, GetStatusRequest, GetThreadRequest,
        InvokeWithRecoveryRequest, ListExecutionsRequest, ListInvocationsRequest,
        ListTargetsRequest, ResetCircuitRequest, Resume, StreamWithRecoveryRequest,
        WatchRecoveryRequest, admin_service_client::AdminServiceClient, cancel_invocation_request,
        get_invocation_request, recovery_service_client::RecoveryServiceClient, resume,
        stream_with_recovery_request::Start as StreamStart, watch_recovery_request::Start,
    },
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::{Code, Status, transport::Channel};

use super::server;
use crate::support::{
    process::with_key,
    relight::{Relight, asking},
};

/// What each method does for a caller.
type MethodOutcomes = Vec<(&'static str, Result<(), Code>)>;

fn outcome<T>(response: Result<T, Status>) -> Result<(), Code> {
    response.map(drop).map_err(|status| status.code())
}

/// All methods, with an invocation and a thread of tenant `acme`.
async fn outcomes(
    server: &Relight,
    admin: &Channel,
    key: &str,
    (id, request): (&str, &str),
) -> MethodOutcomes {
    let mut outcomes = outcomes_of_streams(server, key, request).await;
    outcomes.extend(outcomes_of_records(server, key, id).await);
    outcomes.extend(outcomes_of_administration(admin, key).await);
    let request = DeleteThreadRequest {
        thread_id: "talk".to_owned(),
        ..DeleteThreadRequest::default()
    };
    let deleted = server
        .recovery()
        .delete_thread(with_key(key, request))
        .await;
    outcomes.push(("DeleteThread", outcome(deleted)));
    outcomes
}

/// The methods that run an invocation, or follow one.
async fn outcomes_of_streams(server: &Relight, key: &str, request: &str) -> MethodOutcomes {
    let mut recovery = server.recovery();
    let invoking = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello.")),
    };
    let invoked = recovery.invoke_with_recovery(with_key(key, invoking)).await;
    let start = Some(StreamStart::Invocation(asking("Hello.")));
    let streamed = recovery
        .stream_with_recovery(with_key(key, StreamWithRecoveryRequest { start }))
        .await;
    let resume = Resume {
        invocation: Some(resume::Invocation::RequestId(request.to_owned())),
        ..Resume::default()
    };
    let start = Some(StreamStart::Resume(resume));
    let resumed = recovery
        .stream_with_recovery(with_key(key, StreamWithRecoveryRequest { start }))
        .await;
    let request = WatchRecoveryRequest {
        filter: None,
        start: Some(Start::Live(true)),
    };
    let watched = recovery.watch_recovery(with_key(key, request)).await;
    vec![
        ("InvokeWithRecovery", outcome(invoked)),
        ("StreamWithRecovery", outcome(streamed)),
        ("resume", outcome(resumed)),
        ("WatchRecovery", outcome(watched)),
    ]
}

/// The methods that look at what is known, or cancel it.
async fn outcomes_of_records(server: &Relight, key: &str, id: &str) -> MethodOutcomes {
    let mut recovery = server.recovery();
    let invocation = Some(get_invocation_request::Invocation::InvocationId(
        id.to_owned(),
    ));
    let found = recovery
        .get_invocation(with_key(key, GetInvocationRequest { invocation }))
        .await;
    let listed = recovery
        .list_invocations(with_key(key, ListInvocationsRequest::default()))
        .await;
    let executed = recovery
        .list_executions(with_key(key, ListExecutionsRequest::default()))
        .await;
    let request = GetThreadRequest {
        thread_id: "talk".to_owned(),
    };
    let thread = recovery.get_thread(with_key(key, request)).await;
    let invocation = Some(cancel_invocation_request::Invocation::InvocationId(
        id.to_owned(),
    ));
    let request = CancelInvocationRequest {
        invocation,
        ..CancelInvocationRequest::default()
    };
    let cancelled = recovery.cancel_invocation(with_key(key, request)).await;
    let classified = recovery
        .classify_failure(with_key(key, ClassifyFailureRequest::default()))
        .await;
    // Without a failure in it, the request is refused for what it lacks.
    let classified = outcome(classified).or_else(|code| match code {
        Code::InvalidArgument => Ok(()),
        _ => Err(code),
    });
    vec![
        ("GetInvocation", outcome(found)),
        ("ListInvocations", outcome(listed)),
        ("ListExecutions", outcome(executed)),
        ("GetThread", outcome(thread)),
        ("CancelInvocation", outcome(cancelled)),
        ("ClassifyFailure", classified),
    ]
}

async fn outcomes_of_administration(admin: &Channel, key: &str) -> MethodOutcomes {
    let mut admin = AdminServiceClient::new(admin.clone());
    let targets = admin
        .list_targets(with_key(key, ListTargetsRequest::default()))
        .await;
    let status = admin
        .get_status(with_key(key, GetStatusRequest::default()))
        .await;
    let request = ResetCircuitRequest {
        target: "t".to_owned(),
    };
    let reset = admin.reset_circuit(with_key(key, request)).await;
    let force = CircuitForce::Auto.into();
    let request = ForceCircuitRequest {
        target: "t".to_owned(),
        force,
        ..ForceCircuitRequest::default()
    };
    let forced = admin.force_circuit(with_key(key, request)).await;
    vec![
        ("ListTargets", outcome(targets)),
        ("GetStatus", outcome(status)),
        ("ResetCircuit", outcome(reset)),
        ("ForceCircuit", outcome(forced)),
    ]
}

#[tokio::test]
async fn each_role_may_do_its_part_of_every_method_and_nothing_of_another_tenant() {
    let key = |tenant: &str, key: &str, role: &str| json!({ "tenant": tenant, "sha256": hash_text(key), "role": role });
    let keys = json!([
        key("acme", "caller", "caller"),
        key("acme", "watcher", "watcher"),
        key("rival", "rival", "caller"),
        key("ops", "admin", "admin"),
    ]);
    let server =
        server(&json!({ "keys": keys, "admin_service": { "listen": "127.0.0.1:0" } })).await;
    let address = server.running.admin_service_address.unwrap();
    let admin = Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let begin = async |request_id: &str| {
        let mut invocation = asking("Hello.");
        request_id.clone_into(&mut invocation.request_id);
        "talk".clone_into(&mut invocation.thread_id);
        let request = with_key(
            "caller",
            InvokeWithRecoveryRequest {
                invocation: Some(invocation),
            },
        );
        server
            .recovery()
            .invoke_with_recovery(request)
            .await
            .unwrap()
            .into_inner()
            .invocation_id
    };
    let (denied, missing) = (Err(Code::PermissionDenied), Err(Code::NotFound));
    let looked = [
        "WatchRecovery",
        "GetInvocation",
        "ListInvocations",
        "ListExecutions",
        "GetThread",
        "ClassifyFailure",
    ];
    let administered = ["ListTargets", "GetStatus", "ResetCircuit", "ForceCircuit"];
    let named = [
        "resume",
        "GetInvocation",
        "GetThread",
        "CancelInvocation",
        "DeleteThread",
    ];
    for key in ["watcher", "rival", "unknown", "", "caller"] {
        let request = format!("before {key}");
        let id = begin(&request).await;
        for (method, outcome) in outcomes(&server, &admin, key, (&id, &request)).await {
            let expected = match key {
                "unknown" | "" => Err(Code::Unauthenticated),
                "watcher" if looked.contains(&method) => Ok(()),
                "watcher" => denied,
                _ if administered.contains(&method) => denied,
                "rival" if named.contains(&method) => missing,
                _ => Ok(()),
            };
            assert_eq!(outcome, expected, "{method} by `{key}`");
        }
    }
    let id = begin("last").await;
    for (method, outcome) in outcomes(&server, &admin, "admin", (&id, "last")).await {
        // One who administers sees and cancels invocations of all; names that a tenant gave are its
        // own.
        let own = ["resume", "GetThread", "DeleteThread"];
        let expected = if own.contains(&method) {
            missing
        } else {
            Ok(())
        };
        assert_eq!(outcome, expected, "{method} by an administrator");
    }
    // The AdminService is nowhere else, and its listener serves nothing else.
    let status = server
        .admin()
        .get_status(with_key("admin", GetStatusRequest::default()))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let request = with_key("admin", ListInvocationsRequest::default());
    let status = RecoveryServiceClient::new(admin)
        .list_invocations(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_watcher_calls_no_model_through_the_http_front_either() {
    let key =
        |key: &str, role: &str| json!({ "tenant": "acme", "sha256": hash_text(key), "role": role });
    let front = json!({ "listen": "127.0.0.1:0" });
    let server =
        server(&json!({ "keys": [key("caller", "caller"), key("watcher", "watcher")], "openai_front": front })).await;
    let url = format!("{}", server.running.openai_front_address.unwrap());
    for (key, expected) in [("caller", "200"), ("watcher", "403"), ("wrong", "401")] {
        let body =
            json!({ "model": "default", "messages": [{ "role": "user", "content": "Hello." }] })
                .to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut socket = tokio::net::TcpStream::connect(&url).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {expected}")),
            "{key}: {response}"
        );
    }
}
