//! The contract as the console's page reads it: the fields of the messages that it sends and gets,
//! by number.
//!
//! What holds words of callers or of models is left out, and only its length is shown: the page
//! cannot show what it cannot read.

use std::collections::BTreeMap;

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::grpc::v1;

/// Methods that the page calls.
const METHODS: [(&str, &str); 7] = [
    ("relight.v1.RecoveryService", "WatchRecovery"),
    ("relight.v1.RecoveryService", "GetInvocation"),
    ("relight.v1.RecoveryService", "ListInvocations"),
    ("relight.v1.AdminService", "GetStatus"),
    ("relight.v1.AdminService", "ListTargets"),
    ("relight.v1.AdminService", "ResetCircuit"),
    ("relight.v1.AdminService", "ForceCircuit"),
];

/// Messages that hold words of callers or of models.
const CONTENT: [&str; 2] = ["relight.v1.Message", "relight.v1.Completion"];

/// Texts that become part of a prompt.
const CONTENT_FIELDS: [&str; 1] = ["relight.v1.Attempt.injected_note"];

/// Returns the methods that the page calls, with all messages and enums that it reads or writes
/// thereby.
pub(super) fn schema() -> Value {
    let pool = DescriptorPool::decode(v1::DESCRIPTORS).unwrap_or_default();
    let mut known = Known::default();
    let mut methods = Map::new();
    for (service, name) in METHODS {
        let service = pool.get_service_by_name(service);
        let Some(method) =
            service.and_then(|service| service.methods().find(|method| method.name() == name))
        else {
            continue;
        };
        known.add_message(&method.input());
        known.add_message(&method.output());
        let path = format!("{}/{name}", method.parent_service().full_name());
        let call = json!({ "path": path, "input": method.input().full_name(), "output": method.output().full_name() });
        methods.insert(name.to_owned(), call);
    }
    json!({ "methods": methods, "messages": known.messages, "enums": known.enums })
}

/// Everything that is described so far.
#[derive(Default)]
struct Known {
    messages: BTreeMap<String, Value>,
    enums: BTreeMap<String, Value>,
}

// === impl Known ===

impl Known {
    fn add_message(&mut self, message: &MessageDescriptor) {
        if self.messages.contains_key(message.full_name()) {
            return;
        }
        // Known before its fields are looked at: messages may hold each other.
        self.messages
            .insert(message.full_name().to_owned(), Value::Null);
        let fields = message
            .fields()
            .map(|field| (field.number().to_string(), self.field(&field)));
        let fields = Value::Object(fields.collect());
        self.messages.insert(message.full_name().to_owned(), fields);
    }

    fn field(&mut self, field: &FieldDescriptor) -> Value {
        let (kind, of) = match field.kind() {
            Kind::Message(_) if field.is_map() => ("map", None),
            Kind::Message(message) if CONTENT.contains(&message.full_name()) => ("length", None),
            Kind::Message(message) => {
                self.add_message(&message);
                ("message", Some(message.full_name().to_owned()))
            }
            Kind::Enum(values) => {
                self.enums
                    .entry(values.full_name().to_owned())
                    .or_insert_with(|| words(&values));
                ("enum", Some(values.full_name().to_owned()))
            }
            Kind::String if CONTENT_FIELDS.contains(&field.full_name()) => ("length", None),
            Kind::Bytes => ("length", None),
            Kind::String => ("string", None),
            Kind::Bool => ("bool", None),
            Kind::Double => ("double", None),
            Kind::Float => ("float", None),
            Kind::Fixed32 | Kind::Sfixed32 => ("fixed32", None),
            Kind::Fixed64 | Kind::Sfixed64 => ("fixed64", None),
            Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64 => ("integer", None),
        };
        let is_optional = field.supports_presence();
        json!({ "name": field.name(), "kind": kind, "of": of, "repeated": field.is_list(), "optional": is_optional })
    }
}

/// Returns the values of an enum as people read them: `FAILURE_CLASS_RATE_LIMITED` is `rate
/// limited`.
fn words(values: &EnumDescriptor) -> Value {
    let zero = values.default_value();
    let prefix = zero.name().strip_suffix("UNSPECIFIED").unwrap_or_default();
    let word = |name: &str| {
        name.strip_prefix(prefix)
            .unwrap_or(name)
            .to_ascii_lowercase()
            .replace('_', " ")
    };
    Value::Object(
        values
            .values()
            .map(|value| (value.number().to_string(), json!(word(value.name()))))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_can_read_every_method_that_it_calls_and_no_word_of_a_prompt_or_an_answer() {
        let schema = schema();
        assert_eq!(schema["methods"].as_object().unwrap().len(), METHODS.len());
        let messages = schema["messages"].as_object().unwrap();
        for name in ["Message", "Completion", "Part", "ToolOutput", "ModelCall"] {
            assert!(
                !messages.contains_key(&format!("relight.v1.{name}")),
                "{name}"
            );
        }
        let record = &messages["relight.v1.InvocationRecord"];
        assert_eq!(
            (&record["13"]["name"], &record["13"]["kind"]),
            (&json!("completion"), &json!("length"))
        );
        assert_eq!(
            messages["relight.v1.Attempt"]["14"]["kind"], "length",
            "a note is part of a prompt"
        );
        assert_eq!(
            schema["enums"]["relight.v1.FailureClass"]["1"],
            "rate limited"
        );
    }

    #[test]
    fn every_message_and_enum_that_a_field_names_is_described() {
        let schema = schema();
        let fields = schema["messages"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|message| message.as_object().unwrap());
        for (_, field) in fields {
            let within = match field["kind"].as_str().unwrap() {
                "message" => &schema["messages"],
                "enum" => &schema["enums"],
                _ => continue,
            };
            assert!(within[field["of"].as_str().unwrap()].is_object(), "{field}");
        }
    }
}
