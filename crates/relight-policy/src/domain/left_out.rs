//! What of a call a target cannot have because its dialect has no place for it: that is obtained in
//! another way or left out, told to the caller in both cases, and never left out in silence.

mod table;

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Map, Value};

pub use self::table::{CallParameter, DIALECTS, Handling, ParameterRow, TABLE};

use super::{
    message::{Message, ModelCall, Opaque, Part, Role},
    own_fields,
    target::{Dialect, Target},
};

/// Most names that are told; what is more is counted.
const MAX_NAMES: usize = 12;

/// Kind of an item of the Responses API that the neutral call has no word for: the item's JSON as it
/// came.
pub const ITEM: &str = "openai.item";

/// Kind of the namespace of a tool call: its name.
pub const NAMESPACE: &str = "openai.namespace";

/// Longest name that is told, in bytes.
const MAX_NAME_BYTES: usize = 40;

/// Fields of the Responses API that chat completions have as well.
const SHARED: [&str; 5] = [
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "verbosity",
];

/// Returns the fields of `extra` that a request of this dialect has: those that were written for it
/// or for none alone, without what it would be refused for, so that a call can fail over.
#[must_use]
pub fn extra_in(call: &ModelCall, dialect: Dialect) -> Option<Cow<'_, Map<String, Value>>> {
    let is_shared = |name: &str| is_carried(call, name, dialect);
    let is_had = |name: &str| match &call.extra_of {
        None => !is_hint_left_out(name, dialect),
        Some(own) => own == dialect.as_str() || is_shared(name),
    };
    if call.extra.keys().all(|name| is_had(name)) {
        return Some(Cow::Borrowed(&call.extra));
    }
    let had = call.extra.iter().filter(|(name, _)| is_had(name));
    let had: Map<String, Value> = had
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!had.is_empty()).then_some(Cow::Owned(had))
}

/// Returns whether a field that was written for one dialect goes to this other one as well.
fn is_carried(call: &ModelCall, name: &str, dialect: Dialect) -> bool {
    let is_of_responses = call.extra_of.as_deref() == Some(Dialect::OpenaiResponses.as_str());
    is_of_responses && dialect == Dialect::OpenaiChat && SHARED.contains(&name)
}

/// Returns whether a field of `extra` that was written for no dialect alone stays out of requests
/// of this one.
fn is_hint_left_out(name: &str, dialect: Dialect) -> bool {
    TABLE.iter().any(|row| {
        row.parameter == CallParameter::Extra(row.name)
            && row.name == name
            && row.handling(dialect) == Handling::Missing
    })
}

/// Returns whether a message stands at a place at which models of the Messages API that know the
/// operator's turn take it: behind the user's, and before the model's or at the end.
#[must_use]
pub fn is_placed_for_operator(messages: &[Message], place: usize) -> bool {
    let is_other = |message: &&Message| !message.role.is_operator();
    let before = messages[..place].iter().rev().find(is_other);
    let next = messages[place..].iter().find(is_other);
    before.is_some_and(|before| before.role != Role::Assistant)
        && next.is_none_or(|next| next.role == Role::Assistant)
}

/// Returns whether all instructions within the conversation stand at places at which the operator's turn is taken.
fn are_placed_for_operator(messages: &[Message]) -> bool {
    let mut later = (0..messages.len()).filter(|place| table::is_later(messages, *place));
    later.all(|place| is_placed_for_operator(messages, place))
}

/// Returns the stop sequences that a request of this dialect has, as many and such as its servers
/// take; at any other one the completion is cut here.
#[must_use]
pub fn sent_stops(call: &ModelCall, dialect: Dialect) -> Vec<&str> {
    let (max, takes_blank) = match dialect {
        Dialect::OpenaiChat => (4, true),
        Dialect::OpenaiResponses => (0, true),
        Dialect::Anthropic | Dialect::Bedrock => (usize::MAX, false),
        Dialect::Gemini => (5, true),
        Dialect::Scripted | Dialect::Tool => (usize::MAX, true),
    };
    let stops = call.stop.iter().map(String::as_str);
    stops
        .filter(|stop| takes_blank || !stop.trim().is_empty())
        .take(max)
        .collect()
}

/// Returns the handling of a parameter of this call at this target.
fn handling(row: &ParameterRow, call: &ModelCall, target: &Target) -> Handling {
    let dialect = target.dialect;
    match row.parameter {
        CallParameter::Stop if sent_stops(call, dialect).len() < call.stop.len() => {
            Handling::Emulated
        }
        CallParameter::OneToolAtOnce
            if dialect == Dialect::OpenaiChat && !target.capabilities.parallel_tools =>
        {
            Handling::Missing
        }
        // Then the API wants the tools to be named, and has no word for that none may be called.
        CallParameter::NoTool if dialect == Dialect::Bedrock && has_calls(call) => {
            Handling::Missing
        }
        CallParameter::LaterInstructions
            if dialect == Dialect::Anthropic
                && target.capabilities.tail_system_message
                && are_placed_for_operator(&call.messages) =>
        {
            Handling::Sent
        }
        // Written for another dialect, or for this one.
        CallParameter::Extra(_) if call.extra_of.is_some() => Handling::Sent,
        _ => row.handling(dialect),
    }
}

