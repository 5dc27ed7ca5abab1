//! Finds phrases of ASCII words in a reading: an automaton that steps by whole words, one or two looks a word.
//!
//! A reading knows its words and their marks, and a phrase can begin only where a word begins. Every word is looked up once
//! and becomes a small number, zero where no phrase holds it; the automaton is at a node, which stands for the last words as
//! far as phrases begin with them, and where none begin so it falls back to the longest ending with which one does (after Aho
//! and Corasick). So a text is read once, however many phrases overlap in it. What is found with a node is laid out in one
//! row, that of its endings too. Only a word that no phrase holds is asked for its first letters, for open phrases end inside
//! words of any kind. A step touches one place in the memory of a table, two where it goes on with a phrase, where an
//! automaton over bytes touches one for every letter.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use super::{
    hits::{Hits, Places},
    sets::{Trigger, Triggers, to_u16},
    table::{All, Table, key_of_two},
};
use crate::policy::classify::reading::{LETTERS, Text};

/// Where every phrase begins. No edge leads here, so it also stands for no node.
pub(super) const ROOT: u16 = 0;
/// No row: the first find stands for none.
pub(super) const NO_ROW: u16 = 0;

/// The phrases, laid out by [`Growing`](super::growing::Growing).
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// From words to their numbers: the nodes of those words alone, and the steps to these.
    pub(super) words: Table<8192, Step>,
    /// From a node and the number of the word that follows to the next node, and the step to it.
    pub(super) edges: Table<32768, Step>,
    /// By node.
    pub(super) steps: All<Step>,
    /// In rows of finds that are made together; a row is known by where it stands.
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
    /// The row of the phrases that they end with, or [`NO_ROW`].
    pub row: u16,
    /// The first of them and their endings that anything may follow.
    pub rest: u16,
    /// The first of their endings that a word may follow.
    pub fall: u16,
    /// [Bits](one_of_64) of the words that may follow any of them: most words may not, and need no look at the edges.
    pub after: u64,
}

/// A phrase that ends where a node does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Find {
    /// What follows from the phrase.
    pub trigger: Trigger,
    pub phrase: u16,
    /// How many words come before the last.
    pub before: u8,
    /// How many letters of the last belong to it.
    pub letters: u8,
    /// Whether the row ends with it.
    pub is_last: bool,
}

/// Open phrases that begin with the same words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stems {
    /// Where they stand.
    pub from: u16,
    pub to: u16,
    /// The first of the endings of these words that open phrases begin with.
    pub next: u16,
    /// [Bits](letter_bit) of the letters that these, and those of the endings, may go on with.
    pub letters: u32,
}

/// The end of an open phrase: what its last word begins with.
#[derive(Debug)]
pub(super) struct Stem {
    /// The row of its one find.
    row: u16,
    /// Its first eight letters, and where in eight bytes they stand.
    head: u64,
    mask: u64,
    /// The letters after them.
    rest: Box<[u8]>,
}

// === impl Lexicon ===

impl Lexicon {
    /// Bytes of the tables that are in use.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let nodes = (0..u16::MAX).filter(|node| self.steps[*node].row != NO_ROW).count();
        nodes * (size_of::<Step>() + size_of::<Stems>() + size_of::<u16>())
            + self.words.memory()
            + self.edges.memory()
            + size_of_val(&self.finds[..])
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
    }

    /// Lays out finds that are made together; says which row they are.
    pub(super) fn add_row(&mut self, finds: Vec<Find>) -> u16 {
        let row = to_u16(self.finds.len());
        let last = finds.len() - 1;
        self.finds.extend(finds.into_iter().enumerate().map(|(at, find)| Find { is_last: at == last, ..find }));
        row
    }

    /// The finds of a row.
    pub(super) fn row(&self, row: u16) -> &[Find] {
        let finds = self.finds.get(usize::from(row)..).filter(|_| row != NO_ROW).unwrap_or_default();
        finds.split_inclusive(|find| find.is_last).next().unwrap_or_default()
    }

    /// Notes every find, in the order of the words they end with, as long as there is room for them.
    pub(super) fn walk(&self, text: &Text, triggers: &Triggers, hits: &mut Hits) {
        self.end_rows(text, &mut hits.places);
        hits.add_finds(&self.finds, triggers);
    }

    /// Notes which rows of finds end with which word.
    fn end_rows(&self, text: &Text, places: &mut Places) {
        let (mut node, mut after) = (ROOT, 0);
        for (at, word) in (0..).zip(text.words()) {
            let Some((number, alone)) = self.words.find(word.mark) else {
                let stemmed = self.stemmed[node];
                let stems = self.letters[letters_key(&word.mark.to_le_bytes())];
                (node, after) = (ROOT, 0);
                // Nearly no word goes on like one of them.
                let goes_on = |stems: Stems, at: usize| stems.letters & letter_bit(text.letter(word.begin + at)) != 0;
                let stems = if goes_on(stems, LETTERS) { stems } else { Stems::default() };
                let stemmed = if stemmed != ROOT && goes_on(self.behind[stemmed], 0) { stemmed } else { ROOT };
                if stemmed != ROOT || stems.to > 0 {
                    self.take_stems(stems, stemmed, text, word.begin, &mut |row| places.end_stem(row, at));
                }
                continue;
            };
            let next = if after & one_of_64(number) == 0 { None } else { self.follow(node, number) };
            let row;
            Step { row, rest: node, after, .. } = *next.unwrap_or(alone);
            if row != NO_ROW {
                places.end_row(row, at);
            }
        }
    }

    /// The step to one more word, behind the longest of some words and their endings that phrases go on from with it.
    fn follow(&self, mut node: u16, word: u16) -> Option<&Step> {
        while node != ROOT {
            if let Some((_, next)) = self.edges.find(key_of_two(node, word)) {
                return Some(next);
            }
            node = self.steps[node].fall;
        }
        None
    }

    /// Tells the open phrases of which the last word begins at a place: some that are all of it, and those behind the words
    /// of a node and of its endings.
    #[inline(never)]
    fn take_stems(&self, mut stems: Stems, mut node: u16, text: &Text, begin: usize, take: &mut impl FnMut(u16)) {
        let (head, rest) = (text.eight(begin), text.get(begin + 8..).unwrap_or_default());
        loop {
            for stem in self.stems.get(usize::from(stems.from)..usize::from(stems.to)).unwrap_or_default() {
                if stem.begins(head, rest) {
                    take(stem.row);
                }
            }
            if node == ROOT {
                return;
            }
            stems = self.behind[node];
            node = stems.next;
        }
    }
}

