//! Finds the places at which a growing text can be cut without breaking a character as people see
//! it, or a text at which the completion ends.
//!
//! The rules are those of Unicode's annex 29 (extended grapheme clusters), as
//! `unicode-segmentation` has them.

use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::domain::{invocation::RewindMode, stop_sequence::unsure_bytes};

/// Longest grapheme that is waited for, in bytes; nothing that people write comes near it.
const LONGEST_GRAPHEME_BYTES: usize = 1024;

/// Places at which a delta may end.
#[derive(Debug, Clone, Default)]
pub struct DeltaEnds {
    unit: TextUnit,
    /// Texts at which the completion ends. What may be the beginning of one waits: if the completion breaks
    /// there, it is no part of what another attempt continues, which then writes it whole.
    stops: Arc<[String]>,
}

/// The smallest piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TextUnit {
    /// A grapheme: the last one of a text waits until it cannot grow any more.
    #[default]
    Grapheme,
    /// A character, for which nothing waits.
    Character,
}

// === impl DeltaEnds ===

impl DeltaEnds {
    /// Returns the places at which a delta may end in this mode, for a completion that ends at one of
    /// these texts: a client that cannot take back gets everything else at once.
    pub fn of(mode: Option<RewindMode>, stops: &[String]) -> Self {
        let unit = match mode {
            Some(RewindMode::AppendOnly) => TextUnit::Character,
            Some(RewindMode::Rewind | RewindMode::HoldBack { .. } | RewindMode::Atomic) | None => {
                TextUnit::Grapheme
            }
        };
        let stops = stops.into();
        Self { unit, stops }
    }

    /// Returns the number of settled bytes of a growing text: the last grapheme may still grow,
    /// unless it is absurdly long.
    pub(super) fn settled(&self, text: &str) -> usize {
        let start = text
            .grapheme_indices(true)
            .next_back()
            .map_or(0, |(start, _)| start);
        let is_whole =
            self.unit == TextUnit::Character || text.len() - start > LONGEST_GRAPHEME_BYTES;
        let end = if is_whole { text.len() } else { start };
        end.min(self.sure(text))
    }

    /// Returns the number of bytes of a text without what may be the beginning of a stop sequence.
    pub(super) fn sure(&self, text: &str) -> usize {
        text.len() - unsure_bytes(text, &self.stops)
    }

    /// Returns whether a delta may end between this text and what follows it.
    pub(super) fn fit(&self, text: &str, more: &str) -> bool {
        let Some((last, _)) = text.grapheme_indices(true).next_back() else {
            return true;
        };
        let both = format!("{}{more}", &text[last..]);
        self.unit == TextUnit::Character
            || both
                .graphemes(true)
                .next()
                .is_none_or(|first| first.len() <= text.len() - last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(unit: TextUnit) -> DeltaEnds {
        let stops = Arc::default();
        DeltaEnds { unit, stops }
    }

    #[test]
    fn what_follows_may_belong_to_what_is_there() {
        assert!(by(TextUnit::Grapheme).fit("abc", "d"));
        assert!(by(TextUnit::Grapheme).fit("", "d"));
        assert!(!by(TextUnit::Grapheme).fit("abe", "\u{301}d"));
        assert!(!by(TextUnit::Grapheme).fit("a👩", "\u{200d}👩"));
    }

    #[test]
    fn the_last_grapheme_waits_for_what_may_belong_to_it() {
        assert_eq!(by(TextUnit::Grapheme).settled(""), 0);
        assert_eq!(by(TextUnit::Grapheme).settled("ab"), 1);
        assert_eq!(
            by(TextUnit::Grapheme).settled("ae\u{301}"),
            1,
            "the accent belongs to its letter"
        );
        assert_eq!(
            by(TextUnit::Grapheme).settled("a👩\u{200d}👩"),
            1,
            "a family is one"
        );
        assert_eq!(by(TextUnit::Grapheme).settled("a\r\n"), 1);
        assert_eq!(
            by(TextUnit::Grapheme).settled(&format!("a{}", "\u{301}".repeat(600))),
            1201,
            "but not for ever"
        );
    }

    #[test]
    fn at_any_character_nothing_waits() {
        assert_eq!(by(TextUnit::Character).settled("ab"), 2);
        assert!(by(TextUnit::Character).fit("abe", "\u{301}d"));
    }
    #[test]
    fn what_may_begin_a_stop_sequence_waits() {
        let stops = ["HALT".to_owned(), "ALT!".to_owned()];
        for mode in [None, Some(RewindMode::AppendOnly)] {
            let ends = DeltaEnds::of(mode, &stops);
            assert_eq!(ends.settled("One. HAL"), 5);
            assert_eq!(ends.sure("One. ALT"), 5);
            assert_eq!(ends.sure("One. HALF"), 9);
        }
    }
}
