//! What was found in a text: atoms (the words and phrases that rules are made of) and where each stands.
//!
//! Most of what stands in a text is never asked for its place. So a walk notes only which row of finds ends with which word;
//! the finds of all rows that it met are noted once behind it, and places are told when a phrase asks for them.
//!
//! Never keeps more than [`MAX_ORIGINS`] origins.

use super::{
    lexicon::{Find, NO_ROW},
    sets::{Candidates, MOST, Set, Triggers, to_u16},
};
use crate::policy::classify::{
    reading::{WORDS, Word},
    room::Room,
};

/// Origins kept of one text; what comes later is not looked at.
const MAX_ORIGINS: u16 = 2000;
/// Room for them (a power of two, so that no place is outside).
const ORIGINS: usize = 2048;
/// None of them.
const NONE: u16 = u16::MAX;
/// So many numbers of sixteen bits there are.
const ALL: usize = 1 << 16;

/// The finds of one text; the room is kept from text to text.
#[derive(Debug, Default)]
pub(in crate::policy::classify) struct Hits {
    /// The atoms that were found.
    pub(super) seen: Set,
    /// The alternatives that are worth a look for them.
    pub(super) candidates: Candidates,
    pub(super) places: Places,
    /// Whether words stand in the text that a wait written in words has.
    pub(in crate::policy::classify) speaks_of_waiting: bool,
}

/// Where the atoms of one text stand.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By row of finds, where it ends.
    rows: Room<Ends, ALL>,
    /// The rows that were met, in the order of where they first end.
    rows_met: Room<u16, ALL>,
    /// How many of them there are.
    met: u16,
    /// By word, the row that ends with it, and behind all words the others that end with one of them.
    ends: Room<End, ALL>,
    /// Where the next of those goes.
    others: u16,
    origins: Room<Origin, ORIGINS>,
    /// By origin that is one place, this place.
    alone: Room<Hit, ORIGINS>,
    /// How many origins there are.
    count: u16,
    /// By atom that was found, its first origin.
    firsts: Room<u16, MOST>,
    /// Room for a chain to work in.
    pub(super) lanes: Vec<Lane>,
}

/// Where a row of finds ends: its first and last end, or [`NONE`].
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u16,
    last: u16,
}

/// A word that a row of finds ends with.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    word: u16,
    /// The next end of the same row, or [`NONE`].
    next: u16,
}

/// Where hits of an atom come from: a find of a row, wherever the row ends, or one place.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    /// The row, or [`NO_ROW`].
    row: u16,
    before: u8,
    letters: u8,
    /// The next origin of this atom, or [`NONE`].
    next: u16,
}

/// Where an atom stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The places of one origin, while they are gone through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    /// The next of them, or [`NOWHERE`].
    pub(super) hit: Hit,
    /// Which part of a phrase they are.
    pub(super) part: u16,
    /// The next end, or [`NONE`].
    at: u16,
    before: u8,
    letters: u8,
}

/// Behind all places.
pub(super) const NOWHERE: usize = usize::MAX;

// === impl Ends ===

impl Default for Ends {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

// === impl Hits ===

impl Hits {
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.candidates.clear();
        self.places.clear();
    }

    /// Notes the finds of all rows that were met, as long as there is room for them.
    pub(super) fn add_finds(&mut self, finds: &[Find], triggers: &Triggers) {
        for at in 0..self.places.met {
            let row = self.places.rows_met[usize::from(at)];
            for find in &finds[usize::from(row)..] {
                if !self.add_from(row, find, triggers) {
                    return;
                }
                if find.is_last {
                    break;
                }
            }
        }
    }

    /// Notes one place of an atom; says whether there is room for another.
    pub(super) fn add_place(&mut self, atom: u32, start: usize, end: usize, triggers: &Triggers) -> bool {
        self.places.alone[usize::from(self.places.count) % ORIGINS] = Hit { start, end };
        let phrase = to_u16(atom as usize);
        let find = Find { trigger: triggers.of(phrase), phrase, ..Find::default() };
        self.add_from(NO_ROW, &find, triggers)
    }

