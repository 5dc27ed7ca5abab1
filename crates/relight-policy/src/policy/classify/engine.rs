//! Finds the first rule that a normalized text satisfies.
//!
//! Every phrase of every rule is one or several *atoms* (words in a row). One Aho-Corasick
//! automaton finds all atoms of a text; each atom selects the phrases that cannot hold without it.
//! Rules are ordered: the first that holds wins.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::{
    evidence::NumericEvidence,
    phrase::{self, PhrasePart},
    reading::NormalizedText,
    rule::Rule,
};
use crate::domain::failure::{ProviderError, Surface};

/// Places of one atom that are kept; a text that repeats one more often is not an error message.
const MAX_PLACES: u32 = 64;

/// The compiled rules.
#[derive(Debug)]
pub(super) struct RuleEngine {
    rules: Vec<Rule>,
    /// Finds the atoms; none if there is no rule with words.
    automaton: Option<AhoCorasick>,
    /// By atom, in the order of the automaton's patterns.
    atoms: Vec<Atom>,
    /// Phrases in the order of their rules.
    alternatives: Vec<Alternative>,
    /// Numeric code -> phrases that consist of this code alone.
    numbered: HashMap<u32, Vec<usize>>,
}

/// The circumstances that a phrase may require beside the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleContext<'a> {
    pub provider: &'a str,
    pub surface: Surface,
    pub status: Option<u16>,
    /// Numbers that occur as a code in the text.
    pub codes: &'a [u32],
}

/// A rule that holds, and the span of the text on which it matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'e> {
    pub rule: &'e Rule,
    pub span: (usize, usize),
}

/// A word sequence of the automaton, and the phrases that need it.
#[derive(Debug, Default)]
struct Atom {
    /// Spaces before and behind the words that belong to the pattern only.
    lead: usize,
    tail: usize,
    /// Phrases to check if this atom occurs.
    triggers: Vec<usize>,
}

/// One phrase of a rule.
#[derive(Debug)]
struct Alternative {
    rule: usize,
    links: Vec<Link>,
    /// Groups of which one atom each must occur anywhere.
    with: Vec<Vec<usize>>,
    /// Atoms that must not occur.
    without: Vec<usize>,
    /// If set, the first link must be a whole keyed value.
    whole_value: bool,
    surfaces: Vec<Surface>,
    statuses: Vec<(u16, u16)>,
    providers: Vec<String>,
    number: Option<u32>,
}

/// One ordered part of a phrase: any of these atoms, at most `gap` bytes behind the part before.
#[derive(Debug)]
struct Link {
    any: Vec<usize>,
    gap: usize,
    /// The only words allowed in the gap; `None` for any.
    between: Option<Vec<String>>,
}

/// The atoms of one text.
#[derive(Debug)]
struct Hits {
    /// By atom: the range of its places.
    ranges: Vec<(u32, u32)>,
    /// Start and end of each place, by atom and then in order.
    places: Vec<(usize, usize)>,
    /// The atoms that occur in the text.
    seen: Vec<usize>,
}

/// The atoms, while rules are compiled.
#[derive(Debug, Default)]
struct AtomTable {
    ids: HashMap<String, usize>,
    patterns: Vec<String>,
    atoms: Vec<Atom>,
}

// === impl RuleContext ===

impl<'a> RuleContext<'a> {
    /// The circumstances of a failure.
    pub(super) fn of(error: &'a ProviderError, evidence: &'a NumericEvidence) -> Self {
        Self {
            provider: &error.provider,
            surface: error.surface,
            status: evidence.status(),
            codes: &evidence.codes,
        }
    }
}

// === impl RuleEngine ===

