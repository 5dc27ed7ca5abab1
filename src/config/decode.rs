//! Decodes the tree into types, collecting every fault on the way instead of stopping at the first.
//!
//! Decoding stops at a fault, as serde does; then the faulty value is removed from the tree and
//! decoding starts again, until it succeeds. So the types themselves define what is valid, and
//! nothing is written twice.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, VariantAccess, Visitor, value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    fault::Fault,
    tree::{Node, Value, join},
};

/// More faults than this are not looked for.
const MAX_FAULTS: usize = 200;

/// Decodes the tree, taking out what is faulty; `None` only when not even the rest can be decoded.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(
    tree: &mut Node,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    for _ in 0..MAX_FAULTS {
        match T::deserialize(&*tree) {
            Ok(decoded) => return Some(decoded),
            Err(DecodeError { fault, .. }) => {
                let removed = tree.remove(&fault.path);
                faults.push(*fault);
                if !removed {
                    return None;
                }
            }
        }
    }
    None
}

/// A decoding fault; it has no path until it passes the value that it belongs to.
#[derive(Debug)]
pub(super) struct DecodeError {
    fault: Box<Fault>,
    /// If set, the value is of a kind that cannot be there, and may be a secret of what is meant to
    /// be within.
    hides_value: bool,
}

impl DecodeError {
    /// Gives the fault the place of the innermost value that it passes.
    fn of(mut self, node: &Node) -> Self {
        let fault = &mut *self.fault;
        if fault.path.is_empty() {
            fault.path.clone_from(&node.path);
            fault.at = node.at;
            fault.value = node.shown().filter(|_| !self.hides_value);
            fault.reason = node.without_secrets(std::mem::take(&mut fault.reason));
        }
        self
    }

    /// Gives the fault the place of the key of `member` within `node`.
    fn of_key(mut self, node: &Node, name: &str, member: &Node) -> Self {
        let fault = &mut *self.fault;
        if fault.path.is_empty() {
            // A member that was inherited keeps the path at which it is written.
            fault.path = if member.path.is_empty() {
                join(&node.path, name)
            } else {
                member.path.clone()
            };
            fault.at = member.key_at;
        }
        self
    }
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Box::new(fault),
            hides_value: false,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

impl std::error::Error for DecodeError {}

impl serde::de::Error for DecodeError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Fault::new("", reason.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let kind = match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Str(_) | Unexpected::Char(_) | Unexpected::Bytes(_) => "a text",
            Unexpected::Unit | Unexpected::Option => "nothing",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a map",
            Unexpected::NewtypeStruct
            | Unexpected::Enum
            | Unexpected::UnitVariant
            | Unexpected::NewtypeVariant
            | Unexpected::TupleVariant
            | Unexpected::StructVariant
            | Unexpected::Other(_) => "something else",
        };
        // serde names some of our types by their Rust names, which mean nothing to an operator.
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            text if text.starts_with("struct ") || text.starts_with("a map") => "a map",
            text if text.starts_with("a sequence") => "a list",
            text if text.starts_with("a string") && kind == "a number" => {
                "a text, or a value with its unit such as 30s or 8MiB,"
            }
            text if text.starts_with("a string") => "a text",
            "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
                "a whole number"
            }
            "f32" | "f64" => "a number",
            text => text,
        };
        Self {
            hides_value: matches!(expected, "a map" | "a list"),
            ..Self::custom(format!("is {kind}, where {expected} is expected"))
        }
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(match expected.to_string().as_str() {
            "u8" | "u16" | "u32" | "u64" | "usize" => {
                "must be a whole number, not negative and not that large".to_owned()
            }
            "i8" | "i16" | "i32" | "i64" | "isize" => {
                "must be a whole number and not that large".to_owned()
            }
            expected => format!("is not valid; {expected} is expected"),
        })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault::new("", "unknown field")
            .with_nearest(field, expected.iter().copied())
            .into()
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Fault::new("", format!("unknown value `{variant}`"))
            .with_nearest(variant, expected.iter().copied())
            .into()
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("`{field}` is missing"))
    }
}

