//! The contract for people: the smallest call, what reflection describes, and words that are held
//! to the length that the contract gives.

use futures_util::StreamExt as _;
use relight::internals::grpc::v1::{
    CircuitForce, ForceCircuitRequest, Invocation, InvokeWithRecoveryRequest, Message, ModelCall,
    RewindMode, Role, WatchRecoveryRequest, invocation::Call, recovery_event::Body,
};
use tonic::{Code, transport::Endpoint};
use tonic_types::StatusExt as _;

use crate::support::{
    folding::Folding,
    relight::{Relight, asking, streaming},
    targets::one_target,
    upstream::{Reply, Upstream},
};

fn invoking(call: ModelCall) -> Invocation {
    Invocation {
        call: Some(Call::Model(call)),
        ..Invocation::default()
    }
}

#[tokio::test]
async fn a_text_in_short_reaches_the_provider_as_the_message_that_it_is_short_for() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Hello."));
    let relight = Relight::start(&one_target(&upstream)).await;
    relight.invoke(asking("Why?")).await;
    relight
        .invoke(invoking(ModelCall {
            text: "Why?".to_owned(),
            ..ModelCall::default()
        }))
        .await;
    let short = Message {
        role: Role::User.into(),
        text: "Why?".to_owned(),
        ..Message::default()
    };
    relight
        .invoke(invoking(ModelCall {
            messages: vec![short.clone()],
            ..ModelCall::default()
        }))
        .await;
    let sent: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.body["messages"].clone())
        .collect();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|messages| *messages == sent[0]), "{sent:?}");
    let Some(Call::Model(long)) = asking("Why?").call else {
        panic!("no model")
    };
    let both = Message {
        text: "Why?".to_owned(),
        ..long.messages[0].clone()
    };
    let request = invoking(ModelCall {
        messages: vec![both],
        ..ModelCall::default()
    });
    let request = InvokeWithRecoveryRequest {
        invocation: Some(request),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "invocation.model.messages[0].text");
}

#[tokio::test]
async fn the_first_message_of_a_watch_is_a_bookmark_with_a_cursor() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut watch = relight
        .recovery()
        .watch_recovery(WatchRecoveryRequest::default())
        .await
        .unwrap()
        .into_inner();
    let first = watch.message().await.unwrap().unwrap().event.unwrap();
    assert!(
        matches!(first.body, Some(Body::Bookmark(_))) && !first.cursor.is_empty(),
        "{first:?}"
    );
}

#[tokio::test]
async fn a_reason_that_is_longer_than_the_contract_allows_forces_nothing() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let force = |reason: String| ForceCircuitRequest {
        target: "main".to_owned(),
        force: CircuitForce::Open.into(),
        reason,
    };
    let status = relight
        .admin()
        .force_circuit(force("r".repeat(257)))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.get_details_bad_request().unwrap().field_violations[0].field,
        "reason"
    );
    relight
        .admin()
        .force_circuit(force("r".repeat(256)))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_a_stream_took_back_is_in_its_record() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let first = Reply::text("The quick brown fox jumps over the lazy dog.");
    let half = first.body_bytes().len() / 2;
    upstream
        .push(first.cut_after(half))
        .push(Reply::text("Something else entirely."));
    let (folding, _) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert_eq!(folding.rewinds, 1);
    let record = relight.get(&folding.invocation).await;
    let rewinds: Vec<_> = record
        .rewinds
        .iter()
        .map(|rewind| (rewind.attempt, rewind.failure_class))
        .collect();
    assert_eq!(rewinds, [(1, record.attempts[0].failure_class)]);
}

/// What a server says of itself by one version of reflection: its services, and the files that
/// define these symbols.
macro_rules! described {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let wanted = [
            "relight.v1.RecoveryService",
            "relight.v1.ModelCall",
            "google.rpc.ErrorInfo",
            "google.rpc.RetryInfo",
        ];
        let requests = wanted.map(|symbol| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(symbol.to_owned())),
        });
        let mut client = ServerReflectionClient::new($channel);
        let requests = futures_util::stream::iter(requests);
        let responses = client
            .server_reflection_info(requests)
            .await
            .unwrap()
            .into_inner();
        let found = responses.filter(|response| {
            let response = response.as_ref().unwrap().message_response.clone();
            std::future::ready(matches!(
                response,
                Some(MessageResponse::FileDescriptorResponse(_))
            ))
        });
        (found.count().await, wanted.len())
    }};
}

#[tokio::test]
async fn both_versions_of_reflection_describe_the_contract_and_the_details_of_its_statuses() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", relight.running.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let (found, wanted) = described!(v1, channel.clone());
    assert_eq!(found, wanted, "v1");
    let (found, wanted) = described!(v1alpha, channel);
    assert_eq!(found, wanted, "v1alpha");
}
