//! Finds the argument of a new schema that each argument of a call has become, if there is only one
//! way to read it and more than one thing speaks for it.

use serde_json::Value;

use super::{
    super::{
        arguments::{Arguments, names},
        similarity,
    },
    MAX_MISFITS,
    change::{ArgumentChange, converted, is_of},
    names::{Kinship, is_secret, kinship, units_differ},
    shape::{Property, SchemaKind, Shape},
};

/// Number of things that must speak for it that an argument is a renamed one: that it is the only
/// one left of its type, or has a like name, is chance too often.
const ENOUGH: u32 = 2;
/// Likeness from which two descriptions are the same, from 0 to 1.
const SAME_DESCRIPTION: f64 = 0.8;
/// Words from which a description says something of its own.
const DESCRIBED: usize = 3;
/// Words before a name by which an error says what an argument should have been.
const HINTS: [&str; 7] = [
    "did you mean",
    "perhaps you meant",
    "expected",
    "renamed to",
    "replaced by",
    "replaced with",
    " use",
];

/// Arguments and the schemas before and after.
pub(super) struct Matching<'a> {
    pub(super) old: Option<&'a Shape<'a>>,
    pub(super) new: &'a Shape<'a>,
    pub(super) arguments: &'a Arguments,
    /// Arguments that the new schema does not know.
    pub(super) unknown: &'a [&'a str],
    pub(super) error: &'a str,
}

// === impl Matching ===

