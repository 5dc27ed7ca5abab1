//! Writes the JSON of a request from the call itself: nothing is built before, and long texts and
//! schemas are copied once.
//!
//! `serde_json` looks for what to escape byte by byte, and texts are most of a request.

use std::mem;

use serde_json::{Map, Value};

/// Number of bytes of a text that are searched at once for one that must be escaped.
const BLOCK: usize = 32;

/// Number of them at the end of a text, which is most of a short one.
const SHORT_BLOCK: usize = 8;

/// Writes a JSON object, field by field, without blanks.
pub(super) struct ObjectWriter<'a> {
    into: &'a mut Vec<u8>,
    is_empty: bool,
    /// Fields that are written at the end, in place of others of their names.
    last: Option<&'a Map<String, Value>>,
}

/// Writes a JSON array, item by item, without blanks.
pub(super) struct ArrayWriter<'a> {
    into: &'a mut Vec<u8>,
    is_empty: bool,
}

// === impl ObjectWriter ===

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    pub(super) fn new(into: &'a mut Vec<u8>) -> Self {
        into.push(b'{');
        Self {
            into,
            is_empty: true,
            last: None,
        }
    }

    /// Begins an object that ends with these fields; others of their names are not written.
    pub(super) fn ending_with(last: Option<&'a Map<String, Value>>, into: &'a mut Vec<u8>) -> Self {
        Self {
            last,
            ..Self::new(into)
        }
    }

    /// Writes a field, whose value `write` adds. No name may be given twice, and none holds what
    /// must be escaped.
    pub(super) fn field(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        if self.begins(name) {
            self.into.push(b'"');
            self.into.extend_from_slice(name.as_bytes());
            self.into.extend_from_slice(b"\":");
            write(self.into);
        }
    }

    /// Returns whether a field of this name is written here; what separates it from the one before
    /// then is.
    fn begins(&mut self, name: &str) -> bool {
        let is_here = self.last.is_none_or(|last| !last.contains_key(name));
        if is_here && !mem::take(&mut self.is_empty) {
            self.into.push(b',');
        }
        is_here
    }

    /// Writes a field that is a string.
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.field(name, |into| write_text(text, into));
    }

    /// Writes a field that is a word of the dialect, in which nothing must be escaped.
    pub(super) fn word(&mut self, name: &'static str, word: &'static str) {
        self.field(name, |into| {
            into.push(b'"');
            into.extend_from_slice(word.as_bytes());
            into.push(b'"');
        });
    }

    /// Writes a field that is a string, whose name is not this crate's.
    pub(super) fn foreign_text(&mut self, name: &str, text: &str) {
        self.foreign(name, |into| write_text(text, into));
    }

    /// Writes a field whose name and value are not this crate's.
    pub(super) fn foreign_value(&mut self, name: &str, value: &Value) {
        self.foreign(name, |into| {
            into.extend_from_slice(value.to_string().as_bytes());
        });
    }

    fn foreign(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if self.begins(name) {
            write_text(name, self.into);
            self.into.push(b':');
            write(self.into);
        }
    }

    /// Writes a field whose value is JSON already.
    pub(super) fn raw(&mut self, name: &'static str, json: &str) {
        self.field(name, |into| into.extend_from_slice(json.as_bytes()));
    }

    /// Writes a field that is short.
    pub(super) fn value(&mut self, name: &'static str, value: impl Into<Value>) {
        self.raw(name, &value.into().to_string());
    }

    /// Writes a field that is an object, whose fields `write` adds.
    pub(super) fn object(&mut self, name: &'static str, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        self.field(name, |into| write_object(into, write));
    }

    /// Ends the object.
    pub(super) fn end(mut self) {
        for (name, value) in self.last.take().into_iter().flatten() {
            self.foreign_value(name, value);
        }
        self.into.push(b'}');
    }
}

// === impl ArrayWriter ===

impl<'a> ArrayWriter<'a> {
    /// Begins an array.
    pub(super) fn new(into: &'a mut Vec<u8>) -> Self {
        into.push(b'[');
        Self {
            into,
            is_empty: true,
        }
    }

    /// Writes an item that is an object, whose fields `write` adds.
    pub(super) fn object(&mut self, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        if !mem::take(&mut self.is_empty) {
            self.into.push(b',');
        }
        write_object(self.into, write);
    }