impl RuleEngine {
    /// Compiles rules, of which an earlier one wins.
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let mut vocabulary = AtomTable::default();
        let mut alternatives: Vec<Alternative> = Vec::new();
        let mut numbered: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            for phrase in rule.any.iter().flat_map(|phrase| phrase::read(phrase)) {
                let links: Vec<_> = phrase
                    .chain
                    .into_iter()
                    .map(|part| vocabulary.link(part))
                    .collect();
                if let Some(number) = phrase.number.filter(|_| links.is_empty()) {
                    numbered.entry(number).or_default().push(alternatives.len());
                }
                alternatives.push(Alternative {
                    rule: index,
                    with: phrase
                        .with
                        .iter()
                        .map(|words| vocabulary.atoms_of(words))
                        .collect(),
                    without: phrase
                        .without
                        .iter()
                        .flat_map(|words| vocabulary.atoms_of(words))
                        .collect(),
                    links,
                    whole_value: phrase.whole_value,
                    surfaces: phrase.surfaces,
                    statuses: phrase.statuses,
                    providers: phrase.providers,
                    number: phrase.number,
                });
            }
        }
        let AtomTable {
            patterns,
            mut atoms,
            ..
        } = vocabulary;
        set_triggers(&alternatives, &mut atoms);
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .match_kind(MatchKind::Standard)
            .prefilter(false)
            .build(&patterns)
            .ok();
        Self {
            rules,
            automaton,
            atoms,
            alternatives,
            numbered,
        }
    }

    /// Returns the first rule that holds, if any.
    pub(super) fn find(
        &self,
        reading: &NormalizedText,
        scene: &RuleContext<'_>,
    ) -> Option<Found<'_>> {
        self.holding(reading, scene).next()
    }

    /// Returns the rules that hold, in their order; one may come several times.
    pub(super) fn holding<'e>(
        &'e self,
        reading: &NormalizedText,
        scene: &RuleContext<'_>,
    ) -> impl Iterator<Item = Found<'e>> {
        let hits = self.hits(&reading.text);
        let mut candidates: Vec<usize> = hits
            .seen
            .iter()
            .flat_map(|atom| &self.atoms[*atom].triggers)
            .copied()
            .collect();
        candidates.extend(
            scene
                .codes
                .iter()
                .filter_map(|code| self.numbered.get(code))
                .flatten(),
        );
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().filter_map(move |at| {
            let alternative = &self.alternatives[at];
            let span = alternative.span(&hits, reading, scene)?;
            Some(Found {
                rule: &self.rules[alternative.rule],
                span,
            })
        })
    }

    fn hits(&self, text: &str) -> Hits {
        let mut found = Vec::new();
        for one in self
            .automaton
            .iter()
            .flat_map(|automaton| automaton.find_overlapping_iter(text))
        {
            let atom = one.pattern().as_usize();
            let Atom { lead, tail, .. } = self.atoms[atom];
            found.push((atom, one.start() + lead, one.end() - tail));
        }
        found.sort_unstable();
        let mut hits = Hits {
            ranges: vec![(0, 0); self.atoms.len()],
            places: Vec::new(),
            seen: Vec::new(),
        };
        for (atom, start, end) in found {
            let (from, to) = &mut hits.ranges[atom];
            if from == to {
                *from = u32::try_from(hits.places.len()).unwrap_or(u32::MAX);
                *to = *from;
                hits.seen.push(atom);
            }
            if *to - *from < MAX_PLACES {
                hits.places.push((start, end));
                *to += 1;
            }
        }
        hits
    }
}

/// Makes each phrase worth a look for the atoms of the group that fewest phrases use.
fn set_triggers(alternatives: &[Alternative], atoms: &mut [Atom]) {
    let mut uses = vec![0_usize; atoms.len()];
    for atom in alternatives.iter().flat_map(Alternative::groups).flatten() {
        uses[*atom] += 1;
    }
    for (index, alternative) in alternatives.iter().enumerate() {
        let rarest = alternative
            .groups()
            .min_by_key(|group| group.iter().map(|atom| uses[*atom]).sum::<usize>());
        for atom in rarest.into_iter().flatten() {
            let triggers = &mut atoms[*atom].triggers;
            if triggers.last() != Some(&index) {
                triggers.push(index);
            }
        }
    }
}

// === impl AtomTable ===

impl AtomTable {
    fn link(&mut self, part: PhrasePart) -> Link {
        Link {
            any: self.atoms_of(&part.spellings),
            gap: part.gap,
            between: part.between,
        }
    }

