//! How the streams of each model end: evidence for whether `[DONE]` without a `finish_reason` is
//! an end.
//!
//! Some servers never send a `finish_reason`, and proxies send `[DONE]` when what is behind them
//! breaks off. One stream does not tell the two apart. A model that ended several streams in a row
//! so, and none ever with a reason, always ends so; one reason is proof that it sends them, and that
//! a stream without is cut. Callers have no part in it: only ends that a server wrote count.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

/// Number of streams without a reason, and none with one, that show that the model sends none. A
/// cut that is as likely as a whole completion happens so often in a row in one of eight models, and
/// only while no stream of it was ever whole.
const ENOUGH: u32 = 3;
/// A stream ended with a reason.
const SENDS_REASONS: u32 = u32::MAX;

/// Ends of the streams of each model; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamEnds {
    models: Arc<Mutex<HashMap<Arc<str>, ModelEnds>>>,
}

/// Ends of the streams of one model: those without a reason, unless one had it.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelEnds {
    without_reason: Arc<AtomicU32>,
}

// === impl StreamEnds ===

impl StreamEnds {
    /// Returns those of one model.
    pub(super) fn of(&self, model: &str) -> ModelEnds {
        let mut models = self.models.lock();
        if let Some(ends) = models.get(model) {
            return ends.clone();
        }
        models.entry(model.into()).or_default().clone()
    }
}

// === impl ModelEnds ===

impl ModelEnds {
    /// A stream ended with a reason.
    pub(super) fn with_reason(&self) {
        self.without_reason.store(SENDS_REASONS, Ordering::Relaxed);
    }

    /// Counts a stream of text that ended with `[DONE]` and without a reason; returns whether that is
    /// how this model always ends.
    pub(super) fn without_reason(&self) -> bool {
        let count = |ends: u32| (ends != SENDS_REASONS).then(|| (ends + 1).min(ENOUGH));
        self.without_reason
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
            .is_ok_and(|before| before + 1 >= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ends_without_a_reason_and_none_with_one_are_ends() {
        let ends = StreamEnds::default();
        let never = ends.of("never");
        let are_ends: Vec<bool> = (0..5).map(|_| never.without_reason()).collect();
        assert_eq!(are_ends, [false, false, true, true, true]);
        assert!(!ends.of("other").without_reason(), "each model for itself");
        assert!(ends.of("never").without_reason());
    }

    #[test]
    fn a_model_that_ever_sent_a_reason_is_cut_without_one() {
        for earlier in 0..6 {
            let ends = ModelEnds::default();
            for _ in 0..earlier {
                ends.without_reason();
            }
            ends.with_reason();
            assert!((0..9).all(|_| !ends.without_reason()), "after {earlier}");
        }
    }
}
