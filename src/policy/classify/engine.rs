//! Finds the first rule of the tables that a reading satisfies, in one pass over the text.
//!
//! Every phrase of every rule goes into one lexicon of words (or, for scripts without spaces, one automaton); what is found
//! decides which rules are looked at, so the cost follows the text and not the number of rules. Rules are ordered: the lowest
//! index wins.
//!
//! Never allocates by the number of rules.

use std::collections::HashMap;

use aho_corasick::{Anchored, MatchKind, automaton::Automaton, dfa::DFA};

mod chain;
mod growing;
mod hits;
mod lexicon;
mod sets;
mod table;

use chain::Chain;
use growing::Growing;
pub(super) use hits::Hits;
use lexicon::Lexicon;
use sets::{Any, Triggers, to_u32};
pub(super) use sets::{MOST, Set};
pub(super) use table::{Table, key_of_two};

use super::{
    phrase,
    reading::Reading,
    rule::Rule,
    waits::text::{UNITS, WAITS},
};
use crate::domain::failure::Surface;

/// The tables, compiled.
#[derive(Debug)]
pub(super) struct Engine {
    /// Finds words of ASCII, walked word by word.
    ascii: Lexicon,
    /// Finds words of other scripts, walked only where a text holds any.
    wide: Searcher,
    atoms: Vec<Atom>,
    alternatives: Vec<Alternative>,
    /// What follows from an atom.
    triggers: Triggers,
    /// Numeric code -> alternatives.
    numbered: HashMap<u32, Vec<u32>>,
    /// The atoms of the words that a wait in words has.
    waits: [u32; WAITS.len()],
    units: [u32; UNITS.len()],
}

/// The circumstances that a rule may ask for beside the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    pub provider: &'a str,
    pub surface: Surface,
    pub status: Option<u16>,
    /// Numbers that stand as a code in the text.
    pub codes: &'a [u32],
}

/// A rule that holds, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The rule's index in the tables.
    pub rule: usize,
    /// The span of the reading that it keyed on.
    pub span: (usize, usize),
}

/// The atoms, while tables are compiled.
#[derive(Debug, Default)]
struct Vocabulary {
    /// By their words.
    ids: HashMap<String, u32>,
    ascii: Growing,
    wide: Searcher,
    atoms: Vec<Atom>,
}

/// An automaton and the atoms that its patterns stand for.
#[derive(Debug, Default)]
struct Searcher {
    patterns: Vec<String>,
    ids: Vec<u32>,
    automaton: Option<DFA>,
}

#[derive(Debug, Clone, Copy)]
struct Atom {
    /// Bytes of the words.
    length: u16,
    /// Spaces behind that belong to the search and not to the words.
    tail: u8,
}

#[derive(Debug)]
struct Alternative {
    rule: usize,
    chain: Chain,
    with: Vec<Any>,
    without: Any,
    surfaces: Vec<Surface>,
    statuses: Vec<(u16, u16)>,
    providers: Vec<String>,
    number: Option<u32>,
}

// === impl Engine ===

