//! What a schema states about the arguments at its root: their names, types and whether they must
//! be given.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::arguments::{Arguments, names, quoted},
    MAX_PROPERTIES,
    names::is_secret,
};

/// Number of references and choices that are followed to find a type.
const MAX_STEPS: usize = 6;
/// Most choices that are looked through to find a type.
const MAX_CHOICES: usize = 8;
/// Number of arguments that a list in words names.
const MAX_NAMED: usize = 8;

/// Keywords beside `properties` that may list arguments.
const LISTING: [&str; 9] = [
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "$dynamicRef",
];

/// A type of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaKind {
    /// Null.
    Null,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Text.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

/// An argument that a schema lists.
#[derive(Debug)]
pub(super) struct Property<'a> {
    pub(super) name: &'a str,
    /// Its schema, with a reference at its root followed.
    pub(super) schema: &'a Value,
    /// Types that it may have; empty if it may have any.
    pub(super) kinds: Vec<SchemaKind>,
    pub(super) required: bool,
}

/// The arguments that a schema lists.
#[derive(Debug)]
pub(super) struct Shape<'a> {
    root: &'a Value,
    pub(super) properties: Vec<Property<'a>>,
    /// `true` if arguments that it does not list are taken by its own words.
    open: bool,
}

// === impl SchemaKind ===

impl SchemaKind {
    /// The type of a value.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        serde_json::from_value(Value::from(name)).ok()
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "list",
            Self::Object => "object",
        }
    }
}

// === impl Property ===

impl Property<'_> {
    /// Returns the value that the schema itself gives: its default, its only value.
    pub(super) fn given(&self) -> Option<&Value> {
        let only = |list: &'_ Value| list.as_array().is_some_and(|list| list.len() == 1);
        let listed = self
            .schema
            .get("enum")
            .filter(|list| only(list))
            .and_then(|list| list.get(0));
        self.schema
            .get("default")
            .or_else(|| self.schema.get("const"))
            .or(listed)
    }

    pub(super) fn description(&self) -> &str {
        self.text("description")
    }

    /// Returns whether its schema or its name says that it holds a secret.
    pub(super) fn is_secret(&self) -> bool {
        self.text("format") == "password"
            || self.schema.get("writeOnly") == Some(&Value::Bool(true))
            || is_secret(self.name)
    }

    fn text(&self, keyword: &str) -> &str {
        self.schema
            .get(keyword)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

impl fmt::Display for Property<'_> {
    /// `limit` (integer, required)
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self
            .kinds
            .iter()
            .filter(|kind| **kind != SchemaKind::Null)
            .map(|kind| kind.as_str());
        let kinds = kinds.collect::<Vec<_>>().join(" or ");
        let kinds = if kinds.is_empty() { "any type" } else { &kinds };
        let required = if self.required {
            "required"
        } else {
            "optional"
        };
        write!(f, "{} ({kinds}, {required})", quoted(self.name))
    }
}

// === impl Shape ===

impl<'a> Shape<'a> {
    pub(super) fn of(schema: &'a Value) -> Self {
        let object = resolved(schema, schema);
        Self {
            root: schema,
            properties: properties(schema, object),
            open: is_open(object),
        }
    }

