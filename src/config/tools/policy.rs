//! What is known of one tool: its side effects, and how its calls may be split.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::units,
    policy::tool_recovery::{
        ToolRecoveryPolicy,
        chunk::{ChunkBy, ChunkRule, DateStep},
    },
};

/// What is known of one tool. What is left out is not known, and then taken for the worst.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolPolicyConfig {
    /// It changes nothing: it may be executed again after any failure, and its calls may be split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Repeating it with the same arguments has no further effect: it may be executed again after
    /// any failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It may destroy or overwrite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// It acts on the world outside its own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
    /// The argument in which it takes an idempotency key, which Relight fills: it may then be
    /// executed again. Its schema must list the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How its calls may be split when they take too long or return too much; the first rule that
    /// fits the arguments counts. Default: not at all.
    pub chunk: Vec<ChunkRuleConfig>,
    /// Arguments that the journal does not keep, as JSON pointers (`/user/email`,
    /// `/items/*/price`).
    pub redact: Vec<String>,
    /// The longest time for one execution (100ms to 1h), where it differs from `tools.timeout`.
    #[serde(
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Duration>,
    /// How far its recovery goes, where it differs from `tools.recovery`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<ToolRecoveryPolicy>,
}

/// How calls of a tool may be split, by one or two of their arguments; each is a name, or a JSON
/// pointer where it lies within another argument.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChunkRuleConfig {
    /// What is split: `list` (into shorter ones), `dates` (a range, into shorter ones) or `pages`
    /// (a number of results, into smaller pages).
    pub by: ChunkKind,
    /// `list`: the argument that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// `dates`: the argument that holds the begin (`2024-03-01` or `2024-03-01T00:00:00Z`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `dates`: the argument that holds the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `dates`: the length of a part (`day`, `week`, `month`); unset: months, or shorter where the
    /// range is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<DateStep>,
    /// `dates`: whether the end belongs to the range; unset: for dates, and not for times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_included: Option<bool>,
    /// `pages`: the argument that holds the number of results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// `pages`: the argument that holds how many results are passed over; this or `page`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// `pages`: the argument that holds the number of the page; this or `offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// `pages`: the number of the first page; unset: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_page: Option<u64>,
    /// `list` and `pages`: items in a part (at least 1); unset: a quarter of the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Most parts at first (2 to 64); unset: 12.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parts: Option<usize>,
    /// Most calls for one split call, with those for halved parts (2 to 128); unset: 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<usize>,
    /// Most parts at once (1 to 16); unset: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<usize>,
    /// Numbers of the result that are added up, as JSON pointers (`/total`); others that differ are
    /// left out.
    pub sum: Vec<String>,
}

/// What of a call is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// A list, into shorter ones.
    #[default]
    List,
    /// A range of dates or times, into shorter ones.
    Dates,
    /// A number of results, into smaller pages.
    Pages,
}

// === impl ChunkRuleConfig ===

impl ChunkRuleConfig {
    /// The rule; `None` where an argument that it needs is missing, which no configuration in force
    /// lacks.
    #[must_use]
    pub fn rule(&self) -> Option<ChunkRule> {
        let by = match self.by {
            ChunkKind::List => ChunkBy::List {
                argument: self.argument.clone()?,
                size: self
                    .size
                    .map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
            },
            ChunkKind::Dates => ChunkBy::Dates {
                from: self.from.clone()?,
                to: self.to.clone()?,
                step: self.step,
                end_included: self.end_included,
            },
            ChunkKind::Pages => ChunkBy::Pages {
                limit: self.limit.clone()?,
                offset: self.offset.clone(),
                page: self.page.clone(),
                first_page: self.first_page.unwrap_or(1),
                size: self.size,
            },
        };
        let usual = ChunkRule::new(by);
        Some(ChunkRule {
            max_parts: self.max_parts.unwrap_or(usual.max_parts),
            max_calls: self.max_calls.unwrap_or(usual.max_calls),
            parallel: self.parallel.unwrap_or(usual.parallel),
            sum: self.sum.clone(),
            ..usual
        })
    }

    /// The settings that are written and belong to another kind of rule.
    pub(in crate::config) fn misplaced(&self) -> Vec<&'static str> {
        let of = |kinds: &[ChunkKind]| !kinds.contains(&self.by);
        [
            (
                "argument",
                self.argument.is_some() && of(&[ChunkKind::List]),
            ),
            ("from", self.from.is_some() && of(&[ChunkKind::Dates])),
            ("to", self.to.is_some() && of(&[ChunkKind::Dates])),
            ("step", self.step.is_some() && of(&[ChunkKind::Dates])),
            (
                "end_included",
                self.end_included.is_some() && of(&[ChunkKind::Dates]),
            ),
            ("limit", self.limit.is_some() && of(&[ChunkKind::Pages])),
            ("offset", self.offset.is_some() && of(&[ChunkKind::Pages])),
            ("page", self.page.is_some() && of(&[ChunkKind::Pages])),
            (
                "first_page",
                self.first_page.is_some() && of(&[ChunkKind::Pages]),
            ),
            (
                "size",
                self.size.is_some() && of(&[ChunkKind::List, ChunkKind::Pages]),
            ),
        ]
        .into_iter()
        .filter_map(|(name, misplaced)| misplaced.then_some(name))
        .collect()
    }

    /// The arguments that this kind of rule needs and that are not written.
    pub(in crate::config) fn missing(&self) -> Vec<&'static str> {
        let needed = match self.by {
            ChunkKind::List => vec![("argument", &self.argument)],
            ChunkKind::Dates => vec![("from", &self.from), ("to", &self.to)],
            ChunkKind::Pages => vec![("limit", &self.limit)],
        };
        needed
            .into_iter()
            .filter(|(_, argument)| argument.is_none())
            .map(|(name, _)| name)
            .collect()
    }
}
