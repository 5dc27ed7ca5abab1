//! Output for people and programs: lines on standard output and standard error, colour, tables.
//!
//! Colour is for terminals only, and `NO_COLOR` switches it off. Text from elsewhere is written
//! without control characters, so that no upstream can move the cursor or start a line.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use jiff::{Timestamp, tz::TimeZone};
use parking_lot::Mutex;

use crate::{
    config::{Environment as _, ProcessEnvironment},
    domain::units,
};

/// Colouring of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    colour: bool,
}

/// Rows of cells, aligned when shown.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

/// Last line of the completion on a terminal, as long as it has not ended.
static BEGUN: Mutex<String> = Mutex::new(String::new());

/// Writes a piece of the completion to standard output, which is a terminal.
pub(super) fn show(text: &str) {
    let mut begun = BEGUN.lock();
    write_now(text);
    match text.rsplit_once('\n') {
        Some((_, last)) => last.clone_into(&mut begun),
        None => begun.push_str(text),
    }
}

/// Ends the current line of the completion.
pub(super) fn end_line() {
    if !std::mem::take(&mut *BEGUN.lock()).is_empty() {
        write_now("\n");
    }
}

fn write_now(text: &str) {
    let mut out = io::stdout().lock();
    // A closed output ends the command at its next required line.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to standard output.
///
/// # Errors
/// When the output is closed.
pub(super) fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Writes a line to standard error. An unfinished line of the completion on the terminal is repeated
/// below it, so that the completion stays readable. Write errors are ignored, since there is nowhere to
/// report them.
pub(super) fn print_note(line: &str) {
    let begun = BEGUN.lock();
    if !begun.is_empty() {
        write_now("\n");
    }
    let _ = writeln!(io::stderr().lock(), "{line}");
    write_now(&begun);
}

/// Returns the text on one line and without control characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns the text without control characters but line feeds and tabs.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// Returns a duration for people: `340 ms`, `2.4 s`, `3 min`.
pub(super) fn span(ms: u64) -> String {
    units::duration_text(Duration::from_millis(ms))
}

// === impl Paint ===

/// Returns a moment, by this machine's clock.
pub(super) fn clock_time(time: &prost_types::Timestamp) -> String {
    let at = Timestamp::new(time.seconds, time.nanos).unwrap_or_default();
    at.to_zoned(TimeZone::system())
        .strftime("%H:%M:%S")
        .to_string()
}

impl Paint {
    /// As the stream deserves.
    pub(super) fn on(stream: &impl IsTerminal) -> Self {
        let refused = ProcessEnvironment
            .var("NO_COLOR")
            .is_some_and(|value| !value.is_empty());
        Self {
            colour: stream.is_terminal() && !refused,
        }
    }

    /// No colour.
    #[cfg(test)]
    pub(super) const fn none() -> Self {
        Self { colour: false }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(super) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

// === impl Table ===

impl Table {
    /// A table with these headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![
                headings
                    .iter()
                    .map(|heading| (*heading).to_owned())
                    .collect(),
            ],
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.into_iter().map(|cell| one_line(&cell)).collect());
    }

    /// Returns its lines: each column as wide as its widest cell, two spaces between.
    pub(super) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells_and_holds_no_control_characters() {
        let mut table = Table::new(&["TARGET", "STATE"]);
        table.row(vec!["a-long-name".to_owned(), "open".to_owned()]);
        table.row(vec!["b\u{1b}[31m".to_owned(), "closed".to_owned()]);
        assert_eq!(
            table.lines(),
            [
                "TARGET       STATE",
                "a-long-name  open",
                "b [31m       closed"
            ]
        );
    }

    #[test]
    fn durations_are_shown_in_the_most_readable_unit() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (1001, "1.1 s"),
            (2400, "2.4 s"),
            (180_000, "3 min"),
        ] {
            assert_eq!(span(ms), expected);
        }
    }

    #[test]
    fn without_a_terminal_nothing_is_painted() {
        assert_eq!(Paint::none().red("failed"), "failed");
        assert_eq!(
            Paint { colour: true }.red("failed"),
            "\u{1b}[31mfailed\u{1b}[0m"
        );
    }
}
