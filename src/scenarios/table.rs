//! The results as a table for people: Relight's, the naive client's, the ideal's, and the gates.

use std::fmt::Write as _;

use super::{Measures, Report};

/// The shown measures of every run, and their format.
const COLUMNS: &[(&str, &str, How)] = &[
    ("success", "success", How::Percent),
    ("amplif.", "amplification", How::Number),
    ("primary", "amplification_primary", How::Number),
    ("+p50 s", "added_p50", How::Number),
    ("+p99 s", "added_p99", How::Number),
    ("detect s", "detect", How::Number),
    ("recover s", "recover", How::Number),
    ("at once s", "at_once", How::Number),
    ("closed s", "closed", How::Number),
    ("herd", "herd", How::Number),
    ("waste", "waste", How::Number),
    ("doomed", "doomed", How::Count),
    ("429s", "limited", How::Number),
    ("opens", "opens", How::Count),
];

#[derive(Clone, Copy)]
enum How {
    Percent,
    Number,
    Count,
}

/// A table of reports, with a legend.
#[must_use]
pub fn table(reports: &[Report]) -> String {
    let mut text = String::new();
    let _ = write!(text, "{:<26} {:<6}", "scenario", "who");
    for (title, _, _) in COLUMNS {
        let _ = write!(text, " {title:>9}");
    }
    text.push('\n');
    for report in reports {
        let name = format!("{} {}", report.id, report.title);
        row(&mut text, &name, "ours", &report.ours);
        row(&mut text, "", "naive", &report.naive);
        row(&mut text, "", "ideal", &report.ideal);
        for verdict in &report.verdicts {
            let word = if verdict.passed { "pass" } else { "FAIL" };
            let value = verdict
                .value
                .map_or_else(|| "never".to_owned(), |value| format!("{value:.4}"));
            let _ = writeln!(text, "{:<26} {word}   {} ({value})", "", verdict.gate());
        }
    }
    let failed: usize = reports
        .iter()
        .flat_map(|report| &report.verdicts)
        .filter(|verdict| !verdict.passed)
        .count();
    let gates: usize = reports.iter().map(|report| report.verdicts.len()).sum();
    let _ = writeln!(text, "{} of {gates} gates passed", gates - failed);
    text
}

fn row(text: &mut String, name: &str, who: &str, measures: &Measures) {
    let _ = write!(text, "{name:<26.26} {who:<6}");
    for (_, measure, how) in COLUMNS {
        let shown = match (measures.get(measure), how) {
            (None, _) => "-".to_owned(),
            (Some(value), How::Percent) => format!("{:.2} %", value * 100.0),
            (Some(value), How::Number) => format!("{value:.3}"),
            (Some(value), How::Count) => format!("{value:.0}"),
        };
        let _ = write!(text, " {shown:>9}");
    }
    text.push('\n');
}
