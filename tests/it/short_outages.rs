//! A lone provider that is away for a short while: its callers are served soon after it is back.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::support::{
    front::Front,
    load::{lone, lost, refused, through},
    upstream::{Reply, Upstream},
};

/// As many retries as a naive client makes.
const RETRIES: &str = "policies: { standard: { retry: { max_retries: 3 } } }\n";

fn answer() -> Reply {
    Reply::text("Well.").slow_head(Duration::from_millis(20))
}

/// A second, and three for a busy machine.
const SOON: Duration = Duration::from_secs(4);

#[tokio::test]
async fn after_an_outage_of_ten_seconds_callers_are_served_within_a_second() {
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
