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

use serde_json::Value;

use self::{dates::DateRange, items::ListItems, pages::Pages};
use super::{
    arguments::{self, Arguments},
    effects::Effects,
};
use crate::domain::failure::Failure;

/// Most parts that a call is split into at first: a year of months.
const MAX_PARTS: usize = 12;
/// Most calls for one split call, with those for halved parts.
const MAX_CALLS: usize = 32;
/// Most parts at once: a tool that was too slow for one call is not given a dozen.
const PARALLEL: usize = 3;

/// Rule by which the calls of a tool may be split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRule {
    /// Part that is split, and the arguments that hold it.
    pub by: ChunkBy,
    /// Numbers of the result that are added up, as JSON pointers (`/total`); others that differ are
    /// left out.
    pub sum: Vec<String>,
}

/// Arguments by which a call is split; each is a name, or a JSON pointer if it lies within another
/// argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkBy {
    /// A list, into shorter ones.
    List {
        /// The argument that holds it.
        argument: String,
    },
    /// A range of dates (`2024-03-01`) or of times (`2024-03-01T00:00:00Z`), into shorter ones.
    Dates {
        /// Argument that holds its start.
        from: String,
        /// The argument that holds its end.
        to: String,
        /// If set, the end belongs to the range; by default for dates, and not for times.
        end_included: Option<bool>,
    },
    /// A number of results from a place on, into smaller pages.
    Pages {
        /// The argument that holds the number of results.
        limit: String,
        /// The argument that holds how many are passed over.
        offset: Option<String>,
        /// Argument that holds the number of the page, if the tool counts pages.
        page: Option<String>,
        /// The number of the first page; default 1.
        first_page: u64,
    },
}

/// A call that is split: its parts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkPlan {
    rule: ChunkRule,
    arguments: Arguments,
    parts: Vec<ChunkPart>,
    parallel: usize,
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
    /// A rule that adds nothing up.
    #[must_use]
    pub const fn new(by: ChunkBy) -> Self {
        Self {
            by,
            sum: Vec::new(),
        }
    }

    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        match &self.by {
            ChunkBy::Pages { offset, page, .. } if offset.is_some() == page.is_some() => {
                vec![("offset", "either `offset` or `page` is expected".to_owned())]
            }
            ChunkBy::Pages { .. } | ChunkBy::List { .. } | ChunkBy::Dates { .. } => Vec::new(),
        }
    }

    /// Returns whether a text names an argument by which calls are split.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        let places = match &self.by {
            ChunkBy::List { argument } => vec![argument],
            ChunkBy::Dates { from, to, .. } => vec![from, to],
            ChunkBy::Pages { limit, .. } => vec![limit],
        };
        places
            .iter()
            .any(|place| arguments::names(text, place.rsplit('/').next().unwrap_or(place)))
    }

    /// Returns the split of a call with these arguments; `None` if it has fewer than two parts or
    /// must not be split.
    #[must_use]
    pub fn plan(&self, arguments: &Arguments, effects: &Effects) -> Option<ChunkPlan> {
        if !effects.splittable() {
            return None;
        }
        let parts: Vec<ChunkPart> = match &self.by {
            ChunkBy::List { argument } => {
                let items = ListItems::of(arguments::get(arguments, argument)?)?;
                items
                    .parts()
                    .into_iter()
                    .map(ChunkPart::ListItems)
                    .collect()
            }
            ChunkBy::Dates {
                from,
                to,
                end_included,
            } => {
                let text = |place| arguments::get(arguments, place).and_then(Value::as_str);
                let range = DateRange::read(text(from)?, text(to)?, *end_included)?;
                range
                    .split(MAX_PARTS)
                    .into_iter()
                    .map(ChunkPart::Dates)
                    .collect()
            }
            ChunkBy::Pages {
                limit,
                offset,
                page,
                first_page,
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
                pages.parts().into_iter().map(ChunkPart::Pages).collect()
            }
        };
        (parts.len() >= 2).then(|| ChunkPlan {
            rule: self.clone(),
            arguments: arguments.clone(),
            parts,
            parallel: PARALLEL,
        })
    }
}

// === impl ChunkPlan ===

impl ChunkPlan {
    /// Returns the number of parts.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The same plan with at most so many parts at once.
    #[must_use]
    pub fn with_parallel(mut self, parallel: usize) -> Self {
        self.parallel = self.parallel.min(parallel);
        self
    }

    /// Returns its effect, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let what = match &self.rule.by {
            ChunkBy::List { argument } => {
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

    /// Returns the arguments of a part.
    fn arguments_of(&self, part: &ChunkPart) -> Arguments {
        let mut changed = self.arguments.clone();
        let mut set = |place: &str, value: Value| arguments::set(&mut changed, place, value);
        match (&self.rule.by, part) {
            (ChunkBy::List { argument }, ChunkPart::ListItems(items)) => {
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
    /// Returns its halves (or the next smaller parts); empty if it is at its floor.
    fn halves(&self) -> Vec<Self> {
        match self {
            Self::ListItems(items) => items.halves().into_iter().map(Self::ListItems).collect(),
            Self::Dates(range) => range.halves().into_iter().map(Self::Dates).collect(),
            Self::Pages(pages) => pages.halves().into_iter().map(Self::Pages).collect(),
        }
    }

    /// Returns the range that it covers, in words.
    fn label(&self) -> String {
        match self {
            Self::ListItems(items) => items.label(),
            Self::Dates(range) => range.label(),
            Self::Pages(pages) => pages.label(),
        }
    }
}

/// Returns whether a part that failed so may succeed when it is smaller.
#[must_use]
pub fn smaller_helps(failure: &Failure) -> bool {
    use crate::domain::failure::{FailureClass as C, TransportFault};
    matches!(failure.class, C::Timeout | C::ContextLength)
        || failure.fault == Some(TransportFault::TooLarge)
        || failure.status == Some(413)
}

#[cfg(test)]
mod tests;
