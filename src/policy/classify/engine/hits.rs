//! What was found in a text: atoms (the words and phrases that rules are made of), where each stands, and which
//! alternatives are worth a look for them.
//!
//! Never keeps more than [`MAX_HITS`] finds.

use std::collections::{BTreeMap, HashMap};

use crate::policy::classify::room::Room;

/// Finds kept of one text; what comes later is not looked at.
const MAX_HITS: u16 = 768;
/// No hit.
pub(super) const NONE: u16 = u16::MAX;
/// Room for them (a power of two, so that no place is outside).
const PLACES: usize = 1024;
/// Most atoms, and most alternatives, that the tables may hold.
pub(super) const MOST: usize = 16384;

/// Some of the atoms, of the alternatives, or of other small numbers; few of them at a time, so that all can be told and forgotten quickly.
#[derive(Debug, Clone)]
pub(in crate::policy::classify) struct Set {
    bits: [u64; MOST / 64],
    /// Of which of these any bit is set.
    used: [u64; MOST / 64 / 64],
}

/// The finds of one text; the room is kept from text to text.
#[derive(Debug, Default)]
pub(in crate::policy::classify) struct Hits {
    list: Room<Hit, PLACES>,
    count: u16,
    /// The atoms that were found.
    pub(super) seen: Set,
    /// The alternatives that are worth a look for them.
    pub(super) candidates: Set,
    /// By atom.
    spans: Room<Span, MOST>,
    /// Which text this is; what was noted of another counts no more.
    text: u32,
    /// Whether any of the words of [`WAITS`] stands in the text.
    pub(in crate::policy::classify) speaks_of_waiting: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hit {
    pub(super) atom: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The next hit of this atom, or [`NONE`].
    pub(super) next: u16,
}

/// The hits of an atom.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    /// The text that they are of.
    text: u32,
    first: u16,
    /// [`NONE`] where only the first counts.
    last: u16,
}

/// Some atoms of which any will do: blocks of a [`Set`], and which of their bits.
#[derive(Debug)]
pub(super) struct Any(Box<[(u16, u64)]>);

/// From atoms to the alternatives that they make worth a look: blocks of a [`Set`], and which of their bits.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    /// By atom, where its blocks stand.
    ranges: Vec<(u32, u32)>,
    blocks: Vec<(u16, u64)>,
}

// === impl Set ===

impl Default for Set {
    fn default() -> Self {
        Self { bits: [0; MOST / 64], used: [0; MOST / 64 / 64] }
    }
}

impl Set {
    #[inline]
    pub(in crate::policy::classify) fn has(&self, one: u32) -> bool {
        self.bits[one as usize / 64 % self.bits.len()] >> (one % 64) & 1 == 1
    }

    #[inline]
    pub(in crate::policy::classify) fn insert(&mut self, one: u32) {
        self.insert_all(block_of(one), 1 << (one % 64));
    }

    /// Inserts bits of a block.
    #[inline]
    fn insert_all(&mut self, block: u16, bits: u64) {
        let block = usize::from(block) % self.bits.len();
        self.bits[block] |= bits;
        self.used[block / 64] |= 1 << (block % 64);
    }

    #[inline]
    fn block(&self, block: u16) -> u64 {
        self.bits[usize::from(block) % self.bits.len()]
    }

    fn clear(&mut self) {
        for (at, used) in self.used.iter_mut().enumerate() {
            while *used != 0 {
                self.bits[64 * at + used.trailing_zeros() as usize] = 0;
                *used &= *used - 1;
            }
        }
    }

    /// Tells all of them, the lowest first, until told to stop.
    #[inline]
    pub(super) fn each(&self, mut tell: impl FnMut(usize) -> bool) {
        for (at, used) in self.used.iter().enumerate() {
            let mut used = *used;
            while used != 0 {
                let block = 64 * at + used.trailing_zeros() as usize;
                let mut bits = self.bits[block];
                while bits != 0 {
                    if !tell(64 * block + bits.trailing_zeros() as usize) {
                        return;
                    }
                    bits &= bits - 1;
                }
                used &= used - 1;
            }
        }
    }
}

// === impl Any ===

impl Any {
    pub(super) fn of(atoms: &[u32]) -> Self {
        let mut blocks = BTreeMap::new();
        for atom in atoms {
            *blocks.entry(block_of(*atom)).or_default() |= 1 << (atom % 64);
        }
        Self(blocks.into_iter().collect())
    }

