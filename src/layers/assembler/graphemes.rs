//! Finds where a growing text can be cut without breaking a character as people see it.
//!
//! The rules are those of Unicode's annex 29 (extended grapheme clusters), as
//! `unicode-segmentation` has them.

use unicode_segmentation::UnicodeSegmentation as _;

/// Longest grapheme that is waited for, in bytes; nothing that people write comes near it.
const LONGEST_GRAPHEME_BYTES: usize = 1024;

/// How many bytes of a growing text are settled: the last grapheme may still grow, unless it is
/// absurdly long.
pub(super) fn settled(text: &str) -> usize {
    let start = text
        .grapheme_indices(true)
        .next_back()
        .map_or(0, |(start, _)| start);
    if text.len() - start > LONGEST_GRAPHEME_BYTES {
        text.len()
    } else {
        start
    }
}

/// Whether a text still ends where a grapheme does when `more` follows it.
pub(super) fn ends_cleanly(text: &str, more: &str) -> bool {
    let Some((last, _)) = text.grapheme_indices(true).next_back() else {
        return true;
    };
    let both = format!("{}{more}", &text[last..]);
    both.graphemes(true)
        .next()
        .is_none_or(|first| first.len() <= text.len() - last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_may_belong_to_what_is_there() {
        assert!(ends_cleanly("abc", "d"));
        assert!(ends_cleanly("", "d"));
        assert!(!ends_cleanly("abe", "\u{301}d"));
        assert!(!ends_cleanly("a👩", "\u{200d}👩"));
    }

    #[test]
    fn the_last_grapheme_waits_for_what_may_belong_to_it() {
        assert_eq!(settled(""), 0);
        assert_eq!(settled("ab"), 1);
        assert_eq!(settled("ae\u{301}"), 1, "the accent belongs to its letter");
        assert_eq!(settled("a👩\u{200d}👩"), 1, "a family is one");
        assert_eq!(settled("a\r\n"), 1);
        assert_eq!(
            settled(&format!("a{}", "\u{301}".repeat(600))),
            1201,
            "but not for ever"
        );
    }
}
