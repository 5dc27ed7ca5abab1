//! Counts the fields of an encoded request before it is decoded.
//!
//! An empty entry takes two bytes on the wire and some hundred in memory, so that the length of a
//! message is not a measure of its cost. The count follows the contract's descriptors and
//! allocates nothing.

use std::{collections::HashMap, sync::OnceLock};

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use super::v1;

/// Deepest nesting that the decoder takes.
const MAX_DEPTH: usize = 100;

/// Reason for which a request is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// It has more fields than are allowed.
    TooMany,
    /// It is not a message of this kind.
    Undecodable,
}

/// Contents that a request of each method may hold.
struct Contract {
    /// The request's message, an index of `messages`, by the path of its method.
    requests: HashMap<String, usize>,
    /// The fields of each message by their numbers, in their order.
    messages: Vec<Vec<(u32, FieldKind)>>,
}

/// Kind of a field whose length is on the wire.
#[derive(Debug, Clone, Copy)]
enum FieldKind {
    /// A message, an index of `Contract::messages`.
    Message(usize),
    /// A text, or bytes.
    Bytes,
    /// Numbers, which may come packed, some to a byte.
    Numbers,
}

/// Returns the number of fields that an encoded request of the method at `path`
/// (`/relight.v1.RecoveryService/…`) has, including nested ones. Methods that do not exist are
/// left to the router, texts that are not UTF-8 to the decoder.
///
/// # Errors
/// Returns an error if it has more than `max`, or cannot be decoded.
pub fn count(path: &str, message: &[u8], max: usize) -> Result<usize, Entries> {
    static CONTRACT: OnceLock<Contract> = OnceLock::new();
    let contract = CONTRACT.get_or_init(Contract::of_this_build);
    let Some(request) = contract.requests.get(path) else {
        return Ok(0);
    };
    let mut left = max;
    contract.subtract(*request, message, MAX_DEPTH, &mut left)?;
    Ok(max - left)
}

// === impl Contract ===

impl Contract {
    fn of_this_build() -> Self {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).unwrap_or_default();
        let mut contract = Self {
            requests: HashMap::new(),
            messages: Vec::new(),
        };
        let mut known = HashMap::new();
        for service in pool.services() {
            for method in service.methods() {
                let request = contract.add(&method.input(), &mut known);
                contract.requests.insert(
                    format!("/{}/{}", service.full_name(), method.name()),
                    request,
                );
            }
        }
        contract
    }

    /// Adds a message and those that it may hold, but for those that are `known`. Returns its
    /// index.
    fn add(&mut self, message: &MessageDescriptor, known: &mut HashMap<String, usize>) -> usize {
        if let Some(index) = known.get(message.full_name()) {
            return *index;
        }
        let index = self.messages.len();
        known.insert(message.full_name().to_owned(), index);
        self.messages.push(Vec::new());
        let kinds = message.fields().map(|field| {
            let kind = match field.kind() {
                Kind::Message(inner) => FieldKind::Message(self.add(&inner, known)),
                Kind::String | Kind::Bytes => FieldKind::Bytes,
                _ => FieldKind::Numbers,
            };
            (field.number(), kind)
        });
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_unstable_by_key(|(number, _)| *number);
        self.messages[index] = kinds;
        index
    }

    /// Subtracts the fields of a message from what is left.
    fn subtract(
        &self,
        message: usize,
        mut bytes: &[u8],
        depth: usize,
        left: &mut usize,
    ) -> Result<(), Entries> {
        if depth == 0 {
            return Err(Entries::Undecodable);
        }
        let kinds = &self.messages[message];
        while bytes.has_remaining() {
            *left = left.checked_sub(1).ok_or(Entries::TooMany)?;
            let (number, wire_type) = decode_key(&mut bytes).map_err(|_| Entries::Undecodable)?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, number, &mut bytes, DecodeContext::default())
                    .map_err(|_| Entries::Undecodable)?;
                continue;
            }
            let length = decode_varint(&mut bytes).map_err(|_| Entries::Undecodable)?;
            let length = usize::try_from(length).map_err(|_| Entries::Undecodable)?;
            let (value, rest) = bytes.split_at_checked(length).ok_or(Entries::Undecodable)?;
            bytes = rest;
            match kinds
                .binary_search_by_key(&number, |(number, _)| *number)
                .map(|index| kinds[index].1)
            {
                Ok(FieldKind::Message(inner)) => self.subtract(inner, value, depth - 1, left)?,
                Ok(FieldKind::Numbers) => {
                    *left = left.checked_sub(value.len()).ok_or(Entries::TooMany)?;
                }
                Ok(FieldKind::Bytes) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::grpc::v1::{
        Invocation, InvokeWithRecoveryRequest, Message, ModelCall, invocation::Call,
    };

    const INVOKE: &str = "/relight.v1.RecoveryService/InvokeWithRecovery";

    fn of(messages: usize) -> Vec<u8> {
        let call = ModelCall {
            messages: vec![Message::default(); messages],
            ..ModelCall::default()
        };
        let invocation = Invocation {
            call: Some(Call::Model(call)),
            ..Invocation::default()
        };
        InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        }
        .encode_to_vec()
    }

    #[test]
    fn empty_entries_count_like_any_others() {
        assert_eq!(count(INVOKE, &of(98), 100), Ok(100));
        assert_eq!(count(INVOKE, &of(99), 100), Err(Entries::TooMany));
        assert_eq!(
            count("/relight.v1.RecoveryService/Nothing", &of(99), 1),
            Ok(0),
            "the router refuses it"
        );
    }

    #[test]
    fn what_is_no_message_is_undecodable() {
        for bytes in [
            &[0x0a, 0xff][..],
            &[0x0a, 0x05, 1],
            &[0xff; 12],
            &[0x0a, 2, 0x0a, 9],
        ] {
            assert_eq!(
                count(INVOKE, bytes, 100),
                Err(Entries::Undecodable),
                "{bytes:?}"
            );
        }
    }
}
