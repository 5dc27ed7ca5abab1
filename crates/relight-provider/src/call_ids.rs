//! The ids of tool calls, such that every provider takes them.
//!
//! Providers disagree on ids: servers without ids, or that start to count anew with each completion,
//! leave a conversation in which two calls have one id, and an id of one provider is refused by the
//! next for its length or its letters. So a completion's calls get ids that no other call of the
//! conversation has, and a request has ids that its target takes: one that fits stays as it is, any
//! other one becomes a hash of itself, the same in the call and in its result, and the same in
//! every later request of the conversation.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::responses;
use crate::domain::{
    completion::{BlockKind, Delta},
    ids::InvocationId,
    message::{Message, ModelCall, Part, ToolCall},
    target::{Dialect, Target},
    wire::{DeltaStream, ProviderRequest},
};

/// Prefix and length of the ids that are made here: as the strictest provider wants them.
const MADE: &str = "Rl";
const SHORT: usize = 9;
/// Prefix of the ids that earlier releases made for Gemini: conversations still have them.
const MADE_BEFORE: &str = "gemini_";
/// Provider whose servers take ids of nine letters and digits only, and what the names of its
/// models hold, whoever serves them.
const STRICT: &str = "mistral";
const STRICT_MODELS: [&str; 2] = ["stral", "xtral"];

/// The ids that a target takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdForm {
    /// Of so many characters at most.
    Visible(usize),
    /// Of so many letters, digits, underscores and dashes at most.
    Plain(usize),
    /// Of nine letters and digits.
    Nine,
}

/// The ids of the calls of one request, as they are sent.
#[derive(Debug, Default)]
struct Renamed<'a> {
    taken: HashSet<String>,
    /// The last calls of each id: the message, the id that is sent, and whether a result came.
    calls: HashMap<&'a str, Vec<(usize, String, bool)>>,
}

/// Returns whether an id was made here, so that the provider does not know it.
pub(super) fn is_made(id: &str) -> bool {
    (id.len() == SHORT && id.starts_with(MADE)) || id.starts_with(MADE_BEFORE)
}

/// Returns the request with ids that its target takes.
pub(super) fn fitted(mut call: ProviderRequest) -> ProviderRequest {
    let Some(form) = IdForm::of(&call.target) else {
        return call;
    };
    let ids = Renamed::all(&call.call.messages, form, call.target.dialect);
    if ids
        .iter()
        .zip(ids_of(&call.call))
        .any(|(new, old)| new != old)
    {
        let parts = Arc::make_mut(&mut call.call).messages.iter_mut();
        let names = parts
            .flat_map(|message| &mut message.parts)
            .filter_map(|part| match part {
                Part::ToolCall(call) => Some(&mut call.id),
                Part::ToolResult(result) => Some(&mut result.call_id),
                _ => None,
            });
        names.zip(ids).for_each(|(name, id)| *name = id);
    }
    call
}

/// Returns the completion to a request, each of its calls with an id that no other call of the
/// conversation has.
pub(super) fn made_unique(
    answer: DeltaStream,
    conversation: Arc<ModelCall>,
    invocation: InvocationId,
) -> DeltaStream {
    let mut used: Vec<String> = Vec::new();
    Box::pin(answer.map(move |delta| {
        let mut delta = delta?;
        if let Delta::BlockStart {
            kind: BlockKind::ToolCall { id, .. },
            ..
        } = &mut delta
        {
            let is_used = |id: &str| {
                used.iter().any(|known| known == id)
                    || ids_of(&conversation).any(|known| known == id)
            };
            if id.is_empty() || is_used(id) {
                let seed = format!("{invocation} {}", used.len());
                let mut made = (0_u32..).map(|salt| made(&seed, salt));
                *id = made.find(|id| !is_used(id)).unwrap_or_default();
            }
            used.push(id.clone());
        }
        Ok(delta)
    }))
}

/// Returns an id of nine letters and digits that starts with the mark of those made here.
fn made(seed: &str, salt: u32) -> String {
    let hash = letters(&format!("{seed} {salt}"), SHORT - MADE.len());
    format!("{MADE}{hash}")
}

