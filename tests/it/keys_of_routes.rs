//! A key sees what is its own: invocations and events on its routes; one who administers sees those
//! of all tenants.

use std::time::Duration;

use relight::internals::{
    domain::clock,
    engine::Rejection,
    grpc::v1::{
        ClassifyFailureRequest, DeleteThreadRequest, FailureSurface, GetInvocationRequest,
        GetThreadRequest, InvokeWithRecoveryRequest, RecoveryEvent, WatchRecoveryRequest,
        get_invocation_request, recovery_service_client::RecoveryServiceClient,
        watch_recovery_request::Start,
    },
};
use tonic::{Code, transport::Channel};

use crate::support::{
    process::{key, with_key},
    relight::{Relight, asking, kind_of},
};

const PATIENCE: Duration = Duration::from_secs(15);

fn keys() -> String {
    [
        key("acme", "chat", ", routes: [chat]"),
        key("acme", "other", ", routes: [other]"),
        key("acme", "all", ""),
        key("rival", "rival", ""),
        key("ops", "ops", ", admin: true"),
    ]
    .join(", ")
}

async fn server() -> Relight {
    Relight::start_whole(&format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", keys: [{}] }}\n\
         providers: {{ p: {{ dialect: scripted }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}\n\
         routes: {{ chat: {{ targets: [t] }}, other: {{ targets: [t] }} }}\njournal: {{ store: memory }}\n",
        keys()
    ))
    .await
}

/// A message on a route, for a thread; an empty name is none.
fn message(route: &str, thread: &str) -> InvokeWithRecoveryRequest {
    let mut invocation = asking("Hello.");
    route.clone_into(&mut invocation.route);
    thread.clone_into(&mut invocation.thread_id);
    InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    }
}

async fn invoke(
    client: &mut RecoveryServiceClient<Channel>,
    key: &str,
    route: &str,
    thread: &str,
) -> String {
    let request = message(route, thread);
    client
        .invoke_with_recovery(with_key(key, request))
        .await
        .unwrap()
        .into_inner()
        .invocation_id
}

#[tokio::test]
async fn a_key_of_one_route_reads_nothing_of_another_and_an_admin_key_reads_all() {
    let server = server().await;
    let mut client = server.recovery();
    let id = invoke(&mut client, "chat", "chat", "talk").await;
    let look = async |key: &str| {
        let invocation = Some(get_invocation_request::Invocation::InvocationId(id.clone()));
        let found = server
            .recovery()
            .get_invocation(with_key(key, GetInvocationRequest { invocation }))
            .await;
        found.map(|_| ()).map_err(|status| status.code())
    };
    for (key, seen) in [
        ("chat", Ok(())),
        ("all", Ok(())),
        ("ops", Ok(())),
        ("other", Err(Code::NotFound)),
        ("rival", Err(Code::NotFound)),
    ] {
        assert_eq!(look(key).await, seen, "{key}");
    }
    let thread = async |key: &str| {
        let read = server
            .recovery()
            .get_thread(with_key(
                key,
                GetThreadRequest {
                    thread_id: "talk".to_owned(),
                },
            ))
            .await;
        read.map(|_| ()).map_err(|status| status.code())
    };
    assert_eq!(thread("all").await, Ok(()));
    assert_eq!(thread("chat").await, Ok(()));
    assert_eq!(thread("other").await, Err(Code::PermissionDenied));
    assert_eq!(thread("rival").await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_key_of_one_route_continues_and_deletes_no_thread_that_began_on_another() {
    let server = server().await;
    let mut client = server.recovery();
    invoke(&mut client, "chat", "chat", "talk").await;
    let refused = server
        .recovery()
        .invoke_with_recovery(with_key("other", message("other", "talk")))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let delete = async |key: &str| {
        let request = DeleteThreadRequest {
            thread_id: "talk".to_owned(),
            ..DeleteThreadRequest::default()
        };
        server
            .recovery()
            .delete_thread(with_key(key, request))
            .await
            .map(|_| ())
            .map_err(|status| status.code())
    };
    assert_eq!(delete("other").await, Err(Code::PermissionDenied));
    // The refusal left the thread as it was, and free.
    for key in ["chat", "all"] {
        invoke(&mut client, key, "chat", "talk").await;
    }
    invoke(&mut client, "all", "other", "talk").await;
    invoke(&mut client, "chat", "chat", "talk").await;
    assert_eq!(delete("chat").await, Ok(()));
}

/// All events that this key is shown, up to the last one of the invocation.
async fn seen(server: &Relight, key: &str, last: &str) -> Vec<RecoveryEvent> {
    let request = WatchRecoveryRequest {
        filter: None,
        start: Some(Start::FromStart(true)),
    };
    let mut stream = server
        .recovery()
        .watch_recovery(with_key(key, request))
        .await
        .unwrap()
        .into_inner();
    let mut events = Vec::new();
    let reading = async {
        loop {
            let event = stream.message().await.unwrap().unwrap().event.unwrap();
            events.push(event.clone());
            if kind_of(&event) == "invocation_succeeded" && event.invocation_id == last {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap_or_else(|_| panic!("{key} is not shown {last}"));
    events
}

#[tokio::test]
async fn events_are_shown_to_the_keys_of_their_route_and_those_of_the_configuration_to_admins() {
    let server = server().await;
    let mut client = server.recovery();
    let on_other = invoke(&mut client, "other", "other", "").await;
    let rejection = Rejection {
        reason: "a-secret-path".to_owned(),
        faults: Vec::new(),
        at: clock::wall_now(),
    };
    server
        .running
        .engine()
        .configuration_changed(Err(rejection));
    let on_chat = invoke(&mut client, "chat", "chat", "").await;
    for (key, all) in [("chat", false), ("all", false), ("ops", true)] {
        let events = seen(&server, key, &on_chat).await;
        assert_eq!(
            events
                .iter()
                .any(|event| kind_of(event) == "configuration_rejected"),
            all,
            "{key}"
        );
        let others = events.iter().any(|event| event.invocation_id == on_other);
        assert_eq!(others, key != "chat", "{key}");
    }
}

#[tokio::test]
async fn a_key_of_one_route_is_told_nothing_of_how_another_one_recovers() {
    let server = server().await;
    let asked = async |key: &str, route: &str| {
        let request = ClassifyFailureRequest {
            status: Some(503),
            surface: FailureSurface::Http.into(),
            route: route.to_owned(),
            ..ClassifyFailureRequest::default()
        };
        let classified = server
            .recovery()
            .classify_failure(with_key(key, request))
            .await;
        classified.map(drop).map_err(|status| status.code())
    };
    for key in ["chat", "all", "ops"] {
        assert_eq!(asked(key, "chat").await, Ok(()), "{key}");
    }
    assert_eq!(asked("chat", "other").await, Err(Code::PermissionDenied));
}
