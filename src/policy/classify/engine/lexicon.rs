//! Finds phrases of ASCII words in a reading: an automaton that steps by whole words, one or two looks a word.
//!
//! A reading knows its words and their marks, and a phrase can begin only where a word begins. Every word is looked up once
//! and becomes a small number, zero where no phrase holds it; the automaton is at a node, which stands for the last words as
//! far as phrases begin with them, and where none begin so it falls back to the longest ending with which one does (after Aho
//! and Corasick). So a text is read once, however many phrases overlap in it. What is found with a node is laid out in one
//! row, that of its endings too. Only a word that no phrase holds is asked for its first letters, for open phrases end inside
//! words of any kind. The tables are small enough to stay in a processor's cache, which an automaton over bytes of all
//! phrases is not.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use super::table::{All, Table};
use crate::policy::classify::reading::{Text, Word};

/// Where every phrase begins. No edge leads here, so it also stands for no node.
pub(super) const ROOT: u16 = 0;

/// The phrases, laid out by [`Growing`](super::growing::Growing).
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// From words to their numbers.
    pub(super) words: Table<8192>,
    /// From the number of a word to the node of that word alone.
    pub(super) first: All<u16>,
    /// From a node and the number of the word that follows to the next node.
    pub(super) edges: Table<32768>,
    /// By node.
    pub(super) steps: All<Step>,
    pub(super) finds: Vec<Find>,
    pub(super) stems: Vec<Stem>,
    /// From the first letters of a word to the open phrases that may be all of it.
    pub(super) letters: All<Stems>,
    /// From a node to the open phrases that begin with its words and end with the word that follows.
    pub(super) behind: All<Stems>,
    /// By node: the first of it and its endings that has any of those.
    pub(super) stemmed: All<u16>,
}

/// What is asked at every step of the words that phrases begin with (a node). Their endings are the nodes of the same words
/// without the first, the first two and so on, the longest first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step {
    /// Where the phrases stand that they end with.
    pub from: u16,
    pub to: u16,
    /// The first of them and their endings that anything may follow.
    pub rest: u16,
    /// The first of their endings that a word may follow.
    pub fall: u16,
}

/// A phrase that ends where a node does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Find {
    pub phrase: u16,
    /// How many words come before the last.
    pub before: u8,
    /// How many letters of the last belong to it.
    pub letters: u8,
}

/// Open phrases that begin with the same words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stems {
    /// Where they stand.
    pub from: u16,
    pub to: u16,
    /// How many words these are.
    pub words: u16,
    /// The first of the endings of these words that open phrases begin with.
    pub next: u16,
}

/// The end of an open phrase: what its last word begins with.
#[derive(Debug)]
pub(super) struct Stem {
    phrase: u16,
    /// Its first eight letters, and where in eight bytes they stand.
    head: u64,
    mask: u64,
    /// The letters after them.
    rest: Box<[u8]>,
    length: usize,
}

// === impl Lexicon ===

impl Lexicon {
    /// Bytes of the tables that are in use.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let nodes = (0..u16::MAX).filter(|node| self.steps[*node].to > 0).count();
        nodes * (size_of::<Step>() + size_of::<Stems>() + size_of::<u16>())
            + self.words.memory()
            + self.edges.memory()
            + size_of_val(&self.finds[..])
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
    }

    /// Tells every find with its begin and end, in the order of the words they end with; stops when told to.
    pub(super) fn walk(&self, text: &Text, take: &mut impl FnMut(u32, usize, usize) -> bool) {
        let mut node = ROOT;
        for (at, word) in text.words().iter().enumerate() {
            let number = self.words.get(word.mark);
            if number == 0 {
                let stemmed = self.stemmed[node];
                if stemmed != ROOT && !self.take_stems_behind(stemmed, text, at, take) {
                    return;
                }
                node = ROOT;
                let stems = self.letters[letters_key(&word.mark.to_le_bytes())];
                if stems.to != 0 && !self.take_stems(stems, text, word.begin, word.begin, take) {
                    return;
                }
                continue;
            }
            node = self.follow(node, number);
            if node == ROOT {
                continue;
            }
            let Step { from, to, rest, .. } = self.steps[node];
            node = rest;
            for find in self.finds.get(usize::from(from)..usize::from(to)).unwrap_or_default() {
                let Some(Word { begin, .. }) = text.words().get(at - usize::from(find.before)) else { return };
                if !take(find.phrase.into(), *begin, word.begin + usize::from(find.letters)) {
                    return;
                }
            }
        }
    }

    /// The node of one more word: behind the longest of some words and their endings that phrases go on from with it.
    #[inline]
    fn follow(&self, mut node: u16, word: u16) -> u16 {
        while node != ROOT {
            let next = self.edges.get(edge_key(node, word));
            if next != ROOT {
                return next;
            }
            node = self.steps[node].fall;
        }
        self.first[word]
    }

    /// Tells the open phrases that end with a word behind the words of a node or of its endings.
    #[inline(never)]
    fn take_stems_behind(
        &self,
        mut node: u16,
        text: &Text,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        while node != ROOT {
            let stems = self.behind[node];
            let start = text.words()[at - usize::from(stems.words)].begin;
            if !self.take_stems(stems, text, start, text.words()[at].begin, take) {
                return false;
            }
            node = stems.next;
        }
        true
    }

    /// Tells the open phrases of which the last word stands at a place.
    #[inline]
    fn take_stems(
        &self,
        stems: Stems,
        text: &Text,
        start: usize,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        let head = text.eight(at);
        self.stems[usize::from(stems.from)..usize::from(stems.to)]
            .iter()
            .all(|stem| head & stem.mask != stem.head || stem.take(text, start, at, take))
    }
}

