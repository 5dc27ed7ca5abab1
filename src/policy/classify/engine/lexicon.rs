//! Finds phrases of ASCII words in a reading: a tree whose edges are whole words, one look a word.
//!
//! A reading is words between single spaces, so a phrase can begin only where a word does. The first bytes of a word tell in
//! two small bitmaps whether any phrase begins with it; only then the tree is asked. The tree is small enough to stay in a
//! processor's cache, which an automaton over bytes of all phrases is not.
//!
//! Never finds phrases of scripts without spaces; those have an automaton of their own.

use std::collections::HashMap;

/// Bits of each bitmap.
const BITS: usize = 1 << 15;
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
/// Eight spaces, and the masks that find one of them in eight bytes.
const SPACES: u64 = 0x2020_2020_2020_2020;
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The phrases, compiled.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// Edges while phrases are added.
    growing: HashMap<(u32, u64), u32>,
    /// Open stems, by node.
    stems: Vec<Stem>,
    nodes: Vec<Node>,
    /// Edges, by a hash with open addressing.
    edges: Vec<Edge>,
    /// Hashes of words that phrases begin with.
    words: Vec<u64>,
    /// Hashes of the first letters of stems that phrases begin with.
    letters: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The phrase that ends with the word.
    phrase: u32,
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

#[derive(Debug, Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
    word: u64,
}

// === impl Lexicon ===

impl Lexicon {
    /// Adds a phrase; an open one ends inside its last word.
    pub(super) fn add(&mut self, words: &str, open: bool, phrase: u32) {
        let mut node = ROOT;
        self.node(ROOT);
        let mut rest = words.as_bytes();
        loop {
            let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            if open && end == rest.len() {
                if node == ROOT {
                    debug_assert!(rest.len() >= LOOKED_UP, "too short a stem: {words}");
                    node = self.edge(LETTERS, self::eight(rest, 0) & LETTERS_MASK);
                }
                self.stems.push(Stem::new(node, rest, phrase));
                return;
            }
            node = self.edge(node, word(rest, 0, eight(rest, 0)).0);
            if end == rest.len() {
                self.nodes[node as usize].phrase = phrase;
                return;
            }
            rest = &rest[end + 1..];
        }
    }

    /// Makes what was added fast to ask.
    pub(super) fn compile(&mut self) {
        self.words = vec![0; BITS / 64];
        self.letters = vec![0; BITS / 64];
        self.edges = vec![Edge { from: NONE, to: NONE, word: 0 }; (self.growing.len() * 2 + 1).next_power_of_two()];
        for ((from, word), to) in std::mem::take(&mut self.growing) {
            match from {
                ROOT => mark(&mut self.words, word),
                LETTERS => mark(&mut self.letters, word),
                _ => {}
            }
            let mut at = self.slot(from, word);
            while self.edges[at].from != NONE {
                at = (at + 1) % self.edges.len();
            }
            self.edges[at] = Edge { from, to, word };
        }
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
            + size_of_val(&self.edges[..])
            + size_of_val(&self.stems[..])
            + self.stems.iter().map(|stem| stem.rest.len()).sum::<usize>()
            + 2 * BITS / 8
    }

    /// Tells every find with its begin and end, in the order of begins; stops when told to.
    pub(super) fn walk(&self, text: &[u8], take: &mut impl FnMut(u32, usize, usize) -> bool) {
        let mut at = 0;
        while at < text.len() {
            let eight = eight(text, at);
            let (first, end) = word(text, at, eight);
            let next = end + 1;
            if is_marked(&self.letters, eight & LETTERS_MASK)
                && let Some(node) = self.follow(LETTERS, eight & LETTERS_MASK)
                && !self.take_stems(node, text, at, at, take)
            {
                return;
            }
            if is_marked(&self.words, first) {
                let (mut node, mut end) = (self.follow(ROOT, first), end);
                while let Some(here) = node {
                    let Node { phrase, stems } = self.nodes[here as usize];
                    if phrase != NONE && !take(phrase, at, end)
                        || stems.1 != 0 && !self.take_stems(here, text, at, end + 1, take)
                    {
                        return;
                    }
                    if end + 1 >= text.len() {
                        break;
                    }
                    let (following, its_end) = word(text, end + 1, self::eight(text, end + 1));
                    node = self.follow(here, following);
                    end = its_end;
                }
            }
            at = next;
        }
    }

