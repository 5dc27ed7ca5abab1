//! Builds a [`Lexicon`]: takes phrases one by one, then lays them out so that they are found fast.
//!
//! Never looks at a text.

use std::collections::HashMap;

use super::{
    lexicon::{Find, Lexicon, ROOT, Stem, Stems, Step, letter_bit, letters_key, one_of_64},
    sets::{Triggers, to_u16},
    table::{Table, key_of_two},
};
use crate::policy::classify::reading::{LETTERS, mark};

/// The phrases of a lexicon to be.
#[derive(Debug)]
pub(super) struct Growing {
    /// By mark: the node of a word alone, which is its number, and the word.
    words: HashMap<u64, (u16, Box<[u8]>)>,
    /// From a node and the number of the word that follows to the next node.
    edges: HashMap<(u16, u16), u16>,
    nodes: Vec<Node>,
    open: Vec<Open>,
}

/// The words that phrases begin with.
#[derive(Debug, Default)]
struct Node {
    /// How many.
    words: u8,
    /// The phrases that they are, the last as far as its first letters, and how many letters these are.
    phrases: Vec<(u8, u16)>,
    /// The longest of their endings (the same words without the first, the first two and so on) that is a node.
    ending: u16,
    /// Which words may follow; see [`Step::after`].
    after: u64,
    /// Whether an open stem may follow.
    stemmed: bool,
}

/// A phrase that ends inside its last word.
#[derive(Debug)]
struct Open {
    /// The words before the last.
    node: u16,
    /// What the last begins with.
    stem: Box<[u8]>,
    phrase: u16,
}

// === impl Growing ===

impl Default for Growing {
    fn default() -> Self {
        Self { words: HashMap::new(), edges: HashMap::new(), nodes: vec![Node::default()], open: Vec::new() }
    }
}

impl Growing {
    /// Adds a phrase; an open one ends inside its last word.
    pub(super) fn add(&mut self, words: &str, open: bool, phrase: u32) {
        let phrase = u16::try_from(phrase).unwrap_or(u16::MAX);
        let (before, last) = words.rsplit_once(' ').unwrap_or(("", words));
        let mut node = ROOT;
        for word in before.split_terminator(' ') {
            let number = self.number(word);
            node = self.behind(node, number);
        }
        if open {
            debug_assert!(node != ROOT || last.len() >= LETTERS, "too short a stem: {words}");
            self.open.push(Open { node, stem: last.as_bytes().into(), phrase });
        } else {
            let number = self.number(last);
            self.end(node, number, last.as_bytes(), phrase);
        }
    }

    /// The number of a word.
    fn number(&mut self, word: &str) -> u16 {
        let next = to_u16(self.nodes.len());
        let number = self.words.entry(mark(word)).or_insert_with(|| (next, word.as_bytes().into())).0;
        if number == next {
            self.add_node(1);
        }
        number
    }

    /// The node of the words of a node and one more.
    fn behind(&mut self, before: u16, word: u16) -> u16 {
        if before == ROOT {
            return word;
        }
        let next = to_u16(self.nodes.len());
        let node = *self.edges.entry((before, word)).or_insert(next);
        if node == next {
            let before = &mut self.nodes[usize::from(before)];
            before.after |= one_of_64(word);
            let words = before.words + 1;
            self.add_node(words);
        }
        node
    }

    fn add_node(&mut self, words: u8) {
        debug_assert!(self.nodes.len() < usize::from(u16::MAX), "too many phrases");
        self.nodes.push(Node { words, ..Node::default() });
    }

    /// Lets a phrase end with some letters of a word behind a node.
    fn end(&mut self, before: u16, word: u16, letters: &[u8], phrase: u16) {
        let node = self.behind(before, word);
        self.nodes[usize::from(node)].phrases.push((to_u8(letters.len()), phrase));
    }

