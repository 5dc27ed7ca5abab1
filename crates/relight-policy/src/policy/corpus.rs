//! Labelled failures: reads them, classifies them, and counts how often the classifier agrees.
//!
//! One line of JSON an item. The classifier sees only what the source showed, and no clock: an
//! absolute time counts only if the item carries its own `date`.
//!
//! Strings in, values out: reading and writing files is left to the command line.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::classify::Classifier;
use crate::domain::failure::{
    Failure, FailureClass, InvalidRequestDetail, ProviderError, Surface, Wait,
};

/// One line of a corpus; labels are present if it is to be scored.
#[derive(Debug, Clone, Deserialize)]
pub struct Item {
    /// Name of the item.
    pub id: String,
    /// Provider, gateway, library or tool.
    #[serde(default)]
    pub provider: String,
    /// Place where it was seen.
    #[serde(default)]
    pub surface: Surface,
    /// HTTP status, if stated.
    #[serde(default)]
    pub status: Option<u16>,
    /// Headers, if shown.
    #[serde(default)]
    pub headers: Option<BTreeMap<String, String>>,
    /// Raw body.
    #[serde(default)]
    pub body: Option<String>,
    /// Text in place of a body.
    #[serde(default)]
    pub message: Option<String>,
    /// Labels, if the item has a class.
    #[serde(skip)]
    pub labels: Option<Annotation>,
}

/// An annotator's label.
#[derive(Debug, Clone, Deserialize)]
pub struct Annotation {
    /// The class.
    pub class: FailureClass,
    /// Classes that a careful reader could defend, too.
    #[serde(default)]
    pub also_ok: Option<Vec<FailureClass>>,
    /// The detail of an invalid request.
    #[serde(default)]
    pub detail: Option<String>,
    /// `true` if a retry helps.
    pub retryable_same_target: bool,
    /// `true` if another target helps.
    pub fallback_helps: bool,
    /// The stated wait, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// Rule that has to decide, if the item names one.
    #[serde(default)]
    pub rule: Option<String>,
}

/// Tells whether a line has labels.
#[derive(Deserialize)]
struct Class {
    #[serde(default)]
    class: Option<FailureClass>,
}

/// The classifier's verdict on one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// Name of the item.
    pub id: String,
    /// The class.
    pub class: &'static str,
    /// The detail of an invalid request.
    pub detail: Option<&'static str>,
    /// `true` if a retry helps.
    pub retryable_same_target: bool,
    /// `true` if another target helps.
    pub fallback_helps: bool,
    /// The stated wait, in milliseconds, rounded up.
    pub retry_after_ms: Option<u64>,
    /// The rule that decided.
    pub rule: String,
}

/// Correct verdicts out of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HitCount {
    /// Correct verdicts.
    pub right: usize,
    /// All verdicts.
    pub total: usize,
}

/// One verdict that differs from its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// Name of the item.
    pub id: String,
    /// Field that differs (`class`, `detail`, `retryable`, `fallback`, `wait`).
    pub field: &'static str,
    /// The label.
    pub expected: String,
    /// The verdict.
    pub got: String,
    /// The rule that decided.
    pub rule: String,
}

/// Number of times that the classifier agrees with the labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Score {
    /// Items with labels.
    pub items: usize,
    /// The class itself.
    pub strict: HitCount,
    /// The class, or one that could be defended.
    pub lenient: HitCount,
    /// The detail, of items labelled invalid requests.
    pub detail: HitCount,
    /// Agreement on whether a retry helps.
    pub retryable: HitCount,
    /// Agreement on whether another target helps.
    pub fallback: HitCount,
    /// The wait, of items that state one or for which one was predicted.
    pub waits: HitCount,
    /// The rule that decides, of items that name one.
    pub rules: HitCount,
    /// (expected, got) -> number of times, if they differ.
    pub confusion: BTreeMap<(String, String), usize>,
    /// Every difference.
    pub misses: Vec<Miss>,
}

/// Reads the lines of a corpus, with the labels of those that have a class; empty lines are skipped.
///
/// # Errors
/// Returns the number of the first line that is not a valid item, and the reason.
pub fn read(lines: &str) -> Result<Vec<Item>, String> {
    lines
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| {
            let mut item = read_line(number, line)?;
            let Class { class } = parsed(number, line)?;
            if class.is_some() {
                item.labels = Some(parsed(number, line)?);
            }
            Ok(item)
        })
        .collect()
}

/// Reads the line of this number, without labels.
///
/// # Errors
/// Returns the number, and the reason for which the line is not a valid item.
pub fn read_line(number: usize, line: &str) -> Result<Item, String> {
    parsed(number, line)
}

fn parsed<T: DeserializeOwned>(number: usize, line: &str) -> Result<T, String> {
    // The parser sees one line, so that its own number of it means nothing.
    serde_json::from_str(line).map_err(|error| {
        format!("line {number}: {error}").replace(" at line 1 column ", " at column ")
    })
}