pub(super) fn edge_key(node: u16, word: u16) -> u64 {
    u64::from(node) << 32 | u64::from(word) << 16
}

/// A number for the [`LETTERS`](crate::policy::classify::reading::LETTERS) that a word begins with, the same only for the
/// same letters.
#[inline]
pub(super) fn letters_key(word: &[u8]) -> u16 {
    let letter = |at: usize| u16::from(word.get(at).copied().unwrap_or_default() & 31);
    letter(0) | letter(1) << 5 | letter(2) << 10
}

// === impl Stem ===

impl Stem {
    pub(super) fn new(letters: &[u8], phrase: u16) -> Self {
        let (first, rest) = letters.split_at(letters.len().min(8));
        let eight = |byte: &dyn Fn(usize) -> u8| u64::from_le_bytes(std::array::from_fn(byte));
        let head = eight(&|at| first.get(at).copied().unwrap_or_default());
        let mask = eight(&|at| if at < first.len() { u8::MAX } else { 0 });
        Self { phrase, head, mask, rest: rest.into(), length: letters.len() }
    }

    /// Tells a find, if a word that begins with its first eight letters goes on with the others.
    #[inline(never)]
    fn take(&self, text: &[u8], start: usize, at: usize, take: &mut impl FnMut(u32, usize, usize) -> bool) -> bool {
        let goes_on = self.rest.is_empty() || text.get(at + 8..).is_some_and(|text| text.starts_with(&self.rest));
        !goes_on || take(self.phrase.into(), start, at + self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::growing::Growing, *};

    fn finds(phrases: &[(&str, bool)], text: &str) -> Vec<(u32, usize, usize)> {
        let mut growing = Growing::default();
        for (id, (words, open)) in (0..).zip(phrases) {
            growing.add(words, *open, id);
        }
        let mut finds = Vec::new();
        growing.compile().walk(&Text::of(text), &mut |phrase, start, end| {
            finds.push((phrase, start, end));
            true
        });
        finds
    }

    #[test]
    fn phrases_are_found_at_word_boundaries_and_open_stems_inside_their_last_word() {
        let phrases = [("rate limit", false), ("rate", false), ("exceed", true), ("rate limit exc", true)];
        assert_eq!(
            finds(&phrases, "rate limit exceeded pirate limits"),
            [(1, 1, 5), (0, 1, 11), (3, 1, 15), (2, 12, 18)]
        );
    }

    #[test]
    fn words_of_any_length_are_told_apart_by_every_letter() {
        let long = "a".repeat(40);
        for length in 1..40 {
            let text = format!("{} x", &long[..length]);
            let phrases: Vec<_> = (1..40).map(|length| (&long[..length], false)).collect();
            assert_eq!(finds(&phrases, &text), [(u32::try_from(length - 1).unwrap(), 1, 1 + length)], "{length}");
        }
    }

    #[test]
    fn phrases_that_overlap_are_all_found_where_one_breaks_off() {
        let phrases =
            [("a b c d", false), ("b c", false), ("c x", false), ("b c sto", true), ("c", false), ("sto", true)];
        assert_eq!(
            finds(&phrases, "a b c x a b c stop c"),
            [(1, 3, 6), (4, 5, 6), (2, 5, 8), (1, 11, 14), (4, 13, 14), (3, 11, 18), (5, 15, 18), (4, 20, 21)]
        );
    }

    #[test]
    fn a_walk_stops_when_told_to() {
        let mut growing = Growing::default();
        growing.add("a", false, 0);
        let mut finds = 0;
        growing.compile().walk(&Text::of("a a a"), &mut |_, _, _| {
            finds += 1;
            finds < 2
        });
        assert_eq!(finds, 2);
    }
}
