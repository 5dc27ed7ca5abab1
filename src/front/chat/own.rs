//! Values that a provider needs back with a completion, in fields of this protocol's messages and
//! tool calls.
//!
//! Fields that a provider of this protocol gave are there as it gave them. What any other one gave
//! (signatures, encrypted reasoning, blocks) is in an envelope in a field that clients return:
//! `reasoning_details` of a message, `extra_content` of a tool call. Pictures of any provider are in
//! `images`, each with an envelope for all else that is to be returned with it.

use serde_json::{Map, Value, json};

use crate::{
    domain::{
        message::{Opaque, Reasoning},
        own_fields,
        target::Dialect,
    },
    front::carried,
};

/// The field of a message that holds envelopes, in a list.
const DETAILS: &str = "reasoning_details";

/// The field of a message that holds pictures, in a list.
const IMAGES: &str = "images";

/// The field of a tool call that holds an envelope, in an object.
const EXTRA: &str = "extra_content";

/// The name of the envelope in that object, and in a picture.
const ENVELOPE: &str = "relight";

/// Fields of a tool call that are read elsewhere.
const CALL_FIELDS: [&str; 4] = ["function", "id", "index", "type"];

/// Returns the fields of a message for a block of reasoning of it.
pub(super) fn of_reasoning(text: &str, opaque: &Opaque) -> Map<String, Value> {
    if let Some(fields) = own_fields::read(Dialect::OpenaiChat, opaque) {
        return fields;
    }
    if let Some(image) = image(opaque) {
        return Map::from_iter([(IMAGES.to_owned(), json!([image]))]);
    }
    let sealed = carried::seal(opaque, None);
    let detail = if text.is_empty() {
        json!({"type": "reasoning.encrypted", "data": sealed})
    } else {
        json!({"type": "reasoning.text", "text": text, "signature": sealed})
    };
    Map::from_iter([(DETAILS.to_owned(), json!([detail]))])
}

/// Returns the fields of a tool call for what its provider needs back with it.
pub(super) fn of_call(opaque: &Opaque) -> Map<String, Value> {
    if own_fields::is_usual_of_calls(opaque) {
        return Map::new();
    }
    own_fields::read(Dialect::OpenaiChat, opaque).unwrap_or_else(|| {
        let sealed = carried::seal(opaque, None);
        Map::from_iter([(EXTRA.to_owned(), json!({ENVELOPE: sealed}))])
    })
}

/// Reads what came back in fields of the model's message, in its order.
pub(super) fn read_message(mut fields: Map<String, Value>) -> Vec<Reasoning> {
    let mut read = Vec::new();
    for name in [DETAILS, IMAGES] {
        let opened = if name == DETAILS {
            opened
        } else {
            opened_image
        };
        if let Some(Value::Array(items)) = fields.get_mut(name) {
            items.retain(|item| {
                let opened = opened(item);
                let is_envelope = opened.is_some();
                read.extend(opened);
                !is_envelope
            });
        }
    }
    let own = own_fields::beside(&[], &fields)
        .and_then(|fields| own_fields::kept(Dialect::OpenaiChat, fields));
    read.extend(own.map(|opaque| Reasoning {
        text: String::new(),
        opaque: Some(opaque),
    }));
    read
}

/// Reads what came back in fields of a tool call.
pub(super) fn read_call(call: &Value) -> Option<Opaque> {
    let fields = own_fields::beside(&CALL_FIELDS, call.as_object()?)?;
    let sealed = fields.get(EXTRA).and_then(|extra| extra.get(ENVELOPE));
    let opened = sealed.and_then(Value::as_str).and_then(carried::open);
    opened.map_or_else(
        || own_fields::kept(Dialect::OpenaiChat, fields),
        |(opaque, _)| Some(opaque),
    )
}

fn opened(detail: &Value) -> Option<Reasoning> {
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let (opaque, _) = carried::open(text("data").or_else(|| text("signature"))?)?;
    Some(Reasoning {
        text: text("text").unwrap_or_default().to_owned(),
        opaque: Some(opaque),
    })
}

