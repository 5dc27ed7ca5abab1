//! Prints what a model of likely classes learns from: for each labelled failure its class (and, behind a dot,
//! what is wrong with an invalid request), a tab, and its words.
//! `cargo run --example words -- failures.jsonl … > words.tsv`; `examples/likely.py` reads it.
//!
//! A message is printed once more inside what a program says around any cause, so that such words are learned to say nothing.

use std::{error::Error, io::Write as _};

use relight::policy::classify::{Classifier, corpus};

/// What programs say before and behind any cause.
const WRAPPERS: [(&str, &str); 16] = [
    ("Error: ", ""),
    ("Request failed: ", ""),
    ("Error calling the model: ", ""),
    ("An unexpected error occurred: ", ""),
    ("Oops! An error has occurred. ", ""),
    ("Sorry, there was a problem while processing the request: ", ""),
    ("LLM call failed after 4 retries, last error: ", ""),
    ("Unable to complete the task. Reason: ", ""),
    ("[2030-01-02 03:04:05] ERROR agent.run: error during generation - ", ""),
    ("Traceback (most recent call last):\n  File \"app.py\", line 12, in run\n", ""),
    ("Task failed with an exception: ", " (request id: 7f3a)"),
    ("", " Please try again later, or contact support if the problem persists."),
    ("", " Please check your settings, API key and internet connection."),
    ("", " Check that the model name and the network are right, and see the logs for details."),
    ("", " (retry 3/5)"),
    ("", "\n    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for path in std::env::args().skip(1) {
        for (item, (before, behind)) in
            corpus::read(&std::fs::read_to_string(path)?)?.iter().zip(WRAPPERS.iter().cycle())
        {
            let labels = item.labels.as_ref().ok_or("an item has no label")?;
            let detail = labels.detail.as_ref().map(|detail| format!(".{detail}")).unwrap_or_default();
            let label = format!("{}{detail}", labels.class.as_str());
            let mut error = item.error();
            writeln!(out, "{label}\t{}", Classifier::words(&error).join(" "))?;
            if let Some(message) = &mut error.message {
                *message = [before, message.as_str(), behind].concat();
                writeln!(out, "{label}\t{}", Classifier::words(&error).join(" "))?;
            }
        }
    }
    Ok(())
}
