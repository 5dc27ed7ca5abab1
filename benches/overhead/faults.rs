//! What a call costs while its provider fails, beside the same gateway before a healthy one.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    DURATION,
    calls::Interfaces,
    load::{CONNECTIONS, ms},
    peers::Peer,
    process::Process,
    upstream::{self, Fault, Requests},
};

/// The words behind `--` that select this table.
pub(crate) const UNDER_FAULTS: &str = "under faults";

/// Longest wait for one answer, as a caller has it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pieces of an answer.
const PIECES: usize = 64;

/// The faults, each of which meets one request in ten, and whether the call is a stream.
const FAULTS: &[(&str, bool, Fault)] = &[
    ("503, unary", false, Fault::Unavailable),
    ("503, stream", true, Fault::Unavailable),
    ("closed before a response, unary", false, Fault::Closed),
    ("cut in the middle, stream", true, Fault::Cut),
];

/// How a gateway did before one provider.
#[derive(Default)]
struct Outcome {
    calls: u32,
    answered: u32,
    attempts: u64,
    cpu: Duration,
    latencies: Vec<Duration>,
}

/// Prints the table for Relight and the other gateways.
pub(crate) async fn under_faults(peers: &[Peer]) {
    println!(
        "{:<34}{:<22}{:>11}{:>9}{:>7}{:>11}{:>10}{:>9}",
        "one request in ten",
        "gateway",
        "healthy ms",
        "ms",
        "ratio",
        "answered %",
        "attempts",
        "p99 ms"
    );
    for &(name, stream, fault) in FAULTS {
        let requests = Arc::new(Requests::default());
        let upstream = upstream::start_failing(Arc::clone(&requests)).await;
        let mut gateways = vec![(
            "Relight".to_owned(),
            Process::relight(upstream, "memory").await,
        )];
        for peer in peers {
            gateways.push((peer.name.clone(), peer.start(upstream).await));
        }
        for (gateway, process) in gateways {
            let healthy = measure(&process, stream, None, &requests).await;
            let failing = measure(&process, stream, Some(fault), &requests).await;
            let (whole, ill) = (healthy.cpu_of_an_answer(), failing.cpu_of_an_answer());
            println!(
                "{name:<34}{gateway:<22}{whole:>11.3}{ill:>9.3}{:>7.2}{:>11.1}{:>10.2}{:>9.0}",
                ill / whole,
                failing.answered_of_hundred(),
                failing.attempts_of_a_call(),
                ms(failing.slow()),
            );
        }
    }
}

async fn measure(
    process: &Process,
    stream: bool,
    fault: Option<Fault>,
    requests: &Requests,
) -> Outcome {
    requests.fail(fault);
    let (seen, before, began) = (requests.seen.load(Relaxed), process.cpu(), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let interfaces = process.interfaces.clone();
        tasks.spawn(async move {
            let mut made = Vec::new();
            while began.elapsed() < DURATION {
                let due = Instant::now();
                let answered = timeout(PATIENCE, is_answered(&interfaces, stream)).await;
                made.push((answered.unwrap_or_default(), due.elapsed()));
            }
            made
        });
    }
    let made = tasks.join_all().await.concat();
    Outcome {
        calls: u32::try_from(made.len()).unwrap(),
        answered: u32::try_from(made.iter().filter(|(answered, _)| *answered).count()).unwrap(),
        attempts: requests.seen.load(Relaxed) - seen,
        cpu: process.cpu() - before,
        latencies: made.into_iter().map(|(_, latency)| latency).collect(),
    }
}

// === impl Outcome ===

impl Outcome {
    fn cpu_of_an_answer(&self) -> f64 {
        ms(self.cpu) / f64::from(self.answered.max(1))
    }

    fn answered_of_hundred(&self) -> f64 {
        100.0 * f64::from(self.answered) / f64::from(self.calls.max(1))
    }

    fn attempts_of_a_call(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "fewer attempts than a float has whole numbers"
        )]
        let attempts = self.attempts as f64;
        attempts / f64::from(self.calls.max(1))
    }

    /// The latency that one call in a hundred exceeds.
    fn slow(&self) -> Duration {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        latencies
            .get(latencies.len() * 99 / 100)
            .copied()
            .unwrap_or_default()
    }
}

/// Makes one call on a connection of its own, and returns whether its caller holds the whole answer,
/// once, and no error.
async fn is_answered(interfaces: &Interfaces, stream: bool) -> bool {
    let [_, body] = interfaces.chat(stream, PIECES, 20, 0, 0);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        interfaces.path,
        body.len()
    );
    let mut socket = interfaces.connect_front().await;
    let mut response = Vec::new();
    let exchanged = async {
        socket.write_all(head.as_bytes()).await?;
        socket.write_all(body.as_bytes()).await?;
        while socket.read_buf(&mut response).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    exchanged.await.is_ok() && holds_all(&String::from_utf8_lossy(&response), stream)
}

fn holds_all(response: &str, stream: bool) -> bool {
    let content = |document: &str, part: &str| {
        let document: Value = serde_json::from_str(document).ok()?;
        Some(document["choices"][0][part]["content"].as_str()?.to_owned())
    };
    let text: String = if stream {
        let data = response
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|document| content(document.trim(), "delta"))
            .collect()
    } else {
        // The body may be chunked: its one document is between the first and the last brace.
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let document = body
            .find('{')
            .zip(body.rfind('}'))
            .map_or("", |(from, to)| &body[from..=to]);
        content(document, "message").unwrap_or_default()
    };
    let expected: String = (0..PIECES).map(|word| format!("word {word} ")).collect();
    response.starts_with("HTTP/1.1 200") && text.trim_end() == expected.trim_end()
}