    /// Writes such an item, which `merge` changes by fields of its own if there are any.
    pub(super) fn changed_by(
        &mut self,
        own: Option<&Map<String, Value>>,
        write: impl FnOnce(&mut ObjectWriter<'_>),
        merge: impl FnOnce(&Map<String, Value>, &mut Value),
    ) {
        let Some(own) = own else {
            return self.object(write);
        };
        let mut item = Vec::new();
        write_object(&mut item, write);
        let mut item: Value = serde_json::from_slice(&item).unwrap_or_default();
        merge(own, &mut item);
        self.object(|object| {
            for (name, value) in item.as_object().into_iter().flatten() {
                object.foreign_value(name, value);
            }
        });
    }

    /// Ends the array.
    pub(super) fn end(self) {
        self.into.push(b']');
    }
}

fn write_object(into: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    let mut object = ObjectWriter::new(into);
    write(&mut object);
    object.end();
}

/// Writes a text as a JSON string. What needs no escape is copied as it is, as much at once as
/// there is.
fn write_text(text: &str, into: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    into.push(b'"');
    while let Some(place) = first_to_escape(rest) {
        into.extend_from_slice(&rest[..place]);
        write_escape(rest[place], into);
        rest = &rest[place + 1..];
    }
    into.extend_from_slice(rest);
    into.push(b'"');
}

/// Returns the position of the first byte that must be escaped.
fn first_to_escape(text: &[u8]) -> Option<usize> {
    let passed = bytes_before_escape::<BLOCK>(text);
    let passed = passed + bytes_before_escape::<SHORT_BLOCK>(&text[passed..]);
    text[passed..]
        .iter()
        .position(|byte| needs_escape(*byte))
        .map(|place| passed + place)
}

/// Returns the number of bytes of the blocks before the first one in which a byte must be escaped.
fn bytes_before_escape<const LENGTH: usize>(text: &[u8]) -> usize {
    // Each without an early end, so that many bytes are compared at once.
    let holds_one = |block: &[u8; LENGTH]| {
        block
            .iter()
            .fold(false, |found, byte| found | needs_escape(*byte))
    };
    LENGTH
        * text
            .as_chunks()
            .0
            .iter()
            .take_while(|block| !holds_one(block))
            .count()
}

/// Returns whether a byte of a text may not be in a JSON string as it is (RFC 8259, section 7).
#[inline]
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

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn fields_and_items_are_written_without_blanks() {
        let object = written(|into| {
            write_object(into, |object| {
                object.field("a", |into| {
                    let mut items = ArrayWriter::new(into);
                    items.object(|item| item.value("b", 1));
                    items.object(|_| {});
                    items.end();
                });
                object.raw("c", "{ }");
                object.text("d", "e");
                object.word("w", "x");
                object.object("f", |inner| inner.value("g", json!(null)));
                object.foreign_text("\"h\"", "i");
            });
        });
        assert_eq!(
            object,
            r#"{"a":[{"b":1},{}],"c":{ },"d":"e","w":"x","f":{"g":null},"\"h\"":"i"}"#
        );
        assert_eq!(written(|into| ArrayWriter::new(into).end()), "[]");
    }

    #[test]
    fn the_last_fields_replace_others_of_their_names() {
        let Value::Object(last) = json!({"a": [2], "c": "3"}) else {
            panic!("it is an object")
        };
        let object = written(|into| {
            let mut object = ObjectWriter::ending_with(Some(&last), into);
            object.value("a", 1);
            object.value("b", 1);
            object.end();
        });
        assert_eq!(object, r#"{"b":1,"a":[2],"c":"3"}"#);
    }

    #[test]
    fn each_byte_is_escaped_wherever_it_is_in_a_text() {
        for character in (0..=0xff_u32).filter_map(char::from_u32) {
            for before in [
                0,
                1,
                SHORT_BLOCK,
                BLOCK - 1,
                BLOCK,
                BLOCK + 1,
                BLOCK + SHORT_BLOCK + 1,
            ] {
                let text = format!("{}{character}{character} more", "x".repeat(before));
                let read: String =
                    serde_json::from_str(&written(|into| write_text(&text, into))).unwrap();
                assert_eq!(read, text, "{character:?} after {before}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was(text in "[\\x00-\\x7f\u{80}-\u{ffff}]{0,200}") {
            let read: String = serde_json::from_str(&written(|into| write_text(&text, into))).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
