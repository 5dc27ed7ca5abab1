//! For tests: which fields of a message were left unset, derived from the contract itself.
//!
//! A field that is added to the contract and not filled in is found here, in whatever message it
//! is.

use prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage, Value, prost::Message};

use crate::grpc::v1;

/// Returns the paths of all fields in this message and its descendants that look like unset ones to
/// a client. Of a `oneof`, one set field is enough.
pub(in crate::grpc) fn unset(name: &str, message: &impl Message) -> Vec<String> {
    let pool = DescriptorPool::decode(v1::DESCRIPTORS).unwrap();
    let described = pool
        .get_message_by_name(&format!("relight.v1.{name}"))
        .unwrap();
    let message = DynamicMessage::decode(described, message.encode_to_vec().as_slice()).unwrap();
    let mut paths = Vec::new();
    look("", &message, &mut paths);
    paths
}

fn look(path: &str, message: &DynamicMessage, paths: &mut Vec<String>) {
    let at = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for choice in message
        .descriptor()
        .oneofs()
        .filter(|choice| !choice.is_synthetic())
    {
        if !choice.fields().any(|field| message.has_field(&field)) {
            paths.push(at(choice.name()));
        }
    }
    for field in message.descriptor().fields() {
        let chosen = field
            .containing_oneof()
            .is_some_and(|choice| !choice.is_synthetic());
        if !message.has_field(&field) {
            if !chosen {
                paths.push(at(field.name()));
            }
            continue;
        }
        let ours = matches!(field.kind(), Kind::Message(inner) if inner.full_name().starts_with("relight."));
        match message.get_field(&field).as_ref() {
            Value::Message(inner) if ours => look(&at(field.name()), inner, paths),
            Value::List(items) if ours => {
                let inner = items.iter().filter_map(Value::as_message);
                inner.for_each(|inner| look(&at(field.name()), inner, paths));
            }
            _ => {}
        }
    }
}