impl Matching<'_> {
    /// Returns the changes after which the arguments may fit; `None` if they are not unique.
    pub(super) fn changes(&self) -> Option<Vec<ArgumentChange>> {
        if self.unknown.len() > MAX_MISFITS {
            return None;
        }
        let mut changes = Vec::new();
        let mut covered: Vec<&str> = Vec::new();
        let mut left: Vec<&str> = Vec::new();
        for name in self.unknown {
            match self.renamed(name) {
                Some(to) if covered.contains(&to.name) => return None,
                Some(to) => {
                    covered.push(to.name);
                    changes.push(ArgumentChange::Rename {
                        from: (*name).to_owned(),
                        to: to.name.to_owned(),
                    });
                    changes.extend(conversion(to.name, self.arguments.get(*name)?, to));
                }
                None => left.push(name),
            }
        }
        if !left.is_empty() {
            let (moved, filled) = self.moved(&left)?;
            changes.push(moved);
            covered.extend(filled);
        }
        for property in &self.new.properties {
            match self.arguments.get(property.name) {
                Some(value) => changes.extend(conversion(property.name, value, property)),
                None if property.required && !covered.contains(&property.name) => {
                    let value = property.given()?.clone();
                    changes.push(ArgumentChange::Fill {
                        argument: property.name.to_owned(),
                        value,
                    });
                }
                None => {}
            }
        }
        Some(changes)
    }

    /// Returns the present name of an argument.
    fn renamed(&self, name: &str) -> Option<&Property<'_>> {
        let value = self.arguments.get(name)?;
        let was = self.old.and_then(|old| old.find(name));
        let is_free = |property: &&Property<'_>| {
            let was_there = || {
                self.old
                    .is_some_and(|old| old.find(property.name).is_some())
            };
            let is_taken =
                self.arguments.contains_key(property.name) || (was.is_some() && was_there());
            !is_taken && converted(value, &property.kinds).is_some()
        };
        let free: Vec<&Property<'_>> = self.new.properties.iter().filter(is_free).collect();
        let mut ranked: Vec<(u32, &Property<'_>)> = free
            .iter()
            .map(|it| (self.witnesses(name, value, was, it, free.len()), *it))
            .collect();
        ranked.sort_by_key(|(witnesses, _)| std::cmp::Reverse(*witnesses));
        let (best, property) = *ranked.first()?;
        let second = ranked.get(1).map_or(0, |(witnesses, _)| *witnesses);
        (best >= ENOUGH && best > second).then_some(property)
    }

    /// Returns the number of things that speak for it that `name` has become `candidate`; none if
    /// that would turn its meaning round.
    fn witnesses(
        &self,
        name: &str,
        value: &Value,
        was: Option<&Property<'_>>,
        candidate: &Property<'_>,
        free: usize,
    ) -> u32 {
        let kinship = kinship(name, candidate.name);
        let differs = was.is_some_and(|was| {
            units_differ(was.description(), candidate.description())
                || (kinship != Kinship::Same && !overlap(&was.kinds, &candidate.kinds))
                || was.is_secret() != candidate.is_secret()
        });
        let hides = kinship != Kinship::Same && (candidate.is_secret() || is_secret(name));
        if kinship == Kinship::Opposed || differs || hides {
            return 0;
        }
        let is_named = kinship >= Kinship::Alike;
        let by_name = match kinship {
            Kinship::Same => 2 * ENOUGH,
            Kinship::Synonyms => {
                1 + u32::from(is_telling(&candidate.kinds) && is_of(value, &candidate.kinds))
            }
            Kinship::Alike => 1,
            Kinship::Unrelated | Kinship::Opposed => 0,
        };
        let by_place = match was {
            Some(was) => self.is_only_change(was, candidate),
            // Without the old schema, arguments are told apart by what is missing alone.
            None => {
                self.unknown.len() == 1
                    && is_named
                    && (self.is_only_missing(candidate)
                        || (kinship == Kinship::Synonyms && free == 1))
            }
        };
        let by_values = match was {
            Some(was) => {
                was.has_same_values(candidate) || (is_named && was.has_same_format(candidate))
            }
            None => is_named && candidate.lists(value),
        };
        let by_words = was.is_some_and(|was| is_same_description(was, candidate));
        let others: [bool; 3] = [by_place, by_values, by_words];
        by_name + self.told(candidate.name) + others.into_iter().map(u32::from).sum::<u32>()
    }

    /// Returns whether the old schema lost one argument of this type, and the new one has one more.
    fn is_only_change(&self, was: &Property<'_>, candidate: &Property<'_>) -> bool {
        let Some(old) = self.old else { return false };
        let removed = old
            .properties
            .iter()
            .filter(|it| self.new.find(it.name).is_none() && overlap(&it.kinds, &was.kinds));
        let added = self
            .new
            .properties
            .iter()
            .filter(|it| old.find(it.name).is_none() && overlap(&it.kinds, &candidate.kinds));
        removed.count() == 1 && added.count() == 1
    }

    /// Returns whether a property is the only one that is required and not given.
    fn is_only_missing(&self, candidate: &Property<'_>) -> bool {
        let mut missing = self.new.properties.iter().filter(|it| {
            it.required && it.given().is_none() && !self.arguments.contains_key(it.name)
        });
        missing.next().is_some_and(|it| it.name == candidate.name) && missing.next().is_none()
    }

    /// Returns the degree to which the error clearly names an argument, in words that are not the
    /// caller's own.
    fn told(&self, name: &str) -> u32 {
        let is_quoted = self
            .arguments
            .iter()
            .any(|(given, value)| names(given, name) || names(&value.to_string(), name));
        if is_quoted || !names(self.error, name) {
            return 0;
        }
        let is_hinted = self.error.match_indices(name).any(|(at, _)| {
            let before = self.error[..at].to_lowercase();
            let before = before.trim_end_matches(|letter: char| !letter.is_alphanumeric());
            HINTS.iter().any(|hint| before.ends_with(hint))
        });
        if is_hinted { ENOUGH } else { 1 }
    }

    /// Returns a level of nesting that explains all arguments without a place, and the argument
    /// that it covers.
    fn moved(&self, left: &[&str]) -> Option<(ArgumentChange, Vec<&str>)> {
        if let [name] = left
            && let Some(Value::Object(inner)) = self.arguments.get(*name)
        {
            let known = inner
                .keys()
                .map(|inner| self.new.find(inner).map(|property| property.name));
            let covered: Vec<&str> = known.collect::<Option<_>>()?;
            return (!covered.is_empty()).then(|| {
                (
                    ArgumentChange::Flatten {
                        argument: (*name).to_owned(),
                    },
                    covered,
                )
            });
        }
        let takes_all = |property: &&Property<'_>| {
            let within = self.new.within(property);
            !self.arguments.contains_key(property.name)
                && left
                    .iter()
                    .all(|name| within.iter().any(|inner| inner.name == *name))
        };
        let mut holders = self.new.properties.iter().filter(takes_all);
        let (holder, None) = (holders.next()?, holders.next()) else {
            return None;
        };
        let arguments = left.iter().map(|name| (*name).to_owned()).collect();
        Some((
            ArgumentChange::Nest {
                arguments,
                within: holder.name.to_owned(),
            },
            vec![holder.name],
        ))
    }
}

fn conversion(argument: &str, value: &Value, to: &Property<'_>) -> Option<ArgumentChange> {
    let argument = argument.to_owned();
    (!is_of(value, &to.kinds)).then(|| ArgumentChange::Convert {
        argument,
        to: to.kinds.clone(),
    })
}

/// Returns whether an argument of one of these types may be one of those; any type is every type.
fn overlap(left: &[SchemaKind], right: &[SchemaKind]) -> bool {
    let is_number = |kind: &SchemaKind| matches!(kind, SchemaKind::Integer | SchemaKind::Number);
    left.is_empty()
        || right.is_empty()
        || left.iter().any(|kind| right.contains(kind))
        || (left.iter().any(is_number) && right.iter().any(is_number))
}

/// Returns whether a type says something of its argument: most things can be written as a text.
fn is_telling(kinds: &[SchemaKind]) -> bool {
    !kinds.is_empty() && !kinds.contains(&SchemaKind::String)
}

fn is_same_description(was: &Property<'_>, candidate: &Property<'_>) -> bool {
    let before = was.description();
    let now = candidate.description();
    similarity::words(before).len() >= DESCRIBED
        && similarity::of_texts(before, now) >= SAME_DESCRIPTION
}
