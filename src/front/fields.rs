//! The fields of a request's body, read one by one; what is left is passed on to the provider.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::{Map, Value, error::Category, value::RawValue};

use super::error::CallError;

/// Most pairs in `metadata`, and the longest key and value, in bytes.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

/// The fields that were not read yet, as they came.
pub(super) struct RequestFields<'a>(BTreeMap<String, &'a RawValue>);

/// Fields that may be long, so that they are read as what they are while the body is, and not once
/// more from its text.
pub(super) trait LongFields<'a>: Default {
    /// Reads the value of a field, if it is one of them; the last one of a name counts.
    ///
    /// # Errors
    /// When the field is not what it must be.
    fn read<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

// === impl RequestFields ===

impl<'a> RequestFields<'a> {
    /// Reads the fields of a body.
    ///
    /// # Errors
    /// Returns an error if it is not a JSON object.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, CallError> {
        let fields = serde_json::from_slice(body).map_err(|error| match error.classify() {
            Category::Data => CallError::invalid("body", "the body is no JSON object"),
            _ => CallError::invalid("body", format!("the body is no JSON: {error}")),
        })?;
        Ok(Self(fields))
    }

    /// Reads the fields of a body, and the long ones among them; if one of these is not what it
    /// must be, all are left among the others, so that the caller can say what is wrong.
    ///
    /// # Errors
    /// Returns an error if it is not a JSON object.
    pub(super) fn read_with_long<L: LongFields<'a>>(
        body: &'a [u8],
    ) -> Result<(Self, Option<L>), CallError> {
        // Its encoding is checked once, and not text by text.
        let read = str::from_utf8(body).ok().and_then(|body| {
            let mut reader = serde_json::Deserializer::from_str(body);
            let (fields, long) = reader.deserialize_map(BodyVisitor(PhantomData)).ok()?;
            reader.end().ok()?;
            Some((Self(fields), Some(long)))
        });
        read.map_or_else(|| Ok((Self::read(body)?, None)), Ok)
    }

    /// Returns the model, which is a route here.
    pub(super) fn model(&mut self) -> Result<String, CallError> {
        let model = self.text("model")?.filter(|model| !model.is_empty());
        model.ok_or_else(|| CallError::invalid("model", "`model` is missing: name a route"))
    }

    /// The fields as they are, by their names.
    pub(super) fn all(&self) -> &BTreeMap<String, &'a RawValue> {
        &self.0
    }

    /// Takes a field out; `null` is as good as nothing.
    ///
    /// # Errors
    /// When it is nested too deeply.
    pub(super) fn take(&mut self, name: &str) -> Result<Option<Value>, CallError> {
        self.take_raw(name)
            .map(|value| parsed(name, value))
            .transpose()
    }

    /// Takes a field out as it came; `null` is as good as nothing.
    pub(super) fn take_raw(&mut self, name: &str) -> Option<&'a RawValue> {
        self.0.remove(name).filter(|value| !is_null(value))
    }

    /// Takes a field out; `what` says what it must be.
    pub(super) fn typed<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, CallError> {
        let Some(value) = self.take(name)? else {
            return Ok(None);
        };
        read(&value)
            .map(Some)
            .ok_or_else(|| CallError::invalid(name, format!("`{name}` must be {what}")))
    }

    /// Takes a text out.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, CallError> {
        self.typed(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a boolean out.
    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, CallError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    /// Takes a number within these bounds out.
    pub(super) fn number(
        &mut self,
        name: &str,
        min: f64,
        max: f64,
    ) -> Result<Option<f64>, CallError> {
        let read = |value: &Value| value.as_f64().filter(|number| (min..=max).contains(number));
        self.typed(name, &format!("a number from {min} to {max}"), read)
    }

    /// Takes a count out.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u32>, CallError> {
        let read = |value: &Value| {
            u32::try_from(value.as_u64()?)
                .ok()
                .filter(|count| *count > 0)
        };
        self.typed(name, "a whole number above 0", read)
    }

    /// Takes the seed out.
    pub(super) fn seed(&mut self) -> Result<Option<i64>, CallError> {
        self.typed("seed", "a whole number", Value::as_i64)
    }

    /// `metadata`, and `user` as the label of that name.
    pub(super) fn labels(&mut self) -> Result<BTreeMap<String, String>, CallError> {
        let (pairs, longest_key, longest_value) = MAX_METADATA;
        let what = format!(
            "an object of at most {pairs} strings of at most {longest_value} bytes, without control characters"
        );
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        let read = |value: &Value| {
            let pair = |(key, value): (&String, &Value)| {
                let value = value
                    .as_str()
                    .filter(|value| value.len() <= longest_value && is_plain(value))?;
                (key.len() <= longest_key && is_plain(key)).then(|| (key.clone(), value.to_owned()))
            };
            let object = value.as_object().filter(|object| object.len() <= pairs)?;
            object.iter().map(pair).collect::<Option<BTreeMap<_, _>>>()
        };
        let mut labels = self.typed("metadata", &what, read)?.unwrap_or_default();
        let user = self
            .text("user")?
            .filter(|user| !user.is_empty() && user.len() <= longest_value && is_plain(user));
        labels.extend(user.map(|user| ("user".to_owned(), user)));
        Ok(labels)
    }

    /// Returns what is left, for the provider.
    ///
    /// # Errors
    /// Returns an error if a field is nested too deeply.
    pub(super) fn rest(self) -> Result<Map<String, Value>, CallError> {
        let rest = self.0.into_iter().filter(|(_, value)| !is_null(value));
        rest.map(|(name, value)| parsed(&name, value).map(|value| (name, value)))
            .collect()
    }
}

