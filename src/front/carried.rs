//! The data that a provider needs back (signatures, encrypted reasoning) in a field of a protocol
//! that is not its own.
//!
//! If the protocol has a field for such a thing of its own provider, that one is used as it is.
//! Anything else goes into it as an envelope, which comes back with the conversation and is opened
//! here: so an agent may speak one protocol while its models are of another.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::domain::message::{Message, Opaque, Part};

/// Prefix of an envelope.
const MARK: &str = "relight.";

/// Contents of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Envelope {
    /// Kind and owner of the content.
    kind: String,
    /// In base64.
    bytes: String,
    /// Tool call that it belongs to; none if it belongs to the reasoning around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
}

/// Writes an envelope.
pub(super) fn seal(opaque: &Opaque, call: Option<&str>) -> String {
    let bytes = STANDARD.encode(&opaque.bytes);
    let envelope = Envelope {
        kind: opaque.kind.clone(),
        bytes,
        call: call.map(str::to_owned),
    };
    format!(
        "{MARK}{}",
        STANDARD.encode(serde_json::to_vec(&envelope).unwrap_or_default())
    )
}

/// Opens an envelope, and returns the tool call to which its content belongs; `None` if the text is
/// not an envelope.
pub(super) fn open(text: &str) -> Option<(Opaque, Option<String>)> {
    let json = STANDARD.decode(text.strip_prefix(MARK)?).ok()?;
    let Envelope { kind, bytes, call } = serde_json::from_slice(&json).ok()?;
    Some((
        Opaque {
            kind,
            bytes: STANDARD.decode(bytes).ok()?,
        },
        call,
    ))
}

/// Gives what came in an envelope of its own to the tool call that it belongs to.
pub(super) fn give_back(messages: &mut [Message], call: &str, opaque: &Opaque) {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolCall(made) = part
            && made.id == call
        {
            made.opaque = Some(opaque.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_comes_out_as_it_was_and_anything_else_is_no_envelope() {
        let opaque = Opaque {
            kind: "gemini.thought_signature".to_owned(),
            bytes: vec![0, 255, 7],
        };
        assert_eq!(open(&seal(&opaque, None)), Some((opaque.clone(), None)));
        assert_eq!(
            open(&seal(&opaque, Some("c1"))),
            Some((opaque, Some("c1".to_owned())))
        );
        for text in ["", "EqQBCg", "relight.", "relight.%%", "relight.e30="] {
            assert_eq!(open(text), None, "{text}");
        }
    }
}
