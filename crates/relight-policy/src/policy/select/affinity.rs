//! A conversation stays at one target, whose cache holds its prompt already.
//!
//! The target is found by rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
//! increase hit rates", 1998): each target draws a number from the key of the conversation and its
//! own name, and the largest wins. Every replica finds the same one without a store, and if a target
//! goes, only its own conversations move.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Order, SelectPolicy};
use crate::{
    domain::{
        ids::{TargetId, TenantId},
        message::{ModelCall, Role},
        units,
    },
    policy::retry::Candidate,
};

/// Affinity of conversations to the prompt caches of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AffinityPolicy {
    /// Calls that stay at a target: `given`: those that name their conversation; `any`: others, too,
    /// by their system prompt, tools and first user message; `off`: none. Unset: `given` for the
    /// orders `shuffled` and `weighted`, else `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<AffinityKeys>,
    /// After a failover: time since its last answer for which a conversation stays with the target
    /// that took over (at most 24h). Set it to the life of the provider's prompt cache.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub keep: Duration,
}

/// Calls that stay at a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AffinityKeys {
    /// None.
    Off,
    /// Those that name their conversation.
    Given,
    /// All.
    Any,
}

/// The key of a conversation: the same on all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AffinityKey(u64);

/// A conversation whose target is to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its key.
    pub key: AffinityKey,
    /// The target that took it over from its own, if one did lately.
    pub kept_by: Option<TargetId>,
}

/// The longest time that `keep` may be.
const MAX_KEEP: Duration = Duration::from_hours(24);

// === impl AffinityPolicy ===

impl Default for AffinityPolicy {
    fn default() -> Self {
        Self {
            by: None,
            keep: Duration::from_mins(5),
        }
    }
}

// === impl SelectPolicy: affinity ===

impl SelectPolicy {
    /// Returns the calls that stay at a target.
    #[must_use]
    pub fn affinity_keys(&self) -> AffinityKeys {
        let usual = match self.order {
            Order::Shuffled | Order::Weighted => AffinityKeys::Given,
            Order::Listed | Order::LeastBusy => AffinityKeys::Off,
        };
        self.affinity.by.unwrap_or(usual)
    }

    /// Returns the key of a call's conversation; `None` if it stays nowhere. `given`: its
    /// conversation as the caller names it.
    #[must_use]
    pub fn affinity_key(
        &self,
        tenant: &TenantId,
        given: Option<&str>,
        call: &ModelCall,
    ) -> Option<AffinityKey> {
        match (self.affinity_keys(), given) {
            (AffinityKeys::Off, _) | (AffinityKeys::Given, None) => None,
            (AffinityKeys::Given | AffinityKeys::Any, Some(given)) => {
                Some(AffinityKey::of(tenant, &[b"given", given.as_bytes()]))
            }
            (AffinityKeys::Any, None) => Some(AffinityKey::of_start(tenant, call)),
        }
    }

    /// Returns the key by which a call stays with one key of a pool: as its conversation stays at a
    /// target, and in all orders if the caller names the conversation.
    #[must_use]
    pub fn pool_key(
        &self,
        tenant: &TenantId,
        given: Option<&str>,
        call: &ModelCall,
    ) -> Option<AffinityKey> {
        match (self.affinity.by, given) {
            (Some(AffinityKeys::Off), _) => None,
            (Some(AffinityKeys::Any), None) => Some(AffinityKey::of_start(tenant, call)),
            (_, given) => Some(AffinityKey::of(tenant, &[b"given", given?.as_bytes()])),
        }
    }

    /// Returns which of these targets is a conversation's own while all are well.
    pub fn own_target<'a>(
        &self,
        key: AffinityKey,
        targets: impl Iterator<Item = &'a TargetId>,
    ) -> Option<&'a TargetId> {
        targets
            .map(|target| (key.draw(target.as_str(), self.share(target)), target))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, target)| target)
    }

    fn share(&self, target: &TargetId) -> u32 {
        match self.order {
            Order::Weighted => self.weight(target),
            Order::Listed | Order::Shuffled | Order::LeastBusy => 1,
        }
    }

    /// Returns, of the candidates at `equals`, the one at which a conversation stays.
    pub(super) fn staying(
        &self,
        conversation: &Conversation,
        candidates: &[Candidate],
        equals: &[usize],
    ) -> Option<usize> {
        let name = |index: &usize| candidates.get(*index).map(|one| &one.target);
        let kept = equals.iter().find(|index| {
            conversation.kept_by.is_some() && name(index) == conversation.kept_by.as_ref()
        });
        let own = || {
            let own = self.own_target(conversation.key, equals.iter().filter_map(name))?;
            equals.iter().find(|index| name(index) == Some(own))
        };
        kept.or_else(own).copied()
    }

    /// Returns the faults of the affinity: the field and the reason.
    pub(super) fn affinity_faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let is_set = self.affinity.by.is_some_and(|by| by != AffinityKeys::Off);
        if is_set && self.order == Order::Listed {
            let reason = "has no effect with order: listed, which calls the first target";
            faults.push(("affinity.by".to_owned(), reason.to_owned()));
        }
        if self.affinity.keep > MAX_KEEP {
            faults.push(("affinity.keep".to_owned(), "must be at most 24h".to_owned()));
        }
        faults
    }
}

// === impl AffinityKey ===

impl AffinityKey {
    fn of(tenant: &TenantId, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in std::iter::once(&tenant.as_str().as_bytes()).chain(parts) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(first_bytes(hasher))
    }

    /// The key by the start of a conversation, which all its calls share: its system prompt, tools
    /// and first user message.
    fn of_start(tenant: &TenantId, call: &ModelCall) -> Self {
        let mut start = String::from("start");
        for tool in &call.tools {
            start.push('\u{0}');
            start.push_str(&tool.name);
            start.push('\u{0}');
            start.push_str(&tool.description);
        }
        for message in &call.messages {
            start.push('\u{0}');
            start.push_str(&message.joined_text());
            if message.role == Role::User {
                break;
            }
        }
        Self::of(tenant, &[start.as_bytes()])
    }

    /// Returns the number that a target or key of this share draws: of several, each is as likely to have
    /// the largest as its share says (Schindelhauer and Schomaker, "Weighted distributed hash
    /// tables", 2005).
    pub(super) fn draw(self, name: &str, share: u32) -> f64 {
        if share == 0 {
            return f64::NEG_INFINITY;
        }
        let hasher = Sha256::new()
            .chain_update(self.0.to_le_bytes())
            .chain_update(name.as_bytes());
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in a double")]
        let drawn = ((first_bytes(hasher) >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0;
        drawn.ln() / f64::from(share)
    }
}

fn first_bytes(hasher: Sha256) -> u64 {
    let digest = hasher.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests;
