//! How the streams of each model end: evidence for whether `[DONE]` without a `finish_reason` is
//! an end.
//!
//! Some servers never send a `finish_reason`, and proxies send `[DONE]` when what is behind them
//! breaks off. One stream does not tell the two apart. A model that ended several streams in a row
//! so, or two with the same text, and none ever with a reason, always ends so; one reason is proof
//! that it sends them, and that a stream without is cut. Callers have no part in it: only ends that
//! a server wrote count.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
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
    /// Hash of the text of the last one without a reason.
    last_text: Arc<AtomicU64>,
}

/// Text of a stream, by its hash.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenText {
    bytes: DefaultHasher,
    words: WordsSeen,
}

/// Words of a text so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WordsSeen {
    #[default]
    None,
    /// Within the first.
    First,
    /// Behind the first.
    Between,
    Several,
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

    /// Returns what is to be given the text of a stream; `None` if its end needs no text to be judged.
    pub(super) fn text(&self) -> Option<SeenText> {
        let ends = self.without_reason.load(Ordering::Relaxed);
        (ends < ENOUGH).then(SeenText::default)
    }

    /// Counts a stream of this text that ended with `[DONE]` and without a reason; returns whether
    /// that is how this model always ends. The same text twice is not cut twice, unless it is a
    /// single word, which may be the first piece of many answers.
    pub(super) fn without_reason(&self, text: Option<&SeenText>) -> bool {
        let is_repeated = text.is_some_and(|text| {
            let hash = text.bytes.finish();
            self.last_text.swap(hash, Ordering::Relaxed) == hash && text.words == WordsSeen::Several
        });
        let step = if is_repeated { ENOUGH } else { 1 };
        let count = |ends: u32| (ends != SENDS_REASONS).then(|| (ends + step).min(ENOUGH));
        self.without_reason
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
            .is_ok_and(|before| before + step >= ENOUGH)
    }
}

// === impl SeenText ===

impl SeenText {
    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &str) {
        self.bytes.write(piece.as_bytes());
        for byte in piece.bytes() {
            self.words = match (self.words, byte.is_ascii_whitespace()) {
                (WordsSeen::None, false) => WordsSeen::First,
                (WordsSeen::First, true) => WordsSeen::Between,
                (WordsSeen::Between, false) => WordsSeen::Several,
                (words, _) => words,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text in pieces of these many bytes at most.
    fn seen(text: &str, size: usize) -> SeenText {
        let mut seen = SeenText::default();
        for piece in text.as_bytes().chunks(size) {
            seen.push(std::str::from_utf8(piece).unwrap());
        }
        seen
    }

    fn is_end(ends: &ModelEnds, text: &str) -> bool {
        ends.without_reason(Some(&seen(text, 4)))
    }

    #[test]
    fn several_ends_without_a_reason_and_none_with_one_are_ends() {
        let ends = StreamEnds::default();
        let never = ends.of("never");
        let texts = ["It is", "It is so", "It was", "It was so", "It"];
        let are_ends = texts.map(|text| is_end(&never, text));
        assert_eq!(are_ends, [false, false, true, true, true]);
        assert!(!is_end(&ends.of("other"), "It"), "each model for itself");
        assert!(is_end(&ends.of("never"), "It will be"));
    }

    #[test]
    fn the_same_words_twice_in_a_row_are_an_end_and_a_single_one_is_not() {
        for (texts, are_ends) in [
            (["Such is it", "Such is it"], [false, true]),
            (["It is so.", "It is"], [false, false]),
            ([" It ", " It "], [false, false]),
        ] {
            let ends = ModelEnds::default();
            assert_eq!(texts.map(|text| is_end(&ends, text)), are_ends, "{texts:?}");
        }
    }

    #[test]
    fn a_text_is_the_same_in_other_pieces() {
        let ends = ModelEnds::default();
        let text = "It is so, as it was.";
        assert!(!ends.without_reason(Some(&seen(text, 3))));
        assert!(ends.without_reason(Some(&seen(text, 7))));
    }

    #[test]
    fn a_model_that_ever_sent_a_reason_is_cut_without_one() {
        for earlier in 0..6 {
            let ends = ModelEnds::default();
            for _ in 0..earlier {
                is_end(&ends, "It is so.");
            }
            ends.with_reason();
            assert!(
                (0..9).all(|_| !is_end(&ends, "It is so.")),
                "after {earlier}"
            );
        }
    }
}