    /// Adds an origin, of an atom whose place does not count only the first; says whether there is room for another.
    #[expect(clippy::inline_always, reason = "it is the loop of the finds")]
    #[inline(always)]
    fn add_from(&mut self, row: u16, find: &Find, triggers: &Triggers) -> bool {
        let Places { firsts, origins, count, .. } = &mut self.places;
        let Find { trigger, phrase, before, letters, .. } = *find;
        let first = &mut firsts[usize::from(phrase) % MOST];
        let mut next = NONE;
        if self.seen.has(phrase.into()) {
            if !trigger.placed {
                return true;
            }
            next = *first;
        } else {
            self.seen.insert(phrase.into());
            triggers.note(trigger, &mut self.candidates);
        }
        *first = *count;
        origins[usize::from(*count) % ORIGINS] = Origin { row, before, letters, next };
        *count += 1;
        *count < MAX_ORIGINS
    }
}

// === impl Places ===

impl Places {
    fn clear(&mut self) {
        for row in &self.rows_met[..usize::from(self.met)] {
            self.rows[usize::from(*row)] = Ends::default();
        }
        self.ends[usize::from(NONE)] = End { word: NONE, next: NONE };
        (self.count, self.met, self.others) = (0, 0, to_u16(WORDS));
    }

    /// Notes the one row of finds that ends with a word which phrases hold.
    #[inline]
    pub(super) fn end_row(&mut self, row: u16, word: u16) {
        self.end(row, word, word);
    }

    /// Notes one of the rows of open phrases that end with a word, as long as there is room for it.
    pub(super) fn end_stem(&mut self, row: u16, word: u16) {
        if self.others < NONE {
            self.end(row, word, self.others);
            self.others += 1;
        }
    }

    #[inline]
    fn end(&mut self, row: u16, word: u16, at: u16) {
        self.ends[usize::from(at)] = End { word, next: NONE };
        let ends = &mut self.rows[usize::from(row)];
        let last = std::mem::replace(&mut ends.last, at);
        if last == NONE {
            ends.first = at;
            self.rows_met[usize::from(self.met)] = row;
            self.met += 1;
        } else {
            self.ends[usize::from(last)].next = at;
        }
    }

    /// The lanes of an atom that was found and is a part of a phrase.
    #[inline]
    pub(super) fn lanes(&self, atom: u32, part: u16, words: &[Word]) -> impl Iterator<Item = Lane> {
        let mut at = self.firsts[atom as usize % MOST];
        std::iter::from_fn(move || {
            let Origin { row, before, letters, next } = *self.origins.get(usize::from(at))?;
            let origin = std::mem::replace(&mut at, next);
            if row == NO_ROW {
                return Some(Lane { hit: self.alone[usize::from(origin) % ORIGINS], part, at: NONE, before, letters });
            }
            let at = self.rows[usize::from(row)].first;
            let hit = Hit::of(words, self.ends[usize::from(at)].word, before, letters);
            Some(Lane { hit, part, at, before, letters })
        })
    }

    /// Passes the next place of a lane.
    #[inline]
    pub(super) fn pass(&self, lane: &mut Lane, words: &[Word]) {
        lane.at = self.ends[usize::from(lane.at)].next;
        lane.hit = Hit::of(words, self.ends[usize::from(lane.at)].word, lane.before, lane.letters);
    }
}

// === impl Hit ===

impl Hit {
    /// Where a phrase stands that ends with some letters of a word and has so many words before it.
    #[inline]
    fn of(words: &[Word], last: u16, before: u8, letters: u8) -> Self {
        let first = words.get(usize::from(last).wrapping_sub(before.into()));
        match (first, words.get(usize::from(last))) {
            (Some(first), Some(last)) => Self { start: first.begin, end: last.begin + usize::from(letters) },
            _ => Self { start: NOWHERE, end: NOWHERE },
        }
    }
}
