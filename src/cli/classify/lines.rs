//! Lines of JSON in, lines of JSON out: each failure is judged and printed as soon as its line has
//! come.

use std::{
    io::{BufRead, Read as _},
    process::ExitCode,
};

use crate::policy::{
    classify::Classifier,
    corpus::{self, Prediction},
};
use anyhow::bail;

use super::MAX_INPUT_BYTES;
use crate::cli::terminal::{print_line, print_note};

/// Input that is read line by line. Bodies of failures are not always the text that they claim to
/// be, so that data that is not valid UTF-8 is replaced.
#[derive(Debug)]
pub(super) struct InputLines<R> {
    input: R,
    /// Number of lines that were read.
    number: usize,
    /// A line that was read ahead.
    ahead: Option<String>,
}

/// Judges the failure of each line. A line that is not valid is reported with its number, and the
/// others are judged nevertheless; the exit code is then 1.
///
/// # Errors
/// Returns an error if standard output is closed, or the input cannot be read.
pub(super) fn judge_each<R: BufRead>(
    classifier: &Classifier,
    mut lines: InputLines<R>,
) -> anyhow::Result<ExitCode> {
    let mut ended = ExitCode::SUCCESS;
    while let Some(line) = lines.read_line()? {
        if line.trim().is_empty() {
            continue;
        }
        match corpus::read_line(lines.number, &line) {
            Ok(item) => print_line(&serde_json::to_string(&Prediction::by(classifier, &item))?)?,
            Err(reason) => {
                print_note(&format!("relight: standard input: {reason}"));
                ended = ExitCode::FAILURE;
            }
        }
    }
    Ok(ended)
}

// === impl InputLines ===

impl<R: BufRead> InputLines<R> {
    /// The lines of this input.
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            number: 0,
            ahead: None,
        }
    }

    /// Returns the first line that is not empty, which is read again afterwards; empty if there is
    /// none.
    pub(super) fn first(&mut self) -> anyhow::Result<&str> {
        while let Some(line) = self.read_line()? {
            if !line.trim().is_empty() {
                return Ok(self.ahead.insert(line).as_str());
            }
        }
        Ok("")
    }

    /// Everything that is left.
    pub(super) fn rest(mut self) -> anyhow::Result<String> {
        let mut bytes = self.ahead.take().unwrap_or_default().into_bytes();
        self.input.take(MAX_INPUT_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_line(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(line) = self.ahead.take() {
            return Ok(Some(line));
        }
        let mut bytes = Vec::new();
        self.input
            .by_ref()
            .take(MAX_INPUT_BYTES)
            .read_until(b'\n', &mut bytes)?;
        self.number += 1;
        if bytes.len() as u64 == MAX_INPUT_BYTES && bytes.last() != Some(&b'\n') {
            bail!(
                "standard input: line {} is larger than {} MiB",
                self.number,
                MAX_INPUT_BYTES >> 20
            );
        }
        Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read_ahead_without_being_lost() {
        let mut lines = InputLines::new(&b"\n  \none\ntwo"[..]);
        assert_eq!(lines.first().unwrap(), "one\n");
        assert_eq!(lines.read_line().unwrap().as_deref(), Some("one\n"));
        assert_eq!(
            (lines.number, lines.read_line().unwrap().as_deref()),
            (3, Some("two"))
        );
        assert_eq!(lines.read_line().unwrap(), None);

        let mut lines = InputLines::new(&b"\none\n\ntwo\n"[..]);
        lines.first().unwrap();
        assert_eq!(lines.rest().unwrap(), "one\n\ntwo\n");
        assert_eq!(InputLines::new(&b"\n"[..]).first().unwrap(), "");
    }
}