/// One of 64 bits for a word.
#[inline]
pub(super) fn one_of_64(word: u16) -> u64 {
    1 << (word % 64)
}

/// One of 32 bits for a letter.
#[inline]
pub(super) fn letter_bit(letter: u8) -> u32 {
    1 << (letter & 31)
}

/// A number for the [`LETTERS`] that a word begins with, the same only for the same letters.
#[inline]
pub(super) fn letters_key(word: &[u8]) -> u16 {
    let letter = |at: usize| u16::from(word.get(at).copied().unwrap_or_default() & 31);
    letter(0) | letter(1) << 5 | letter(2) << 10
}

// === impl Stem ===

impl Stem {
    pub(super) fn new(letters: &[u8], row: u16) -> Self {
        let (first, rest) = letters.split_at(letters.len().min(8));
        let eight = |byte: &dyn Fn(usize) -> u8| u64::from_le_bytes(std::array::from_fn(byte));
        let head = eight(&|at| first.get(at).copied().unwrap_or_default());
        let mask = eight(&|at| if at < first.len() { u8::MAX } else { 0 });
        Self { row, head, mask, rest: rest.into() }
    }

    /// Whether a word begins with it, of which these are the first eight letters and what follows.
    #[inline]
    fn begins(&self, head: u64, rest: &[u8]) -> bool {
        head & self.mask == self.head && rest.starts_with(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{growing::Growing, hits::NOWHERE, sets::Set},
        *,
    };

    fn finds(phrases: &[(&str, bool)], text: &str) -> Vec<(usize, u32, usize)> {
        let (mut growing, mut placed) = (Growing::default(), Set::default());
        for (id, (words, open)) in (0..).zip(phrases) {
            growing.add(words, *open, id);
            placed.insert(id);
        }
        let (text, mut hits) = (Text::of(text), Hits::default());
        hits.clear();
        let triggers = Triggers::rarest(&[], &placed);
        growing.compile(&triggers).walk(&text, &triggers, &mut hits);
        let mut finds = Vec::new();
        for id in (0..).take(phrases.len()).filter(|id| hits.seen.has(*id)) {
            for mut lane in hits.places.lanes(id, 0, text.words()) {
                while lane.hit.start != NOWHERE {
                    finds.push((lane.hit.end, id, lane.hit.start));
                    hits.places.pass(&mut lane, text.words());
                }
            }
        }
        finds.sort_unstable();
        finds
    }

    #[test]
    fn phrases_are_found_at_word_boundaries_and_open_stems_inside_their_last_word() {
        let phrases = [("rate limit", false), ("rate", false), ("exceed", true), ("rate limit exc", true)];
        assert_eq!(
            finds(&phrases, "rate limit exceeded pirate limits"),
            [(5, 1, 1), (11, 0, 1), (15, 3, 1), (18, 2, 12)]
        );
    }

    #[test]
    fn words_of_any_length_are_told_apart_by_every_letter() {
        let long = "a".repeat(40);
        for length in 1..40 {
            let text = format!("{} x", &long[..length]);
            let phrases: Vec<_> = (1..40).map(|length| (&long[..length], false)).collect();
            assert_eq!(finds(&phrases, &text), [(1 + length, u32::try_from(length - 1).unwrap(), 1)], "{length}");
        }
    }

    #[test]
    fn an_open_stem_is_compared_to_its_last_letter() {
        let phrases = [("misconfigur", true), ("was misconfigur", true)];
        assert_eq!(finds(&phrases, "misconfident it was misconfigured"), [(32, 0, 21), (32, 1, 17)]);
    }

    #[test]
    fn phrases_that_overlap_are_all_found_where_one_breaks_off() {
        let phrases =
            [("a b c d", false), ("b c", false), ("c x", false), ("b c sto", true), ("c", false), ("sto", true)];
        assert_eq!(
            finds(&phrases, "a b c x a b c stop c"),
            [(6, 1, 3), (6, 4, 5), (8, 2, 5), (14, 1, 11), (14, 4, 13), (18, 3, 11), (18, 5, 15), (21, 4, 20),]
        );
    }
}
