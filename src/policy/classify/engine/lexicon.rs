//! Finds phrases of ASCII words in a reading: an automaton that steps by whole words, one or two looks a word.
//!
//! A reading knows its words and their marks, and a phrase can begin only where a word begins. Every word is looked up once
//! and becomes a small number, zero where no phrase holds it; the automaton is at a node, which stands for the last words as
//! far as phrases begin with them, and where none begin so it falls back to the longest ending with which one does (after Aho
//! and Corasick). So a text is read once, however many phrases overlap in it. The tables are small enough to stay in a
//! processor's cache, which an automaton over bytes of all phrases is not.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use std::collections::{BTreeMap, HashMap};

use crate::policy::classify::reading::{FIRST_LETTERS, LETTERS, Text, Word};

/// No phrase ends here.
const NONE: u32 = u32::MAX;
/// Where every phrase begins. No edge leads here, so it also stands for no node.
const ROOT: u16 = 0;

/// The phrases, compiled.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    growing: Growing,
    /// Open stems, by node.
    stems: Vec<Stem>,
    nodes: Vec<Node>,
    /// From words to their numbers.
    words: Table<8192>,
    /// From the first letters of a word to the node whose open stems may begin it.
    letters: Table<512>,
    /// From the number of a word to where phrases begin with it.
    first: Vec<First>,
    /// From a node and the number of the word that follows to the next node.
    edges: Table<32768>,
}

/// What the tables are made of, while phrases are added.
#[derive(Debug, Default)]
struct Growing {
    /// By mark.
    words: HashMap<u64, u16>,
    /// By mark, of which only the first letters count.
    letters: HashMap<u64, u16>,
    /// By node and the number of the word that follows.
    edges: HashMap<(u16, u16), u16>,
}

/// Where phrases begin with a word.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    /// The node of the phrases that go on with the whole word.
    word: u16,
    /// The node of the open stems that may begin it.
    letters: u16,
}

/// Words that phrases begin with.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// The phrase that they are.
    phrase: u32,
    /// How many they are.
    words: u16,
    /// The longest of their endings that phrases begin with, too.
    ending: u16,
    /// The longest of their endings (or they themselves) that is a phrase.
    found: u16,
    /// The longest of their endings (or they themselves) that an open stem may follow.
    stemmed: u16,
    /// The open stems that may follow, as a range.
    stems: (u16, u16),
}

/// The beginning of a word that ends a phrase.
#[derive(Debug)]
struct Stem {
    node: u16,
    phrase: u32,
    /// Its first eight letters, and where in eight bytes they stand.
    head: u64,
    mask: u64,
    /// The letters after them.
    rest: Box<[u8]>,
    length: usize,
}

/// From keys to small numbers, none of which is zero: open addressing with at most every second of `SIZE` places taken (a
/// power of two). A place holds the upper 48 bits of the key's hash, which tell keys apart, and the number.
#[derive(Debug)]
struct Table<const SIZE: usize>(Box<[u64; SIZE]>);

// === impl Lexicon ===

impl Lexicon {
    /// Adds a phrase; an open one ends inside its last word.
    pub(super) fn add(&mut self, words: &str, open: bool, phrase: u32) {
        if self.nodes.is_empty() {
            self.node(0);
        }
        let mut node = ROOT;
        let text = Text::of(words);
        for (at, Word { begin, end, mark }) in text.words().iter().copied().enumerate() {
            if open && at + 1 == text.words().len() {
                let letters = &text[begin..end];
                if node == ROOT {
                    debug_assert!(letters.len() >= LETTERS, "too short a stem: {words}");
                    let first = mark & FIRST_LETTERS;
                    node = self.growing.letters.get(&first).copied().unwrap_or_else(|| self.node(0));
                    self.growing.letters.insert(first, node);
                }
                self.stems.push(Stem::new(node, text.eight(begin), letters, phrase));
                return;
            }
            let next = to_u16(self.growing.words.len() + 1);
            let word = *self.growing.words.entry(mark).or_insert(next);
            let before = node;
            node = self.growing.edges.get(&(before, word)).copied().unwrap_or_else(|| self.node(at + 1));
            self.growing.edges.insert((before, word), node);
        }
        self.nodes[usize::from(node)].phrase = phrase;
    }

