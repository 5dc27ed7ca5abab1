//! Whatever callers and providers do, the process takes no more memory than the configured limits add up to, as the
//! formula of `SECURITY.md` says; without a key it takes nothing but buffers of connections.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use relight::internals::grpc::v1::{InvokeWithRecoveryRequest, WatchRecoveryRequest, watch_recovery_request::Start};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::support::{
    process::{KEY, Process, with_key},
    relight::asking,
    upstream::{Reply, Upstream},
};

const PATIENCE: Duration = Duration::from_mins(1);
const MIB: usize = 1 << 20;

/// `limits.bytes_in_flight`: what requests may hold.
const IN_FLIGHT: u64 = 96 << 20;
/// `limits.connections` of each of three ports, with 1 MiB of buffers each.
const CONNECTIONS: u64 = 32;
const BUFFERS: u64 = (3 * CONNECTIONS) << 20;
/// `admission.max_in_flight` answers of `http.max_body_bytes` each, in the four places that hold one.
const CALLS: u64 = 8;
const ANSWERS: u64 = CALLS * 4 * (4 << 20);
/// `journal.max_bytes`, with as much again for its indexes.
const JOURNAL: u64 = 2 * (16 << 20);
/// `events.capacity`, of 2 KiB each.
const EVENTS: u64 = 4096 * (2 << 10);
const SETTINGS: &str =
    "  limits: { bytes_in_flight: 96MiB, connections: 32 }\n  timeouts: { body: 2s, head: 2s, idle: 5s }\n";

/// What came back: the status of HTTP, and the one of gRPC where there is one.
type Came = Result<(u16, Option<String>), String>;

async fn post(address: &str, path: &str, key: Option<&str>, kind: &str, http2: bool, body: Vec<u8>) -> Came {
    let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
    let mut request = Request::post(format!("http://{address}{path}")).header("content-type", kind);
    if http2 {
        request = request.header("te", "trailers");
    }
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let exchange = async {
        let response = client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let in_head = response.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
        let collected = response.into_body().collect().await.map_err(|error| error.to_string())?;
        let in_trailers = collected.trailers().and_then(|all| all.get("grpc-status"));
        Ok((status, in_head.or_else(|| in_trailers.map(|code| code.to_str().unwrap().to_owned()))))
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("the call hangs")
}

async fn invoke(server: &Process, key: Option<&str>, message: Vec<u8>, declared: usize) -> Came {
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(declared).unwrap().to_be_bytes());
    body.extend(message);
    post(&server.grpc, "/relight.v1.RecoveryService/InvokeWithRecovery", key, "application/grpc", true, body).await
}

/// A field that holds these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        encoded.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    encoded.push(u8::try_from(length).unwrap());
    encoded.extend_from_slice(bytes);
    encoded
}

/// That the process grew by no more than the limits that an attack draws on.
fn assert_bounded(server: &Process, before: u64, limits: &[u64], what: &str) {
    let (grown, allowed) = (server.memory("VmHWM").saturating_sub(before), limits.iter().sum::<u64>());
    assert!(grown < allowed, "{what}: {} MiB more than before; the limits allow {}", grown >> 20, allowed >> 20);
}

/// A server with an upstream that plays this, and with limits on all that an answer can fill.
async fn calling(upstream: &Upstream) -> Process {
    let rest = format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k, \
         http: {{ max_body_bytes: 4MiB, max_line_bytes: 1MiB }} }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\n\
         routes: {{ default: {{ targets: [main], deadline: 5s }} }}\n\
         policies: {{ standard: {{ retry: {{ max_retries: 0, semantic_retries: 0 }} }} }}\n\
         admission: {{ max_in_flight: {CALLS} }}\n",
        upstream.base_url()
    );
    Process::start("", SETTINGS, &rest).await
}

/// Keeps a connection open on which this was sent, and reads nothing; `None` where it was closed meanwhile.
async fn held(address: &str, sent: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(sent).await.ok()?;
    Some(stream)
}

