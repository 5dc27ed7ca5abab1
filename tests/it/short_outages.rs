//! A lone provider that is away for a short while: its callers are served soon after it is back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::support::{
    front::Front,
    load::{in_turn, lone, lost, percentile, refused, through},
    room::whole_room,
    upstream::{Reply, Upstream},
};

/// As many retries as a naive client makes.
const RETRIES: &str = "policies: { standard: { retry: { max_retries: 3 } } }\n";

fn answer() -> Reply {
    Reply::text("Well.").slow_head(Duration::from_millis(20))
}

/// A second, and seven for a busy machine: scenario 3 holds it in virtual time.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test]
async fn after_an_outage_of_ten_seconds_callers_are_served_within_a_second() {
    let _room = whole_room().await;
    let ends = Duration::from_secs(10);
    let at_rate = async |per_second: u32| {
        let upstream = Upstream::start().await;
        let settings = format!("{}{RETRIES}", lone(&upstream, "30s"));
        let front = Arc::new(Front::start(&settings).await);
        let begin = Instant::now();
        upstream.answering(move |_| {
            if begin.elapsed() < ends {
                refused(503, &[])
            } else {
                answer()
            }
        });
        let calls = through(&front, per_second, per_second * 14).await;
        let answered = calls.iter().filter(|one| one.answered);
        let first = answered.map(|one| one.came + one.took).min().unwrap();
        assert!(first <= ends + SOON, "{per_second}/s: {first:?}");
        let after = calls.iter().filter(|one| one.came >= ends);
        for one in after {
            assert!(one.answered && one.took <= SOON, "{per_second}/s: {one:?}");
        }
        let lost = lost(&calls);
        assert_eq!(lost, 0, "{per_second}/s: all wait that long");
    };
    tokio::join!(at_rate(2), at_rate(10));
}

#[tokio::test]
async fn overloads_for_twelve_attempts_delay_no_call_of_four_callers_for_long() {
    let _room = whole_room().await;
    let upstream = Upstream::start().await;
    let settings = format!("{}{RETRIES}", lone(&upstream, "30s"));
    let front = Arc::new(Front::start(&settings).await);
    // The first failure of a process compiles the rules, which takes as long as many calls here.
    upstream.push(refused(400, &[]));
    through(&front, 1, 1).await;
    let count = AtomicU32::new(0);
    upstream.answering(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0..12 => refused(529, &[]),
        _ => answer(),
    });
    let calls = in_turn(&front, 4, 6).await;
    assert_eq!(lost(&calls), 0, "{calls:?}");
    let latest = percentile(&calls, 99);
    // Eight seconds, and two for a busy machine.
    assert!(latest <= Duration::from_secs(10), "{latest:?}");
}