fn has_calls(call: &ModelCall) -> bool {
    let mut parts = call.messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| matches!(part, Part::ToolCall(_)))
}

/// Returns the parameters of a call that this target gets in another way or not at all, in words;
/// `None` if it gets all as it was requested. The tools of another dialect are named elsewhere
/// (`ModelCall::tools_left_out`).
#[must_use]
pub fn left_out(call: &ModelCall, target: &Target) -> Option<String> {
    let dialect = target.dialect;
    let of = |wanted: Handling| {
        let rows = TABLE.iter().filter(move |row| row.parameter.is_in(call));
        rows.filter(move |row| handling(row, call, target) == wanted)
            .map(|row| row.name)
    };
    let is_name = |name: &str| {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
    };
    let is_foreign = call
        .extra_of
        .as_deref()
        .is_some_and(|own| own != dialect.as_str());
    let missing: Vec<&str> = of(Handling::Missing).collect();
    let mut foreign: Vec<&str> = call.extra.keys().map(String::as_str).collect();
    foreign.retain(|name| is_foreign && *name != "tools" && !is_carried(call, name, dialect));
    let of_parts = own_fields::names(call, Some(dialect));
    foreign.extend(of_parts.iter().map(String::as_str));
    foreign.retain(|name| !missing.contains(name));
    foreign.sort_unstable();
    foreign.dedup();
    let named: Vec<&str> = foreign
        .iter()
        .copied()
        .filter(|name| is_name(name))
        .take(MAX_NAMES)
        .collect();
    let more = foreign.len() - named.len();
    let blocks = blocks_left_out(call, dialect);
    let names = missing.into_iter().chain(named);
    let mut words: Vec<String> = names.map(str::to_owned).collect();
    words.extend((more > 0).then(|| format!("{more} more")));
    words.extend(signatures_left_out(call, dialect));
    words.extend((blocks > 0).then(|| format!("{blocks} blocks of content")));
    let left_out = (!words.is_empty()).then(|| format!("{} left out", words.join(", ")));
    let emulated: Vec<&str> = of(Handling::Emulated).collect();
    let emulated = (!emulated.is_empty()).then(|| format!("{} emulated", emulated.join(", ")));
    let all: Vec<String> = left_out.into_iter().chain(emulated).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns the parts of the conversation, beside blocks, that only the provider that gave them
/// understands: signatures,
/// encrypted reasoning and the like, with reasoning or with calls.
fn signatures_left_out(call: &ModelCall, dialect: Dialect) -> Vec<String> {
    let own = match dialect {
        Dialect::OpenaiResponses => "openai",
        dialect => dialect.as_str(),
    };
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    let foreign = parts.filter_map(Part::opaque).filter(|opaque| {
        let is_other = owner_of_block(opaque).is_some() || opaque.owner_of_fields().is_some();
        let owner = opaque.kind.split_once('.').map(|(owner, _)| owner);
        !is_other && owner != Some(own)
    });
    let words: BTreeSet<&str> = foreign
        .map(|opaque| match opaque.kind.as_str() {
            NAMESPACE => "namespace",
            _ => "signed reasoning",
        })
        .collect();
    words.into_iter().map(str::to_owned).collect()
}

/// Returns the number of blocks and items of the conversation that only another dialect knows.
fn blocks_left_out(call: &ModelCall, dialect: Dialect) -> usize {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    let blocks = parts.filter_map(Part::as_opaque).filter_map(owner_of_block);
    blocks.filter(|own| *own != dialect.as_str()).count()
}

/// Returns the name of the dialect whose block an opaque value is; `None` if it is something else.
fn owner_of_block(opaque: &Opaque) -> Option<&str> {
    if opaque.kind == ITEM {
        Some(Dialect::OpenaiResponses.as_str())
    } else {
        opaque.kind.strip_suffix(".block")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::domain::message::{Message, Reasoning, Role, ToolCall};

    fn told(call: &ModelCall, dialect: Dialect) -> Option<String> {
        let target = Target {
            dialect,
            ..Target::of_tool("provider", "model", "family", "")
        };
        left_out(call, &target)
    }

    fn with(extra: Value, of: Option<&str>) -> ModelCall {
        let Value::Object(extra) = extra else {
            panic!("{extra}")
        };
        ModelCall {
            extra,
            extra_of: of.map(str::to_owned),
            ..ModelCall::default()
        }
    }

    #[test]
    fn what_is_signed_for_another_dialect_is_named() {
        let opaque = |kind: &str| {
            Some(Opaque {
                kind: kind.to_owned(),
                bytes: b"{}".to_vec(),
            })
        };
        for (kind, own) in [
            ("anthropic.signature", Dialect::Anthropic),
            ("anthropic.redacted_thinking", Dialect::Anthropic),
            ("bedrock.redacted", Dialect::Bedrock),
            ("gemini.thought_signature", Dialect::Gemini),
            ("openai.encrypted_content", Dialect::OpenaiResponses),
        ] {
            let thought = Part::Reasoning(Reasoning {
                text: "Hm.".to_owned(),
                opaque: opaque(kind),
            });
            let call = Part::ToolCall(ToolCall {
                id: "c".to_owned(),
                name: "look".to_owned(),
                arguments: "{}".to_owned(),
                opaque: opaque(kind),
            });
            for part in [thought, call] {
                let call = ModelCall {
                    messages: vec![Message::new(Role::Assistant, vec![part])],
                    ..ModelCall::default()
                };
                for dialect in DIALECTS {
                    let words = (dialect != own).then_some("signed reasoning left out");
                    assert_eq!(
                        told(&call, dialect).as_deref(),
                        words,
                        "{kind}, {dialect:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn fields_that_both_apis_of_openai_have_go_from_one_to_the_other() {
        let fields = json!({"service_tier": "flex", "prompt_cache_key": "k", "safety_identifier": "s",
            "verbosity": "low", "truncation": "auto"});
        let call = with(fields.clone(), Some("openai_responses"));
        let had = |dialect| extra_in(&call, dialect).map(|extra| Value::Object(extra.into_owned()));
        assert_eq!(had(Dialect::OpenaiResponses), Some(fields.clone()));
        let mut shared = fields;
        shared.as_object_mut().unwrap().remove("truncation");
        assert_eq!(had(Dialect::OpenaiChat), Some(shared));
        assert_eq!(
            told(&call, Dialect::OpenaiChat).as_deref(),
            Some("truncation left out")
        );
        assert_eq!(had(Dialect::Anthropic), None);
        let all =
            "prompt_cache_key, safety_identifier, service_tier, truncation, verbosity left out";
        assert_eq!(told(&call, Dialect::Anthropic).as_deref(), Some(all));
    }

    #[test]
    fn later_instructions_are_reported_where_no_model_takes_the_operators_turn() {
        let message = |role| Message::text(role, "w");
        let at_end = [Role::System, Role::User, Role::Developer];
        let behind_model = [Role::User, Role::Assistant, Role::System];
        for (roles, dialect, takes_turn, is_told) in [
            (&at_end[..2], Dialect::Gemini, false, false),
            (&at_end, Dialect::Gemini, false, true),
            (&at_end, Dialect::Anthropic, false, true),
            (&at_end, Dialect::Anthropic, true, false),
            (&behind_model, Dialect::Anthropic, true, true),
            (&behind_model, Dialect::OpenaiChat, true, false),
        ] {
            let call = ModelCall {
                messages: roles.iter().map(|role| message(*role)).collect(),
                ..ModelCall::default()
            };
            let mut target = Target {
                dialect,
                ..Target::of_tool("provider", "model", "family", "")
            };
            target.capabilities.tail_system_message = takes_turn;
            let words = is_told.then(|| "later system message emulated".to_owned());
            assert_eq!(left_out(&call, &target), words, "{roles:?} {dialect:?}");
        }
    }

    #[test]
    fn what_only_another_dialect_knows_is_named_and_bounded() {
        let hints = with(json!({"logit_bias": {"5": -100}, "user": "u"}), None);
        assert_eq!(
            told(&hints, Dialect::Anthropic).as_deref(),
            Some("logit_bias left out")
        );
        assert_eq!(told(&hints, Dialect::OpenaiChat), None);
        let thinking = with(json!({"thinking": {}, "tools": []}), Some("anthropic"));
        assert_eq!(told(&thinking, Dialect::Anthropic), None);
        assert_eq!(
            told(&thinking, Dialect::Gemini).as_deref(),
            Some("thinking left out")
        );
        let many: Map<String, Value> = (0..30).map(|n| (format!("p{n:02}"), json!(n))).collect();
        let words = told(
            &with(Value::Object(many), Some("anthropic")),
            Dialect::Bedrock,
        );
        assert!(words.is_some_and(|words| words.ends_with("p11, 18 more left out")));
        let odd = with(json!({"ä\r\nx: y": 1}), Some("anthropic"));
        assert_eq!(
            told(&odd, Dialect::Bedrock).as_deref(),
            Some("1 more left out")
        );
    }
}