    /// Makes what was added fast to ask.
    pub(super) fn compile(&mut self) {
        let Growing { words, letters, edges } = std::mem::take(&mut self.growing);
        self.words = Table::new(words.iter().map(|(mark, number)| (*mark, *number)));
        self.letters = Table::new(letters.iter().map(|(mark, node)| (letters_key(*mark), *node)));
        self.edges = Table::new(edges.iter().map(|((before, word), node)| (edge_key(*before, *word), *node)));
        self.first = vec![First::default(); words.len() + 1];
        for (mark, number) in words {
            let (word, letters) = (self.edges.get(edge_key(ROOT, number)), self.letters.get(letters_key(mark)));
            self.first[usize::from(number)] = First { word, letters };
        }
        self.stems.sort_by_key(|stem| stem.node);
        for (at, stem) in self.stems.iter().enumerate() {
            let stems = &mut self.nodes[usize::from(stem.node)].stems;
            *stems = (if stems.1 == 0 { to_u16(at) } else { stems.0 }, to_u16(at + 1));
        }
        // The endings of some words are those of one word less, and the last word behind them.
        let mut edges: Vec<_> = edges.into_iter().collect();
        edges.sort_by_key(|(_, node)| (self.nodes[usize::from(*node)].words, *node));
        for ((before, word), node) in edges {
            let first = if before == ROOT { ROOT } else { self.first[usize::from(word)].word };
            let ending = self.follow(self.nodes[usize::from(before)].ending, word).unwrap_or(first);
            let Node { found, stemmed, .. } = self.nodes[usize::from(ending)];
            let longer = &mut self.nodes[usize::from(node)];
            longer.ending = ending;
            longer.found = if longer.phrase == NONE { found } else { node };
            longer.stemmed = if longer.stems.1 == 0 { stemmed } else { node };
        }
    }

    /// Bytes of the tables.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.nodes[..])
            + size_of_val(&*self.words.0)
            + size_of_val(&*self.letters.0)
            + size_of_val(&*self.edges.0)
            + size_of_val(&self.first[..])
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
    }

    /// Tells every find with its begin and end, in the order of the words they end with; stops when told to.
    pub(super) fn walk(&self, text: &Text, take: &mut impl FnMut(u32, usize, usize) -> bool) {
        let mut node = ROOT;
        for (at, word) in text.words().iter().enumerate() {
            let begin = |words: u16| text.words()[at - usize::from(words)].begin;
            let mut stemmed = if node == ROOT { ROOT } else { self.nodes[usize::from(node)].stemmed };
            while stemmed != ROOT {
                let Node { words, ending, .. } = self.nodes[usize::from(stemmed)];
                if !self.take_stems(stemmed, text, begin(words), word.begin, take) {
                    return;
                }
                stemmed = self.nodes[usize::from(ending)].stemmed;
            }
            let number = self.words.get(word.mark);
            let first = match number {
                0 => First { word: ROOT, letters: self.letters.get(letters_key(word.mark)) },
                number => self.first[usize::from(number)],
            };
            if first.letters != ROOT && !self.take_stems(first.letters, text, word.begin, word.begin, take) {
                return;
            }
            if number == 0 {
                node = ROOT;
                continue;
            }
            node = self.follow(node, number).unwrap_or(first.word);
            let mut found = self.nodes[usize::from(node)].found;
            while found != ROOT {
                let Node { phrase, words, ending, .. } = self.nodes[usize::from(found)];
                if !take(phrase, begin(words - 1), word.end) {
                    return;
                }
                found = self.nodes[usize::from(ending)].found;
            }
        }
    }

    /// Some words or the longest of their endings, and one more word, if phrases begin so.
    #[inline]
    fn follow(&self, mut node: u16, word: u16) -> Option<u16> {
        while node != ROOT {
            let next = self.edges.get(edge_key(node, word));
            if next != ROOT {
                return Some(next);
            }
            node = self.nodes[usize::from(node)].ending;
        }
        None
    }

    /// Tells the open stems behind some words that stand at a place.
    #[inline]
    fn take_stems(
        &self,
        node: u16,
        text: &Text,
        start: usize,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        let (from, to) = self.nodes[usize::from(node)].stems;
        let head = text.eight(at);
        self.stems[usize::from(from)..usize::from(to)]
            .iter()
            .all(|stem| head & stem.mask != stem.head || stem.take(text, start, at, take))
    }

    /// A new node of so many words.
    fn node(&mut self, words: usize) -> u16 {
        let (node, words) = (to_u16(self.nodes.len()), to_u16(words));
        debug_assert!(node < u16::MAX, "too many phrases");
        self.nodes.push(Node { phrase: NONE, words, ending: ROOT, found: ROOT, stemmed: ROOT, stems: (0, 0) });
        node
    }
}

