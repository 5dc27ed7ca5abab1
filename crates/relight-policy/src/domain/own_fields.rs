//! Fields of messages, of their parts and of tool calls that only their own dialect knows.
//!
//! They are kept as one JSON object, as what their provider needs back: those of a call with the
//! call, those of a message or of a part of it in a block of reasoning without text. They go to
//! targets of their dialect, and are named as left out for any other.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    message::{FIELDS, FIELDS_OF_MESSAGE, FIELDS_OF_PART, ModelCall, Opaque, Part, Reasoning},
    target::Dialect,
};

/// Field of a text that holds its citations, in the dialects that have it.
pub const CITATIONS: &str = "citations";

/// Fields that hold others that are read, beside those that are kept.
const AROUND_FIELDS: [&str; 5] = ["file", "function", "image_url", "input_audio", "source"];

/// Fields that hold the texts of a tool's result.
const AROUND_TEXTS: [&str; 2] = ["content", "output"];

/// Fields of a text that are read.
const TEXT_FIELDS: [&str; 2] = ["type", "text"];

/// Field of a call that says who made it.
const CALLER: &str = "caller";

/// Fields of parts that only one dialect knows, by the place of the part.
pub type PartFields = BTreeMap<usize, Map<String, Value>>;

/// Fields of an object whose names are none of these; those that say nothing are left out.
#[must_use]
pub fn beside(known: &[&str], object: &Map<String, Value>) -> Option<Map<String, Value>> {
    let own = object
        .iter()
        .filter(|(name, value)| !known.contains(&name.as_str()) && !says_nothing(value));
    let own: Map<String, Value> = own
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!own.is_empty()).then_some(own)
}

/// Fields of what a caller wrote that are none of these; `a.b` is the field `b` of the object `a`.
#[must_use]
pub fn unread(known: &[&str], written: &Value) -> Map<String, Value> {
    let mut unread = Map::new();
    for (name, value) in written.as_object().into_iter().flatten() {
        if value.is_null() || known.contains(&name.as_str()) {
            continue;
        }
        let within = known.iter().filter_map(|it| it.split_once('.'));
        let within = within.filter_map(|(around, inner)| (around == name).then_some(inner));
        let within: Vec<&str> = within.collect();
        if within.is_empty() {
            unread.insert(name.clone(), value.clone());
            continue;
        }
        let inner = self::unread(&within, value);
        if !inner.is_empty() {
            unread.insert(name.clone(), Value::Object(inner));
        }
    }
    unread
}

/// Fields of the texts of a tool's result, in the field of this name: the texts as they came, if
/// one has any.
#[must_use]
pub fn unread_of_texts(name: &str, texts: &Value) -> Map<String, Value> {
    let mut all = texts.as_array().into_iter().flatten();
    if all.any(|text| !unread(&TEXT_FIELDS, text).is_empty()) {
        Map::from_iter([(name.to_owned(), texts.clone())])
    } else {
        Map::new()
    }
}

/// Merges fields into what is written of the same part or message: objects field by field.
pub fn merge(written: &mut Value, fields: &Map<String, Value>) {
    if let Some(written) = written.as_object_mut() {
        merge_fields(written, fields);
    }
}