    fn atoms_of(&mut self, words: &[String]) -> Vec<usize> {
        words.iter().map(|words| self.atom(words)).collect()
    }

    /// Returns the atom of some words; scripts without spaces have no word boundaries.
    fn atom(&mut self, text: &str) -> usize {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let words = text.trim_end_matches('*');
        let lead = usize::from(words.starts_with(|first: char| first.is_ascii()));
        let tail =
            usize::from(words.len() == text.len() && words.ends_with(|last: char| last.is_ascii()));
        let id = self.atoms.len();
        self.patterns
            .push(format!("{}{words}{}", &" "[..lead], &" "[..tail]));
        self.atoms.push(Atom {
            lead,
            tail,
            triggers: Vec::new(),
        });
        self.ids.insert(text.to_owned(), id);
        id
    }
}

// === impl Alternative ===

impl Alternative {
    /// Groups of atoms, of each of which one must occur in the text; a phrase of a number alone has
    /// none.
    fn groups(&self) -> impl Iterator<Item = &Vec<usize>> {
        let links = self.links.iter().map(|link| &link.any);
        links.chain(&self.with).filter(|_| !self.links.is_empty())
    }

    /// Returns the range that the phrase matches, if all of it holds; `(0, 0)` for a numeric code.
    fn span(
        &self,
        hits: &Hits,
        reading: &NormalizedText,
        scene: &RuleContext<'_>,
    ) -> Option<(usize, usize)> {
        let any = |atoms: &[usize]| atoms.iter().any(|atom| hits.has(*atom));
        let holds = self.links.iter().all(|link| any(&link.any))
            && self.with.iter().all(|group| any(group))
            && !any(&self.without)
            && (self.surfaces.is_empty() || self.surfaces.contains(&scene.surface))
            && (self.statuses.is_empty()
                || scene.status.is_some_and(|s| {
                    self.statuses
                        .iter()
                        .any(|(low, high)| (*low..=*high).contains(&s))
                }))
            && (self.providers.is_empty()
                || self
                    .providers
                    .iter()
                    .any(|p| scene.provider.contains(p.as_str())))
            && self
                .number
                .is_none_or(|number| scene.codes.contains(&number));
        if !holds {
            return None;
        }
        let Some((first, rest)) = self.links.split_first() else {
            return self.number.map(|_| (0, 0));
        };
        let mut begins: Vec<_> = hits.places(first).collect();
        begins.sort_unstable();
        begins.into_iter().find_map(|(start, behind)| {
            if self.whole_value && !reading.values.contains(&(start, behind)) {
                return None;
            }
            let end = rest.iter().try_fold(behind, |end, link| {
                link.end_behind(end, hits, &reading.text)
            })?;
            Some((start, end))
        })
    }
}

// === impl Link ===

impl Link {
    /// Returns the end of the first match of this part that is near enough behind another.
    fn end_behind(&self, end: usize, hits: &Hits, text: &str) -> Option<usize> {
        let near = end..=end + self.gap;
        let near = hits
            .places(self)
            .filter(|(start, _)| near.contains(start) && self.allows(&text[end..*start]));
        near.map(|(_, end)| end).min()
    }

    /// Returns whether a gap contains only allowed words; the rest of a word with an open stem is
    /// not one.
    fn allows(&self, gap: &str) -> bool {
        let Some(between) = &self.between else {
            return true;
        };
        let rest = gap.find(' ').map_or("", |at| &gap[at..]);
        rest.split_ascii_whitespace()
            .all(|word| between.iter().any(|allowed| allowed == word))
    }
}

// === impl Hits ===

impl Hits {
    fn has(&self, atom: usize) -> bool {
        let (from, to) = self.ranges[atom];
        from < to
    }

    /// Returns the places of all atoms of a link.
    fn places(&self, link: &Link) -> impl Iterator<Item = (usize, usize)> {
        link.any.iter().flat_map(|atom| {
            let (from, to) = self.ranges[*atom];
            self.places[from as usize..to as usize].iter().copied()
        })
    }
}

#[cfg(test)]
mod tests;
