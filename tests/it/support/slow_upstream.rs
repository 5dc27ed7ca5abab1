//! An upstream that streams its answer slowly, so that a server can be killed meanwhile, and a
//! configuration for it.

use std::time::Duration;

use crate::support::{
    targets::one_target,
    upstream::{Reply, Upstream},
};

pub(crate) const ANSWER: &str = "One owner dies, another takes over, and nobody who folds can tell: every word is there, and none \
                      is there twice, however often the lights go out.";

/// A configuration with this journal, and with time for the whole answer.
pub(crate) fn configured(store: &str, mode: &str, upstream: &Upstream) -> String {
    let yaml = format!(
        "{}journal: {{ store: {store:?}, mode: {mode} }}\n",
        one_target(upstream)
    );
    // Slots for all of the load: none of it is to wait for another.
    yaml.replace("deadline: 20s", "deadline: 2m")
        .replace("400ms", "5s")
        + "concurrency: { start: 64 }\n"
}

/// An upstream that takes a few seconds for its answer.
pub(crate) async fn slow_upstream() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(120)
            .paced(Duration::from_millis(40)),
    );
    upstream
}
