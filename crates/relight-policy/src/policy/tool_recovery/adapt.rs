//! Makes the arguments of a call fit a tool whose schema changed, if that is mechanical.
//!
//! A renamed argument, a new one with a default, a lossless change of type, a level of nesting:
//! each is found from the two schemas and from the names in the error, applied, and checked against
//! the new schema before anything is sent. An ambiguous change is not guessed at: the difference of
//! the schemas is handed back in words.

mod change;
mod contract;
mod matching;
mod memory;
mod names;
mod shape;

pub use self::{
    change::ArgumentChange,
    contract::broken_contract,
    memory::{AdaptationMemory, SchemaHistory, schema_hash, tools_hash},
};

use serde_json::Value;

use self::{matching::Matching, shape::Shape};
use super::arguments::{self, Arguments};
use crate::policy::{
    inject::Mismatch,
    schema::{self, MAX_SCHEMA_BYTES, SchemaFault},
};

/// Most properties that a schema may list for arguments to be adapted to it.
const MAX_PROPERTIES: usize = 200;
/// Most arguments that may be unknown or missing at once for a mechanical adaptation.
const MAX_MISFITS: usize = 8;

/// Known facts when arguments are compared with a schema.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// Schema that the arguments were written for; `None` if it is not known.
    pub old: Option<&'a Value>,
    /// The schema that the tool has now.
    pub new: &'a Value,
    /// The arguments.
    pub arguments: &'a Arguments,
    /// Words of the tool about them; empty if there is nothing.
    pub error: &'a str,
    /// If set, each argument must be one that the new schema lists, such as for another tool.
    pub all_listed: bool,
    /// The argument that is filled when the call is sent, such as with an idempotency key; it
    /// counts as given.
    pub filled: Option<&'a str>,
}

/// Fit of arguments with the schema of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgumentFit {
    /// They fit as they are.
    Fits {
        /// `true` if the schema is another one than they were written for.
        changed: bool,
    },
    /// They do not fit, and the schema is the one they were written for: their author made a
    /// mistake.
    Mistake {
        /// Part that does not fit.
        mismatch: Mismatch,
    },
    /// They fit once they are changed so.
    Adapted(AdaptedArguments),
    /// They do not fit, and what they should become is not unique.
    Ambiguous {
        /// Differences of the schemas, or the arguments that the tool takes, in words.
        differences: String,
    },
    /// The tool's schema cannot be used.
    Unusable {
        /// Reason, in words.
        reason: String,
    },
}

/// Arguments that were changed to fit a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptedArguments {
    /// The arguments, which fit the schema.
    pub arguments: Arguments,
    /// Changes made, in order.
    pub changes: Vec<ArgumentChange>,
    /// The same in words.
    pub words: String,
}

/// Compares arguments with a schema, and makes them fit it if that is mechanical.
#[must_use]
pub fn fit(comparison: Comparison<'_>) -> ArgumentFit {
    let Comparison {
        old,
        new,
        arguments,
        error,
        all_listed,
        filled,
    } = comparison;
    if let Some((name, given)) = with_filled(new, arguments, filled) {
        let mut fit = fit(Comparison {
            arguments: &given,
            filled: None,
            ..comparison
        });
        if let ArgumentFit::Adapted(adapted) = &mut fit {
            adapted.arguments.shift_remove(name);
        }
        return fit;
    }
    let checked = match validate(new, arguments) {
        Ok(checked) => checked,
        Err(reason) => return ArgumentFit::Unusable { reason },
    };
    let changed = old.is_some_and(|old| old != new);
    let shape = Shape::of(new);
    let before = old.map(Shape::of);
    let unknown = if all_listed {
        shape.unlisted(arguments)
    } else {
        shape.unknown(arguments, before.as_ref(), error)
    };
    let misfit = checked.or_else(|| {
        let name = unknown.first()?;
        let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        Some(Mismatch {
            path,
            keyword: "additionalProperties".to_owned(),
            limit: "false".to_owned(),
        })
    });
    let Some(mismatch) = misfit else {
        return ArgumentFit::Fits { changed };
    };
    let is_same = old.is_some() && !changed;
    if is_same && unknown.is_empty() {
        return ArgumentFit::Mistake { mismatch };
    }
    // Names that a schema does not list were written for another one, whichever was listed when the
    // call came.
    let before = before.as_ref().filter(|_| changed);
    let matching = Matching {
        old: before,
        new: &shape,
        arguments,
        unknown: &unknown,
        error,
    };
    match matching
        .changes()
        .and_then(|changes| applied(&changes, new, &shape, arguments))
    {
        Some(adapted) => ArgumentFit::Adapted(adapted),
        None if is_same => ArgumentFit::Mistake { mismatch },
        None => ArgumentFit::Ambiguous {
            differences: shape.differences(before),
        },
    }
}