// === impl Table ===

impl<const SIZE: usize> Default for Table<SIZE> {
    fn default() -> Self {
        Self(Box::new([0; SIZE]))
    }
}

impl<const SIZE: usize> Table<SIZE> {
    fn new(entries: impl Iterator<Item = (u64, u16)>) -> Self {
        // In one order, so that the table is the same in every process.
        let entries: BTreeMap<u64, u16> = entries.collect();
        debug_assert!(SIZE.is_power_of_two() && entries.len() <= SIZE / 2, "{} in {SIZE} places", entries.len());
        let mut table = Self::default();
        for (key, number) in entries {
            let hash = hash(key);
            let mut at = Self::place(hash);
            while table.0[at] != 0 {
                at = (at + 1) % SIZE;
            }
            table.0[at] = hash & !NUMBER | u64::from(number);
        }
        table
    }

    /// The number of a key, zero where it has none.
    #[inline]
    fn get(&self, key: u64) -> u16 {
        let hash = hash(key);
        let mut at = Self::place(hash);
        loop {
            let place = self.0[at];
            if (place ^ hash) <= NUMBER {
                return u16::try_from(place & NUMBER).unwrap_or_default();
            }
            if place == 0 {
                return 0;
            }
            at = (at + 1) % SIZE;
        }
    }

    /// Where to look first.
    #[inline]
    fn place(hash: u64) -> usize {
        usize::try_from(hash >> (u64::BITS - SIZE.trailing_zeros())).unwrap_or_default() % SIZE
    }
}

/// The bits of a place that hold the number.
const NUMBER: u64 = 0xFFFF;

/// Spreads the bits of a key; a key of 48 bits that stands in the upper ones keeps them apart from any other.
#[inline]
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn edge_key(node: u16, word: u16) -> u64 {
    u64::from(node) << 32 | u64::from(word) << 16
}

fn letters_key(mark: u64) -> u64 {
    (mark & FIRST_LETTERS) << 16
}

fn to_u16(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

// === impl Stem ===

impl Stem {
    fn new(node: u16, first: u64, letters: &[u8], phrase: u32) -> Self {
        let (head, rest) = letters.split_at(letters.len().min(8));
        let mask = if head.len() < 8 { !(u64::MAX << (8 * head.len())) } else { u64::MAX };
        Self { node, phrase, head: first & mask, mask, rest: rest.into(), length: letters.len() }
    }

    /// Tells a find, if a word that begins with its first eight letters goes on with the others.
    #[inline(never)]
    fn take(&self, text: &[u8], start: usize, at: usize, take: &mut impl FnMut(u32, usize, usize) -> bool) -> bool {
        let goes_on = self.rest.is_empty() || text.get(at + 8..).is_some_and(|text| text.starts_with(&self.rest));
        !goes_on || take(self.phrase, start, at + self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(phrases: &[(&str, bool)], text: &str) -> Vec<(u32, usize, usize)> {
        let mut lexicon = Lexicon::default();
        for (id, (words, open)) in (0..).zip(phrases) {
            lexicon.add(words, *open, id);
        }
        lexicon.compile();
        let mut finds = Vec::new();
        lexicon.walk(&Text::of(text), &mut |phrase, start, end| {
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
        let mut lexicon = Lexicon::default();
        lexicon.add("a", false, 0);
        lexicon.compile();
        let mut finds = 0;
        lexicon.walk(&Text::of("a a a"), &mut |_, _, _| {
            finds += 1;
            finds < 2
        });
        assert_eq!(finds, 2);
    }
}
