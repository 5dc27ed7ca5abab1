//! Odd input of callers and operators: each is refused with its reason, and none does harm.

use std::{process::Stdio, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use prost::Message as _;
use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, ModelCall, Sampling, invocation::Call,
};
use rustix::process::Signal;
use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::{
    binary::{relight, run},
    process::{KEY, Process, key, with_key},
    relight::{Relight, asking},
    targets::one_target,
    upstream::{Reply, Upstream},
};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn control_characters_and_numbers_out_of_range_are_refused_by_field() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let Some(Call::Model(call)) = asking("Hello").call else {
        panic!("a model call")
    };
    let sampling = Some(Sampling {
        temperature: Some(9.0),
        ..Sampling::default()
    });
    let invocation = Invocation {
        operation: "plan\tner".to_owned(),
        thread_id: "a\nthread".to_owned(),
        labels: [("team".to_owned(), "red\u{1b}[31m".to_owned())].into(),
        call: Some(Call::Model(ModelCall { sampling, ..call })),
        ..Invocation::default()
    };
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let status = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    let violations = status.get_details_bad_request().unwrap().field_violations;
    for field in [
        "invocation.operation",
        "invocation.thread_id",
        "invocation.labels",
        "temperature",
    ] {
        assert!(
            violations
                .iter()
                .any(|violation| violation.field.contains(field)),
            "{field}: {violations:?}"
        );
    }
    assert!(upstream.requests().is_empty());
}

/// Posts a gRPC message as it is; the code, and whether the status has a reason with it.
async fn posted(server: &Process, message: &[u8], timeout: Option<&str>) -> (Code, bool) {
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let uri = format!(
        "http://{}/relight.v1.RecoveryService/InvokeWithRecovery",
        server.address
    );
    let mut request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    request = request.header("authorization", format!("Bearer {KEY}"));
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", timeout);
    }
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let response = client
        .request(request.body(Full::new(Bytes::from(body))).unwrap())
        .await
        .unwrap();
    let mut headers = response.headers().clone();
    headers.extend(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .trailers()
            .cloned()
            .unwrap_or_default(),
    );
    let status = tonic::Status::from_header_map(&headers).unwrap();
    (status.code(), status.get_details_error_info().is_some())
}

#[tokio::test]
async fn what_cannot_be_decoded_is_too_large_or_has_no_time_has_a_code_and_a_reason() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let settings = format!("keys: [{}], max_message_bytes: 64KiB", key("acme", KEY, ""));
    let server = Process::start(&format!(
        "server: {{ {settings} }}\n{}",
        one_target(&upstream)
    ))
    .await;
    assert_eq!(
        posted(&server, b"\xff\xff\xff\xff", None).await,
        (Code::InvalidArgument, true)
    );
    assert_eq!(
        posted(&server, &vec![0x0a; 100_000], None).await,
        (Code::ResourceExhausted, true)
    );
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    }
    .encode_to_vec();
    let mut not_utf8 = request.clone();
    let text = request
        .windows(5)
        .position(|bytes| bytes == b"Hello")
        .unwrap();
    not_utf8[text] = 0xff;
    assert_eq!(
        posted(&server, &not_utf8, None).await,
        (Code::InvalidArgument, true)
    );
    let (code, has_reason) = posted(&server, &request, Some("100u")).await;
    // Either the failure was reported at once, or there was no time for that, and the status has
    // its reason; on a busy machine the transport ends the call first.
    let is_reported = matches!(
        (code, has_reason),
        (Code::Ok, _) | (Code::DeadlineExceeded, true) | (Code::Cancelled, false)
    );
    assert!(is_reported, "{code:?}, with a reason: {has_reason}");
}

#[tokio::test]
async fn the_query_of_a_base_url_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relight.yaml");
    let text = "providers: { p: { dialect: openai_chat, api_key: k, base_url: \"https://host.example/v1?code=query-key\" } }\n\
                targets: { t: { provider: p, model: m } }\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for output in ["text", "json"] {
        let shown = run(&["config", "show", file, "--output", output]).await;
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        assert!(shown.out.contains("host.example"), "{}", shown.out);
        assert!(!shown.out.contains("query-key"), "{output}: {}", shown.out);
    }
}

#[tokio::test]
async fn a_server_that_gets_two_signals_gives_its_leases_back() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let config = format!(
        "server: {{ keys: [{}] }}\njournal: {{ store: \"sqlite:{}\" }}\n{}",
        key("acme", KEY, ""),
        file.display(),
        one_target(&upstream).replace("400ms", "60s")
    );
    let mut server = Process::start(&config).await;
    let mut client = server.recovery();
    let once = Invocation {
        request_id: "r-1".to_owned(),
        ..asking("Are you there?")
    };
    let request = with_key(
        KEY,
        InvokeWithRecoveryRequest {
            invocation: Some(once),
        },
    );
    let calling = async {
        let _ = client.invoke_with_recovery(request).await;
        std::future::pending::<()>().await;
    };
    let ending = async {
        upstream.await_request(1).await;
        server.signal(Signal::TERM);
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.terminate().await
    };
    tokio::select! {
        ended = tokio::time::timeout(PATIENCE, ending) => assert_eq!(ended.unwrap(), Some(128 + 15)),
        () = calling => unreachable!("it waits for ever"),
    }
    let mut journal = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file))
        .await
        .unwrap();
    let sql = "SELECT count(*) FROM invocations WHERE state = 'running' AND lease_expires_at > 1000000000000000";
    let held: i64 = sqlx::query(sql)
        .fetch_one(&mut journal)
        .await
        .unwrap()
        .get(0);
    assert_eq!(held, 0, "a lease is held for nobody");
}

#[tokio::test]
async fn a_log_at_trace_beside_the_configuration_does_not_feed_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (
        folder.path().join("relight.yaml"),
        folder.path().join("relight.log"),
    );
    std::fs::write(&file, "telemetry: { log: { level: trace } }\n").unwrap();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--config",
    ];
    let arguments = [&arguments[..], &[file.to_str().unwrap()]].concat();
    let mut server = relight(&arguments)
        .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
        .spawn()
        .unwrap();
    let size = || std::fs::metadata(&log).unwrap().len();
    let listens = async {
        while size() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, listens)
        .await
        .expect("the server starts");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        size() < 1 << 20,
        "{} bytes in three seconds without a call",
        size()
    );
    server.kill().await.unwrap();
}
