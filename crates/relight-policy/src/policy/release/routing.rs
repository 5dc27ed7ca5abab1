//! Which release of a subject serves an invocation.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below the 52 bits that a float holds exactly"
)]

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::ReleaseMonitor;

/// Split of the traffic of all subjects between their releases now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReleaseRouting {
    splits: BTreeMap<String, ReleaseSplit>,
}

/// Split of the traffic of one subject.
#[derive(Debug, Clone, PartialEq)]
struct ReleaseSplit {
    stable: String,
    candidate: Option<(String, f64)>,
}

// === impl ReleaseRouting ===

impl ReleaseRouting {
    /// The split that these monitors speak for.
    pub fn new<'a>(monitors: impl IntoIterator<Item = &'a ReleaseMonitor>) -> Self {
        let splits = monitors.into_iter().map(|monitor| {
            let on_trial = monitor
                .candidate
                .as_ref()
                .filter(|candidate| candidate.share > 0.0);
            let candidate =
                on_trial.map(|candidate| (candidate.version.target.clone(), candidate.share));
            (
                monitor.subject.clone(),
                ReleaseSplit {
                    stable: monitor.stable.version.target.clone(),
                    candidate,
                },
            )
        });
        Self {
            splits: splits.collect(),
        }
    }

    /// Returns the targets or tool servers that serve a subject, in order, for the caller named by
    /// `key` (a thread or an invocation): one key is served by one release as long as the shares
    /// stay. Empty if it has no releases.
    #[must_use]
    pub fn serving<'a>(&'a self, subject: &'a str, key: &str) -> Vec<&'a str> {
        let Some(split) = self.splits.get(subject) else {
            return Vec::new();
        };
        let on_trial = split
            .candidate
            .as_ref()
            .filter(|(_, share)| place(subject, key) < *share);
        let mut serving: Vec<&str> = on_trial
            .map(|(target, _)| target.as_str())
            .into_iter()
            .collect();
        serving.push(&split.stable);
        if split.stable != subject {
            serving.push(subject);
        }
        serving
    }
}

/// Returns the position of a key between 0 and 1; evenly spread over all keys.
fn place(subject: &str, key: &str) -> f64 {
    let mut hasher = DefaultHasher::new();
    (subject, key).hash(&mut hasher);
    // The upper 53 bits, which a float holds exactly.
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::policy::release::ReleaseVersion;

    #[test]
    fn a_candidate_serves_its_share_of_the_keys_and_each_key_always_or_never() {
        let version = |target: &str| ReleaseVersion {
            target: target.to_owned(),
            ..ReleaseVersion::default()
        };
        let mut monitor = ReleaseMonitor::new("fast", version("fast"), Timestamp::UNIX_EPOCH);
        monitor.configure(
            &version("fast"),
            Some((&version("next"), 0.1)),
            Timestamp::UNIX_EPOCH,
        );
        let routing = ReleaseRouting::new([&monitor]);
        let keys: Vec<String> = (0..10_000).map(|n| format!("key-{n}")).collect();
        let served = |key: &String| routing.serving("fast", key).first() == Some(&"next");
        let share = keys.iter().filter(|key| served(key)).count();
        assert!((850..1150).contains(&share), "{share} of 10000");
        assert!(keys.iter().all(|key| served(key) == served(key)));
        assert_eq!(routing.serving("other", "key"), Vec::<&str>::new());
        let on_trial = keys.iter().find(|key| served(key)).unwrap();
        assert_eq!(
            routing.serving("fast", on_trial),
            ["next", "fast"],
            "the stable release is its fallback"
        );
    }
}
