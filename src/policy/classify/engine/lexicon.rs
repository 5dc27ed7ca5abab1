//! Finds phrases of ASCII words in a reading: a tree whose edges are whole words, one look a word.
//!
//! A reading knows where its words begin, and a phrase can begin only there. One look in a
//! table of whole words and one in a table of first letters tell which phrases begin there. The tables are small enough to
//! stay in a processor's cache, which an automaton over bytes of all phrases is not.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use std::collections::HashMap;

use crate::policy::classify::reading::Text;

/// No phrase ends here, no edge is here.
const NONE: u32 = u32::MAX;
/// Where every phrase begins.
const ROOT: u32 = 0;
/// The edges from here are the first letters of open stems, not words.
const LETTERS: u32 = u32::MAX - 1;
/// Letters that an open stem is looked up by.
const LOOKED_UP: usize = 3;
/// Those letters among eight bytes.
const LETTERS_MASK: u64 = 0xFF_FFFF;
/// The phrases, compiled.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// Edges while phrases are added.
    growing: HashMap<(u32, u64), u32>,
    /// Open stems, by node.
    stems: Vec<Stem>,
    nodes: Vec<Node>,
    /// Words that phrases begin with.
    words: Table,
    /// First letters of open stems that phrases begin with.
    letters: Table,
    /// Words that follow.
    edges: Table,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The phrase that ends with the word.
    phrase: u32,
    /// Whether phrases go on with a whole word.
    goes_on: bool,
    /// The open stems that may follow, as a range.
    stems: (u32, u32),
}

/// The beginning of a word that ends a phrase.
#[derive(Debug)]
struct Stem {
    node: u32,
    phrase: u32,
    /// Its first eight letters, and where in eight bytes they stand.
    head: u64,
    mask: u64,
    /// The letters after them.
    rest: Box<[u8]>,
    length: usize,
}

/// From words to nodes: open addressing with at most every fourth place taken, so that the first look mostly decides. No
/// word's number is zero, so zero stands for none.
#[derive(Debug, Default)]
struct Table {
    edges: Vec<Edge>,
    shift: u32,
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    word: u64,
    from: u32,
    to: u32,
}

// === impl Lexicon ===

impl Lexicon {
    /// Adds a phrase; an open one ends inside its last word.
    pub(super) fn add(&mut self, words: &str, open: bool, phrase: u32) {
        let mut node = ROOT;
        self.node(ROOT);
        let text = Text::of(words);
        for at in 0..text.count() {
            let Some((from, to)) = text.word(at) else { break };
            let first = text.eight(from);
            if open && at + 1 == text.count() {
                let letters = &text[from..to];
                if node == ROOT {
                    debug_assert!(letters.len() >= LOOKED_UP, "too short a stem: {words}");
                    node = self.edge(LETTERS, first & LETTERS_MASK);
                }
                self.stems.push(Stem::new(node, first, letters, phrase));
                return;
            }
            self.nodes[node as usize].goes_on = true;
            node = self.edge(node, mark(&text, from, to, first));
        }
        self.nodes[node as usize].phrase = phrase;
    }

    /// Makes what was added fast to ask.
    pub(super) fn compile(&mut self) {
        let (mut words, mut letters, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        for ((from, word), to) in std::mem::take(&mut self.growing) {
            let list = match from {
                ROOT => &mut words,
                LETTERS => &mut letters,
                _ => &mut edges,
            };
            list.push(Edge { word, from, to });
        }
        (self.words, self.letters, self.edges) = (Table::new(&words), Table::new(&letters), Table::new(&edges));
        self.stems.sort_by_key(|stem| stem.node);
        for (at, stem) in (0_u32..).zip(&self.stems) {
            let stems = &mut self.nodes[stem.node as usize].stems;
            *stems = if stems.1 == 0 { (at, at + 1) } else { (stems.0, at + 1) };
        }
    }

    /// Bytes of the tables.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.nodes[..])
            + [&self.words, &self.letters, &self.edges].map(|table| size_of_val(&table.edges[..])).iter().sum::<usize>()
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
    }

    /// Tells every find with its begin and end, in the order of begins; stops when told to.
    pub(super) fn walk(&self, text: &Text, take: &mut impl FnMut(u32, usize, usize) -> bool) {
        for (at, (from, to)) in text.words(0..text.count()).enumerate() {
            let first = text.eight(from);
            if let Some(node) = self.letters.follow(LETTERS, first & LETTERS_MASK)
                && !self.take_stems(node, text, from, from, take)
            {
                return;
            }
            if let Some(node) = self.words.follow(ROOT, mark(text, from, to, first))
                && !self.take_from(node, text, at, take)
            {
                return;
            }
        }
    }

