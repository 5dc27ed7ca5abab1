//! Measures the classifier on a body of about 2 KiB: `cargo run --release --example speed`.

use std::{error::Error, hint::black_box, io::Write as _};

use relight::{domain::failure::ProviderError, policy::classify::Classifier};
use tokio::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let from = Instant::now();
    let classifier = Classifier::new();
    writeln!(out, "tables compiled in {:?}", from.elapsed())?;
    let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SOME_REASON","domain":"example.com","metadata":{"service":"models.example.com","consumer":"projects/12345","note":"nothing in particular happened here"}}"#;
    let details = [detail; 9].join(",");
    for message in ["Internal error encountered.", "Rate limit reached for tokens per min. Please try again in 644ms."]
    {
        let body = format!(r#"{{"error":{{"code":429,"message":"{message}","status":"X","details":[{details}]}}}}"#);
        let error = ProviderError {
            provider: "example".into(),
            status: Some(429),
            body: Some(body.clone()),
            ..ProviderError::default()
        };
        // The best of many batches: other work of the machine only ever adds.
        let rounds = 200_u32;
        let best = (0..200).map(|_| {
            let from = Instant::now();
            for _ in 0..rounds {
                black_box(classifier.classify(black_box(&error), jiff::Timestamp::UNIX_EPOCH));
            }
            from.elapsed() / rounds
        });
        writeln!(out, "{} bytes: {:?} a verdict", body.len(), best.min().unwrap_or_default())?;
    }
    Ok(())
}
