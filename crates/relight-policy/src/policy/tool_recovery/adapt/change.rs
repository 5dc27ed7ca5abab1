//! One mechanical change of arguments, which is applied to others of the same tool as well.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::{
    super::arguments::{Arguments, quoted},
    shape::SchemaKind,
};

/// Signs by which a text may be a list.
const LIST_SIGNS: [char; 6] = [',', ';', '|', '\n', '[', '{'];

/// One mechanical change of a call's arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum ArgumentChange {
    /// An argument has another name.
    Rename {
        /// The name that the caller used.
        from: String,
        /// The name that the tool knows.
        to: String,
    },
    /// An argument that the tool requires gets the only or the default value that its schema gives.
    Fill {
        /// Its name.
        argument: String,
        /// Its value.
        value: Value,
    },
    /// An argument is sent as another type, with nothing lost.
    Convert {
        /// Its name.
        argument: String,
        /// The types that the tool takes.
        to: Vec<SchemaKind>,
    },
    /// Arguments are sent within another one, which is an object.
    Nest {
        /// Their names.
        arguments: Vec<String>,
        /// The argument that holds them.
        within: String,
    },
    /// The content of an argument that is an object is sent in its place.
    Flatten {
        /// Its name.
        argument: String,
    },
}

// === impl ArgumentChange ===

impl ArgumentChange {
    /// Makes the change; returns `false` if it does not concern these arguments.
    pub(super) fn apply(&self, arguments: &mut Arguments) -> bool {
        match self {
            Self::Rename { from, to } => {
                if arguments.contains_key(to) {
                    return false;
                }
                let Some(value) = arguments.shift_remove(from) else {
                    return false;
                };
                arguments.insert(to.clone(), value);
            }
            Self::Fill { argument, value } => {
                if arguments.contains_key(argument) {
                    return false;
                }
                arguments.insert(argument.clone(), value.clone());
            }
            Self::Convert { argument, to } => {
                let Some(value) = arguments.get_mut(argument) else {
                    return false;
                };
                let Some(converted) = converted(value, to).filter(|converted| converted != value)
                else {
                    return false;
                };
                *value = converted;
            }
            Self::Nest {
                arguments: names,
                within,
            } => {
                if arguments.contains_key(within) {
                    return false;
                }
                let inner: Map<String, Value> = names
                    .iter()
                    .filter_map(|name| arguments.shift_remove_entry(name))
                    .collect();
                if inner.is_empty() {
                    return false;
                }
                arguments.insert(within.clone(), Value::Object(inner));
            }
            Self::Flatten { argument } => {
                let inner = arguments.get(argument).and_then(Value::as_object);
                let Some(inner) = inner
                    .filter(|inner| inner.keys().all(|name| !arguments.contains_key(name)))
                    .cloned()
                else {
                    return false;
                };
                arguments.shift_remove(argument);
                arguments.extend(inner);
            }
        }
        true
    }
}

impl fmt::Display for ArgumentChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rename { from, to } => write!(f, "{} was sent as {}", quoted(from), quoted(to)),
            Self::Fill { argument, .. } => {
                write!(f, "{} was set to the value of its schema", quoted(argument))
            }
            Self::Convert { argument, .. } => {
                write!(f, "{} was sent as the type of its schema", quoted(argument))
            }
            Self::Nest { arguments, within } => {
                let names: Vec<String> = arguments.iter().map(|name| quoted(name)).collect();
                write!(f, "{} went into {}", names.join(", "), quoted(within))
            }
            Self::Flatten { argument } => {
                write!(f, "what {} held was sent in its place", quoted(argument))
            }
        }
    }
}

/// Returns whether a value is of one of these types; any type if there are none.
pub(super) fn is_of(value: &Value, kinds: &[SchemaKind]) -> bool {
    let own = SchemaKind::of(value);
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    kinds.is_empty()
        || kinds.contains(&own)
        || (own == SchemaKind::Integer && kinds.contains(&SchemaKind::Number))
        || (own == SchemaKind::Number && is_whole && kinds.contains(&SchemaKind::Integer))
}

/// Returns the value as one of these types, if nothing is lost; itself if it is of one of them.
pub(super) fn converted(value: &Value, kinds: &[SchemaKind]) -> Option<Value> {
    if is_of(value, kinds) {
        return Some(value.clone());
    }
    let takes = |kind| kinds.contains(&kind);
    let scalar = match value {
        Value::String(text) => read(text).filter(|read| is_of(read, kinds)),
        Value::Number(number) if takes(SchemaKind::String) => Some(Value::from(number.to_string())),
        Value::Bool(flag) if takes(SchemaKind::String) => Some(Value::from(flag.to_string())),
        Value::Array(items) => match items.as_slice() {
            [item] if is_of(item, kinds) => Some(item.clone()),
            _ => None,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    scalar.or_else(|| {
        (takes(SchemaKind::Array) && is_one(value)).then(|| Value::Array(vec![value.clone()]))
    })
}

/// Returns whether a value is surely one thing: a text may be a list itself.
fn is_one(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty() && !text.contains(LIST_SIGNS),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

/// Returns a text that is a number or truth value, written as they are written.
fn read(text: &str) -> Option<Value> {
    let value: Value = match text {
        "true" | "false" => Value::Bool(text == "true"),
        number => Value::Number(number.parse::<Number>().ok()?),
    };
    let written = value.to_string();
    (written == text).then_some(value)
}