#[tokio::test]
async fn forty_large_messages_without_a_key_cost_nothing_and_are_refused() {
    let server = Process::start("", SETTINGS, "").await;
    let before = server.memory("VmHWM");
    let message = field(1, &field(6, &vec![b'x'; 30 * MIB]));
    let length = message.len();
    for _ in 0..8 {
        let calls = (0..5).map(|_| invoke(&server, None, message.clone(), length));
        for came in futures_util::future::join_all(calls).await {
            // The answer may be lost where the client goes on writing; a message is never taken.
            assert!(came.as_ref().map_or(true, |(_, code)| code.as_deref() == Some("16")), "{came:?}");
        }
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS], "messages without a key");
}

#[tokio::test]
async fn messages_that_do_not_end_hold_no_more_than_the_limit_and_end_by_themselves() {
    let server = Process::start("", SETTINGS, "").await;
    let before = server.memory("VmHWM");
    let message = field(1, &field(6, &vec![b'x'; 24 * MIB]));
    let calls = (0..8).map(|_| invoke(&server, Some(KEY), message.clone(), message.len() + MIB));
    for came in futures_util::future::join_all(calls).await {
        assert!(came.as_ref().map_or(true, |(_, code)| code.as_deref() != Some("0")), "{came:?}");
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS], "half-sent messages");
    let came = invoke(&server, Some(KEY), Vec::new(), 0).await.unwrap();
    assert_eq!(came.1.as_deref(), Some("3"), "the room is free again: an empty request is not valid");
}

#[tokio::test]
async fn millions_of_empty_entries_are_refused_before_they_are_decoded() {
    let server = Process::start("", SETTINGS, "").await;
    let before = server.memory("VmHWM");
    // Messages of a call without anything in them, by the wire: two bytes each.
    let entries: Vec<u8> = [0x0a, 0x00].repeat(31 * MIB / 2);
    let message = field(1, &field(3, &entries));
    for _ in 0..3 {
        let length = message.len();
        let came = invoke(&server, Some(KEY), message.clone(), length).await.unwrap();
        assert_eq!(came.1.as_deref(), Some("8"), "RESOURCE_EXHAUSTED");
    }
    let body = format!("{{\"model\":\"default\",\"messages\":[{}0]}}", "0,".repeat(15 * MIB));
    for _ in 0..3 {
        let body = body.clone().into_bytes();
        let came =
            post(&server.front, "/v1/chat/completions", Some(KEY), "application/json", false, body).await.unwrap();
        assert_eq!(came.0, 413);
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS], "empty entries");
}

#[tokio::test]
async fn silent_connections_and_half_sent_heads_hold_no_more_than_their_buffers_on_every_port() {
    let server = Process::start("", SETTINGS, "").await;
    let before = server.memory("VmHWM");
    let half = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-long: {}", "a".repeat(200 << 10));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for address in [&server.grpc, &server.front, &server.admin] {
        for sent in [&b""[..], half.as_bytes(), preface] {
            let open: Vec<_> = futures_util::future::join_all((0..300).map(|_| held(address, sent))).await;
            assert_eq!(open.len(), 300);
        }
    }
    assert_bounded(&server, before, &[BUFFERS], "900 connections on each port");
}

#[tokio::test]
async fn json_that_is_huge_or_deep_is_refused_within_the_bytes_in_flight() {
    let server = Process::start("", SETTINGS, "").await;
    let before = server.memory("VmHWM");
    let wide = format!(
        "{{\"model\":\"default\",\"messages\":[{{\"role\":\"user\",\"content\":[{}1]}}]}}",
        "1,".repeat(14 * MIB)
    );
    let deep = format!("{{\"model\":\"default\",\"messages\":{}", "[".repeat(20 * MIB));
    let keys: String = (0..MIB).map(|number| format!("\"k{number}\":{{}},")).collect();
    let keyed = format!("{{{keys}\"model\":\"default\"}}");
    for body in [wide, deep, keyed] {
        for _ in 0..3 {
            let body = body.clone().into_bytes();
            let came = post(&server.front, "/v1/chat/completions", Some(KEY), "application/json", false, body).await;
            assert!((400..500).contains(&came.unwrap().0));
        }
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS], "huge JSON");
}