    /// Tells the open stems of a node that stand at a place.
    fn take_stems(
        &self,
        node: u32,
        text: &[u8],
        start: usize,
        at: usize,
        take: &mut impl FnMut(u32, usize, usize) -> bool,
    ) -> bool {
        let (from, to) = self.nodes[node as usize].stems;
        let head = eight(text, at);
        self.stems[from as usize..to as usize]
            .iter()
            .all(|stem| !stem.begins(head, text, at) || take(stem.phrase, start, at + stem.length))
    }

    fn follow(&self, from: u32, word: u64) -> Option<u32> {
        let mut at = self.slot(from, word);
        loop {
            let edge = self.edges.get(at)?;
            if edge.word == word && edge.from == from {
                return Some(edge.to);
            }
            if edge.from == NONE {
                return None;
            }
            at = (at + 1) & (self.edges.len() - 1);
        }
    }

    fn slot(&self, from: u32, word: u64) -> usize {
        spread(word ^ (u64::from(from) << 32 | u64::from(from))) & (self.edges.len().wrapping_sub(1))
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
            self.nodes.push(Node { phrase: NONE, stems: (0, 0) });
        }
    }
}

// === impl Stem ===

impl Stem {
    fn new(node: u32, letters: &[u8], phrase: u32) -> Self {
        let (head, rest) = letters.split_at(letters.len().min(8));
        let mask = if head.len() < 8 { !(u64::MAX << (8 * head.len())) } else { u64::MAX };
        Self { node, phrase, head: eight(head, 0) & mask, mask, rest: rest.into(), length: letters.len() }
    }

    /// Whether a word begins with it, of which eight bytes are given.
    fn begins(&self, head: u64, text: &[u8], at: usize) -> bool {
        head & self.mask == self.head
            && (self.rest.is_empty() || text.get(at + 8..).is_some_and(|text| text.starts_with(&self.rest)))
    }
}

/// Eight bytes from a place on, spaces behind the end.
#[inline]
fn eight(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let mut bytes = [b' '; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(bytes)
}

/// The word at a place, of which the first eight bytes are given, as a number, and its end. Up to seven letters the number
/// is the word itself; of longer words it is a mark of 64 bits, which no two words of a vocabulary share.
#[inline]
fn word(text: &[u8], from: usize, first: u64) -> (u64, usize) {
    let (mut mark, mut at, mut eight) = (0_u64, from, first);
    loop {
        let zeros = eight ^ SPACES;
        let spaces = zeros.wrapping_sub(LOW) & !zeros & HIGH;
        if spaces != 0 {
            // Bits of the letters before the space.
            let bits = spaces.trailing_zeros() & !7;
            return (mark ^ (eight & !(u64::MAX << bits)), at + bits as usize / 8);
        }
        mark = (mark ^ eight).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        at += 8;
        eight = self::eight(text, at);
    }
}

/// Spreads a word's bits; the low ones are taken.
fn spread(word: u64) -> usize {
    (word.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40) as usize
}

fn mark(bits: &mut [u64], word: u64) {
    let bit = spread(word) % BITS;
    bits[bit / 64] |= 1 << (bit % 64);
}

fn is_marked(bits: &[u64], word: u64) -> bool {
    let bit = spread(word) % BITS;
    bits.get(bit / 64).is_some_and(|bits| bits >> (bit % 64) & 1 == 1)
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
        lexicon.walk(text.as_bytes(), &mut |phrase, start, end| {
            finds.push((phrase, start, end));
            true
        });
        finds
    }

    #[test]
    fn phrases_are_found_at_word_boundaries_and_open_stems_inside_their_last_word() {
        let phrases = [("rate limit", false), ("rate", false), ("exceed", true), ("rate limit exc", true)];
        assert_eq!(
            finds(&phrases, " rate limit exceeded pirate limits "),
            [(1, 1, 5), (0, 1, 11), (3, 1, 15), (2, 12, 18)]
        );
    }

    #[test]
    fn words_of_any_length_are_told_apart_by_every_letter() {
        let long = "a".repeat(40);
        for length in 1..40 {
            let text = format!(" {} x", &long[..length]);
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
        lexicon.walk(b" a a a ", &mut |_, _, _| {
            finds += 1;
            finds < 2
        });
        assert_eq!(finds, 2);
    }
}
