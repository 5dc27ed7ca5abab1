//! Splits one call into several that together do the same, runs them, and merges what they return.
//!
//! Only for tools that change nothing or may be repeated. The parts cover what the call covers,
//! each part of it once; what fails is halved down to a floor. What is missing in the end is named:
//! a result with a part missing is never complete.

mod dates;
mod items;
mod merge;
mod pages;
mod run;

pub use self::run::{ChunkRun, ChunkTask};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::{dates::DateRange, items::ListItems, pages::Pages};
use super::{
    arguments::{self, Arguments},
    effects::Effects,
};
use crate::domain::failure::Failure;

/// Most parts that a call is split into at first, whatever the configuration.
pub const MAX_PARTS: usize = 64;
/// Most calls for one split call, with those for halved parts, whatever the configuration.
pub const MAX_CALLS: usize = 128;

/// How the calls of a tool may be split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRule {
    /// What is split, and the arguments that hold it.
    pub by: ChunkBy,
    /// Most parts at first, 2 to 64; default 12.
    pub max_parts: usize,
    /// Most calls for one split call, with those for halved parts, 2 to 128; default 32.
    pub max_calls: usize,
    /// Most parts at once, 1 to 16; default 3.
    pub parallel: usize,
    /// Numbers of the result that are added up, as JSON pointers (`/total`); others that differ are
    /// left out.
    pub sum: Vec<String>,
}

/// The arguments by which a call is split; each is a name, or a JSON pointer where it lies within
/// another argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkBy {
    /// A list, into shorter ones.
    List {
        /// The argument that holds it.
        argument: String,
        /// Items in a part; by default a quarter of the list.
        size: Option<usize>,
    },
    /// A range of dates (`2024-03-01`) or of times (`2024-03-01T00:00:00Z`), into shorter ones.
    Dates {
        /// The argument that holds its begin.
        from: String,
        /// The argument that holds its end.
        to: String,
        /// The length of a part; by default calendar months, or weeks or days where the range is
        /// shorter.
        step: Option<DateStep>,
        /// Whether the end belongs to the range; by default for dates, and not for times.
        end_included: Option<bool>,
    },
    /// A number of results from a place on, into smaller pages.
    Pages {
        /// The argument that holds the number of results.
        limit: String,
        /// The argument that holds how many are passed over.
        offset: Option<String>,
        /// The argument that holds the number of the page, where the tool counts pages.
        page: Option<String>,
        /// The number of the first page; default 1.
        first_page: u64,
        /// Results in a part; by default a quarter of the limit.
        size: Option<u64>,
    },
}

/// The length of a part of a range of dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DateStep {
    /// Days.
    Day,
    /// Seven days, from the begin of the range on.
    Week,
    /// Calendar months.
    Month,
}

/// A call that is split: its parts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkPlan {
    rule: ChunkRule,
    arguments: Arguments,
    parts: Vec<ChunkPart>,
}

/// A part of a split call.
#[derive(Debug, Clone, PartialEq)]
enum ChunkPart {
    ListItems(ListItems),
    Dates(DateRange),
    Pages(Pages),
}

// === impl ChunkRule ===

impl ChunkRule {
    /// A rule with the usual bounds.
    #[must_use]
    pub const fn new(by: ChunkBy) -> Self {
        Self {
            by,
            max_parts: 12,
            max_calls: 32,
            parallel: 3,
            sum: Vec::new(),
        }
    }

