//! Separates the new part of a continuation from its repetition.
//!
//! Some servers send the prefilled text again before its continuation: that echo is removed. Others
//! ignore the prefill and start anew: that is another completion, and appended to the prefilled text it
//! would be nonsense that looks complete.

use std::sync::Arc;

use super::{LOOK_BYTES, OVERLAP_BYTES, OVERLAP_WORDS, Way, overlap};

/// Nature of a piece of a continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stitched {
    /// It takes more of it to know.
    Undecided,
    /// New text that follows the prefilled text; empty if everything was repeated.
    New(String),
    /// The start of another completion.
    Anew(String),
}

/// Decides, as a continuation comes in, which part of it is new.
#[derive(Debug)]
pub struct ContinuationStitcher {
    held: Arc<str>,
    way: Way,
    /// Text that came while it was not decided.
    pending: String,
    decided: bool,
}

// === impl ContinuationStitcher ===

impl ContinuationStitcher {
    /// Stitches a continuation that was requested in this way to `held`.
    #[must_use]
    pub fn new(held: Arc<str>, way: Way) -> Self {
        Self {
            held,
            way,
            pending: String::new(),
            decided: false,
        }
    }

    /// Returns the text that is continued.
    #[must_use]
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Processes the next piece.
    pub fn push(&mut self, text: &str) -> Stitched {
        if self.decided {
            return Stitched::New(text.to_owned());
        }
        self.pending.push_str(text);
        self.decide(false)
    }

    /// Processes the end of the continuation.
    pub fn finish(&mut self) -> Stitched {
        if self.decided {
            Stitched::New(String::new())
        } else {
            self.decide(true)
        }
    }

    fn decide(&mut self, is_over: bool) -> Stitched {
        let stitched = stitched(&self.held, &self.pending, self.way, is_over);
        self.decided = stitched != Stitched::Undecided;
        stitched
    }
}

fn stitched(held: &str, more: &str, way: Way, is_over: bool) -> Stitched {
    let new = |text: &str| Stitched::New(text.to_owned());
    if more.is_empty() {
        return if is_over {
            new("")
        } else {
            Stitched::Undecided
        };
    }
    if let Some(rest) = more.strip_prefix(held) {
        return new(rest);
    }
    // An echo may differ in the whitespace before it, which is significant only if it is long.
    let bare_held = held.trim_start();
    let bare = more.trim_start();
    if let Some(rest) = bare
        .strip_prefix(bare_held)
        .filter(|_| is_unmistakable(bare_held))
    {
        return new(rest);
    }
    if !is_over && (held.starts_with(more) || bare_held.starts_with(bare)) {
        return Stitched::Undecided;
    }
    let common = common_prefix(bare_held, bare);
    let follows_a_blank = bare.len() < more.len();
    let most_of_it = !follows_a_blank && !common.is_empty() && common.len() * 2 >= bare_held.len();
    if is_unmistakable(common) || most_of_it {
        return Stitched::Anew(more.to_owned());
    }
    let begins_with_letter = more.starts_with(char::is_alphanumeric);
    if way == Way::Prompt || begins_with_letter {
        if !is_over && more.len() < LOOK_BYTES && held.contains(more) {
            return Stitched::Undecided;
        }
        let repeated = overlap(held, more);
        if repeated > 0 {
            return new(&more[repeated..]);
        }
    }
    if way == Way::Prefill && !joins(held, more) {
        Stitched::Anew(more.to_owned())
    } else {
        new(more)
    }
}

/// Returns whether a text is too long to be repeated by chance.
fn is_unmistakable(text: &str) -> bool {
    text.len() >= OVERLAP_BYTES && text.split_whitespace().count() >= OVERLAP_WORDS
}

fn common_prefix<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one
        .chars()
        .zip(other.chars())
        .take_while(|(left, right)| left == right);
    &one[..same.map(|(left, _)| left.len_utf8()).sum()]
}