    /// Whether any of them is in a set.
    #[inline]
    pub(super) fn is_in(&self, set: &Set) -> bool {
        self.0.iter().any(|(block, bits)| set.block(*block) & bits != 0)
    }

    /// Those that are in a set.
    pub(super) fn among(&self, set: &Set) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(block, bits)| {
            let mut left = set.block(*block) & bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(64 * u32::from(*block) + bit)
            })
        })
    }
}

// === impl Hits ===

impl Hits {
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.seen.clear();
        self.candidates.clear();
        self.text = self.text.wrapping_add(1);
        if self.text == 0 {
            self.spans.fill(Span { text: u32::MAX, ..Span::default() });
        }
    }

    /// Adds a hit, of an atom whose place does not count only the first; says whether there is room for another.
    #[inline]
    pub(super) fn add(&mut self, atom: u32, start: usize, end: usize, placed: &Set) -> bool {
        let (at, span) = (self.count, &mut self.spans[atom as usize % MOST]);
        if span.text != self.text {
            let last = if placed.has(atom) { at } else { NONE };
            *span = Span { text: self.text, first: at, last };
            self.seen.insert(atom);
        } else if span.last == NONE {
            return true;
        } else {
            self.list[usize::from(span.last) % PLACES].next = at;
            span.last = at;
        }
        self.list[usize::from(at) % PLACES] = Hit { atom, start, end, next: NONE };
        self.count = at + 1;
        self.count < MAX_HITS
    }

    /// Orders the hits by their ends.
    pub(super) fn sort(&mut self, placed: &Set) {
        let mut hits = self.list[..usize::from(self.count)].to_vec();
        hits.sort_by_key(|hit| hit.end);
        self.clear();
        for hit in hits {
            self.add(hit.atom, hit.start, hit.end, placed);
        }
    }

    /// Notes the alternatives that are worth a look for any atom that was found.
    pub(super) fn note_candidates(&mut self, triggers: &Triggers) {
        self.seen.each(|atom| {
            triggers.of(atom).iter().for_each(|(block, bits)| self.candidates.insert_all(*block, *bits));
            true
        });
    }

    /// The place of the first hit of an atom, or [`NONE`].
    pub(super) fn first(&self, atom: u32) -> u16 {
        let span = self.spans[atom as usize % MOST];
        if span.text == self.text { span.first } else { NONE }
    }

    /// The hit at a place.
    #[inline]
    pub(super) fn get(&self, at: u16) -> Option<&Hit> {
        (at < self.count).then(|| &self.list[usize::from(at) % PLACES])
    }

    /// The hits of an atom.
    pub(super) fn of(&self, atom: u32) -> impl Iterator<Item = &Hit> {
        let mut at = self.first(atom);
        std::iter::from_fn(move || {
            let hit = self.get(at)?;
            at = hit.next;
            Some(hit)
        })
    }
}

// === impl Triggers ===

impl Triggers {
    /// For alternatives each of which needs one atom of every group: by the group that stands least often in texts, as far as
    /// one can tell from how often its atoms stand in the tables. Without groups an alternative is never worth a look.
    pub(super) fn rarest(alternatives: &[Vec<Vec<u32>>]) -> Self {
        let mut uses: HashMap<u32, usize> = HashMap::new();
        for atom in alternatives.iter().flatten().flatten() {
            *uses.entry(*atom).or_default() += 1;
        }
        let mut by_atom: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (alternative, groups) in (0..).zip(alternatives) {
            let rarest = groups.iter().min_by_key(|group| group.iter().map(|atom| uses[atom]).sum::<usize>());
            for atom in rarest.into_iter().flatten() {
                by_atom.entry(*atom).or_default().push(alternative);
            }
        }
        debug_assert!(alternatives.len() <= MOST, "too many phrases");
        let mut made = Self::default();
        for (atom, alternatives) in by_atom {
            let from = to_u32(made.blocks.len());
            made.blocks.extend(Any::of(&alternatives).0);
            made.ranges.resize(atom as usize, (from, from));
            made.ranges.push((from, to_u32(made.blocks.len())));
        }
        made
    }

    /// The alternatives that an atom makes worth a look.
    fn of(&self, atom: usize) -> &[(u16, u64)] {
        self.ranges.get(atom).map_or(&[], |(from, to)| &self.blocks[*from as usize..*to as usize])
    }
}

/// The block of a [`Set`] in which one stands.
fn block_of(one: u32) -> u16 {
    u16::try_from(one / 64).unwrap_or(u16::MAX)
}

pub(super) fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