    /// Tells the finds that begin with a word of this node.
    fn take_from(
        &self,
        mut node: u32,
        text: &Text,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        let mut words = text.words(at..text.count());
        let Some((start, mut to)) = words.next() else { return true };
        loop {
            let Node { phrase, goes_on, stems } = self.nodes[node as usize];
            if phrase != NONE && !take(phrase, start, to) {
                return false;
            }
            if !goes_on && stems.1 == 0 {
                return true;
            }
            let Some((next, end)) = words.next() else { return true };
            if stems.1 != 0 && !self.take_stems(node, text, start, next, take) {
                return false;
            }
            match self.edges.follow(node, mark(text, next, end, text.eight(next))) {
                Some(following) => (node, to) = (following, end),
                None => return true,
            }
        }
    }

    /// Tells the open stems of a node that stand at a place.
    fn take_stems(
        &self,
        node: u32,
        text: &Text,
        start: usize,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        let (from, to) = self.nodes[node as usize].stems;
        let head = text.eight(at);
        self.stems[from as usize..to as usize]
            .iter()
            .all(|stem| !stem.begins(head, text, at) || take(stem.phrase, start, at + stem.length))
    }

    /// The node behind an edge, new or known.
    fn edge(&mut self, from: u32, word: u64) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let node = *self.growing.entry((from, word)).or_insert(next);
        self.node(node);
        node
    }

    fn node(&mut self, node: u32) {
        if node as usize >= self.nodes.len() {
            self.nodes.push(Node { phrase: NONE, goes_on: false, stems: (0, 0) });
        }
    }
}

// === impl Table ===

impl Table {
    fn new(edges: &[Edge]) -> Self {
        let size = (edges.len() * 4).next_power_of_two().max(2);
        let none = Edge { word: 0, from: NONE, to: NONE };
        let mut table = Self { edges: vec![none; size], shift: u64::BITS - size.trailing_zeros() };
        for edge in edges {
            let mut at = table.place(edge.from, edge.word);
            while table.edges[at].word != 0 {
                at = (at + 1) % size;
            }
            table.edges[at] = *edge;
        }
        table
    }

    /// The node behind a word.
    #[inline]
    fn follow(&self, from: u32, word: u64) -> Option<u32> {
        let mut at = self.place(from, word);
        loop {
            let edge = self.edges.get(at)?;
            if edge.word == 0 {
                return None;
            }
            if edge.word == word && edge.from == from {
                return Some(edge.to);
            }
            at = (at + 1) & (self.edges.len() - 1);
        }
    }

    /// Spreads the bits of a word; the high ones are taken.
    #[inline]
    fn place(&self, from: u32, word: u64) -> usize {
        let spread = (word ^ (u64::from(from) << 32 | u64::from(from))).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        usize::try_from(spread.wrapping_shr(self.shift)).unwrap_or(usize::MAX)
    }
}

// === impl Stem ===

impl Stem {
    fn new(node: u32, first: u64, letters: &[u8], phrase: u32) -> Self {
        let (head, rest) = letters.split_at(letters.len().min(8));
        let mask = if head.len() < 8 { !(u64::MAX << (8 * head.len())) } else { u64::MAX };
        Self { node, phrase, head: first & mask, mask, rest: rest.into(), length: letters.len() }
    }

    /// Whether a word begins with it, of which eight bytes are given.
    fn begins(&self, head: u64, text: &[u8], at: usize) -> bool {
        head & self.mask == self.head
            && (self.rest.is_empty() || text.get(at + 8..).is_some_and(|text| text.starts_with(&self.rest)))
    }
}

/// The word between two places, of which the first eight bytes are given, as a number. Up to seven letters the number is
/// the word itself; of longer words it is a mark of 64 bits, which no two words of a vocabulary share.
#[inline]
fn mark(text: &Text, from: usize, to: usize, first: u64) -> u64 {
    let (mut mark, mut at, mut eight) = (0_u64, from, first);
    while to - at >= 8 {
        mark = (mark ^ eight).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        at += 8;
        eight = text.eight(at);
    }
    mark ^ (eight & !(u64::MAX << (8 * (to - at))))
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