    /// Lays the phrases out.
    pub(super) fn compile(mut self, triggers: &Triggers) -> Lexicon {
        self.end_with_known_words();
        let mut lexicon = Lexicon {
            words: Table::new(self.words.iter().map(|(mark, (number, _))| (*mark, *number))),
            finds: vec![Find::default()],
            ..Lexicon::default()
        };
        self.lay_stems(&mut lexicon);
        let mut edges: Vec<_> = std::mem::take(&mut self.edges).into_iter().collect();
        edges.sort_by_key(|(_, node)| (self.nodes[usize::from(*node)].words, *node));
        lexicon.edges = Table::new(edges.iter().map(|((before, word), node)| (key_of_two(*before, *word), *node)));
        // Shorter ones first, because longer ones are made of them.
        let mut words: Vec<_> = self.words.values().map(|(node, _)| *node).collect();
        words.sort_unstable();
        for node in words {
            self.lay_node(&mut lexicon, node);
        }
        for ((before, word), node) in edges {
            self.nodes[usize::from(node)].ending = self.ending(&lexicon, before, word);
            self.lay_node(&mut lexicon, node);
        }
        debug_assert!(u16::try_from(lexicon.finds.len()).is_ok(), "too many phrases");
        lexicon.finds.iter_mut().for_each(|find| find.trigger = triggers.of(find.phrase));
        lexicon.words.give(|node| lexicon.steps[node]);
        lexicon.edges.give(|node| lexicon.steps[node]);
        lexicon
    }

    /// Lets open phrases end with every known word that begins like their last, so that only unknown words need a look
    /// at their letters.
    fn end_with_known_words(&mut self) {
        let mut words: Vec<_> = self.words.values().cloned().collect();
        words.sort_unstable();
        for Open { node, stem, phrase } in std::mem::take(&mut self.open) {
            for (number, _) in words.iter().filter(|(_, word)| word.starts_with(&stem)) {
                self.end(node, *number, &stem, phrase);
            }
            self.nodes[usize::from(node)].stemmed = node != ROOT;
            self.open.push(Open { node, stem, phrase });
        }
    }

    /// Lays out what unknown words are asked.
    fn lay_stems(&mut self, lexicon: &mut Lexicon) {
        let place = |open: &Open| (open.node, if open.node == ROOT { letters_key(&open.stem) } else { 0 });
        self.open.sort_by_key(place);
        for alike in self.open.chunk_by(|one, other| place(one) == place(other)) {
            let from = to_u16(lexicon.stems.len());
            let (node, key) = place(&alike[0]);
            let before = self.nodes[usize::from(node)].words;
            for Open { stem, phrase, .. } in alike {
                let find = Find { phrase: *phrase, before, letters: to_u8(stem.len()), ..Find::default() };
                let row = lexicon.add_row([find].into());
                lexicon.stems.push(Stem::new(stem, row));
            }
            let stems = if node == ROOT { &mut lexicon.letters[key] } else { &mut lexicon.behind[node] };
            let read = if node == ROOT { LETTERS } else { 0 };
            let goes_on = |open: &Open| open.stem.get(read).map_or(u32::MAX, |letter| letter_bit(*letter));
            let letters = alike.iter().fold(0, |all, open| all | goes_on(open));
            *stems = Stems { from, to: to_u16(lexicon.stems.len()), next: ROOT, letters };
        }
    }

    /// The longest node that the words of another and one more end with.
    fn ending(&self, lexicon: &Lexicon, before: u16, word: u16) -> u16 {
        let mut shorter = self.nodes[usize::from(before)].ending;
        while shorter != ROOT {
            let ending = lexicon.edges.get(key_of_two(shorter, word));
            if ending != ROOT {
                return ending;
            }
            shorter = self.nodes[usize::from(shorter)].ending;
        }
        word
    }

    /// Lays out a node, of which all endings are laid out.
    fn lay_node(&self, lexicon: &mut Lexicon, at: u16) {
        let node = &self.nodes[usize::from(at)];
        let ending = lexicon.steps[node.ending];
        let mut row = ending.row;
        if !node.phrases.is_empty() {
            let before = node.words - 1;
            let find =
                |(letters, phrase): &(u8, u16)| Find { phrase: *phrase, before, letters: *letters, ..Find::default() };
            let mut finds: Vec<_> = node.phrases.iter().map(find).collect();
            finds.extend(lexicon.row(row));
            finds.sort_by_key(|find| find.letters);
            row = lexicon.add_row(finds);
        }
        lexicon.steps[at] = Step {
            row,
            rest: if node.after != 0 || node.stemmed { at } else { ending.rest },
            fall: if self.nodes[usize::from(node.ending)].after != 0 { node.ending } else { ending.fall },
            after: node.after | ending.after,
        };
        let stemmed = lexicon.stemmed[node.ending];
        let letters = lexicon.behind[stemmed].letters;
        let stems = &mut lexicon.behind[at];
        (stems.next, stems.letters) = (stemmed, stems.letters | letters);
        lexicon.stemmed[at] = if node.stemmed { at } else { stemmed };
    }
}

fn to_u8(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(u8::MAX)
}