/// The same for what is known to be an object.
pub fn merge_fields(held: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        match (held.get_mut(name), value) {
            (Some(Value::Object(held)), Value::Object(more)) => merge_fields(held, more),
            _ => {
                held.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Merges fields into a tool's result, whose text is in the field of this name. Texts that came
/// with fields of their own take its place, with what was added to them before and behind as texts
/// of this type.
pub fn merge_into_result(result: &mut Value, name: &str, kind: &str, fields: &Map<String, Value>) {
    let mut fields = fields.clone();
    if let Some(Value::Array(texts)) = fields.get_mut(name) {
        let joined: Vec<&str> = texts.iter().filter_map(|it| it["text"].as_str()).collect();
        let joined = joined.join("\n");
        let around = result[name]
            .as_str()
            .and_then(|all| all.split_once(&joined));
        if let Some((before, behind)) = around {
            let text = |text: &str| {
                let is_there = !text.is_empty();
                is_there.then(|| json!({"type": kind, "text": text}))
            };
            let texts = std::mem::take(texts);
            let all = text(before).into_iter().chain(texts).chain(text(behind));
            fields.insert(name.to_owned(), all.collect());
        } else {
            fields.shift_remove(name);
        }
    }
    merge(result, &fields);
}

/// Adds the fields of another piece of the same message or call, as clients of streams do: lists
/// and texts grow, objects field by field, and anything else is replaced. A text that is just what
/// is there already does not grow: some servers repeat such fields in each piece.
pub fn add(known: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        match known.get_mut(name) {
            Some(held) => grow(held, value),
            None => {
                known.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Fields as what a provider of this dialect needs back; `None` where there are none.
#[must_use]
pub fn kept(dialect: Dialect, fields: Map<String, Value>) -> Option<Opaque> {
    (!fields.is_empty()).then(|| opaque(dialect, FIELDS, fields))
}

fn opaque(dialect: Dialect, suffix: &str, fields: Map<String, Value>) -> Opaque {
    Opaque {
        kind: format!("{}{suffix}", dialect.as_str()),
        bytes: Value::Object(fields).to_string().into_bytes(),
    }
}

fn suffix_of_messages(dialect: Dialect) -> &'static str {
    if dialect == Dialect::OpenaiChat {
        FIELDS
    } else {
        FIELDS_OF_MESSAGE
    }
}

/// Fields of a message that the caller wrote, as a part of it; `None` if there are none.
#[must_use]
pub fn part_of_message(dialect: Dialect, fields: Map<String, Value>) -> Option<Part> {
    part(dialect, suffix_of_messages(dialect), fields)
}

/// Fields of a text of the model, as the part behind it; `None` if there are none.
#[must_use]
pub fn part_of_text(dialect: Dialect, fields: Map<String, Value>) -> Option<Part> {
    part(dialect, FIELDS, fields)
}

/// The citations of a text as the fields of it; none if there are no citations.
#[must_use]
pub fn cited(citations: Vec<Value>) -> Map<String, Value> {
    if citations.is_empty() {
        return Map::new();
    }
    Map::from_iter([(CITATIONS.to_owned(), Value::Array(citations))])
}

/// Fields of a part that the caller wrote, as the part behind it; `None` if there are none.
#[must_use]
pub fn part_behind(dialect: Dialect, fields: Map<String, Value>) -> Option<Part> {
    part(dialect, FIELDS_OF_PART, fields)
}

fn part(dialect: Dialect, suffix: &str, fields: Map<String, Value>) -> Option<Part> {
    (!fields.is_empty()).then(|| unspoken(opaque(dialect, suffix, fields)))
}

/// Returns a block of this kind that only one dialect knows: its targets get it as it came, and it
/// is named as left out for any other.
#[must_use]
pub fn block(kind: &str, block: &Value) -> Part {
    unspoken(Opaque {
        kind: kind.to_owned(),
        bytes: block.to_string().into_bytes(),
    })
}

fn unspoken(opaque: Opaque) -> Part {
    Part::Reasoning(Reasoning {
        text: String::new(),
        opaque: Some(opaque),
    })
}

/// Whether an opaque value is fields of any dialect.
#[must_use]
pub fn is_kept(opaque: &Opaque) -> bool {
    opaque.kind.ends_with(FIELDS)
}

/// Returns whether an opaque value is fields of the text before it, and not of the message.
#[must_use]
pub fn is_of_text(opaque: &Opaque) -> bool {
    let of_texts = [
        Dialect::Anthropic,
        Dialect::Bedrock,
        Dialect::OpenaiResponses,
    ];
    let own = opaque.kind.strip_suffix(FIELDS);
    of_texts.iter().any(|dialect| own == Some(dialect.as_str()))
}

/// Returns the fields in an opaque value; `None` if it is something else, or of another dialect.
#[must_use]
pub fn read(dialect: Dialect, opaque: &Opaque) -> Option<Map<String, Value>> {
    read_kind(dialect, FIELDS, opaque)
}

/// Returns the fields in an opaque value, if there is one; empty where [`read`] has none.
#[must_use]
pub fn fields_in(dialect: Dialect, opaque: Option<&Opaque>) -> Map<String, Value> {
    opaque
        .and_then(|opaque| read(dialect, opaque))
        .unwrap_or_default()
}

fn read_kind(dialect: Dialect, suffix: &str, opaque: &Opaque) -> Option<Map<String, Value>> {
    if opaque.kind.strip_suffix(suffix) == Some(dialect.as_str()) {
        serde_json::from_slice(&opaque.bytes).ok()
    } else {
        None
    }
}

/// Returns whether what is kept with a call says no more than that the model itself made it: so it
/// is with any call of another dialect.
#[must_use]
pub fn is_usual_of_calls(opaque: &Opaque) -> bool {
    read(Dialect::Anthropic, opaque)
        .is_some_and(|fields| fields.iter().all(|(name, value)| is_usual(name, value)))
}

fn is_usual(name: &str, value: &Value) -> bool {
    name == CALLER && value["type"] == "direct"
}

/// Returns the fields of a message, without those of its calls and parts.
#[must_use]
pub fn of_message(dialect: Dialect, parts: &[Part]) -> Map<String, Value> {
    let mut all = Map::new();
    for opaque in parts.iter().filter_map(Part::as_opaque) {
        if let Some(fields) = read_kind(dialect, suffix_of_messages(dialect), opaque) {
            add(&mut all, &fields);
        }
    }
    all
}

/// Returns the fields of the parts of a message, by the place of the part: the last one before
/// them.
#[must_use]
pub fn of_parts(dialect: Dialect, parts: &[Part]) -> PartFields {
    let mut all = PartFields::new();
    let mut last = None;
    for (place, part) in parts.iter().enumerate() {
        if !part.is_fields() {
            last = Some(place);
            continue;
        }
        let opaque = part.as_opaque();
        let fields = opaque.and_then(|opaque| read_kind(dialect, FIELDS_OF_PART, opaque));
        all.extend(last.zip(fields));
    }
    all
}

/// Names of all such fields in a conversation that are of other dialects than this one, each once;
/// without one, those of all.
#[must_use]
pub fn names(call: &ModelCall, but: Option<Dialect>) -> Vec<String> {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    let opaque = parts.filter_map(Part::opaque);
    let of_tools = call.tools.iter().filter_map(|tool| tool.own.as_ref());
    let others = opaque.chain(of_tools).filter(|opaque| {
        opaque
            .owner_of_fields()
            .is_some_and(|own| but.is_none_or(|but| but.as_str() != own))
    });
    let mut names: Vec<String> = others
        .filter_map(|opaque| serde_json::from_slice::<Map<String, Value>>(&opaque.bytes).ok())
        .flat_map(|fields| fields.into_iter().flat_map(|field| names_in(&field)))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the names of the fields that are kept in one field: its own, or those within what is
/// read.
fn names_in((name, value): &(String, Value)) -> Vec<String> {
    match value {
        Value::Object(inner) if AROUND_FIELDS.contains(&name.as_str()) => {
            inner.keys().cloned().collect()
        }
        Value::Array(texts) if AROUND_TEXTS.contains(&name.as_str()) => texts
            .iter()
            .flat_map(|text| unread(&TEXT_FIELDS, text).into_iter().map(|(name, _)| name))
            .collect(),
        _ if is_usual(name, value) => Vec::new(),
        _ => vec![name.clone()],
    }
}

/// Returns whether a completion that holds this and no text is a completion all the same: a picture
/// or a sound.
#[must_use]
pub fn is_shown(opaque: &Opaque) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice(&opaque.bytes) else {
        return false;
    };
    let is_thought = fields.get("thought").and_then(Value::as_bool) == Some(true);
    let mut media = ["audio", "images", "inlineData"].iter();
    let is_generated = fields.get("type").and_then(Value::as_str) == Some("image_generation_call");
    !is_thought && (is_generated || media.any(|name| fields.contains_key(*name)))
}

fn grow(held: &mut Value, more: &Value) {
    match (held, more) {
        (Value::Array(held), Value::Array(more)) => held.extend(more.iter().cloned()),
        (Value::Object(held), Value::Object(more)) => add(held, more),
        (Value::String(held), Value::String(more)) => {
            if held != more {
                held.push_str(more);
            }
        }
        (held, more) => *held = more.clone(),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn pieces_add_up_as_a_client_adds_them() {
        let mut all = Map::new();
        for piece in [
            json!({"details": [{"text": "a"}], "mode": "x", "sum": "He"}),
            json!({"details": [{"text": "b"}], "mode": "x", "sum": "llo"}),
            json!({"google": {"thought": true}, "tokens": 3}),
            json!({"google": {"signature": "S"}, "tokens": 4}),
        ] {
            add(&mut all, &map(piece));
        }
        let whole = json!({
            "details": [{"text": "a"}, {"text": "b"}], "mode": "x", "sum": "Hello",
            "google": {"thought": true, "signature": "S"}, "tokens": 4,
        });
        assert_eq!(Value::Object(all), whole);
    }

    #[test]
    fn what_is_known_or_says_nothing_is_not_kept() {
        let message = map(json!({"role": "assistant", "audio": null, "annotations": [], "x": {}}));
        assert_eq!(beside(&["role"], &message), None);
        let message = map(json!({"role": "assistant", "flag": false, "n": 0}));
        assert_eq!(
            beside(&["role"], &message).map(Value::Object),
            Some(json!({"flag": false, "n": 0}))
        );
    }

    #[test]
    fn what_is_not_read_is_kept_with_what_is_around_it() {
        let part =
            json!({"type": "image_url", "image_url": {"url": "u", "x": [], "y": null}, "z": 1});
        let unread = unread(&["type", "image_url.url"], &part);
        assert_eq!(
            Value::Object(unread.clone()),
            json!({"image_url": {"x": []}, "z": 1})
        );
        let mut written = json!({"type": "image_url", "image_url": {"url": "u"}});
        merge(&mut written, &unread);
        assert_eq!(
            written,
            json!({"type": "image_url", "image_url": {"url": "u", "x": []}, "z": 1})
        );
    }

    #[test]
    fn a_note_in_a_result_stands_beside_its_texts_and_their_fields() {
        let text = json!({"type": "text", "text": "rain", "x": 1});
        let other = json!({"type": "text", "text": "cold"});
        let fields = unread_of_texts("content", &json!([text, other]));
        for (written, expected) in [
            ("rain\ncold", json!([text, other])),
            (
                "rain\ncold\nA note.",
                json!([text, other, {"type": "text", "text": "\nA note."}]),
            ),
            ("something else", json!("something else")),
        ] {
            let mut result = json!({"content": written});
            merge_into_result(&mut result, "content", "text", &fields);
            assert_eq!(result["content"], expected);
        }
        assert!(unread_of_texts("content", &json!([other])).is_empty());
    }

    proptest! {
        #[test]
        fn fields_come_back_to_their_dialect_alone(name in "[a-z]{1,8}", text in ".{1,20}") {
            let fields = map(json!({name: {"of": [text]}}));
            let opaque = kept(Dialect::OpenaiChat, fields.clone()).unwrap();
            prop_assert!(is_kept(&opaque));
            prop_assert_eq!(read(Dialect::Gemini, &opaque), None);
            prop_assert_eq!(read(Dialect::OpenaiChat, &opaque), Some(fields));
        }
    }
}
