//! JSON of a request that borrows the texts and schemas of the call, so that long ones are written without being copied or
//! parsed.

use std::borrow::Cow;

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap as _, SerializeSeq as _},
};
use serde_json::{Value, value::RawValue};

/// A JSON value that borrows what is long.
#[derive(Debug)]
pub(super) enum Json<'a> {
    /// Anything that is short.
    Value(Value),
    /// A string.
    Text(Cow<'a, str>),
    /// JSON as the caller gave it.
    Raw(&'a RawValue),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(JsonObject<'a>),
}

/// A JSON object whose fields are in the order in which they were set.
#[derive(Debug, Default)]
pub(super) struct JsonObject<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> From<&'a str> for Json<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Json<'a> {
    fn from(text: &'a String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Json<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a> From<Cow<'a, str>> for Json<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self::Text(text)
    }
}

impl From<Value> for Json<'_> {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl<'a> From<JsonObject<'a>> for Json<'a> {
    fn from(object: JsonObject<'a>) -> Self {
        Self::Object(object)
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Raw(raw) => raw.serialize(serializer),
            Self::Array(items) => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    sequence.serialize_element(item)?;
                }
                sequence.end()
            }
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for JsonObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

// === impl JsonObject ===

impl<'a> JsonObject<'a> {
    /// An object with these fields.
    pub(super) fn of<const N: usize>(fields: [(&'static str, Json<'a>); N]) -> Self {
        Self(fields.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
    }

    /// Sets a field; one of that name is replaced in its place.
    pub(super) fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Json<'a>>) {
        self.put(self.0.len(), name.into(), value.into());
    }

    /// Sets fields of different names. It takes time in proportion to their number, which is the caller's to choose.
    pub(super) fn merge<V: Into<Json<'a>>>(&mut self, fields: impl IntoIterator<Item = (&'a str, V)>) {
        let known = self.0.len();
        for (name, value) in fields {
            self.put(known, Cow::Borrowed(name), value.into());
        }
    }

    /// Sets a field; one of that name among the first `known` is replaced in its place.
    fn put(&mut self, known: usize, name: Cow<'a, str>, value: Json<'a>) {
        match self.0[..known].iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}