    /// What is wrong with it: the field and why.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (field, value, min, max) in [
            ("max_parts", self.max_parts, 2, MAX_PARTS),
            ("max_calls", self.max_calls, 2, MAX_CALLS),
            ("parallel", self.parallel, 1, 16),
        ] {
            if !(min..=max).contains(&value) {
                faults.push((
                    field,
                    format!("is {value}; a number from {min} to {max} is expected"),
                ));
            }
        }
        match &self.by {
            ChunkBy::Pages {
                offset, page, size, ..
            } => {
                if offset.is_some() == page.is_some() {
                    faults.push(("offset", "either `offset` or `page` is expected".to_owned()));
                }
                if *size == Some(0) {
                    faults.push(("size", "is 0; a number from 1 on is expected".to_owned()));
                }
            }
            ChunkBy::List { size: Some(0), .. } => {
                faults.push(("size", "is 0; a number from 1 on is expected".to_owned()));
            }
            ChunkBy::List { .. } | ChunkBy::Dates { .. } => {}
        }
        faults
    }

    /// Whether a text names an argument by which calls are split.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        let places = match &self.by {
            ChunkBy::List { argument, .. } => vec![argument],
            ChunkBy::Dates { from, to, .. } => vec![from, to],
            ChunkBy::Pages { limit, .. } => vec![limit],
        };
        places
            .iter()
            .any(|place| arguments::names(text, place.rsplit('/').next().unwrap_or(place)))
    }

    /// How a call with these arguments is split; `None` where it has fewer than two parts or must
    /// not be split.
    #[must_use]
    pub fn plan(&self, arguments: &Arguments, effects: &Effects) -> Option<ChunkPlan> {
        if !effects.splittable() {
            return None;
        }
        let max = self.max_parts.clamp(2, MAX_PARTS);
        let parts: Vec<ChunkPart> = match &self.by {
            ChunkBy::List { argument, size } => {
                let items = ListItems::of(arguments::get(arguments, argument)?)?;
                items
                    .split(*size, max)
                    .into_iter()
                    .map(ChunkPart::ListItems)
                    .collect()
            }
            ChunkBy::Dates {
                from,
                to,
                step,
                end_included,
            } => {
                let text = |place| arguments::get(arguments, place).and_then(Value::as_str);
                let range = DateRange::read(text(from)?, text(to)?, *end_included)?;
                range
                    .split(*step, max)
                    .into_iter()
                    .map(ChunkPart::Dates)
                    .collect()
            }
            ChunkBy::Pages {
                limit,
                offset,
                page,
                first_page,
                size,
            } => {
                let number = |place: &str| {
                    arguments::get(arguments, place).map_or(Some(None), |it| it.as_u64().map(Some))
                };
                let limit = number(limit)??;
                let pages = match (offset, page) {
                    (Some(offset), _) => Pages::from_offset(number(offset)?.unwrap_or(0), limit)?,
                    (None, Some(page)) => Pages::from_page(
                        number(page)?
                            .unwrap_or(*first_page)
                            .checked_sub(*first_page)?,
                        limit,
                    )?,
                    (None, None) => return None,
                };
                pages
                    .split(*size, max)
                    .into_iter()
                    .map(ChunkPart::Pages)
                    .collect()
            }
        };
        (parts.len() >= 2).then(|| ChunkPlan {
            rule: self.clone(),
            arguments: arguments.clone(),
            parts,
        })
    }
}

// === impl ChunkPlan ===

impl ChunkPlan {
    /// How many parts it has.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The same plan with at most so many parts at once.
    #[must_use]
    pub fn with_parallel(mut self, parallel: usize) -> Self {
        self.rule.parallel = self.rule.parallel.min(parallel);
        self
    }

    /// What it does, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let what = match &self.rule.by {
            ChunkBy::List { argument, .. } => {
                format!("the list in {}", arguments::quoted(argument))
            }
            ChunkBy::Dates { from, to, .. } => {
                format!(
                    "the range from {} to {}",
                    arguments::quoted(from),
                    arguments::quoted(to)
                )
            }
            ChunkBy::Pages { limit, .. } => {
                format!("the number of results in {}", arguments::quoted(limit))
            }
        };
        format!("{what} was split into {} parts", self.parts.len())
    }

    /// The arguments of a part.
    fn arguments_of(&self, part: &ChunkPart) -> Arguments {
        let mut changed = self.arguments.clone();
        let mut set = |place: &str, value: Value| arguments::set(&mut changed, place, value);
        match (&self.rule.by, part) {
            (ChunkBy::List { argument, .. }, ChunkPart::ListItems(items)) => {
                set(argument, items.value());
            }
            (ChunkBy::Dates { from, to, .. }, ChunkPart::Dates(range)) => {
                set(from, Value::from(range.first()));
                set(to, Value::from(range.last()));
            }
            (
                ChunkBy::Pages {
                    limit,
                    offset,
                    page,
                    first_page,
                    ..
                },
                ChunkPart::Pages(pages),
            ) => {
                set(limit, Value::from(pages.len()));
                match (offset, page) {
                    (Some(offset), _) => set(offset, Value::from(pages.start())),
                    (None, Some(page)) => set(page, Value::from(pages.number() + first_page)),
                    (None, None) => {}
                }
            }
            // A plan holds the parts of its own rule.
            (ChunkBy::List { .. } | ChunkBy::Dates { .. } | ChunkBy::Pages { .. }, _) => {}
        }
        changed
    }
}

// === impl ChunkPart ===

impl ChunkPart {
    /// Its halves (or the next smaller parts); empty where it is at its floor.
    fn halves(&self) -> Vec<Self> {
        match self {
            Self::ListItems(items) => items.halves().into_iter().map(Self::ListItems).collect(),
            Self::Dates(range) => range.halves().into_iter().map(Self::Dates).collect(),
            Self::Pages(pages) => pages.halves().into_iter().map(Self::Pages).collect(),
        }
    }

    /// What it covers, in words.
    fn label(&self) -> String {
        match self {
            Self::ListItems(items) => items.label(),
            Self::Dates(range) => range.label(),
            Self::Pages(pages) => pages.label(),
        }
    }
}

/// Whether a part that failed so may do when it is smaller.
#[must_use]
pub fn smaller_helps(failure: &Failure) -> bool {
    use crate::domain::failure::{FailureClass as C, TransportFault};
    matches!(failure.class, C::Timeout | C::ContextLength)
        || failure.fault == Some(TransportFault::TooLarge)
        || failure.status == Some(413)
}

#[cfg(test)]
mod tests;
