//! Finds the argument of a new schema that each argument of a call has become, if there is only one
//! that it can be: by its name, or by what the tool's error states.

use serde_json::Value;

use super::{
    super::arguments::{Arguments, names, places},
    MAX_MISFITS,
    change::{ArgumentChange, converted, is_of},
    names::{are_synonyms, mean_otherwise, same_but_number, same_words, units_differ},
    shape::{Property, SchemaKind, Shape},
};

/// Words before a name by which an error says what an argument should have been.
const HINTS: [&str; 10] = [
    "did you mean",
    "perhaps you meant",
    "renamed to",
    "replaced by",
    "replaced with",
    ", use",
    "; use",
    ". use",
    ": use",
    "please use",
];

/// Arguments that hold others and say nothing of them.
const WRAPPERS: [&str; 10] = [
    "params",
    "parameters",
    "args",
    "arguments",
    "kwargs",
    "input",
    "request",
    "payload",
    "body",
    "data",
];

/// Grounds on which an argument is a renamed one; the surer one comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RenameGrounds {
    /// Both are usual names of it.
    Synonyms,
    /// They hold the same words.
    SameWords,
    /// The tool's error states it.
    Stated,
}

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

    /// Returns the present name of an argument: the only one on the surest grounds there are.
    fn renamed(&self, name: &str) -> Option<&Property<'_>> {
        let grounds = |property| Some((self.grounds(name, property)?, property));
        let found: Vec<(RenameGrounds, &Property<'_>)> =
            self.new.properties.iter().filter_map(grounds).collect();
        let surest = found.iter().map(|(grounds, _)| *grounds).max()?;
        let mut sure = found.iter().filter(|(grounds, _)| *grounds == surest);
        match (sure.next(), sure.next()) {
            (Some((_, only)), None) => Some(only),
            _ => None,
        }
    }

    /// Returns the grounds on which `name` has become `candidate`; `None` if it has not.
    fn grounds(&self, name: &str, candidate: &Property<'_>) -> Option<RenameGrounds> {
        let value = self.arguments.get(name)?;
        let old = self.old;
        let was = old.and_then(|old| old.find(name));
        let is_another = was.is_some_and(|was| {
            old.is_some_and(|old| old.find(candidate.name).is_some())
                || units_differ(was.description(), candidate.description())
        });
        if is_another
            || self.arguments.contains_key(candidate.name)
            || converted(value, &candidate.kinds).is_none()
        {
            return None;
        }
        let is_list = value.is_array() || candidate.kinds.contains(&SchemaKind::Array);
        if self.states(name, candidate) {
            Some(RenameGrounds::Stated)
        } else if same_words(name, candidate.name)
            || (is_list && same_but_number(name, candidate.name))
        {
            Some(RenameGrounds::SameWords)
        } else {
            are_synonyms(name, candidate.name).then_some(RenameGrounds::Synonyms)
        }
    }

    /// Returns whether the error states that an argument is this one now, in words that are not the
    /// caller's own.
    fn states(&self, from: &str, to: &Property<'_>) -> bool {
        let is_quoted = self
            .arguments
            .iter()
            .any(|(given, value)| names(given, to.name) || names(&value.to_string(), to.name));
        if is_quoted || to.is_secret() || mean_otherwise(from, to.name) {
            return false;
        }
        places(self.error, to.name).any(|at| {
            let before = &self.error[..at];
            let behind = &self.error[at + to.name.len()..];
            is_proposed(before, behind) && self.last_named(before) == Some(from)
        })
    }

    /// Returns the argument that a text names last.
    fn last_named(&self, text: &str) -> Option<&str> {
        let named = self.arguments.keys().filter_map(|name| {
            let at = places(text, name).last()?;
            Some((at, name.len(), name.as_str()))
        });
        named.max().map(|(_, _, name)| name)
    }

    /// Returns a level of nesting that explains all arguments without a place, and the argument
    /// that it covers.
    fn moved(&self, left: &[&str]) -> Option<(ArgumentChange, Vec<&str>)> {
        if let [name] = left
            && is_wrapper(name)
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
            is_wrapper(property.name)
                && !self.arguments.contains_key(property.name)
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

fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|wrapper| same_words(name, wrapper))
}

/// Returns whether a text proposes the name between these two parts of it, and no other.
fn is_proposed(before: &str, behind: &str) -> bool {
    let is_mark = |letter: char| letter.is_whitespace() || "`'\"‘’“”".contains(letter);
    let hint = before.trim_end_matches(is_mark).to_lowercase();
    let is_part_of_a_path = behind.starts_with(['-', '['])
        || behind
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    let next = behind.trim_start_matches(is_mark);
    let is_alone = !next.starts_with([',', '/', '|']) && !next.starts_with("or ");
    before.ends_with(is_mark)
        && !is_part_of_a_path
        && is_alone
        && HINTS.iter().any(|words| hint.ends_with(words))
}
