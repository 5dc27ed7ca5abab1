//! Finds which argument of a new schema each argument of a call has become, where there is only one
//! way to read it.

use serde_json::Value;

use super::{
    super::{
        arguments::{Arguments, names},
        similarity,
    },
    MAX_MISFITS,
    change::{ArgumentChange, converted, is_of},
    shape::{Property, Shape},
};

/// Evidence from which an argument is taken for a renamed one.
const ENOUGH: f64 = 1.0;
/// How much more evidence there must be for it than for any other.
const AHEAD: f64 = 1.0;
/// Likeness from which a name speaks for another one; `user_id` and `account_id` have less.
const ALIKE: f64 = 0.6;

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
    /// The changes after which the arguments may fit; `None` where they are not unique.
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

    /// What an argument is called now.
    fn renamed(&self, name: &str) -> Option<&Property<'_>> {
        let value = self.arguments.get(name)?;
        let is_free = |property: &&Property<'_>| {
            !self.arguments.contains_key(property.name)
                && self.old.is_none_or(|old| old.find(property.name).is_none())
                && converted(value, &property.kinds).is_some()
        };
        let mut ranked: Vec<(f64, &Property<'_>)> = self
            .new
            .properties
            .iter()
            .filter(is_free)
            .map(|it| (self.evidence(name, value, it), it))
            .collect();
        ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
        let (best, property) = *ranked.first()?;
        let second = ranked.get(1).map_or(0.0, |(evidence, _)| *evidence);
        (best >= ENOUGH && (ranked.len() == 1 || best - second >= AHEAD)).then_some(property)
    }

    /// How much speaks for it that `name` has become `candidate`.
    fn evidence(&self, name: &str, value: &Value, candidate: &Property<'_>) -> f64 {
        let points = |holds: bool, points: f64| if holds { points } else { 0.0 };
        let similarity = similarity::of_names(name, candidate.name);
        let by_name = points(similarity::same_argument(name, candidate.name), 2.0)
            + points(similarity >= ALIKE, 2.0 * similarity)
            + points(names(self.error, candidate.name), 2.0);
        let same_type = is_of(value, &candidate.kinds);
        let by_old =
            self.old
                .and_then(|old| Some((old, old.find(name)?)))
                .map_or(0.0, |(old, was)| {
                    let alike = similarity::of_texts(was.description(), candidate.description());
                    let removed = old
                        .properties
                        .iter()
                        .filter(|it| self.new.find(it.name).is_none() && it.kinds == was.kinds);
                    let added =
                        self.new.properties.iter().filter(|it| {
                            old.find(it.name).is_none() && it.kinds == candidate.kinds
                        });
                    let only_pair =
                        was.kinds == candidate.kinds && removed.count() == 1 && added.count() == 1;
                    points(alike >= 0.5, 1.0)
                        + points(old.position(name) == self.new.position(candidate.name), 0.5)
                        + points(was.required == candidate.required, 0.5)
                        + points(only_pair, 0.5)
                });
        by_name + points(same_type, 0.25) + by_old
    }

    /// A level of nesting that explains all arguments without a place, and the argument that it
    /// covers.
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
