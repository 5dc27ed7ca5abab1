//! Calls are listed to their callers and to administrators, and `relight top` shows current
//! activity.

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        FailureClass, Invocation, InvocationState, InvokeWithRecoveryRequest,
        ListInvocationsRequest, ListInvocationsResponse, RecoveryStrategy,
    },
};
use serde_json::json;
use tonic::{Code, Status};

use crate::support::{
    binary::run,
    process::with_key,
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// A server with the tenants `acme`, `other` (of the route `second` alone) and an administrator,
/// and its upstream.
async fn served(store: &str) -> (Relight, Upstream) {
    let upstream = Upstream::start().await;
    let keys = json!([
        { "tenant": "acme", "sha256": hash_text("key-acme") },
        { "tenant": "other", "sha256": hash_text("key-other"), "routes": ["second"] },
        { "tenant": "operators", "sha256": hash_text("key-admin"), "admin": true },
    ]);
    let config = json!({
        "server": { "listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "keys": keys },
        "providers": { "p": { "dialect": "openai_chat", "base_url": upstream.base_url(), "api_key": "k" } },
        "targets": { "main": { "provider": "p", "model": "m-1" } },
        "routes": { "default": { "targets": ["main"] }, "second": { "targets": ["main"] } },
        "policies": { "standard": { "retry": { "backoff": { "base": "1ms", "cap": "1ms" } } } },
        "journal": { "store": store },
    });
    (Relight::start_whole(&config.to_string()).await, upstream)
}

async fn call(server: &Relight, key: &str, route: &str) -> String {
    let invocation = Some(Invocation {
        route: route.to_owned(),
        ..asking("hello")
    });
    let request = with_key(key, InvokeWithRecoveryRequest { invocation });
    server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap()
        .into_inner()
        .invocation_id
}

async fn list(
    server: &Relight,
    key: &str,
    request: ListInvocationsRequest,
) -> Result<ListInvocationsResponse, Status> {
    server
        .recovery()
        .list_invocations(with_key(key, request))
        .await
        .map(tonic::Response::into_inner)
}

fn ids(listed: &ListInvocationsResponse) -> Vec<&str> {
    listed
        .invocations
        .iter()
        .map(|one| one.invocation_id.as_str())
        .collect()
}

#[tokio::test]
async fn each_caller_sees_its_own_calls_and_an_administrator_those_of_all() {
    let folder = tempfile::tempdir().unwrap();
    for store in [
        "memory".to_owned(),
        format!("sqlite:{}", folder.path().join("journal.db").display()),
    ] {
        let (server, upstream) = served(&store).await;
        let first = call(&server, "key-acme", "default").await;
        upstream.push(Reply::status(500));
        let recovered = call(&server, "key-acme", "second").await;
        let others = call(&server, "key-other", "second").await;
        upstream.push(Reply::status(400));
        let failed = call(&server, "key-acme", "default").await;

        let all = ListInvocationsRequest::default;
        let own = list(&server, "key-acme", all()).await.unwrap();
        assert_eq!(ids(&own), [&failed, &recovered, &first]);
        assert_eq!(
            ids(&list(&server, "key-other", all()).await.unwrap()),
            [&others]
        );
        assert_eq!(
            ids(&list(&server, "key-admin", all()).await.unwrap()),
            [&failed, &others, &recovered, &first]
        );
        let of_other = ListInvocationsRequest {
            tenant: "other".to_owned(),
            ..all()
        };
        assert_eq!(
            ids(&list(&server, "key-admin", of_other.clone()).await.unwrap()),
            [&others]
        );
        assert_eq!(
            list(&server, "key-acme", of_other)
                .await
                .unwrap_err()
                .code(),
            Code::PermissionDenied
        );
        let elsewhere = ListInvocationsRequest {
            route: "default".to_owned(),
            ..all()
        };
        assert_eq!(
            list(&server, "key-other", elsewhere)
                .await
                .unwrap_err()
                .code(),
            Code::PermissionDenied
        );

        let [last, second, _] = own.invocations.as_slice() else {
            panic!("{own:#?}")
        };
        assert_eq!(
            (last.state(), last.failure_class(), last.attempts),
            (InvocationState::Failed, FailureClass::InvalidRequest, 1)
        );
        assert_eq!(
            (second.attempts, second.recovery_applied().next()),
            (2, Some(RecoveryStrategy::Retry))
        );
        assert_eq!(
            (
                second.tenant.as_str(),
                second.route.as_str(),
                second.final_target.as_str()
            ),
            ("acme", "second", "main")
        );
        assert!(second.finished_at.is_some() && second.usage.is_some());

        let failures = ListInvocationsRequest {
            states: vec![InvocationState::Failed.into()],
            ..all()
        };
        assert_eq!(
            ids(&list(&server, "key-acme", failures).await.unwrap()),
            [&failed]
        );
        let later = prost_types::Timestamp {
            seconds: 7_258_118_400,
            nanos: 0,
        }; // 2200-01-01
        let none = ListInvocationsRequest {
            since: Some(later),
            ..all()
        };
        assert!(
            list(&server, "key-acme", none)
                .await
                .unwrap()
                .invocations
                .is_empty()
        );
    }
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition_and_running_calls_are_distinguished() {
    let (server, upstream) = served("memory").await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(call(&server, "key-acme", "default").await);
    }
    made.reverse();
    let mut request = ListInvocationsRequest {
        page_size: 3,
        ..ListInvocationsRequest::default()
    };
    let mut seen = Vec::new();
    for expected in [3, 3, 1] {
        let page = list(&server, "key-acme", request.clone()).await.unwrap();
        assert_eq!(page.invocations.len(), expected);
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        request.page_token = page.next_page_token;
    }
    assert_eq!((seen, request.page_token.as_str()), (made, ""));

    upstream.push(Reply::silence());
    let mut client = server.recovery();
    let mut pending = tokio::task::JoinSet::new();
    pending.spawn(async move {
        let request = InvokeWithRecoveryRequest {
            invocation: Some(asking("hello")),
        };
        client
            .invoke_with_recovery(with_key("key-acme", request))
            .await
    });
    upstream.await_request(8).await;
    let running = ListInvocationsRequest {
        states: vec![InvocationState::Running.into()],
        ..ListInvocationsRequest::default()
    };
    let listed = list(&server, "key-acme", running).await.unwrap();
    let [one] = listed.invocations.as_slice() else {
        panic!("{listed:#?}")
    };
    assert_eq!(
        (one.state(), one.finished_at),
        (InvocationState::Running, None)
    );
}

#[tokio::test]
async fn bad_filters_are_refused_by_their_field() {
    let (server, _upstream) = served("memory").await;
    for (request, field) in [
        (
            ListInvocationsRequest {
                page_size: 501,
                ..ListInvocationsRequest::default()
            },
            "page_size",
        ),
        (
            ListInvocationsRequest {
                states: vec![0],
                ..ListInvocationsRequest::default()
            },
            "states[0]",
        ),
        (
            ListInvocationsRequest {
                states: vec![99],
                ..ListInvocationsRequest::default()
            },
            "states[0]",
        ),
        (
            ListInvocationsRequest {
                route: "a\nb".to_owned(),
                ..ListInvocationsRequest::default()
            },
            "route",
        ),
        (
            ListInvocationsRequest {
                since: Some(prost_types::Timestamp {
                    seconds: i64::MAX,
                    nanos: 0,
                }),
                ..ListInvocationsRequest::default()
            },
            "since",
        ),
    ] {
        let refused = list(&server, "key-acme", request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(
            refused.message().contains(field),
            "{field}: {}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn the_command_shows_a_table_or_an_object_a_line() {
    let (server, upstream) = served("memory").await;
    let address = format!("http://{}", server.running.address);
    let answered = call(&server, "key-acme", "default").await;
    upstream.push(Reply::status(400));
    let failed = call(&server, "key-acme", "default").await;
    let list = async |more: &[&str]| {
        let mut arguments = vec![
            "invocations",
            "--address",
            &address,
            "--api-key",
            "key-admin",
        ];
        arguments.extend(more);
        run(&arguments).await
    };
    let table = list(&[]).await;
    let rows: Vec<&str> = table.out.lines().collect();
    assert!(rows[0].starts_with("BEGUN") && rows.len() == 3, "{table:?}");
    assert!(
        rows[1].contains(&failed) && rows[1].contains("invalid_request"),
        "{table:?}"
    );
    assert!(
        rows[2].contains(&answered) && rows[2].contains("succeeded") && rows[2].contains("acme"),
        "{table:?}"
    );
    let json = list(&["--state", "failed", "--since", "1h", "--output", "json"]).await;
    let told: serde_json::Value = serde_json::from_str(json.out.trim()).unwrap();
    assert_eq!(told["invocation_id"], failed.as_str(), "{told}");
    assert_eq!(list(&["--tenant", "nobody"]).await.out, "none\n");
    let wrong = list(&["--since", "yesterday"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn top_shows_targets_rates_and_tenants_of_the_last_seconds() {
    let (server, upstream) = served("memory").await;
    let address = format!("http://{}", server.running.address);
    let arguments = [
        "top",
        "--address",
        &address,
        "--api-key",
        "key-admin",
        "--interval",
        "700ms",
        "--tables",
        "3",
    ];
    let busy = async {
        for _ in 0..6 {
            upstream.push(Reply::status(500));
            call(&server, "key-acme", "default").await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let (shown, ()) = tokio::join!(run(&arguments), busy);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let tables: Vec<&str> = shown.out.split("TARGET  CIRCUIT").collect();
    assert_eq!(tables.len(), 4, "{}", shown.out);
    let last = tables[3];
    let row = |name: &str| {
        last.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {}", shown.out))
    };
    assert!(
        row("main").contains("closed") && row("main").contains(" %"),
        "{}",
        shown.out
    );
    assert!(row("acme").contains(" %"), "{}", shown.out);
    let refused = run(&[
        "top",
        "--address",
        &address,
        "--api-key",
        "key-acme",
        "--tables",
        "1",
    ])
    .await;
    assert_eq!(
        (refused.code, refused.err.contains("admin")),
        (Some(1), true),
        "{refused:?}"
    );
}
