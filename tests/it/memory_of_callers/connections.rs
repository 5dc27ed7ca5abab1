//! Connections: silent, with half a head, or with heads as large as may be.

use std::time::Duration;

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use super::NOWHERE;
use crate::support::limits::Limits;

const LIMITS: Limits = Limits {
    connections: 60,
    in_flight_mib: 1,
    requests: 1,
    answer_kib: 1024,
    journal_mib: 1,
    events: 16,
};

/// Longest wait for a write that a server may leave in its socket.
const BRIEFLY: Duration = Duration::from_millis(500);

/// Opens connections beyond the limit of each port, and sends this on each.
async fn flood(name: &str, sent: &[u8]) {
    let attacked = LIMITS.serve(NOWHERE, "", "").await;
    let mut held = Vec::new();
    for address in [
        &attacked.server.address,
        &attacked.server.front_address,
        &attacked.server.admin_address,
    ] {
        for _ in 0..100 {
            let Ok(mut stream) = TcpStream::connect(address).await else {
                continue;
            };
            // One that is refused breaks here.
            let _ = timeout(BRIEFLY, stream.write_all(sent)).await;
            held.push(stream);
        }
    }
    tokio::time::sleep(BRIEFLY).await;
    attacked.assert_bounded(name);
}

#[tokio::test]
async fn silent_connections_cost_no_more_than_connections_may() {
    flood("silent connections", b"").await;
}

#[tokio::test]
async fn half_sent_heads_cost_no_more_than_connections_may() {
    let mut head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n".to_vec();
    (0..90).for_each(|number| {
        head.extend(format!("x-{number}: {}\r\n", "x".repeat(16_000)).into_bytes());
    });
    flood("half-sent heads", &head).await;
}
