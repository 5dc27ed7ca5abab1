//! Groups the neutral conversation into turns of blocks, for the dialects with only two roles.
//!
//! Anthropic, Gemini and Bedrock require tool results first in the user's next turn, no turn
//! without content, and adjacent turns of one role merged. The shape of a block depends on the
//! dialect. The model's turns are not reordered.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::domain::{
    left_out::extra_in,
    message::{Message, ModelCall, Opaque, Part},
    own_fields,
    target::Dialect,
};

/// The author of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// The user; results of tools are the user's.
    User,
    /// The model.
    Model,
    /// The operator, in the middle of the conversation.
    Operator,
}

/// One turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProviderTurn {
    /// The author.
    pub(super) speaker: Speaker,
    /// Tool results, which come first, each with the id of its call.
    pub(super) results: Vec<(String, Value)>,
    /// Everything else, in order.
    pub(super) rest: Vec<Value>,
    /// Fields of its own.
    pub(super) fields: Map<String, Value>,
}

/// Turns as they are assembled.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turns: Vec<ProviderTurn>,
}

// === impl Turns ===

impl Turns {
    /// Adds a block to the speaker's turn; starts a new turn if the last one is another speaker's.
    pub(super) fn add(&mut self, speaker: Speaker, block: Value) {
        if let Some(turn) = self.turn(speaker) {
            turn.rest.push(block);
        }
    }

    /// Adds a tool's result to the user's turn.
    pub(super) fn add_result(&mut self, call_id: &str, block: Value) {
        if let Some(turn) = self.turn(Speaker::User) {
            turn.results.push((call_id.to_owned(), block));
        }
    }

    /// Returns the last tool's result of the user's turn, if that is the last turn.
    pub(super) fn last_result(&mut self) -> Option<&mut Value> {
        let turn = self.turns.last_mut()?;
        turn.results.last_mut().map(|(_, block)| block)
    }

    /// Adds fields to the last turn, if there is one.
    pub(super) fn add_fields(&mut self, fields: Map<String, Value>) {
        if let Some(turn) = self.turns.last_mut() {
            turn.fields.extend(fields);
        }
    }

    /// Returns the author of the last turn.
    pub(super) fn last(&self) -> Option<Speaker> {
        self.last_turn().map(|turn| turn.speaker)
    }

    /// Returns the last turn so far.
    pub(super) fn last_turn(&self) -> Option<&ProviderTurn> {
        self.turns.last()
    }

    /// Returns the turns, none of them empty, no two neighbours of one speaker.
    pub(super) fn into_turns(self) -> Vec<ProviderTurn> {
        self.turns
    }

    fn turn(&mut self, speaker: Speaker) -> Option<&mut ProviderTurn> {
        if self.last() != Some(speaker) {
            self.turns.push(ProviderTurn {
                speaker,
                results: Vec::new(),
                rest: Vec::new(),
                fields: Map::new(),
            });
        }
        self.turns.last_mut()
    }
}

impl ProviderTurn {
    /// Returns all blocks, results first.
    pub(super) fn into_blocks(self) -> Vec<Value> {
        self.results
            .into_iter()
            .map(|(_, block)| block)
            .chain(self.rest)
            .collect()
    }
}

/// Splits off the instructions at the front, and the messages after them.
pub(super) fn split_instructions(messages: &[Message]) -> (&[Message], &[Message]) {
    messages.split_at(
        messages
            .iter()
            .take_while(|message| message.role.is_operator())
            .count(),
    )
}

/// Returns the texts of messages, without blank ones.
pub(super) fn plain_texts(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(plain_text)
}

/// Returns words of the operator as the user's turn has them, in a dialect without another place
/// for them within the conversation: marked, so that they are not taken for the user's own.
pub(super) fn operators_words(words: &str) -> String {
    format!("<system>\n{words}\n</system>")
}

/// Returns the text of a part, unless it is blank: servers refuse blank ones.
pub(super) fn plain_text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            Some(text.as_str()).filter(|text| !text.trim().is_empty())
        }
        Part::Image(_)
        | Part::File(_)
        | Part::Reasoning(_)
        | Part::ToolCall(_)
        | Part::ToolResult(_) => None,
    }
}

/// Returns a tool call's arguments as an object; what is not one is kept as text under one key, so
/// that it can be seen.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => Value::Object(
            [("INVALID_JSON".to_owned(), Value::from(text))]
                .into_iter()
                .collect(),
        ),
    }
}

/// Returns the text behind an opaque field of that kind; `None` for another kind: it is not sent to
/// strangers.
pub(super) fn opaque_text<'a>(opaque: Option<&'a Opaque>, kind: &str) -> Option<&'a str> {
    opaque
        .filter(|opaque| opaque.kind == kind)
        .and_then(|opaque| std::str::from_utf8(&opaque.bytes).ok())
}

/// Returns the JSON behind an opaque field of that kind, such as a block that only its dialect knows.
pub(super) fn opaque_json<T: DeserializeOwned>(opaque: Option<&Opaque>, kind: &str) -> Option<T> {
    serde_json::from_str(opaque_text(opaque, kind)?).ok()
}

