//! Finds phrases of ASCII words in a reading: an automaton that steps by whole words, one or two looks a word.
//!
//! A reading knows its words and their marks, and a phrase can begin only where a word begins. Every word is looked up once
//! and becomes a small number, zero where no phrase holds it; the automaton is at a node, which stands for the last words as
//! far as phrases begin with them, and where none begin so it falls back to the longest ending with which one does (after Aho
//! and Corasick). So a text is read once, however many phrases overlap in it. The tables are small enough to stay in a
//! processor's cache, which an automaton over bytes of all phrases is not.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use std::collections::HashMap;

use super::table::Table;
use crate::policy::classify::reading::{FIRST_LETTERS, LETTERS, Text, Word};

/// No phrase ends here.
const NONE: u32 = u32::MAX;
/// Where every phrase begins. No edge leads here, so it also stands for no node.
const ROOT: u16 = 0;

/// The phrases, compiled.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    growing: Growing,
    /// By node.
    steps: Vec<Step>,
    /// By node.
    finds: Vec<Find>,
    /// By node.
    follows: Vec<Follow>,
    /// Open stems, by the node they follow.
    stems: Vec<Stem>,
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
    words: HashMap<u64, (u16, Box<[u8]>)>,
    /// By mark, of which only the first letters count.
    letters: HashMap<u64, u16>,
    /// By node and the number of the word that follows.
    edges: HashMap<(u16, u16), u16>,
    /// By node: the phrase that its words are, and how many they are.
    phrases: Vec<(u32, u16)>,
}

/// Where phrases begin with a word.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    /// The node of the phrases that go on with the whole word.
    word: u16,
    /// The node of the open stems that may begin it.
    letters: u16,
}

/// What is asked of the words that phrases begin with (a node) at every step. Their endings are the nodes of the same words
/// without the first, the first two and so on, the longest first.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// The first of them and their endings that is a phrase.
    found: u16,
    /// The first of them and their endings that an open stem may follow.
    stemmed: u16,
    /// The first of them and their endings that a word or an open stem may follow.
    rest: u16,
    /// The first of their endings that a word may follow.
    fall: u16,
}

/// Words that are a phrase.
#[derive(Debug, Clone, Copy, Default)]
struct Find {
    phrase: u32,
    /// How many words come before the last.
    before: u16,
    /// The first of their endings that is a phrase.
    next: u16,
}

/// The open stems that may follow some words.
#[derive(Debug, Clone, Copy, Default)]
struct Follow {
    from: u16,
    to: u16,
    /// How many words these are.
    words: u16,
    /// The first of their endings that an open stem may follow.
    next: u16,
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

// === impl Lexicon ===

impl Lexicon {
    /// Adds a phrase; an open one ends inside its last word.
    pub(super) fn add(&mut self, words: &str, open: bool, phrase: u32) {
        if self.growing.phrases.is_empty() {
            self.growing.node(0);
        }
        let mut node = ROOT;
        let text = Text::of(words);
        for (at, Word { begin, end, mark }) in text.words().iter().copied().enumerate() {
            let letters = &text[begin..end];
            if open && at + 1 == text.words().len() {
                if node == ROOT {
                    debug_assert!(letters.len() >= LETTERS, "too short a stem: {words}");
                    let first = mark & FIRST_LETTERS;
                    node = self.growing.letters.get(&first).copied().unwrap_or_else(|| self.growing.node(0));
                    self.growing.letters.insert(first, node);
                }
                self.stems.push(Stem::new(node, text.eight(begin), letters, phrase));
                return;
            }
            let next = to_u16(self.growing.words.len() + 1);
            let word = self.growing.words.entry(mark).or_insert_with(|| (next, letters.into())).0;
            let before = node;
            node = self.growing.edges.get(&(before, word)).copied().unwrap_or_else(|| self.growing.node(at + 1));
            self.growing.edges.insert((before, word), node);
        }
        self.growing.phrases[usize::from(node)].0 = phrase;
    }