/// Returns the ids that calls and results have, in order.
fn ids_of(call: &ModelCall) -> impl Iterator<Item = &str> {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.id.as_str()),
        Part::ToolResult(result) => Some(result.call_id.as_str()),
        _ => None,
    })
}

// === impl Renamed ===

impl<'a> Renamed<'a> {
    /// Returns the ids of all calls and results, in order, as this form takes them.
    fn all(messages: &'a [Message], form: IdForm, dialect: Dialect) -> Vec<String> {
        let mut renamed = Self::default();
        let mut ids = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            for part in &message.parts {
                match part {
                    Part::ToolCall(call) if is_sent_as_it_came(call, dialect) => {
                        ids.push(call.id.clone());
                    }
                    Part::ToolCall(call) => ids.push(renamed.call(&call.id, place, form)),
                    Part::ToolResult(result) => ids.push(renamed.result(&result.call_id, form)),
                    _ => {}
                }
            }
        }
        ids
    }

    fn call(&mut self, id: &'a str, place: usize, form: IdForm) -> String {
        let other = |salt: u32| match salt {
            0 if form.takes(id) => id.to_owned(),
            salt => form.rewritten(id, salt),
        };
        let salts = 0..=u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let free = salts.map(other).find(|id| !self.taken.contains(id));
        let free = free.unwrap_or_default();
        self.taken.insert(free.clone());
        let calls = self.calls.entry(id).or_default();
        calls.retain(|(message, ..)| *message == place);
        calls.push((place, free.clone(), false));
        free
    }

    /// Returns the id of the first call of that id without a result, else of the last one.
    fn result(&mut self, id: &str, form: IdForm) -> String {
        let calls = self
            .calls
            .get_mut(id)
            .map(Vec::as_mut_slice)
            .unwrap_or_default();
        let open = calls.iter().position(|(.., is_answered)| !is_answered);
        let place = open.or(calls.len().checked_sub(1));
        match place.and_then(|place| calls.get_mut(place)) {
            Some((_, sent, is_answered)) => {
                *is_answered = true;
                sent.clone()
            }
            None if form.takes(id) => id.to_owned(),
            None => form.rewritten(id, 0),
        }
    }
}

/// Returns whether the call is an item of its own dialect, with the id in it.
fn is_sent_as_it_came(call: &ToolCall, dialect: Dialect) -> bool {
    dialect == Dialect::OpenaiResponses
        && call
            .opaque
            .as_ref()
            .is_some_and(|opaque| opaque.kind == responses::ITEM)
}

// === impl IdForm ===

impl IdForm {
    /// Returns the form of the ids that a target takes; `None` if that does not matter.
    fn of(target: &Target) -> Option<Self> {
        match target.dialect {
            Dialect::OpenaiChat => {
                let model = target.model.to_ascii_lowercase();
                let mut servers = [&target.family, &target.endpoint].into_iter();
                let is_strict = servers.any(|name| name.to_ascii_lowercase().contains(STRICT))
                    || STRICT_MODELS.iter().any(|part| model.contains(part));
                Some(if is_strict {
                    Self::Nine
                } else {
                    Self::Visible(40)
                })
            }
            Dialect::OpenaiResponses | Dialect::Anthropic | Dialect::Gemini | Dialect::Bedrock => {
                Some(Self::Plain(64))
            }
            Dialect::Scripted | Dialect::Tool => None,
        }
    }

    fn takes(self, id: &str) -> bool {
        match self {
            Self::Visible(most) => {
                (1..=most).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
            }
            Self::Plain(most) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                (1..=most).contains(&id.len()) && id.bytes().all(is_plain)
            }
            Self::Nine => id.len() == SHORT && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }

    /// Another id for this one, the same each time; with another salt, another one.
    fn rewritten(self, id: &str, salt: u32) -> String {
        let seed = match salt {
            0 => id.to_owned(),
            salt => format!("{id} {salt}"),
        };
        match self {
            Self::Nine => letters(&seed, SHORT),
            Self::Visible(_) | Self::Plain(_) => format!("call_{}", letters(&seed, 24)),
        }
    }
}

/// Returns so many letters and digits that stand for this text.
fn letters(text: &str, count: usize) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let digest = Sha256::digest(text.as_bytes());
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    digest.iter().take(count).map(letter).collect()
}

#[cfg(test)]
mod tests;
