//! Messages of the API as JSON, with the field names of the `.proto` files.
//!
//! Field names are unchanged and numbers are numbers, so that `jq .attempts[0].duration_ms` works;
//! every reader of protobuf JSON accepts this form as well.

use std::sync::OnceLock;

use crate::grpc::v1;
use anyhow::Context as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions, prost::Message};
use serde_json::Value;

/// Returns the message as JSON; `name` is its name within `relight.v1`.
pub(super) fn json(name: &str, message: &impl Message) -> anyhow::Result<Value> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(v1::DESCRIPTORS).ok());
    let described = pool
        .as_ref()
        .and_then(|pool| pool.get_message_by_name(&format!("relight.v1.{name}")))
        .with_context(|| format!("the message {name} is not described"))?;
    let message = DynamicMessage::decode(described, message.encode_to_vec().as_slice())?;
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_with_the_names_of_its_proto_file_and_numbers_as_numbers() {
        let circuit = v1::Circuit {
            state: v1::CircuitState::Open.into(),
            generation: 3,
            retry_in_ms: Some(0),
            ..v1::Circuit::default()
        };
        let expected =
            serde_json::json!({ "state": "CIRCUIT_STATE_OPEN", "generation": 3, "retry_in_ms": 0 });
        assert_eq!(json("Circuit", &circuit).unwrap(), expected);
    }
}
