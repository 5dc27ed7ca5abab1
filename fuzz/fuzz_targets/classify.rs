//! No upstream text makes the classifier panic, hang, or answer without bounds.
//!
//! Run with `cargo +nightly fuzz run classify -- -max_len=65536 -timeout=1 -rss_limit_mb=512`. The
//! first bytes choose the surroundings (surface, status, a header), the rest is the text.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use relight::internals::{
    domain::failure::{ProviderError, Surface},
    policy::classify::Classifier,
};

static CLASSIFIER: LazyLock<Classifier> = LazyLock::new(Classifier::new);

fuzz_target!(|input: (u8, u16, bool, &[u8])| {
    let (surface, status, as_header, bytes) = input;
    let text = String::from_utf8_lossy(bytes).into_owned();
    let surfaces = [Surface::Http, Surface::Transport, Surface::Stream, Surface::Grpc, Surface::Tool];
    let mut error = ProviderError {
        surface: surfaces[usize::from(surface) % surfaces.len()],
        status: (status != 0).then_some(status % 1000),
        ..ProviderError::default()
    };
    if as_header {
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "date", "x-amzn-errortype"] {
            error.headers.push((name.to_owned(), text.clone()));
        }
    } else {
        error.body = Some(text);
    }
    let verdict = CLASSIFIER.classify(&error, jiff::Timestamp::UNIX_EPOCH);
    assert!(verdict.message.len() <= 410 && verdict.fact.len() <= 130);
    assert!(verdict.retry_after.is_none_or(|wait| wait.duration.as_secs() <= 31 * 86_400));
});