macro_rules! from_environment {
    ($($method:ident: $visit:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            match self.environment_text().and_then(|text| text.parse().ok()) {
                Some(parsed) => visitor.$visit(parsed).map_err(|error: DecodeError| error.of(self)),
                None => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::Int(int) => visitor.visit_i64(*int),
            Value::Uint(uint) => visitor.visit_u64(*uint),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(members) => visitor.visit_map(Members {
                node: self,
                rest: members.iter(),
                value: None,
            }),
        }
        .map_err(|error| error.of(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    // `key:` with nothing after it is an empty section, not a fault.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_map(Members {
                node: self,
                rest: [].iter(),
                value: None,
            }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_seq(Items([].iter())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            // A choice that was a switch once has these as names of two of its values.
            Value::Bool(bool) => visitor.visit_enum(bool.to_string().into_deserializer()),
            Value::Map(members) if members.len() == 1 => visitor.visit_enum(ChoiceWithSettings {
                node: self,
                member: &members[0],
            }),
            _ => Err(DecodeError::custom(
                "is no choice; write a name, or a map of one name and its settings",
            )),
        }
        .map_err(|error| error.of(self))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    // Where text is expected, a whole number is an unquoted text: a code, a model's name, a value
    // without its unit.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = match &self.value {
            Value::Int(int) => int.to_string(),
            Value::Uint(uint) => uint.to_string(),
            Value::Null
            | Value::Bool(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => {
                return self.deserialize_any(visitor);
            }
        };
        visitor
            .visit_string(text)
            .map_err(|error: DecodeError| error.of(self))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_string(visitor)
    }

    // What comes from the environment is always text, and is read as what is expected.
    from_environment! {
        deserialize_bool: visit_bool, deserialize_i8: visit_i64, deserialize_i16: visit_i64,
        deserialize_i32: visit_i64, deserialize_i64: visit_i64, deserialize_u8: visit_u64,
        deserialize_u16: visit_u64, deserialize_u32: visit_u64, deserialize_u64: visit_u64,
        deserialize_f32: visit_f64, deserialize_f64: visit_f64,
    }

    forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

impl Node {
    fn environment_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) if self.reference.is_some() => Some(text.trim()),
            _ => None,
        }
    }
}

/// The items of a list.
struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        self.0
            .next()
            .map(|item| seed.deserialize(item).map_err(|error| error.of(item)))
            .transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The members of a map.
struct Members<'de> {
    node: &'de Node,
    rest: std::slice::Iter<'de, (String, Node)>,
    value: Option<&'de Node>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some((name, member)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(member);
        let key: StrDeserializer<'_, DecodeError> = name.as_str().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|error| error.of_key(self.node, name, member))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        match self.value.take() {
            Some(member) => seed.deserialize(member).map_err(|error| error.of(member)),
            None => Err(DecodeError::custom("has a value without a key")),
        }
    }
}

/// A choice with settings: a map of one member.
struct ChoiceWithSettings<'de> {
    node: &'de Node,
    member: &'de (String, Node),
}

impl<'de> EnumAccess<'de> for ChoiceWithSettings<'de> {
    type Error = DecodeError;
    type Variant = &'de Node;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, &'de Node), DecodeError> {
        let (name, settings) = self.member;
        let key: StrDeserializer<'_, DecodeError> = name.as_str().into_deserializer();
        let variant = seed
            .deserialize(key)
            .map_err(|error| error.of_key(self.node, name, settings))?;
        Ok((variant, settings))
    }
}

impl<'de> VariantAccess<'de> for &'de Node {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match &self.value {
            Value::Null => Ok(()),
            Value::Map(members) if members.is_empty() => Ok(()),
            _ => Err(DecodeError::custom("takes no settings").of(self)),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        seed.deserialize(self).map_err(|error| error.of(self))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_map(visitor)
    }
}
