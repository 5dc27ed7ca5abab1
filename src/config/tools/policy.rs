//! What is known of one tool: its side effects, and how its calls may be split.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::units,
    policy::tool_recovery::{
        ToolRecoveryPolicy,
        chunk::{ChunkBy, ChunkRule},
        reported::FailureReading,
    },
};

/// Known facts of one tool. Facts left out are not known, and then taken for the worst.
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
    /// Rules by which its calls may be split if they take too long or return too much; the first
    /// rule that fits the arguments counts. Default: not at all.
    pub chunk: Vec<ChunkRuleConfig>,
    /// Arguments that the journal does not keep, as JSON pointers (`/user/email`,
    /// `/items/*/price`).
    pub redact: Vec<String>,
    /// Longest time for one execution (100ms to 1h), if it differs from `tools.timeout`.
    #[serde(
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Duration>,
    /// Signs by which it reports that it failed in a result that is not marked as an error, if they
    /// differ from its server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureReading>,
    /// Extent of its recovery, if it differs from `tools.recovery`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<ToolRecoveryPolicy>,
}

/// Rule by which calls of a tool may be split, by arguments of one of three kinds: a list
/// (`argument`), a range of dates (`from` and `to`), or a number of results (`limit`, and `offset`
/// or `page`). Each is a name, or a JSON pointer if it lies within another argument.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChunkRuleConfig {
    /// The argument that holds a list, which is split into shorter ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// The argument that holds the start of a range (`2024-03-01` or `2024-03-01T00:00:00Z`), which
    /// is split into months, or shorter parts if it is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The argument that holds its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// If set, the end belongs to the range; unset: for dates, and not for times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_included: Option<bool>,
    /// The argument that holds the number of results, which is split into smaller pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The argument that holds how many results are passed over; this or `page`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// The argument that holds the number of the page; this or `offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// The number of the first page; unset: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_page: Option<u64>,
    /// Numbers of the result that are added up, as JSON pointers (`/total`); others that differ are
    /// left out.
    pub sum: Vec<String>,
}

// === impl ChunkRuleConfig ===

impl ChunkRuleConfig {
    /// Returns the rule; `None` if an argument that it needs is missing, which no configuration in
    /// force lacks.
    #[must_use]
    pub fn rule(&self) -> Option<ChunkRule> {
        let by = if let Some(argument) = &self.argument {
            let argument = argument.clone();
            ChunkBy::List { argument }
        } else if let Some(from) = &self.from {
            ChunkBy::Dates {
                from: from.clone(),
                to: self.to.clone()?,
                end_included: self.end_included,
            }
        } else {
            ChunkBy::Pages {
                limit: self.limit.clone()?,
                offset: self.offset.clone(),
                page: self.page.clone(),
                first_page: self.first_page.unwrap_or(1),
            }
        };
        let sum = self.sum.clone();
        Some(ChunkRule { by, sum })
    }

    /// Returns the settings that are written and belong to another kind of rule than the first that
    /// is.
    pub(in crate::config) fn misplaced(&self) -> Vec<&'static str> {
        let list = [("argument", self.argument.is_some())];
        let dates = [
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("end_included", self.end_included.is_some()),
        ];
        let pages = [
            ("limit", self.limit.is_some()),
            ("offset", self.offset.is_some()),
            ("page", self.page.is_some()),
            ("first_page", self.first_page.is_some()),
        ];
        let mut written = [&list[..], &dates, &pages]
            .map(|kind| kind.iter().filter(|(_, is_written)| *is_written))
            .into_iter()
            .map(|kind| kind.map(|(name, _)| *name).collect::<Vec<_>>())
            .filter(|kind| !kind.is_empty());
        written.next();
        written.flatten().collect()
    }

    /// Returns the arguments that the rule needs and that are not written.
    pub(in crate::config) fn missing(&self) -> Vec<&'static str> {
        let is_dates = self.from.is_some() || self.to.is_some();
        let needed = match (&self.argument, is_dates) {
            (Some(_), _) => Vec::new(),
            (None, true) => vec![("from", &self.from), ("to", &self.to)],
            (None, false) => vec![("limit", &self.limit)],
        };
        needed
            .into_iter()
            .filter(|(_, argument)| argument.is_none())
            .map(|(name, _)| name)
            .collect()
    }
}