    /// Returns the argument of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Property<'a>> {
        self.properties
            .iter()
            .find(|property| property.name == name)
    }

    /// Returns the properties of an argument that is an object.
    pub(super) fn within(&self, property: &Property<'a>) -> Vec<Property<'a>> {
        properties(self.root, property.schema)
    }

    /// Arguments that are not listed, although it does not state that it takes others.
    pub(super) fn unlisted<'b>(&self, arguments: &'b Arguments) -> Vec<&'b str> {
        let lists_some = !self.properties.is_empty();
        let names = arguments
            .keys()
            .map(String::as_str)
            .filter(|name| self.find(name).is_none());
        names.filter(|_| lists_some && !self.open).collect()
    }

    /// Returns the arguments that the tool does not know: unlisted, and surely refused, listed
    /// before, named by the error, or given while another one is missing.
    pub(super) fn unknown<'b>(
        &self,
        arguments: &'b Arguments,
        before: Option<&Shape<'_>>,
        error: &str,
    ) -> Vec<&'b str> {
        let closed =
            resolved(self.root, self.root).get("additionalProperties") == Some(&Value::Bool(false));
        let lacks_one = self
            .properties
            .iter()
            .any(|it| it.required && !arguments.contains_key(it.name));
        let was_listed = |name: &str| before.is_some_and(|before| before.find(name).is_some());
        let is_unknown =
            |name: &&str| closed || lacks_one || was_listed(name) || names(error, name);
        self.unlisted(arguments)
            .into_iter()
            .filter(is_unknown)
            .collect()
    }

    /// Returns its differences from the one before in words, or the arguments that it takes if that
    /// is not known.
    pub(super) fn differences(&self, before: Option<&Shape<'_>>) -> String {
        let list = |properties: Vec<String>| {
            let more = properties.len().saturating_sub(MAX_NAMED);
            let named = properties
                .into_iter()
                .take(MAX_NAMED)
                .collect::<Vec<_>>()
                .join(", ");
            if more == 0 {
                named
            } else {
                format!("{named} and {more} more")
            }
        };
        let Some(before) = before else {
            return match self.properties.as_slice() {
                [] => "The tool lists no arguments.".to_owned(),
                some => format!(
                    "The tool takes {}.",
                    list(some.iter().map(ToString::to_string).collect())
                ),
            };
        };
        let added = self
            .properties
            .iter()
            .filter(|it| before.find(it.name).is_none())
            .map(ToString::to_string);
        let removed = before
            .properties
            .iter()
            .filter(|it| self.find(it.name).is_none())
            .map(ToString::to_string);
        let changed = self.properties.iter().filter_map(|it| {
            let was = before.find(it.name)?;
            (was.kinds != it.kinds || was.required != it.required)
                .then(|| format!("{it}, before {was}"))
        });
        let parts = [
            ("removed", removed.collect()),
            ("new", added.collect()),
            ("changed", changed.collect::<Vec<_>>()),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(what, properties): (_, Vec<String>)| format!("{what}: {}", list(properties)))
            .collect();
        if parts.is_empty() {
            return "The tool's arguments changed in their details.".to_owned();
        }
        format!("The tool's arguments changed. {}.", parts.join("; "))
    }
}

fn properties<'a>(root: &'a Value, object: &'a Value) -> Vec<Property<'a>> {
    let object = resolved(root, object);
    let required: Vec<&str> = object
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let listed = object
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .take(MAX_PROPERTIES);
    let property = |(name, schema): (&'a String, &'a Value)| Property {
        name,
        schema: resolved(root, schema),
        kinds: kinds(root, schema, MAX_STEPS),
        required: required.contains(&name.as_str()),
    };
    listed.map(property).collect()
}

/// Returns whether a schema may take arguments that are not listed at its root: it says so, lists
/// them elsewhere, or lists more than are looked at.
fn is_open(object: &Value) -> bool {
    let allows = |value: &Value| value == &Value::Bool(true) || value.is_object();
    let is_long = |listed: &Value| {
        let listed = listed.as_object();
        listed.is_some_and(|listed| listed.len() > MAX_PROPERTIES)
    };
    object.get("additionalProperties").is_some_and(allows)
        || object.get("properties").is_some_and(is_long)
        || LISTING.iter().any(|keyword| object.get(*keyword).is_some())
}

/// Returns the schema that a reference within the document leads to, or the schema itself.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_STEPS {
        let pointer = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix('#'));
        let Some(target) = pointer.and_then(|pointer| root.pointer(pointer)) else {
            break;
        };
        schema = target;
    }
    schema
}

/// Returns the types that a schema allows; empty if it allows any.
fn kinds(root: &Value, schema: &Value, steps: usize) -> Vec<SchemaKind> {
    let schema = resolved(root, schema);
    let Some(keywords) = schema.as_object() else {
        return Vec::new();
    };
    let mut kinds: Vec<SchemaKind> = match keywords.get("type") {
        Some(Value::String(name)) => SchemaKind::parse(name).into_iter().collect(),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .filter_map(SchemaKind::parse)
            .collect(),
        _ => by_values(keywords),
    };
    if kinds.is_empty() && steps > 0 {
        let choices = ["anyOf", "oneOf"]
            .iter()
            .filter_map(|keyword| keywords.get(*keyword)?.as_array())
            .flatten();
        // More choices than these are not looked through: any of them may be of any type.
        if choices.clone().nth(MAX_CHOICES).is_some() {
            return Vec::new();
        }
        for choice in choices {
            let more = self::kinds(root, choice, steps - 1);
            if more.is_empty() {
                return more;
            }
            kinds.extend(more);
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn by_values(keywords: &Map<String, Value>) -> Vec<SchemaKind> {
    let listed = keywords
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    listed
        .chain(keywords.get("const"))
        .map(SchemaKind::of)
        .collect()
}
