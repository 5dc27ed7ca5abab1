//! Scores the classifier on a labelled corpus: `cargo run --example score -- failures.jsonl [--misses]`.

use std::{error::Error, io::Write as _};

use relight::policy::classify::{Classifier, corpus};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("name a file of labelled failures")?;
    let items = corpus::read(&std::fs::read_to_string(path)?)?;
    let score = corpus::score(&Classifier::new(), &items);
    let mut out = std::io::stdout().lock();
    write!(out, "{score}")?;
    if let Some(id) = arguments.next().filter(|argument| argument != "--misses") {
        for item in items.iter().filter(|item| item.id == id) {
            writeln!(out, "{:#?}", item.judge(&Classifier::new()))?;
        }
    } else {
        for miss in &score.misses {
            writeln!(out, "{} {}: expected {}, got {} by {}", miss.id, miss.field, miss.expected, miss.got, miss.rule)?;
        }
    }
    Ok(())
}
