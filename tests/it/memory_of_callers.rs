//! Whatever callers and providers send, keep open or do not read, the process takes no more memory
//! than its limits add up to, and what has no key gets none.
//!
//! The bound of each attack is computed from what the test configures: see `support::limits`.

use std::time::Duration;

use crate::support::{
    http::{Came, post},
    process::{KEY, Process},
};

mod answers;
mod connections;
mod frames;
mod kept;
mod readers;
mod requests;

const PATIENCE: Duration = Duration::from_mins(1);
const MIB: usize = 1 << 20;

/// Where a provider would be, for attacks that reach none.
const NOWHERE: &str = "http://127.0.0.1:9/v1";

const INVOKE: &str = "/relight.v1.RecoveryService/InvokeWithRecovery";
const CHAT: &str = "/v1/chat/completions";

/// Posts a gRPC message whose head declares `declared` bytes.
async fn invoke(server: &Process, key: Option<&str>, message: Vec<u8>, declared: usize) -> Came {
    let body = framed(0, &message, declared);
    let authorization = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
    headers.extend(
        authorization
            .as_deref()
            .map(|value| ("authorization", value)),
    );
    post(&server.address, INVOKE, &headers, true, body).await
}

/// Posts JSON to the front, with a key.
async fn chat(server: &Process, body: Vec<u8>, more: &[(&str, &str)]) -> Came {
    let authorization = format!("Bearer {KEY}");
    let headers = [
        &[
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ],
        more,
    ]
    .concat();
    post(&server.front_address, CHAT, &headers, false, body).await
}

/// A gRPC message as it is sent.
fn framed(compressed: u8, message: &[u8], declared: usize) -> Vec<u8> {
    [
        &[compressed][..],
        &u32::try_from(declared).unwrap().to_be_bytes(),
        message,
    ]
    .concat()
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

/// The beginning of about so many zeros as gzip has them: one literal, then copies of what came
/// before.
fn gzip_of_zeros(bytes: usize) -> Vec<u8> {
    // Deflate's fixed codes: last block, of its kind, the byte 0; then (258 bytes, 1 back) as often
    // as is wanted.
    let begun = [
        true, true, false, false, false, true, true, false, false, false, false,
    ];
    let copy = [
        true, true, false, false, false, true, false, true, false, false, false, false, false,
    ];
    let bits: Vec<bool> = begun
        .into_iter()
        .chain(copy.into_iter().cycle().take(13 * 9))
        .collect();
    let packed = bits.chunks_exact(8).map(|eight| {
        eight
            .iter()
            .rev()
            .fold(0, |byte, bit| byte << 1 | u8::from(*bit))
    });
    let packed: Vec<u8> = packed.collect();
    // Eight copies are 13 bytes.
    let copies = packed[2..15].repeat(bytes / 258 / 8);
    [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255],
        &packed[..2],
        &copies,
    ]
    .concat()
}