    /// Makes what was added fast to ask.
    pub(super) fn compile(&mut self) {
        let Growing { words, letters, edges, phrases } = std::mem::take(&mut self.growing);
        self.words = Table::new(words.iter().map(|(mark, (number, _))| (*mark, *number)));
        self.letters = Table::new(letters.iter().map(|(mark, node)| (letters_key(*mark), *node)));
        self.edges = Table::new(edges.iter().map(|((before, word), node)| (edge_key(*before, *word), *node)));
        self.steps = vec![Step::default(); phrases.len()];
        self.finds = vec![Find::default(); phrases.len()];
        self.follows = phrases.iter().map(|(_, words)| Follow { words: *words, ..Follow::default() }).collect();
        self.stems.sort_by_key(|stem| stem.node);
        for (at, stem) in self.stems.iter().enumerate() {
            let follow = &mut self.follows[usize::from(stem.node)];
            follow.from = if follow.to == 0 { to_u16(at) } else { follow.from };
            follow.to = to_u16(at + 1);
        }
        self.first = vec![First::default(); words.len() + 1];
        for (mark, (number, text)) in words {
            let letters = self.letters.get(letters_key(mark));
            let may_begin = self.stems.iter().any(|stem| stem.node == letters && stem.begins(&text));
            let word = self.edges.get(edge_key(ROOT, number));
            self.first[usize::from(number)] = First { word, letters: if may_begin { letters } else { ROOT } };
        }
        let mut goes_on = vec![false; phrases.len()];
        for (before, _) in edges.keys() {
            goes_on[usize::from(*before)] = true;
        }
        let mut endings = vec![ROOT; phrases.len()];
        // The endings of some words are those of one word less, and the last word behind them.
        let mut edges: Vec<_> = edges.into_iter().collect();
        edges.sort_by_key(|(_, node)| (phrases[usize::from(*node)].1, *node));
        for ((before, word), node) in edges {
            let first = if before == ROOT { ROOT } else { self.first[usize::from(word)].word };
            let mut shorter = endings[usize::from(before)];
            let ending = loop {
                match self.edges.get(edge_key(shorter, word)) {
                    _ if shorter == ROOT => break first,
                    ROOT => shorter = endings[usize::from(shorter)],
                    ending => break ending,
                }
            };
            let at = usize::from(node);
            endings[at] = ending;
            let longest = self.steps[usize::from(ending)];
            let (phrase, words) = phrases[at];
            let stems = self.follows[at].to > 0;
            let or = |here: bool, ending: u16| if here { node } else { ending };
            self.finds[at] = Find { phrase, before: words - 1, next: longest.found };
            self.follows[at].next = longest.stemmed;
            self.steps[at] = Step {
                found: or(phrase != NONE, longest.found),
                stemmed: or(stems, longest.stemmed),
                rest: or(stems || goes_on[at], longest.rest),
                fall: if goes_on[usize::from(ending)] { ending } else { longest.fall },
            };
        }
    }

    /// Bytes of the tables.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.steps[..])
            + size_of_val(&self.finds[..])
            + size_of_val(&self.follows[..])
            + self.words.memory()
            + self.letters.memory()
            + self.edges.memory()
            + size_of_val(&self.first[..])
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
    }

    /// Tells every find with its begin and end, in the order of the words they end with; stops when told to.
    pub(super) fn walk(&self, text: &Text, take: &mut impl FnMut(u32, usize, usize) -> bool) {
        let mut node = ROOT;
        for (at, word) in text.words().iter().enumerate() {
            let begin = |words: u16| text.words()[at - usize::from(words)].begin;
            let number = self.words.get(word.mark);
            let first = match number {
                0 => First { word: ROOT, letters: self.letters.get(letters_key(word.mark)) },
                number => self.first[usize::from(number)],
            };
            if node != ROOT {
                let mut stemmed = self.steps[usize::from(node)].stemmed;
                while stemmed != ROOT {
                    let Follow { words, next, .. } = self.follows[usize::from(stemmed)];
                    if !self.take_stems(stemmed, text, begin(words), word.begin, take) {
                        return;
                    }
                    stemmed = next;
                }
                node = self.follow(node, number);
            }
            if first.letters != ROOT && !self.take_stems(first.letters, text, word.begin, word.begin, take) {
                return;
            }
            if node == ROOT {
                node = first.word;
            }
            if node == ROOT {
                continue;
            }
            let Step { mut found, rest, .. } = self.steps[usize::from(node)];
            while found != ROOT {
                let Find { phrase, before, next } = self.finds[usize::from(found)];
                if !take(phrase, begin(before), word.end) {
                    return;
                }
                found = next;
            }
            node = rest;
        }
    }

    /// The longest of some words and their endings that phrases go on from with one more word, and that word; if any.
    #[inline]
    fn follow(&self, mut node: u16, word: u16) -> u16 {
        while node != ROOT && word != 0 {
            let next = self.edges.get(edge_key(node, word));
            if next != ROOT {
                return next;
            }
            node = self.steps[usize::from(node)].fall;
        }
        ROOT
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
        let Follow { from, to, .. } = self.follows[usize::from(node)];
        let head = text.eight(at);
        self.stems[usize::from(from)..usize::from(to)]
            .iter()
            .all(|stem| head & stem.mask != stem.head || stem.take(text, start, at, take))
    }
}

// === impl Growing ===

impl Growing {
    /// A new node of so many words.
    fn node(&mut self, words: usize) -> u16 {
        let node = to_u16(self.phrases.len());
        debug_assert!(node < u16::MAX, "too many phrases");
        self.phrases.push((NONE, to_u16(words)));
        node
    }
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

    /// Whether a word begins so.
    fn begins(&self, word: &[u8]) -> bool {
        let head = &self.head.to_le_bytes()[..self.length.min(8)];
        word.strip_prefix(head).is_some_and(|rest| rest.starts_with(&self.rest))
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
