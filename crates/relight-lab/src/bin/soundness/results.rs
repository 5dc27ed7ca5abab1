//! Results as lines, a table, JSON and `JUnit`.

use serde_json::json;

use crate::{caller::HeldByCaller, cases::Case, judge::CaseJudgement};

/// A case with what it came to.
pub(crate) struct CaseResult {
    pub(crate) case: Case,
    /// None if it was not run.
    pub(crate) held: Option<HeldByCaller>,
    pub(crate) judgement: CaseJudgement,
}

/// All cases of one gateway.
pub(crate) struct GatewayResult {
    pub(crate) name: String,
    pub(crate) cases: Vec<CaseResult>,
}

// === impl CaseResult ===

impl CaseResult {
    pub(crate) fn not_run(case: Case, why: &str) -> Self {
        let judgement = CaseJudgement::NotRun(why.to_owned());
        Self {
            case,
            held: None,
            judgement,
        }
    }

    pub(crate) const fn is_unsound(&self) -> bool {
        matches!(self.judgement, CaseJudgement::Unsound(_))
    }

    /// Returns one line for a terminal.
    pub(crate) fn line(&self) -> String {
        let (word, why) = self.words();
        let [attempts, tokens, time] = self.numbers();
        format!(
            "{word:<9} {:<58} {attempts:>3} {tokens:>4} {time:>7}  {why}",
            self.case.id
        )
    }

    /// Returns the cell of a table: judgement, and attempts, tokens and time.
    fn cell(&self) -> String {
        let (word, why) = self.words();
        if self.held.is_none() {
            return word.to_owned();
        }
        let reason = match &self.judgement {
            CaseJudgement::Unsound(_) | CaseJudgement::Wasteful(_) => {
                format!(": {}", why.replace('|', "/"))
            }
            _ => String::new(),
        };
        let [attempts, tokens, time] = self.numbers();
        format!("{word}{reason} ({attempts}, {tokens}, {time})")
    }

    /// The judgement in one word, and its reason.
    fn words(&self) -> (&'static str, String) {
        match &self.judgement {
            CaseJudgement::Whole => ("whole", String::new()),
            CaseJudgement::ErrorAsDue => ("error", String::new()),
            CaseJudgement::GaveUp => {
                let error = self.held.as_ref().and_then(|held| held.error.clone());
                (
                    "gave up",
                    error.unwrap_or_default().chars().take(80).collect(),
                )
            }
            CaseJudgement::Wasteful(why) => ("wasteful", why.clone()),
            CaseJudgement::Unsound(why) => ("UNSOUND", why.clone()),
            CaseJudgement::NotRun(why) => ("not run", why.clone()),
        }
    }

    /// Attempts, tokens paid and milliseconds.
    fn numbers(&self) -> [String; 3] {
        self.held.as_ref().map_or_else(Default::default, |held| {
            [
                held.record.attempts.to_string(),
                held.record.tokens.to_string(),
                format!("{} ms", held.elapsed.as_millis()),
            ]
        })
    }
}

// === impl GatewayResult ===

impl GatewayResult {
    pub(crate) fn is_unsound(&self) -> bool {
        self.cases.iter().any(CaseResult::is_unsound)
    }

    /// Returns the counts of each judgement.
    pub(crate) fn summary(&self) -> String {
        let words = [
            "whole", "error", "gave up", "wasteful", "UNSOUND", "not run",
        ];
        let counts = words.map(|word| format!("{} {word}", self.count(word)));
        format!(
            "{}: {} cases: {}",
            self.name,
            self.cases.len(),
            counts.join(", ")
        )
    }

    fn count(&self, word: &str) -> usize {
        self.cases
            .iter()
            .filter(|result| result.words().0 == word)
            .count()
    }
}

/// Returns a table in Markdown, a column for each gateway.
pub(crate) fn markdown(gateways: &[GatewayResult]) -> String {
    let names: Vec<&str> = gateways
        .iter()
        .map(|gateway| gateway.name.as_str())
        .collect();
    let mut table = vec![format!(
        "| case | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    )];
    for word in [
        "whole", "error", "gave up", "wasteful", "UNSOUND", "not run",
    ] {
        let counts: Vec<String> = gateways
            .iter()
            .map(|gateway| gateway.count(word).to_string())
            .collect();
        table.push(format!("| **{word}** | {} |\n", counts.join(" | ")));
    }
    let first = gateways
        .first()
        .into_iter()
        .flat_map(|gateway| &gateway.cases);
    for (row, result) in first.enumerate() {
        let cells: Vec<String> = gateways
            .iter()
            .map(|gateway| gateway.cases[row].cell())
            .collect();
        table.push(format!("| {} | {} |\n", result.case.id, cells.join(" | ")));
    }
    table.concat()
}

/// Returns all results as JSON.
pub(crate) fn json(gateways: &[GatewayResult]) -> String {
    let case = |result: &CaseResult| {
        let (word, why) = result.words();
        let held = result.held.as_ref();
        json!({"case": result.case.id, "explanation": result.case.why, "judgement": word, "reason": why,
            "attempts": held.map(|held| held.record.attempts), "tokens": held.map(|held| held.record.tokens),
            "ms": held.map(|held| held.elapsed.as_millis())})
    };
    let gateway = |gateway: &GatewayResult| {
        let cases: Vec<_> = gateway.cases.iter().map(case).collect();
        json!({"gateway": gateway.name, "cases": cases})
    };
    let gateways: Vec<_> = gateways.iter().map(gateway).collect();
    format!("{:#}\n", json!(gateways))
}

/// Returns all results as `JUnit` has them: a failure is what is unsound.
pub(crate) fn junit(gateways: &[GatewayResult]) -> String {
    let suites: String = gateways.iter().map(suite).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite(gateway: &GatewayResult) -> String {
    let mut xml = vec![format!(
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
        escaped(&gateway.name),
        gateway.cases.len(),
        gateway.count("UNSOUND"),
        gateway.count("not run"),
    )];
    for result in &gateway.cases {
        let (word, why) = result.words();
        let seconds = result
            .held
            .as_ref()
            .map_or(0.0, |held| held.elapsed.as_secs_f64());
        let inner = match &result.judgement {
            CaseJudgement::Unsound(_) => format!("<failure message=\"{}\"/>", escaped(&why)),
            CaseJudgement::NotRun(_) => "<skipped/>".to_owned(),
            _ => format!(
                "<system-out>{}</system-out>",
                escaped(&format!("{word} {why}"))
            ),
        };
        xml.push(format!(
            "  <testcase classname=\"soundness\" name=\"{}\" time=\"{seconds:.3}\">{inner}</testcase>\n",
            escaped(&result.case.id)
        ));
    }
    xml.push("</testsuite>\n".to_owned());
    xml.concat()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