/// Returns the arguments with something in the one that is filled when they are sent, if they lack
/// it and the schema lists it.
fn with_filled<'a>(
    schema: &Value,
    arguments: &Arguments,
    filled: Option<&'a str>,
) -> Option<(&'a str, Arguments)> {
    let name = filled
        .filter(|name| !arguments.contains_key(*name) && Shape::of(schema).find(name).is_some())?;
    let mut given = arguments.clone();
    given.insert(
        name.to_owned(),
        Value::from(super::arguments::short_hash([])),
    );
    Some((name, given))
}

/// Returns the first argument of a call that a tool's schema does not know, although it lists its arguments.
///
/// A server may ignore such a name, so that the call does something else than was asked. Costs one
/// look-up an argument if all are known.
#[must_use]
pub fn unlisted<'a>(schema: &Value, arguments: &'a Arguments) -> Option<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    if listed.is_some_and(|listed| arguments.keys().all(|name| listed.contains_key(name))) {
        return None;
    }
    Shape::of(schema).unlisted(arguments).first().copied()
}

/// Returns the arguments that a tool takes, in words.
#[must_use]
pub fn taken(schema: &Value) -> String {
    Shape::of(schema).differences(None)
}

/// Applies changes and checks that the arguments then fit.
fn applied(
    changes: &[ArgumentChange],
    new: &Value,
    shape: &Shape<'_>,
    arguments: &Arguments,
) -> Option<AdaptedArguments> {
    if !arguments::keep_their_digits(arguments) {
        return None;
    }
    let mut adapted = arguments.clone();
    let changes: Vec<ArgumentChange> = changes
        .iter()
        .filter(|change| change.apply(&mut adapted))
        .cloned()
        .collect();
    if changes.is_empty()
        || !shape.unlisted(&adapted).is_empty()
        || validate(new, &adapted) != Ok(None)
    {
        return None;
    }
    let words = changes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    Some(AdaptedArguments {
        arguments: adapted,
        changes,
        words,
    })
}

/// Checks arguments against a schema: what does not fit, or why the schema is of no use.
fn validate(schema: &Value, arguments: &Arguments) -> Result<Option<Mismatch>, String> {
    if arguments::is_longer(schema, MAX_SCHEMA_BYTES) {
        return Err(format!(
            "the tool's input schema is longer than {} KiB",
            MAX_SCHEMA_BYTES >> 10
        ));
    }
    if !schema.is_object() {
        return Err("the tool's input schema is no JSON object".to_owned());
    }
    match schema::check(schema, &Value::Object(arguments.clone())) {
        Ok(()) => Ok(None),
        Err(SchemaFault::Misfit(mismatch)) => Ok(Some(mismatch)),
        Err(fault @ (SchemaFault::Unreadable | SchemaFault::TooCostly)) => {
            Err(format!("the tool's input schema cannot be used: {fault}"))
        }
    }
}

#[cfg(test)]
mod tests;
