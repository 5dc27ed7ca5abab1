//! What was found in a text: atoms (the words and phrases that rules are made of) and where each stands.
//!
//! Most of what stands in a text is never asked for its place. So a walk notes only which row of finds ends with which word,
//! and the finds of a row when it is met first; places are told from that when a phrase asks for them.
//!
//! Never keeps more than [`MAX_ORIGINS`] origins.

use super::{
    lexicon::{Find, Row},
    sets::{MOST, Set},
};
use crate::policy::classify::{reading::Word, room::Room};

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
    pub(super) candidates: Set,
    pub(super) places: Places,
    /// Whether words stand in the text that a wait written in words has.
    pub(in crate::policy::classify) speaks_of_waiting: bool,
}

/// Where the atoms of one text stand.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Which text this is; what was noted of another counts no more.
    text: u32,
    /// By row of finds, where it ends.
    rows: Room<Ends, ALL>,
    ends: Room<End, ALL>,
    /// How many of them there are.
    ended: u16,
    origins: Room<Origin, ORIGINS>,
    /// How many of them there are.
    count: u16,
    /// By atom that was found, its first origin.
    firsts: Room<u16, MOST>,
    /// Room for a chain to work in.
    pub(super) lanes: Vec<Lane>,
}

/// Where a row of finds ends.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    /// The text that this is of.
    text: u32,
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

/// Where hits of an atom come from.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    from: From,
    /// The next origin of this atom, or [`NONE`].
    next: u16,
}

#[derive(Debug, Clone, Copy)]
enum From {
    /// A find of a row, wherever the row ends.
    Row { row: u16, before: u8, letters: u8 },
    /// One place.
    Place(Hit),
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

// === impl From ===

impl Default for From {
    fn default() -> Self {
        Self::Place(Hit::default())
    }
}

// === impl Hits ===

impl Hits {
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.candidates.clear();
        self.places.clear();
    }

    /// Notes that a row of finds ends with a word; says whether there is room for another.
    #[inline]
    pub(super) fn add_row(&mut self, row: Row, finds: &[Find], at: usize, placed: &Set) -> bool {
        let first = self.places.ends_first(row.from, at);
        (!first || self.add_finds(row, finds, placed)) && self.places.ended < NONE
    }

    /// Notes the finds of a row that is met first; says whether there is room for another.
    #[inline(never)]
    fn add_finds(&mut self, Row { from, to }: Row, finds: &[Find], placed: &Set) -> bool {
        finds.get(from.into()..to.into()).unwrap_or_default().iter().all(|find| {
            let Find { phrase, before, letters } = *find;
            self.add_from(phrase.into(), From::Row { row: from, before, letters }, placed)
        })
    }

    /// Notes one place of an atom; says whether there is room for another.
    pub(super) fn add_place(&mut self, atom: u32, start: usize, end: usize, placed: &Set) -> bool {
        self.add_from(atom, From::Place(Hit { start, end }), placed)
    }

    /// Adds an origin, of an atom whose place does not count only the first; says whether there is room for another.
    #[inline]
    fn add_from(&mut self, atom: u32, from: From, placed: &Set) -> bool {
        let Places { firsts, origins, count, .. } = &mut self.places;
        let first = &mut firsts[atom as usize % MOST];
        let mut next = NONE;
        if self.seen.has(atom) {
            if !placed.has(atom) {
                return true;
            }
            next = *first;
        } else {
            self.seen.insert(atom);
        }
        *first = *count;
        origins[usize::from(*count) % ORIGINS] = Origin { from, next };
        *count += 1;
        *count < MAX_ORIGINS
    }
}

// === impl Places ===

impl Places {
    fn clear(&mut self) {
        (self.count, self.ended) = (0, 0);
        self.ends[usize::from(NONE)] = End { word: NONE, next: NONE };
        self.text = self.text.wrapping_add(1);
        if self.text == 0 {
            self.text = 1;
            self.rows.fill(Ends::default());
        }
    }

    /// Notes that a row ends with a word; says whether it is the first.
    #[inline]
    fn ends_first(&mut self, row: u16, at: usize) -> bool {
        let end = self.ended;
        self.ends[usize::from(end)] = End { word: u16::try_from(at).unwrap_or(NONE), next: NONE };
        self.ended = end + 1;
        let ends = &mut self.rows[usize::from(row)];
        let last = std::mem::replace(&mut ends.last, end);
        if ends.text == self.text {
            self.ends[usize::from(last)].next = end;
            return false;
        }
        (ends.text, ends.first) = (self.text, end);
        true
    }

    /// The lanes of an atom that was found and is a part of a phrase.
    #[inline]
    pub(super) fn lanes(&self, atom: u32, part: u16, words: &[Word]) -> impl Iterator<Item = Lane> {
        let mut at = self.firsts[atom as usize % MOST];
        std::iter::from_fn(move || {
            let Origin { from, next } = *self.origins.get(usize::from(at))?;
            at = next;
            Some(match from {
                From::Place(hit) => Lane { hit, part, at: NONE, before: 0, letters: 0 },
                From::Row { row, before, letters } => {
                    let at = self.rows[usize::from(row)].first;
                    let hit = Hit::of(words, self.ends[usize::from(at)].word, before, letters);
                    Lane { hit, part, at, before, letters }
                }
            })
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