impl Engine {
    /// Compiles tables; a phrase that cannot be read is left out and named by [`Engine::faults`] in the tests.
    pub(super) fn new<'t>(rules: impl Iterator<Item = &'t Rule>) -> Self {
        let (mut vocabulary, mut placed) = (Vocabulary::default(), Set::default());
        let (mut alternatives, mut groups) = (Vec::new(), Vec::new());
        let mut numbered: HashMap<u32, Vec<u32>> = HashMap::new();
        for (index, rule) in rules.enumerate() {
            for phrase in rule.any.iter().flat_map(|phrase| phrase::read(phrase)) {
                let mut atoms = |words: &[String]| words.iter().map(|w| vocabulary.atom(w)).collect::<Vec<_>>();
                let chain: Vec<_> = phrase.chain.iter().map(|part| atoms(&part.spellings)).collect();
                let with: Vec<_> = phrase.with.iter().map(|words| atoms(words)).collect();
                let without: Vec<_> = phrase.without.iter().flat_map(|words| atoms(words)).collect();
                if chain.len() > 1 || phrase.whole_value {
                    chain.iter().flatten().for_each(|atom| placed.insert(*atom));
                }
                match phrase.number.filter(|_| chain.is_empty()) {
                    Some(number) => numbered.entry(number).or_default().push(to_u32(alternatives.len())),
                    None if chain.is_empty() => continue,
                    None => {}
                }
                alternatives.push(Alternative {
                    rule: index,
                    chain: Chain::new(&phrase.chain, &chain, phrase.whole_value),
                    with: with.iter().map(|atoms| Any::of(atoms)).collect(),
                    without: Any::of(&without),
                    surfaces: phrase.surfaces,
                    statuses: phrase.statuses,
                    providers: phrase.providers,
                    number: phrase.number,
                });
                groups.push(if chain.is_empty() { Vec::new() } else { [chain, with].concat() });
            }
        }
        let waits = WAITS.map(|word| vocabulary.atom(word));
        let units = UNITS.map(|(word, _)| vocabulary.atom(word));
        let Vocabulary { ascii, mut wide, atoms, .. } = vocabulary;
        wide.compile();
        let triggers = Triggers::rarest(&groups, &placed);
        Self { ascii: ascii.compile(&triggers), wide, atoms, alternatives, triggers, numbered, waits, units }
    }

    /// The tables' size in memory, in bytes, and the number of phrases.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.ascii.memory() + self.wide.automaton.as_ref().map_or(0, Automaton::memory_usage), self.atoms.len())
    }

    #[cfg(test)]
    pub(super) fn is_compiled(&self) -> bool {
        self.wide.automaton.is_some()
    }

    /// The first rule that holds, if any.
    pub(super) fn find(&self, reading: &Reading, scene: &Scene<'_>, finds: &mut Hits) -> Option<Found> {
        finds.clear();
        let text = &reading.text;
        self.ascii.walk(text, &self.triggers, finds);
        if !text.is_ascii() {
            self.wide.walk(text, &mut |atom, end| {
                let Atom { length, tail } = self.atoms[atom as usize];
                let end = end - usize::from(tail);
                finds.add_place(atom, end - usize::from(length), end, &self.triggers)
            });
        }
        let any = |atoms: &[u32]| atoms.iter().any(|atom| finds.seen.has(*atom));
        finds.speaks_of_waiting = any(&self.waits) && any(&self.units);
        let by_words = self.first_of(finds, reading, scene);
        self.first_by_number(by_words, &finds.seen, scene)
    }

    /// The first rule of which a phrase stands in the text.
    fn first_of(&self, hits: &mut Hits, reading: &Reading, scene: &Scene<'_>) -> Option<Found> {
        let Hits { seen, candidates, places, .. } = hits;
        let mut first = None;
        // Alternatives are numbered in the order of rules.
        candidates.each(|at| {
            let alternative = &self.alternatives[at];
            if self.triggers.may_hold(at, seen) && alternative.fits(seen, scene) {
                let span = alternative.chain.first(seen, places, reading);
                first = span.map(|span| Found { rule: alternative.rule, span });
            }
            first.is_none()
        });
        first
    }

    /// The first rule, better than one that was found, of which a numeric code stands in the text.
    fn first_by_number(&self, mut best: Option<Found>, seen: &Set, scene: &Scene<'_>) -> Option<Found> {
        for code in scene.codes {
            for id in self.numbered.get(code).into_iter().flatten() {
                let alternative = &self.alternatives[*id as usize];
                if best.is_none_or(|best| best.rule > alternative.rule) && alternative.fits(seen, scene) {
                    best = Some(Found { rule: alternative.rule, span: (0, 0) });
                }
            }
        }
        best
    }
}

// === impl Vocabulary ===

impl Vocabulary {
    /// The atom of some words.
    fn atom(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let open_end = text.ends_with('*');
        let words = text.trim_end_matches('*');
        let id = to_u32(self.atoms.len());
        debug_assert!(self.atoms.len() < MOST, "too many phrases");
        let tail = if words.is_ascii() {
            self.ascii.add(words, open_end, id);
            !open_end
        } else {
            // Boundaries of Latin words are part of what is searched.
            let bounded = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii);
            let lead = bounded(words.as_bytes().first());
            let tail = !open_end && bounded(words.as_bytes().last());
            self.wide.ids.push(id);
            self.wide.patterns.push(format!("{}{words}{}", if lead { " " } else { "" }, if tail { " " } else { "" }));
            tail
        };
        self.atoms.push(Atom { length: u16::try_from(words.len()).unwrap_or(u16::MAX), tail: u8::from(tail) });
        self.ids.insert(text.to_owned(), id);
        id
    }
}

// === impl Searcher ===

impl Searcher {
    fn compile(&mut self) {
        let patterns = std::mem::take(&mut self.patterns);
        self.automaton = DFA::builder().match_kind(MatchKind::Standard).build(&patterns).ok();
    }

    /// Tells every find, overlapping ones too, with its end; stops when told to.
    fn walk(&self, text: &[u8], take: &mut impl FnMut(u32, usize) -> bool) {
        let Some(automaton) = &self.automaton else { return };
        let Ok(mut state) = automaton.start_state(Anchored::No) else { return };
        for (at, byte) in text.iter().enumerate() {
            state = automaton.next_state(Anchored::No, state, *byte);
            if automaton.is_special(state) && automaton.is_match(state) {
                for index in 0..automaton.match_len(state) {
                    if !take(self.ids[automaton.match_pattern(state, index).as_usize()], at + 1) {
                        return;
                    }
                }
            }
        }
    }
}

// === impl Alternative ===

impl Alternative {
    /// Whether all that is asked beside the place holds, so that looking at places is worth it.
    fn fits(&self, seen: &Set, scene: &Scene<'_>) -> bool {
        self.chain.is_in(seen)
            && self.with.iter().all(|any| any.is_in(seen))
            && !self.without.is_in(seen)
            && (self.surfaces.is_empty() || self.surfaces.contains(&scene.surface))
            && (self.statuses.is_empty()
                || scene.status.is_some_and(|s| self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&s))))
            && (self.providers.is_empty() || self.providers.iter().any(|p| scene.provider.contains(p.as_str())))
            && self.number.is_none_or(|number| scene.codes.contains(&number))
    }
}

#[cfg(test)]
mod tests;