/// Returns the fields of a message's texts that only this dialect knows, by the place of the text:
/// the one before them, or the first one if none is.
pub(super) fn fields_of_texts(
    parts: &[Part],
    dialect: Dialect,
) -> BTreeMap<usize, Map<String, Value>> {
    let is_text = |part: &Part| matches!(part, Part::Text(_) | Part::Refusal(_));
    let mut place = parts.iter().position(is_text);
    let mut all: BTreeMap<usize, Map<String, Value>> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        if is_text(part) {
            place = Some(index);
        } else if let (Part::Reasoning(piece), Some(place)) = (part, place)
            && let Some(fields) = piece
                .opaque
                .as_ref()
                .and_then(|opaque| own_fields::read(dialect, opaque))
        {
            own_fields::add(all.entry(place).or_default(), &fields);
        }
    }
    all
}

/// Text that only its provider understands, as it came.
pub(super) fn opaque(kind: &str, text: &str) -> Opaque {
    Opaque {
        kind: kind.to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}

/// Returns a schema that the caller gave, as JSON; an empty one accepts any object.
///
/// # Errors
/// When it is not JSON; the text names what it belongs to.
pub(super) fn schema(text: &str, owner: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(serde_json::json!({"type": "object", "properties": {}}));
    }
    serde_json::from_str(text)
        .map_err(|error| format!("Invalid schema for {owner}: it is not JSON: {error}"))
}

/// Merges what the caller added for this dialect, last: objects into objects, tools beside tools
/// (one of a name that is there already replaces it), anything else replaces the existing value.
pub(super) fn merge_extra(body: &mut Map<String, Value>, call: &ModelCall, dialect: Dialect) {
    if let Some(extra) = extra_in(call, dialect) {
        merge(body, &extra);
    }
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (Some(Value::Array(old)), Value::Array(new)) if key == "tools" => {
                for tool in new {
                    add(old, tool);
                }
            }
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Adds a tool, or replaces the one of its name.
fn add(tools: &mut Vec<Value>, tool: &Value) {
    let name = tool.get("name");
    match tools
        .iter_mut()
        .find(|known| name.is_some() && known.get("name") == name)
    {
        Some(known) => *known = tool.clone(),
        None => tools.push(tool.clone()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::message::Role;

    /// Returns a conversation with instructions at its beginning and behind the user's words.
    pub(crate) fn later_instructions() -> [Message; 3] {
        [
            Message::text(Role::System, "Be kind."),
            Message::text(Role::User, "Hi"),
            Message::text(Role::Developer, "Be brief."),
        ]
    }

    #[test]
    fn results_come_first_whatever_came_before_them() {
        let mut turns = Turns::default();
        turns.add(Speaker::User, json!("text"));
        turns.add_result("a", json!("result"));
        turns.add(Speaker::Model, json!("answer"));
        let turns = turns.into_turns();
        assert_eq!(turns.len(), 2);
        assert_eq!(
            turns[0].clone().into_blocks(),
            [json!("result"), json!("text")]
        );
    }

    #[test]
    fn extra_fields_are_merged_into_objects_and_replace_the_rest() {
        let Value::Object(mut body) = json!({"a": {"b": 1, "c": [1]}, "d": 2}) else {
            panic!()
        };
        let Value::Object(extra) = json!({"a": {"c": [2]}, "d": {"e": 3}}) else {
            panic!()
        };
        let call = ModelCall {
            extra,
            extra_of: Some("anthropic".to_owned()),
            ..ModelCall::default()
        };
        merge_extra(&mut body, &call, Dialect::Gemini);
        assert_eq!(body["d"], 2, "words of another dialect are left out");
        merge_extra(&mut body, &call, Dialect::Anthropic);
        assert_eq!(
            Value::Object(body),
            json!({"a": {"b": 1, "c": [2]}, "d": {"e": 3}})
        );
    }

    #[test]
    fn tools_of_one_provider_come_beside_the_others_and_replace_those_of_their_name() {
        let Value::Object(mut body) = json!({"tools": [{"name": "a"}, {"name": "b"}]}) else {
            panic!()
        };
        let Value::Object(extra) =
            json!({"tools": [{"type": "web_search"}, {"name": "b", "type": "custom"}]})
        else {
            panic!()
        };
        let call = ModelCall {
            extra,
            ..ModelCall::default()
        };
        merge_extra(&mut body, &call, Dialect::OpenaiResponses);
        let tools = json!([{"name": "a"}, {"name": "b", "type": "custom"}, {"type": "web_search"}]);
        assert_eq!(body["tools"], tools);
    }

    #[test]
    fn hints_of_openai_reach_no_api_that_refuses_them() {
        let Value::Object(extra) =
            json!({"store": false, "verbosity": "low", "thinking": {}, "prediction": {}})
        else {
            panic!()
        };
        let call = ModelCall {
            extra,
            ..ModelCall::default()
        };
        let mut body = Map::new();
        merge_extra(&mut body, &call, Dialect::Anthropic);
        assert_eq!(Value::Object(body), json!({"thinking": {}}));
        let mut body = Map::new();
        merge_extra(&mut body, &call, Dialect::OpenaiResponses);
        assert!(!body.contains_key("prediction") && body.contains_key("store"));
    }

    proptest::proptest! {
        #[test]
        fn decimals_of_arguments_stay_what_they_are(number in proptest::num::f64::NORMAL) {
            let read = arguments(&format!("{{\"a\":{number:?}}}"));
            proptest::prop_assert_eq!(read["a"].as_f64(), Some(number));
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_as_text() {
        assert_eq!(arguments(" "), json!({}));
        assert_eq!(
            arguments("{\"b\":1,\"a\":2}").to_string(),
            "{\"b\":1,\"a\":2}"
        );
        assert_eq!(arguments("[1]"), json!({"INVALID_JSON": "[1]"}));
        assert_eq!(arguments("{\"a"), json!({"INVALID_JSON": "{\"a"}));
    }
}
