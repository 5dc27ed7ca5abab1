//! One rule of the classifier, as the files below `rules/` write it.
//!
//! A rule is a name, a class and the phrases of which any one decides. `rules/README.md` explains
//! the format for people who write rules; the notation of a phrase is parsed in [`crate::policy::phrase`].

use serde::Deserialize;

use crate::domain::failure::{FailureClass, InvalidRequestDetail};

/// One rule: a class, and the phrases of which any one decides for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Unique name, `family.fact`, which failures report.
    #[serde(rename = "rule")]
    pub name: String,
    /// The class of a failure that holds one of the phrases.
    pub class: FailureClass,
    /// Fault of the request, for `invalid_request`.
    #[serde(default)]
    pub detail: Option<InvalidRequestDetail>,
    /// If set, overrides the class's default for whether a retry helps.
    #[serde(default)]
    pub retry: Option<bool>,
    /// If set, overrides the class's default for whether another target helps.
    #[serde(default)]
    pub fallback: Option<bool>,
    /// HTTP status that decides in place of this rule.
    #[serde(default)]
    pub yields_to_status: Option<Yields>,
    /// Class in place of `class` if a 401 or 403 shows that credentials were sent and refused.
    #[serde(default)]
    pub class_if_refused: Option<FailureClass>,
    /// Class in place of `class` if no status shows that anything was sent.
    #[serde(default)]
    pub class_if_unsent: Option<FailureClass>,
    /// The phrases.
    pub any: Vec<String>,
}

/// HTTP status that overrides a rule whose words are vague.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Yields {
    /// Any status.
    Always,
    /// A status that servers give to failures of one kind only (not 400, 409, 412, 422, 424, 500 or
    /// 502).
    Telling,
    /// A status that the text states, unless servers give it to failures of many kinds.
    Stated,
}

/// Reads every embedded rule, in order of precedence.
///
/// `build.rs` turns `rules/**/*.yaml` into JSON. The unit tests read all of it, so that a released
/// binary holds no rule that cannot be read.
pub(super) fn embedded() -> Vec<Rule> {
    const RULES: &str = include_str!(concat!(env!("OUT_DIR"), "/rules.json"));
    serde_json::from_str(RULES).unwrap_or_else(|error| {
        debug_assert!(false, "rules: {error}");
        Vec::new()
    })
}
