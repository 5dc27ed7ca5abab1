//! Measures the cost of a verdict on bodies of 2 KiB: `cargo run --release --example speed`.
//!
//! Prints the fastest and the median of many batches. Other work of the machine only ever adds, so
//! the fastest is nearest to the cost; the distance of the median shows how much the machine was
//! disturbed.

use std::{error::Error, hint::black_box, io::Write as _, time::Duration};

use jiff::Timestamp;
use relight::internals::{domain::failure::ProviderError, policy::classify::Classifier};
use tokio::time::Instant;

#[path = "../benches/hot_paths/bodies.rs"]
mod bodies;

/// Batches of each kind, and verdicts of each batch.
const BATCHES: usize = 1000;
const VERDICTS: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let from = Instant::now();
    let classifier = Classifier::new();
    black_box(classifier.classify(&ProviderError::default(), Timestamp::UNIX_EPOCH));
    writeln!(out, "rules compiled in {:?}", from.elapsed())?;
    writeln!(
        out,
        "{:>9} {:>9}  a verdict on 2 KiB of",
        "fastest", "median"
    )?;
    for (kind, failure) in bodies::failures() {
        let batch = || {
            let from = Instant::now();
            for _ in 0..VERDICTS {
                black_box(classifier.classify(black_box(&failure), Timestamp::UNIX_EPOCH));
            }
            from.elapsed() / VERDICTS
        };
        let mut batches: Vec<_> = std::iter::repeat_with(batch).take(BATCHES).collect();
        batches.sort_unstable();
        let micros =
            |time: Option<&Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
        writeln!(
            out,
            "{:6.2} µs {:6.2} µs  {kind}",
            micros(batches.first()),
            micros(batches.get(BATCHES / 2))
        )?;
    }
    Ok(())
}
