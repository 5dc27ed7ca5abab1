//! A client whose request is refused while it still sends the body reads the refusal, and no reset
//! of the connection.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::support::{
    http::post,
    process::{KEY, Process, Serve, key},
};

const MIB: usize = 1 << 20;

/// Longest time that a client here waits for a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose callers may send 16 MiB, of which it holds 1 MiB.
async fn serve() -> Process {
    let keys = key("acme", KEY, "");
    let limits = "  max_message_bytes: 16MiB\n  limits: { bytes_in_flight: 1MiB }\n";
    Serve::with_front(&format!(
        "  keys: [{keys}]\n{limits}journal: {{ store: memory }}\n"
    ))
    .start()
    .await
}

/// A connection on which a request with a body of so many bytes was begun.
fn begin(address: &str, path: &str, key: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let fields =
        format!("host: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json");
    write!(
        stream,
        "POST {path} HTTP/1.1\r\n{fields}\r\ncontent-length: {bytes}\r\n\r\n"
    )
    .unwrap();
    stream
}

/// Sends the whole body, and only then reads: the status, and the code of the error.
fn sent_whole(address: &str, path: &str, key: &str, bytes: usize) -> (u16, Value) {
    let mut stream = begin(address, path, key, bytes);
    stream.write_all(&vec![b' '; bytes]).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"));
    (status, body["error"]["code"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_its_whole_body_first_reads_why_it_is_refused() {
    let server = serve().await;
    for (path, key, mib, status, code) in [
        ("/v1/chat/completions", "wrong", 8, 401, "invalid_api_key"),
        ("/v1/nothing", "wrong", 8, 401, "invalid_api_key"),
        ("/v1/chat/completions", KEY, 8, 429, "shed"),
        ("/v1/nothing", KEY, 8, 429, "shed"),
        ("/v1/chat/completions", KEY, 24, 413, "request_too_large"),
    ] {
        let (address, sent) = (server.front_address.clone(), mib * MIB);
        let came = tokio::task::spawn_blocking(move || sent_whole(&address, path, key, sent))
            .await
            .unwrap();
        assert_eq!(came, (status, code.into()), "{path} {mib} MiB");
        let authorization = format!("Bearer {key}");
        let fields = [
            ("content-type", "application/json"),
            ("authorization", authorization.as_str()),
        ];
        let came = post(
            &server.front_address,
            path,
            &fields,
            false,
            vec![b' '; sent],
        )
        .await;
        assert_eq!(
            came.map(|(status, _)| status),
            Ok(status),
            "{path} {mib} MiB"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_that_does_not_end_its_body_loses_its_connection_within_seconds() {
    let server = serve().await;
    for piece in [1, 64 << 10] {
        let address = server.front_address.clone();
        let cut_off = tokio::task::spawn_blocking(move || {
            let mut stream = begin(&address, "/v1/chat/completions", "wrong", 1 << 40);
            let began = Instant::now();
            while stream.write_all(&vec![b' '; piece]).is_ok() {
                assert!(
                    began.elapsed() < PATIENCE,
                    "it is still read, {piece} bytes at a time"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        cut_off.await.unwrap();
    }
    assert!(
        server.memory("VmHWM") < 200 << 20,
        "what is thrown away takes no memory"
    );
}

/// Sends a head without a body, and returns the response.
fn answered(address: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that has heard enough closes the connection.
    let _ = write!(stream, "{head}\r\nconnection: close\r\n\r\n");
    let mut response = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_too_large_or_names_two_hosts_is_refused_over_http_1() {
    let keys = key("acme", KEY, "");
    let settings = format!("  keys: [{keys}]\njournal: {{ store: memory }}\n");
    let server = Serve::with_front(&settings).start().await;
    let bearer = format!("authorization: Bearer {KEY}");
    let models = format!("GET /v1/models HTTP/1.1\r\n{bearer}\r\nhost: a");
    let web = format!(
        "POST /relight.v1.RecoveryService/GetThread HTTP/1.1\r\n{bearer}\r\n\
         content-type: application/grpc-web+proto\r\ncontent-length: 0\r\nhost: a"
    );
    let long = format!("x-long: {}", "x".repeat(65 << 10));
    let front = server.front_address.clone();
    let grpc = server.address.clone();
    let answers = tokio::task::spawn_blocking(move || {
        [
            answered(&front, &models),
            answered(&front, &format!("{models}\r\n{long}")),
            answered(&front, &format!("{models}\r\nhost: b")),
            answered(&grpc, &web),
            answered(&grpc, &format!("{web}\r\n{long}")),
            answered(&grpc, &format!("{web}\r\nhost: b")),
        ]
    });
    let answers = answers.await.unwrap();
    for (answer, wanted) in answers.iter().zip([
        "HTTP/1.1 200",
        "HTTP/1.1 431",
        "HTTP/1.1 400",
        "HTTP/1.1 200",
        "grpc-status: 8",
        "grpc-status: 3",
    ]) {
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    assert!(!answers[3].contains("grpc-status: 8"), "{}", answers[3]);
}
