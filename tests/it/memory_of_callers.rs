//! What callers send costs no more memory than the configured limits add up to, and nothing without a key.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use crate::support::process::{KEY, Process};

const PATIENCE: Duration = Duration::from_mins(1);
const MIB: usize = 1 << 20;

/// What requests may hold here, and what the process may use beside them: buffers of sockets, the allocator's rest.
const IN_FLIGHT: u64 = 96 << 20;
const BESIDE: u64 = 96 << 20;
const SETTINGS: &str = "  limits: { bytes_in_flight: 96MiB }\n  timeouts: { body: 2s }\n";

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

fn assert_bounded(server: &Process, before: u64, what: &str) {
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown < IN_FLIGHT + BESIDE, "{what}: {} MiB more than before", grown >> 20);
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
    assert_bounded(&server, before, "messages without a key");
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
    assert_bounded(&server, before, "half-sent messages");
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
    assert_bounded(&server, before, "empty entries");
}
