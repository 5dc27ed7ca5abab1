//! Counts the fields of an encoded request before it is decoded.
//!
//! An empty entry takes two bytes on the wire and some hundred in memory, so that the length of a message is no measure
//! of its cost. The count follows the contract's descriptors and allocates nothing.

use std::{collections::HashMap, sync::OnceLock};

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use super::v1;

/// Deepest nesting that the decoder takes.
const MAX_DEPTH: usize = 100;

/// Why a request is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// It has more fields than are allowed.
    TooMany,
    /// It is no message of this kind.
    Undecodable,
}

/// How many fields an encoded request of the method at `path` (`/relight.v1.RecoveryService/…`) has, nested ones included.
/// Methods that do not exist are left to the router.
///
/// # Errors
/// When it has more than `max`, or cannot be decoded.
pub fn count(path: &str, message: &[u8], max: usize) -> Result<usize, Entries> {
    let Some(descriptor) = inputs().get(path) else { return Ok(0) };
    let mut left = max;
    subtract(descriptor, message, MAX_DEPTH, &mut left)?;
    Ok(max - left)
}

/// The request's message by the path of its method.
fn inputs() -> &'static HashMap<String, MessageDescriptor> {
    static INPUTS: OnceLock<HashMap<String, MessageDescriptor>> = OnceLock::new();
    INPUTS.get_or_init(|| {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).unwrap_or_default();
        let paths = pool.services().flat_map(|service| {
            let methods: Vec<_> = service.methods().collect();
            methods
                .into_iter()
                .map(move |method| (format!("/{}/{}", service.full_name(), method.name()), method.input()))
        });
        paths.collect()
    })
}

/// Subtracts the fields of a message from what is left.
fn subtract(descriptor: &MessageDescriptor, mut bytes: &[u8], depth: usize, left: &mut usize) -> Result<(), Entries> {
    if depth == 0 {
        return Err(Entries::Undecodable);
    }
    while bytes.has_remaining() {
        *left = left.checked_sub(1).ok_or(Entries::TooMany)?;
        let (number, wire_type) = decode_key(&mut bytes).map_err(|_| Entries::Undecodable)?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut bytes, DecodeContext::default()).map_err(|_| Entries::Undecodable)?;
            continue;
        }
        let length = decode_varint(&mut bytes).map_err(|_| Entries::Undecodable)?;
        let length = usize::try_from(length).map_err(|_| Entries::Undecodable)?;
        let (value, rest) = bytes.split_at_checked(length).ok_or(Entries::Undecodable)?;
        bytes = rest;
        match descriptor.get_field(number).map(|field| field.kind()) {
            Some(Kind::Message(inner)) => subtract(&inner, value, depth - 1, left)?,
            Some(Kind::String) if std::str::from_utf8(value).is_err() => return Err(Entries::Undecodable),
            Some(Kind::String | Kind::Bytes) | None => {}
            // Numbers may come packed, some to a byte.
            Some(_) => *left = left.checked_sub(value.len()).ok_or(Entries::TooMany)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::grpc::v1::{Invocation, InvokeWithRecoveryRequest, Message, ModelCall, invocation::Call};

    const INVOKE: &str = "/relight.v1.RecoveryService/InvokeWithRecovery";

    fn of(messages: usize) -> Vec<u8> {
        let call = ModelCall { messages: vec![Message::default(); messages], ..ModelCall::default() };
        let invocation = Invocation { call: Some(Call::Model(call)), ..Invocation::default() };
        InvokeWithRecoveryRequest { invocation: Some(invocation) }.encode_to_vec()
    }

    #[test]
    fn empty_entries_count_like_any_others() {
        assert_eq!(count(INVOKE, &of(98), 100), Ok(100));
        assert_eq!(count(INVOKE, &of(99), 100), Err(Entries::TooMany));
        assert_eq!(count("/relight.v1.RecoveryService/Nothing", &of(99), 1), Ok(0), "the router refuses it");
    }

    #[test]
    fn what_is_no_message_is_undecodable() {
        for bytes in [&[0x0a, 0xff][..], &[0x0a, 0x05, 1], &[0xff; 12], &[0x0a, 2, 0x0a, 9]] {
            assert_eq!(count(INVOKE, bytes, 100), Err(Entries::Undecodable), "{bytes:?}");
        }
    }
}