/// Returns a picture among what only another provider knows, as messages of this protocol have it.
fn image(opaque: &Opaque) -> Option<Value> {
    let mut block: Value = serde_json::from_slice(&opaque.bytes).ok()?;
    let mime_type = mime_type(&block)?;
    let Value::String(data) = data_of(&mut block)?.take() else {
        return None;
    };
    let rest = Opaque {
        kind: opaque.kind.clone(),
        bytes: block.to_string().into_bytes(),
    };
    let url = format!("data:{mime_type};base64,{data}");
    let sealed = carried::seal(&rest, None);
    Some(json!({"type": "image_url", "image_url": {"url": url}, ENVELOPE: sealed}))
}

fn opened_image(image: &Value) -> Option<Reasoning> {
    let (mut opaque, _) = carried::open(image.get(ENVELOPE)?.as_str()?)?;
    let url = image.pointer("/image_url/url")?.as_str()?;
    let (_, data) = url.split_once(";base64,")?;
    let mut block: Value = serde_json::from_slice(&opaque.bytes).ok()?;
    *data_of(&mut block)? = json!(data);
    opaque.bytes = block.to_string().into_bytes();
    Some(Reasoning {
        text: String::new(),
        opaque: Some(opaque),
    })
}

/// Returns the type of the picture that a part of Gemini's, or an item of the Responses API, is.
fn mime_type(block: &Value) -> Option<String> {
    let text = |name: &str| block.pointer(name).and_then(Value::as_str);
    if text("/type") == Some("image_generation_call") {
        return Some(format!("image/{}", text("/output_format").unwrap_or("png")));
    }
    let is_thought = block.get("thought").and_then(Value::as_bool) == Some(true);
    let own = text("/inlineData/mimeType").filter(|own| own.starts_with("image/") && !is_thought);
    own.map(str::to_owned)
}

/// Returns the picture itself, in base64.
fn data_of(block: &mut Value) -> Option<&mut Value> {
    let place = if block.get("inlineData").is_some() {
        "/inlineData/data"
    } else {
        "/result"
    };
    block.pointer_mut(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque(kind: &str) -> Opaque {
        Opaque {
            kind: kind.to_owned(),
            bytes: b"{\"images\":[1]}".to_vec(),
        }
    }

    #[test]
    fn what_is_given_of_reasoning_and_calls_is_read_back() {
        for kind in ["openai_chat.fields", "anthropic.block"] {
            let given = opaque(kind);
            let reasoning = Reasoning {
                text: String::new(),
                opaque: Some(given.clone()),
            };
            assert_eq!(read_message(of_reasoning("", &given)), [reasoning]);
            let mut call = of_call(&given);
            call.insert("id".to_owned(), json!("c"));
            assert_eq!(read_call(&Value::Object(call)), Some(given));
        }
        let signature = opaque("anthropic.signature");
        let reasoning = Reasoning {
            text: "Hm.".to_owned(),
            opaque: Some(signature.clone()),
        };
        assert_eq!(read_message(of_reasoning("Hm.", &signature)), [reasoning]);
    }

    #[test]
    fn pictures_of_any_provider_are_shown_and_read_back() {
        for (kind, block) in [
            (
                "gemini.block",
                json!({"inlineData": {"mimeType": "image/png", "data": "AQID"}, "thoughtSignature": "S"}),
            ),
            (
                "openai.item",
                json!({"type": "image_generation_call", "id": "ig_1", "result": "AQID"}),
            ),
        ] {
            let given = Opaque {
                kind: kind.to_owned(),
                bytes: block.to_string().into_bytes(),
            };
            let fields = of_reasoning("", &given);
            assert_eq!(
                fields[IMAGES][0]["image_url"]["url"],
                "data:image/png;base64,AQID"
            );
            let reasoning = Reasoning {
                text: String::new(),
                opaque: Some(given),
            };
            assert_eq!(read_message(fields), [reasoning]);
        }
    }

    #[test]
    fn fields_beside_envelopes_stay_together() {
        let mut fields = of_reasoning("", &opaque("anthropic.block"));
        let theirs = json!({"type": "reasoning.encrypted", "data": "ENC"});
        if let Some(Value::Array(details)) = fields.get_mut(DETAILS) {
            details.push(theirs.clone());
        }
        let read = read_message(fields);
        assert_eq!(read.len(), 2);
        let own = read[1].opaque.as_ref().unwrap();
        let own = own_fields::read(Dialect::OpenaiChat, own).unwrap();
        assert_eq!(Value::Object(own), json!({DETAILS: [theirs]}));
    }
}
