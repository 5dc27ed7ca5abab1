//! The file as a tree in which every value knows its path and its position, so that a fault can
//! point at it.
//!
//! A library parses the YAML; this only keeps the positions. References to the environment are
//! resolved here, and values from there are marked, so that no message repeats them.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use super::fault::{Fault, Position};

/// A value with its path and position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Such as `routes.default.targets[1]`; empty for the root.
    pub(super) path: String,
    /// Position of the value; for a list or a map that of its key, if it has one.
    pub(super) at: Option<Position>,
    /// Position of its key.
    pub(super) key_at: Option<Position>,
    /// The value.
    pub(super) value: Value,
    /// Text with its references, if the value holds something from the environment.
    pub(super) reference: Option<String>,
}

/// A YAML value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Reads the file into a tree; a path that is written twice is a fault, the first is kept.
pub(super) fn parse(text: &str, faults: &mut Vec<Fault>) -> Option<Node> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Option<Spanned<Raw>>>(text, options) {
        Ok(raw) => {
            let raw = raw.map_or(
                RawAt {
                    at: None,
                    raw: Raw::Null,
                },
                RawAt::from,
            );
            Some(locate(String::new(), None, raw, faults))
        }
        Err(error) => {
            let at = error.location().map(|location| Position {
                line: location.line(),
                column: location.column(),
            });
            let mut reason = format!("is no YAML: {}", error.without_snippet());
            if let Some(place) = reason.rfind(" at line ") {
                reason.truncate(place);
            }
            if reason.contains("multiple YAML documents") {
                "holds more than one YAML document; write one".clone_into(&mut reason);
            }
            faults.push(Fault::new("", reason).at(at));
            None
        }
    }
}

// === impl Node ===

impl Node {
    /// A value that is written nowhere, such as a default that others are laid over.
    pub(super) fn unwritten(path: &str, value: serde_json::Value) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(bool) => Value::Bool(bool),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(uint)) => Value::Uint(uint),
                (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
            },
            serde_json::Value::String(text) => Value::Text(text),
            serde_json::Value::Array(items) => Value::List(
                (0..)
                    .zip(items)
                    .map(|(index, item)| Self::unwritten(&format!("{path}[{index}]"), item))
                    .collect(),
            ),
            serde_json::Value::Object(members) => Value::Map(
                members
                    .into_iter()
                    .map(|(key, member)| (key.clone(), Self::unwritten(&join(path, &key), member)))
                    .collect(),
            ),
        };
        Self {
            path: path.to_owned(),
            at: None,
            key_at: None,
            value,
            reference: None,
        }
    }

    /// Returns the member of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(members) => members
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// Returns the member of that name, to change it.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        match &mut self.value {
            Value::Map(members) => members
                .iter_mut()
                .find(|(key, _)| key == name)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// Returns the members of a map, in the order of the file; none of anything else.
    pub(super) fn members(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Map(members) => members,
            _ => &[],
        }
    }

    /// Sets the member of that name; makes a map of nothing.
    pub(super) fn set(&mut self, name: &str, node: Self) {
        if self.value == Value::Null {
            self.value = Value::Map(Vec::new());
        }
        if let Some(member) = self.get_mut(name) {
            *member = node;
        } else if let Value::Map(members) = &mut self.value {
            members.push((name.to_owned(), node));
        }
    }

    /// Removes every value of that path; returns whether there was one.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        match &mut self.value {
            Value::List(items) => {
                let before = items.len();
                items.retain(|item| item.path != path);
                let removed = items.len() < before;
                items
                    .iter_mut()
                    .fold(removed, |removed, item| item.remove(path) || removed)
            }
            Value::Map(members) => {
                let before = members.len();
                members.retain(|(_, member)| member.path != path);
                let removed = members.len() < before;
                members.iter_mut().fold(removed, |removed, (_, member)| {
                    member.remove(path) || removed
                })
            }
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Float(_)
            | Value::Text(_) => false,
        }
    }

    /// The value without what is within, for an index of all values.
    pub(super) fn clone_scalar(&self) -> Self {
        let value = match &self.value {
            Value::List(_) => Value::List(Vec::new()),
            Value::Map(_) => Value::Map(Vec::new()),
            Value::Null => Value::Null,
            Value::Bool(bool) => Value::Bool(*bool),
            Value::Int(int) => Value::Int(*int),
            Value::Uint(uint) => Value::Uint(*uint),
            Value::Float(float) => Value::Float(*float),
            Value::Text(text) => Value::Text(text.clone()),
        };
        Self {
            path: self.path.clone(),
            at: self.at,
            key_at: self.key_at,
            value,
            reference: self.reference.clone(),
        }
    }

    /// Visits this and everything within.
    pub(super) fn each(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        match &self.value {
            Value::List(items) => items.iter().for_each(|item| item.each(visit)),
            Value::Map(members) => members.iter().for_each(|(_, member)| member.each(visit)),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Float(_)
            | Value::Text(_) => {}
        }
    }
}

/// Returns the path of a member.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

// === what the library reads into ===

enum Raw {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<KeyText>, Spanned<Raw>)>),
}

struct RawAt {
    at: Option<Position>,
    raw: Raw,
}

impl From<Spanned<Raw>> for RawAt {
    fn from(spanned: Spanned<Raw>) -> Self {
        Self {
            at: position(&spanned),
            raw: spanned.value,
        }
    }
}

/// A key; numbers and booleans are taken by their text.
struct KeyText(String);

struct RawVisitor;

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(bool))
    }

    fn visit_i64<E>(self, int: i64) -> Result<Raw, E> {
        Ok(Raw::Int(int))
    }

    fn visit_u64<E>(self, uint: u64) -> Result<Raw, E> {
        Ok(i64::try_from(uint).map_or(Raw::Uint(uint), Raw::Int))
    }

    fn visit_f64<E>(self, float: f64) -> Result<Raw, E> {
        Ok(Raw::Float(float))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Raw::Map(members))
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

fn position<T>(spanned: &Spanned<T>) -> Option<Position> {
    let line = spanned.referenced.line();
    let column = spanned.referenced.column();
    (line > 0).then_some(Position { line, column })
}

/// Sets the path of every value and reports keys that are written twice.
fn locate(
    path: String,
    key_at: Option<Position>,
    RawAt { at, raw }: RawAt,
    faults: &mut Vec<Fault>,
) -> Node {
    let at = if matches!(raw, Raw::Null | Raw::List(_) | Raw::Map(_)) {
        key_at.or(at)
    } else {
        at
    };
    let value = match raw {
        Raw::Null => Value::Null,
        Raw::Bool(bool) => Value::Bool(bool),
        Raw::Int(int) => Value::Int(int),
        Raw::Uint(uint) => Value::Uint(uint),
        Raw::Float(float) => Value::Float(float),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(
            (0..)
                .zip(items)
                .map(|(index, item)| locate(format!("{path}[{index}]"), None, item.into(), faults))
                .collect(),
        ),
        Raw::Map(raw_members) => {
            let mut members: Vec<(String, Node)> = Vec::with_capacity(raw_members.len());
            for (key, member) in raw_members {
                let key_at = position(&key);
                let member_path = join(&path, &key.value.0);
                if members.iter().any(|(name, _)| *name == key.value.0) {
                    faults.push(Fault::new(member_path, "is written twice").at(key_at));
                    continue;
                }
                let member = locate(member_path, key_at, member.into(), faults);
                members.push((key.value.0, member));
            }
            Value::Map(members)
        }
    };
    Node {
        path,
        at,
        key_at,
        value,
        reference: None,
    }
}