#[tokio::test]
async fn answers_that_do_not_end_are_given_up_within_the_limits_of_a_provider() {
    let upstream = Upstream::start().await;
    let server = calling(&upstream).await;
    let before = server.memory("VmHWM");
    for reply in [Reply::endless_line, Reply::endless_body] {
        upstream.otherwise(reply());
        for front in [true, false] {
            let calls = (0..CALLS).map(|_| async {
                if front {
                    let question = crate::support::front::question("default", true).to_string().into_bytes();
                    let came =
                        post(&server.front, "/v1/chat/completions", Some(KEY), "application/json", false, question);
                    came.await.map(|_| ())
                } else {
                    let request = InvokeWithRecoveryRequest { invocation: Some(asking("hello")) };
                    let came = server.recovery().await.invoke_with_recovery(with_key(KEY, request)).await;
                    came.map(|_| ()).map_err(|status| status.to_string())
                }
            });
            futures_util::future::join_all(calls).await;
        }
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS, ANSWERS], "answers without an end");
}

#[tokio::test]
async fn readers_of_the_front_that_read_nothing_hold_no_more_than_the_answers() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(&"word ".repeat(60_000)));
    let server = calling(&upstream).await;
    let before = server.memory("VmHWM");
    let question = crate::support::front::question("default", true).to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{question}",
        question.len()
    );
    let mut stuck = Vec::new();
    for _ in 0..5 {
        stuck.extend(futures_util::future::join_all((0..CALLS).map(|_| held(&server.front, request.as_bytes()))).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_bounded(&server, before, &[IN_FLIGHT, BUFFERS, ANSWERS, JOURNAL], "readers that stand still");
}

#[tokio::test]
async fn watchers_that_read_nothing_and_a_journal_in_memory_hold_no_more_than_their_limits() {
    let journal = "journal: { store: memory, max_bytes: 16MiB }\nevents: { capacity: 4096 }\n";
    let keys = crate::support::process::key("acme", KEY, "");
    let script = "{ otherwise: { answer: { text: \"Well.\" } } }";
    let server = Process::serve(
        "",
        &format!(
            "  keys: [{keys}]\n{SETTINGS}{journal}providers: {{ p: {{ dialect: scripted, script: {script} }} }}\n\
             targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ default: {{ targets: [main] }} }}\n"
        ),
    )
    .await;
    // On a connection of their own: what they leave unread holds up each other alone.
    let (client, mut watching) = (server.recovery().await, server.recovery().await);
    let mut watchers = Vec::new();
    for _ in 0..64 {
        let watch = WatchRecoveryRequest { filter: None, start: Some(Start::Live(true)) };
        watchers.push(watching.watch_recovery(with_key(KEY, watch)).await.unwrap().into_inner());
    }
    let before = server.memory("VmHWM");
    // 120 MB of prompts, each kept with its invocation as long as there is room.
    for round in 0..150 {
        let calls = (0..8).map(|number| {
            let mut client = client.clone();
            async move {
                let mut invocation = asking(&"word ".repeat(20_000));
                invocation.request_id = format!("{round}-{number}");
                let request = InvokeWithRecoveryRequest { invocation: Some(invocation) };
                client.invoke_with_recovery(with_key(KEY, request)).await.unwrap();
            }
        });
        futures_util::future::join_all(calls).await;
    }
    assert_bounded(&server, before, &[BUFFERS, JOURNAL, EVENTS], "a full journal and 64 watchers");
    drop(watchers);
}
