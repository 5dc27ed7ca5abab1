//! The results as tables for people: Relight's, the naive client's, the ideal's, and the gates.

use std::fmt::Write as _;

use super::{GateResult, Measures, Report, rule};

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

/// Returns a table of reports, with a legend.
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
            let word = match (verdict.failed(), verdict.is_open()) {
                (true, _) => "FAIL",
                (false, true) => "open",
                (false, false) => "pass",
            };
            let value = verdict
                .value
                .map_or_else(|| "never".to_owned(), |value| format!("{value:.4}"));
            let _ = writeln!(
                text,
                "{:<26} {word}   {} ({value}){}",
                "",
                verdict.gate(),
                verdict.remark()
            );
        }
    }
    let verdicts = || reports.iter().flat_map(|report| &report.verdicts);
    let failed = verdicts().filter(|verdict| verdict.failed()).count();
    let open = verdicts().filter(|verdict| verdict.is_open()).count();
    let judged = verdicts().count() - open;
    let _ = write!(text, "{} of {judged} gates passed", judged - failed);
    if open > 0 {
        let _ = write!(text, ", {open} open");
    }
    text.push('\n');
    text
}

/// Returns a table of reports in Markdown, one row a scenario; its last column has the scenario's
/// own gates, each with what was measured.
#[must_use]
pub fn markdown(reports: &[Report]) -> String {
    let mut text = concat!(
        "| # | scenario | success: ours | naive | ideal | attempts per call: ours | naive | ",
        "added p99 in s: ours | naive | gates, each with what was measured |\n",
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    .to_owned();
    for report in reports {
        let ours = &report.ours;
        let naive = &report.naive;
        let own = report
            .verdicts
            .iter()
            .filter(|verdict| !rule::is_of(verdict));
        let gates: Vec<_> = own.map(measured).collect();
        let gates = if gates.is_empty() {
            "–".to_owned()
        } else {
            gates.join("; ")
        };
        let cells = [
            report.id.clone(),
            report.title.clone(),
            shown(ours, "success", How::Percent),
            shown(naive, "success", How::Percent),
            shown(&report.ideal, "success", How::Percent),
            shown(ours, "amplification", How::Number),
            shown(naive, "amplification", How::Number),
            shown(ours, "added_p99", How::Number),
            shown(naive, "added_p99", How::Number),
            gates,
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Returns a gate and its value, in few words.
fn measured(verdict: &GateResult) -> String {
    let gate = verdict.gate().replace("<=", "≤").replace(">=", "≥");
    let value = verdict.value.map_or_else(
        || "never".to_owned(),
        |value| ((value * 1e4).round() / 1e4).to_string(),
    );
    format!("{gate} ({value})")
}

fn shown(measures: &Measures, measure: &str, how: How) -> String {
    match (measures.get(measure), how) {
        (None, _) => "-".to_owned(),
        (Some(value), How::Percent) => format!("{:.2} %", value * 100.0),
        (Some(value), How::Number) => format!("{value:.3}"),
        (Some(value), How::Count) => format!("{value:.0}"),
    }
}

fn row(text: &mut String, name: &str, who: &str, measures: &Measures) {
    let _ = write!(text, "{name:<26.26} {who:<6}");
    for (_, measure, how) in COLUMNS {
        let _ = write!(text, " {:>9}", shown(measures, measure, *how));
    }
    text.push('\n');
}
