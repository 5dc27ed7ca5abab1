//! HTTP/2 as no normal client uses it: streams that are reset at once, heads that do not end,
//! streams without a body.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{CHAT, INVOKE, NOWHERE};
use crate::support::{
    limits::{Attacked, Limits},
    process::KEY,
    room::room,
};

const LIMITS: Limits = Limits {
    connections: 8,
    in_flight_mib: 4,
    requests: 8,
    answer_kib: 1024,
    journal_mib: 1,
    events: 64,
};
const BRIEFLY: Duration = Duration::from_secs(3);

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface, and empty settings.
fn preface() -> Vec<u8> {
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(4, 0, 0, &[]),
    ]
    .concat()
}

/// A text of HPACK.
fn text(value: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    if value.len() < 127 {
        encoded.push(u8::try_from(value.len()).unwrap());
    } else {
        encoded.push(127);
        let mut rest = value.len() - 127;
        while rest >= 128 {
            encoded.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        encoded.push(u8::try_from(rest).unwrap());
    }
    encoded.extend(value.as_bytes());
    encoded
}

/// A field that no table remembers.
fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name), text(value)].concat()
}

/// The head of a call with a valid key.
fn head(path: &str) -> Vec<u8> {
    let kind = if path == CHAT {
        "application/json"
    } else {
        "application/grpc"
    };
    let fields = [
        ("te", "trailers"),
        ("content-type", kind),
        ("authorization", &format!("Bearer {KEY}")),
    ];
    let fields: Vec<u8> = fields
        .iter()
        .flat_map(|(name, value)| literal(name, value))
        .collect();
    [
        vec![0x83, 0x86, 0x04],
        text(path),
        vec![0x01],
        text("x"),
        fields,
    ]
    .concat()
}

/// The ports, each with a path of its own.
fn ports(attacked: &Attacked) -> [(String, &'static str); 3] {
    let Attacked { server, .. } = attacked;
    [
        (server.address.clone(), INVOKE),
        (server.front_address.clone(), CHAT),
        (server.admin_address.clone(), "/grpc.health.v1.Health/Watch"),
    ]
}

/// Sends these frames, one after the other, on one connection, until all are sent or the server
/// closes it. The server's frames are read where `read` is set. The connection stays open as long
/// as the returned task.
async fn send(
    address: &str,
    read: bool,
    frames: impl Iterator<Item = Vec<u8>>,
) -> tokio::task::JoinSet<()> {
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    let mut held = tokio::task::JoinSet::new();
    held.spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        if !read {
            std::future::pending::<()>().await;
        }
        while from.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    });
    let all = async {
        to.write_all(&preface()).await?;
        let mut batch = Vec::new();
        for frame in frames {
            batch.extend(frame);
            if batch.len() > 1 << 16 {
                to.write_all(&batch).await?;
                batch.clear();
            }
        }
        to.write_all(&batch).await
    };
    let _ = timeout(BRIEFLY, all).await;
    held.spawn(async move {
        let _to = to;
        std::future::pending::<()>().await;
    });
    held
}

/// The numbers of a client's streams.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

#[tokio::test]
async fn streams_that_are_reset_at_once_leave_nothing() {
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    for (address, path) in ports(&attacked) {
        for read in [true, false] {
            for _ in 0..4 {
                let reset = 8_u32.to_be_bytes();
                let pairs = streams(20_000).map(|id| {
                    [
                        frame(HEADERS, END_HEADERS, id, &head(path)),
                        frame(RST_STREAM, 0, id, &reset),
                    ]
                    .concat()
                });
                drop(send(&address, read, pairs).await);
            }
        }
    }
    attacked.assert_bounded("rapid reset");
}

#[tokio::test]
async fn heads_that_continue_without_end_are_cut_off() {
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    for (address, path) in ports(&attacked) {
        let field = literal("x-more", &"x".repeat(16_000));
        let mut held = Vec::new();
        for _ in 0..4 {
            let begun = frame(HEADERS, 0, 1, &head(path));
            let more = (0..2000).map(|_| frame(CONTINUATION, 0, 1, &field));
            held.push(send(&address, true, std::iter::once(begun).chain(more)).await);
        }
    }
    attacked.assert_bounded("CONTINUATION flood");
}

#[tokio::test]
async fn fields_that_a_table_repeats_count_as_often_as_they_come() {
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    for (address, path) in ports(&attacked) {
        // One field into the table, then as often out of it as a frame allows: four million bytes a
        // byte.
        let kept = [vec![0x40], text("x-bomb"), text(&"x".repeat(3900))].concat();
        let bomb = [head(path), kept, vec![0xbe; 12_000]].concat();
        let heads = streams(200).map(|id| frame(HEADERS, END_HEADERS, id, &bomb));
        drop(send(&address, true, heads).await);
    }
    attacked.assert_bounded("HPACK bomb");
}

#[tokio::test]
async fn many_streams_with_large_heads_and_no_body_hold_no_more_than_the_limit() {
    let _room = room().await;
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    for (address, path) in ports(&attacked) {
        let mut held = Vec::new();
        for _ in 0..6 {
            let large: Vec<u8> = (0..4)
                .flat_map(|number| literal(&format!("x-{number}"), &"x".repeat(3900)))
                .collect();
            let large = [head(path), large].concat();
            let heads = streams(1000).map(|id| frame(HEADERS, END_HEADERS, id, &large));
            held.push(send(&address, true, heads).await);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    attacked.assert_bounded("streams without a body");
}

#[tokio::test]
async fn pings_whose_answers_are_never_read_leave_nothing() {
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    for (address, _) in ports(&attacked) {
        drop(
            send(
                &address,
                false,
                (0..2_000_000).map(|_| frame(PING, 0, 0, b"12345678")),
            )
            .await,
        );
    }
    attacked.assert_bounded("pings");
}
