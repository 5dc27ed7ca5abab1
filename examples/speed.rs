//! Measures the classifier on a body of about 2 KiB: `cargo run --release --example speed`.

use std::{error::Error, hint::black_box, io::Write as _};

use relight::{domain::failure::ProviderError, policy::classify::Classifier};
use tokio::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let classifier = Classifier::new();
    let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SOME_REASON","domain":"example.com","metadata":{"service":"models.example.com","consumer":"projects/12345","note":"nothing in particular happened here"}}"#;
    let details = vec![detail; 9].join(",");
    let mut out = std::io::stdout().lock();
    for message in
        ["Internal error encountered.", "Rate limit reached for gpt-4o on tokens per min. Please try again in 644ms."]
    {
        let body = format!(r#"{{"error":{{"code":429,"message":"{message}","status":"X","details":[{details}]}}}}"#);
        let error = ProviderError {
            provider: "example".into(),
            status: Some(429),
            body: Some(body.clone()),
            ..ProviderError::default()
        };
        let rounds = 20_000_u32;
        let from = Instant::now();
        for _ in 0..rounds {
            black_box(classifier.classify(black_box(&error), jiff::Timestamp::UNIX_EPOCH));
        }
        writeln!(out, "{} bytes: {:?} a verdict", body.len(), from.elapsed() / rounds)?;
    }
    Ok(())
}