/// Judges every item that has labels, and counts.
#[must_use]
pub fn score(classifier: &Classifier, items: &[Item]) -> Score {
    let mut score = Score::default();
    for item in items {
        if let Some(labels) = &item.labels {
            score.add(labels, &Prediction::by(classifier, item));
        }
    }
    score
}

// === impl Item ===

impl Item {
    /// Returns the item as the facts of a failed attempt.
    #[must_use]
    pub fn error(&self) -> ProviderError {
        ProviderError {
            provider: self.provider.as_str().into(),
            surface: self.surface,
            status: self.status,
            headers: self
                .headers
                .iter()
                .flatten()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                .collect(),
            body: self.body.clone(),
            message: self.message.clone(),
            ..ProviderError::default()
        }
    }

    /// Returns the verdict, without a clock.
    #[must_use]
    pub fn judge(&self, classifier: &Classifier) -> Failure {
        classifier.classify(&self.error(), Timestamp::UNIX_EPOCH)
    }
}

// === impl Prediction ===

impl Prediction {
    /// Returns the classifier's verdict on an item.
    #[must_use]
    pub fn by(classifier: &Classifier, item: &Item) -> Self {
        Self::of(item, &item.judge(classifier))
    }

    /// A verdict in the corpus's own terms.
    #[must_use]
    pub fn of(item: &Item, verdict: &Failure) -> Self {
        Self {
            id: item.id.clone(),
            class: verdict.class.as_str(),
            detail: verdict.detail.map(InvalidRequestDetail::as_str),
            retryable_same_target: verdict.retryable,
            fallback_helps: verdict.fallback_helps,
            retry_after_ms: verdict.retry_after.map(Wait::millis),
            rule: verdict.rule.clone(),
        }
    }
}

// === impl HitCount ===

impl HitCount {
    fn count(&mut self, right: bool) {
        self.right += usize::from(right);
        self.total += 1;
    }

    /// Returns the correct verdicts in percent; 100 if there are none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of items")]
    pub fn percent(self) -> f64 {
        if self.total == 0 {
            100.0
        } else {
            100.0 * self.right as f64 / self.total as f64
        }
    }
}

impl fmt::Display for HitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} of {:>4}  {:>5.1} %",
            self.right,
            self.total,
            self.percent()
        )
    }
}

// === impl Score ===

impl Score {
    fn add(&mut self, labels: &Annotation, got: &Prediction) {
        self.items += 1;
        let expected_class = labels.class.as_str();
        let strict = expected_class == got.class;
        self.strict.count(strict);
        let mut defended = labels.also_ok.iter().flatten();
        self.lenient
            .count(strict || defended.any(|class| class.as_str() == got.class));
        self.retryable
            .count(labels.retryable_same_target == got.retryable_same_target);
        self.fallback
            .count(labels.fallback_helps == got.fallback_helps);
        if labels.detail.is_some() {
            self.detail.count(labels.detail.as_deref() == got.detail);
        }
        if labels.retry_after_ms.is_some() || got.retry_after_ms.is_some() {
            self.waits
                .count(labels.retry_after_ms == got.retry_after_ms);
        }
        if let Some(rule) = &labels.rule {
            self.rules.count(*rule == got.rule);
        }
        if !strict {
            *self
                .confusion
                .entry((expected_class.to_owned(), got.class.to_owned()))
                .or_default() += 1;
        }
        let millis =
            |wait: Option<u64>| wait.map_or_else(|| "none".to_owned(), |wait| format!("{wait} ms"));
        for (field, expected, answer) in [
            ("class", expected_class.to_owned(), got.class.to_owned()),
            (
                "detail",
                labels.detail.clone().unwrap_or_default(),
                got.detail.unwrap_or_default().to_owned(),
            ),
            (
                "retryable",
                labels.retryable_same_target.to_string(),
                got.retryable_same_target.to_string(),
            ),
            (
                "fallback",
                labels.fallback_helps.to_string(),
                got.fallback_helps.to_string(),
            ),
            (
                "wait",
                millis(labels.retry_after_ms),
                millis(got.retry_after_ms),
            ),
            (
                "rule",
                labels.rule.clone().unwrap_or_else(|| got.rule.clone()),
                got.rule.clone(),
            ),
        ] {
            if expected != answer {
                self.misses.push(Miss {
                    id: got.id.clone(),
                    field,
                    expected,
                    got: answer,
                    rule: got.rule.clone(),
                });
            }
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "items                {:>4}", self.items)?;
        for (name, count) in [
            ("class, strictly", self.strict),
            ("class, leniently", self.lenient),
            ("detail", self.detail),
            ("retry, same target", self.retryable),
            ("fallback helps", self.fallback),
            ("stated waits", self.waits),
        ] {
            writeln!(f, "{name:<20} {count}")?;
        }
        if !self.confusion.is_empty() {
            writeln!(f, "\nexpected             got                   times")?;
        }
        for ((expected, got), times) in &self.confusion {
            writeln!(f, "{expected:<20} {got:<20} {times:>6}")?;
        }
        Ok(())
    }
}
