//! Prints what a model of likely classes learns from: for each labelled failure its class, a tab, and its words.
//! `cargo run --example words -- failures.jsonl … > words.tsv`; `examples/likely.py` reads it.

use std::{error::Error, io::Write as _};

use relight::policy::classify::{Classifier, corpus};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for path in std::env::args().skip(1) {
        for item in corpus::read(&std::fs::read_to_string(path)?)? {
            let class = item.labels.as_ref().map(|labels| labels.class.as_str()).ok_or("an item has no label")?;
            writeln!(out, "{class}\t{}", Classifier::words(&item.error()).join(" "))?;
        }
    }
    Ok(())
}