/// Reads a body's long fields as what they are, and the others as they came.
struct BodyVisitor<L>(PhantomData<L>);

impl<'de, L: LongFields<'de>> Visitor<'de> for BodyVisitor<L> {
    type Value = (BTreeMap<String, &'de RawValue>, L);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        let mut long = L::default();
        while let Some(Name(name)) = map.next_key()? {
            if !long.read(&name, &mut map)? {
                fields.insert(name.into_owned(), map.next_value()?);
            }
        }
        Ok((fields, long))
    }
}

/// Name of a field, borrowed from the body if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A JSON object that is read field by field.
#[derive(Default)]
pub(super) struct FieldByField<L>(pub(super) L);

impl<'de, L: LongFields<'de>> Deserialize<'de> for FieldByField<L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (_, fields) = deserializer.deserialize_map(BodyVisitor(PhantomData))?;
        Ok(Self(fields))
    }
}

/// A JSON object's fields, and no array of their values, which serde would take as well.
#[derive(Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads an object.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A field that is a text in most requests, which is then borrowed from the body as far as it can
/// be.
pub(super) enum TextOrValue<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// Anything else.
    Value(Box<Value>),
}

impl TextOrValue<'_> {
    /// Returns a value that is not text.
    fn of(value: impl Into<Value>) -> Self {
        Self::Value(Box::new(value.into()))
    }

    /// Returns the text, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Value(_) => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextOrValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrValueVisitor)
    }
}

/// Reads a text, or a value of any kind.
struct TextOrValueVisitor;

impl<'de> Visitor<'de> for TextOrValueVisitor {
    type Value = TextOrValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TextOrValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(TextOrValue::of(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(TextOrValue::of(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(TextOrValue::of(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(TextOrValue::of(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(items)).map(TextOrValue::of)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(TextOrValue::of)
    }
}

/// Returns a field as a value: it is JSON, but may be nested too deeply.
pub(super) fn parsed(name: &str, value: &RawValue) -> Result<Value, CallError> {
    serde_json::from_str(value.get())
        .map_err(|error| CallError::invalid(name, format!("`{name}` cannot be read: {error}")))
}

/// Returns whether a field says nothing.
pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}
