//! The prompt cache of a provider, which counts tokens as it bills them.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

/// Time for which a prefix is held after it was last sent, as providers state it.
pub const CACHE_LIFE: Duration = Duration::from_mins(5);

/// Bytes of a message for each token that is counted.
const BYTES_PER_TOKEN: usize = 4;

/// Prefixes of prompts that were sent to one target.
#[derive(Debug, Default)]
pub struct PromptCache {
    /// The time at which each was last sent.
    held: HashMap<u64, Instant>,
}

/// Tokens of one prompt, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptTokens {
    /// All of them.
    pub all: usize,
    /// Those of the longest prefix that was held.
    pub cached: usize,
}

// === impl PromptCache ===

impl PromptCache {
    /// Counts the tokens of a prompt that is sent now, and holds all its prefixes from now on.
    pub fn read(&mut self, messages: &[Value], now: Instant) -> PromptTokens {
        let mut tokens = PromptTokens::default();
        let mut prefix = DefaultHasher::new();
        for message in messages {
            let message = message.to_string();
            message.hash(&mut prefix);
            tokens.all += message.len().div_ceil(BYTES_PER_TOKEN);
            let sent = self.held.insert(prefix.finish(), now);
            if sent.is_some_and(|sent| now.duration_since(sent) < CACHE_LIFE) {
                tokens.cached = tokens.all;
            }
        }
        tokens
    }
}

// === impl PromptTokens ===

impl std::ops::AddAssign for PromptTokens {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.cached += other.cached;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_longest_prefix_is_cached_for_five_minutes_from_its_last_use() {
        let mut cache = PromptCache::default();
        let began = Instant::now();
        let first = [json!({"role": "user", "content": "Why?"})];
        let longer = [first[0].clone(), json!({"role": "user", "content": "And?"})];
        let other = [longer[1].clone(), longer[0].clone()];
        assert_eq!(cache.read(&first, began).cached, 0);
        let read = cache.read(&longer, began + CACHE_LIFE / 2);
        assert_eq!((read.all, read.cached), (16, 8));
        assert_eq!(cache.read(&other, began + CACHE_LIFE / 2).cached, 0);
        let last = began + CACHE_LIFE;
        assert_eq!(cache.read(&longer, last).cached, 16);
        assert_eq!(cache.read(&longer, last + CACHE_LIFE).cached, 0);
    }
}
