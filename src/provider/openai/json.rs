//! JSON of a request that borrows the texts and schemas of the call, so that long ones are written without being copied or
//! parsed.
//!
//! It writes itself, for texts are most of a request and `serde_json` looks for what to escape byte by byte.

use std::borrow::Cow;

use serde_json::Value;

/// How many bytes of a text are searched at once for one that must be escaped.
const BLOCK: usize = 32;

/// A JSON value that borrows what is long.
#[derive(Debug)]
pub(super) enum Json<'a> {
    /// Anything that is short.
    Value(Value),
    /// A string.
    Text(Cow<'a, str>),
    /// JSON as the caller gave it, which was checked to be JSON.
    Raw(&'a str),
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

// === impl Json ===

impl Json<'_> {
    /// Writes it without blanks.
    fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Value(value) => into.extend_from_slice(value.to_string().as_bytes()),
            Self::Text(text) => write_text(text, into),
            Self::Raw(json) => into.extend_from_slice(json.as_bytes()),
            Self::Array(items) => {
                into.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        into.push(b',');
                    }
                    item.write(into);
                }
                into.push(b']');
            }
            Self::Object(object) => object.write(into),
        }
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

    /// Writes it without blanks.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.push(b'{');
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                into.push(b',');
            }
            write_text(name, into);
            into.push(b':');
            value.write(into);
        }
        into.push(b'}');
    }
}

/// Writes a text as a JSON string. What needs no escape is copied as it is, as much at once as there is.
fn write_text(text: &str, into: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut copied = 0;
    into.push(b'"');
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        // Without an early end, so that many bytes are compared at once.
        if !block.iter().fold(false, |found, byte| found | needs_escape(*byte)) {
            continue;
        }
        for (place, byte) in (index * BLOCK..).zip(block) {
            if needs_escape(*byte) {
                into.extend_from_slice(&bytes[copied..place]);
                write_escape(*byte, into);
                copied = place + 1;
            }
        }
    }
    into.extend_from_slice(&bytes[copied..]);
    into.push(b'"');
}

/// Whether a byte of a text may not be in a JSON string as it is (RFC 8259, section 7).
pub(super) const fn needs_escape(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn write_escape(byte: u8, into: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
            into.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            return;
        }
    };
    into.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(value: &Json<'_>) -> String {
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn values_of_each_kind_are_written_without_blanks() {
        let inner = JsonObject::of([("a\"", Json::Array(vec![json!(1).into(), Json::Raw("{ }")])), ("b", "c".into())]);
        assert_eq!(written(&inner.into()), r#"{"a\"":[1,{ }],"b":"c"}"#);
        assert_eq!(written(&Json::Array(Vec::new())), "[]");
        assert_eq!(written(&JsonObject::default().into()), "{}");
    }

    #[test]
    fn each_byte_is_escaped_wherever_it_is_in_a_text() {
        for character in (0..=0xff_u32).filter_map(char::from_u32) {
            for before in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1] {
                let text = format!("{}{character}{character} more", "x".repeat(before));
                let read: String = serde_json::from_str(&written(&text.as_str().into())).unwrap();
                assert_eq!(read, text, "{character:?} after {before}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was(text in "[\\x00-\\x7f\u{80}-\u{ffff}]{0,200}") {
            let read: String = serde_json::from_str(&written(&text.as_str().into())).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