/// Returns whether a model that continues right behind `held` can have written `more`: no sentence
/// starts without a space behind the end of the last one, or in the middle of a word.
fn joins(held: &str, more: &str) -> bool {
    let mut ends = held.chars().rev();
    let (Some(last), before) = (ends.next(), ends.next()) else {
        return true;
    };
    let abbreviation = last == '.' && before.is_some_and(char::is_uppercase);
    let behind_word =
        last.is_lowercase() || (matches!(last, '.' | '!' | '?' | ',' | ';') && !abbreviation);
    !(behind_word && more.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HELD: &str = "The harbour opens at six, and the first boats leave";

    fn play(held: &str, way: Way, pieces: &[&str]) -> Result<String, String> {
        let mut stitcher = ContinuationStitcher::new(held.into(), way);
        let mut whole = held.to_owned();
        let pushed: Vec<Stitched> = pieces.iter().map(|piece| stitcher.push(piece)).collect();
        for stitched in pushed.into_iter().chain([stitcher.finish()]) {
            match stitched {
                Stitched::Undecided => {}
                Stitched::New(text) => whole.push_str(&text),
                Stitched::Anew(text) => return Err(text),
            }
        }
        Ok(whole)
    }

    #[test]
    fn a_continuation_is_joined_and_an_echo_of_the_begun_text_is_left_out() {
        let whole = format!("{HELD} at once.");
        let echo = format!("{HELD} at once.");
        let blank = format!(" {HELD} at once.");
        for more in [" at once.", &echo, &blank] {
            assert_eq!(
                play(HELD, Way::Prefill, &[more]),
                Ok(whole.clone()),
                "{more}"
            );
            let pieces: Vec<&str> = more.split_inclusive(' ').collect();
            assert_eq!(
                play(HELD, Way::Prefill, &pieces),
                Ok(whole.clone()),
                "{more} in pieces"
            );
        }
        assert_eq!(
            play(HELD, Way::Prefill, &[HELD]),
            Ok(HELD.to_owned()),
            "nothing but the echo"
        );
        assert_eq!(
            play(HELD, Way::Prefill, &["the first boats leave at once."]),
            Ok(whole.clone()),
            "its end alone"
        );
        assert_eq!(
            play(HELD, Way::Prefill, &["-taking."]),
            Ok(format!("{HELD}-taking."))
        );
        assert_eq!(
            play(HELD, Way::Prefill, &["rs wait."]),
            Ok(format!("{HELD}rs wait.")),
            "within a word"
        );
    }

    #[test]
    fn a_text_that_begins_anew_is_never_joined() {
        for more in [
            "The harbour opens at six, and then the fog comes in.",
            "The harbour opens at six",
            "  The harbour opens at noon.",
            "Sure! Here is the text.",
            "Boats leave early.",
        ] {
            assert!(play(HELD, Way::Prefill, &[more]).is_err(), "{more}");
        }
        assert!(play("One two.", Way::Prefill, &["Three."]).is_err());
        assert!(
            play("one two three", Way::Prefill, &["one two four"]).is_err(),
            "short, but most of it"
        );
        assert_eq!(
            play("made in the U.", Way::Prefill, &["S. in May"]),
            Ok("made in the U.S. in May".to_owned())
        );
    }

    proptest! {
        #[test]
        fn however_an_echo_comes_the_whole_text_is_there_once(
            words in prop::collection::vec("[a-z]{1,8}", 8..40),
            at in 5_usize..30,
            sizes in prop::collection::vec(1_usize..9, 1..9),
        ) {
            let text = words.join(" ");
            let held: String = text.chars().take(at.min(text.len() - 1)).collect();
            let held = held.trim_end();
            let mut pieces = Vec::new();
            let mut rest = text.as_str();
            let mut sizes = sizes.iter().cycle();
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(piece);
                rest = tail;
            }
            prop_assert_eq!(play(held, Way::Prefill, &pieces), Ok(text.clone()));
        }
    }
}
