//! What was found in a text: atoms (the words and phrases that rules are made of), where each stands, and what begins with it.
//!
//! Never keeps more than [`MAX_HITS`] finds.

use std::num::NonZeroU16;

/// Finds kept of one text; what comes later is not looked at.
const MAX_HITS: usize = 768;
/// Most atoms the tables may hold.
pub(super) const MAX_ATOMS: usize = 8192;
/// Most alternatives the tables may hold.
pub(super) const MAX_ALTERNATIVES: usize = 8192;
/// Some of the atoms.
pub(super) type Atoms = [u64; MAX_ATOMS / 64];

/// The finds of one text; the room is kept from text to text.
#[derive(Debug)]
pub(in crate::policy::classify) struct Hits {
    pub(super) list: Vec<Hit>,
    /// The atoms that were found.
    pub(super) seen: Atoms,
    /// By atom that was found, its first hit and its last.
    ends: Box<[(u16, u16)]>,
    /// Whether any of the words of [`WAITS`] stands in the text.
    pub(in crate::policy::classify) speaks_of_waiting: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) atom: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The next hit of this atom, if any.
    next: Option<NonZeroU16>,
}

/// From atoms to the alternatives that may begin with them.
#[derive(Debug)]
pub(super) struct Triggers {
    /// The atoms that any begins with.
    pub(super) atoms: Atoms,
    /// By atom, where its alternatives stand.
    ranges: Vec<(u32, u32)>,
    alternatives: Vec<u16>,
}

// === impl Hits ===

impl Default for Hits {
    fn default() -> Self {
        let (list, seen, ends) = (Vec::with_capacity(MAX_HITS), [0; MAX_ATOMS / 64], vec![(0, 0); MAX_ATOMS]);
        Self { list, seen, ends: ends.into(), speaks_of_waiting: false }
    }
}

impl Hits {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.seen = [0; MAX_ATOMS / 64];
    }

    /// Adds a hit; says whether there is room for another.
    #[inline]
    pub(super) fn add(&mut self, atom: u32, start: usize, end: usize) -> bool {
        let at = u16::try_from(self.list.len()).unwrap_or_default();
        let (first, last) = &mut self.ends[atom as usize % MAX_ATOMS];
        if !has(&self.seen, atom) {
            insert(&mut self.seen, atom);
            *first = at;
        } else if let Some(hit) = self.list.get_mut(usize::from(*last)) {
            hit.next = NonZeroU16::new(at);
        }
        *last = at;
        self.list.push(Hit { atom, start, end, next: None });
        self.list.len() < MAX_HITS
    }

    /// Orders the hits by their ends.
    pub(super) fn sort(&mut self) {
        let mut hits = std::mem::take(&mut self.list);
        hits.sort_by_key(|hit| hit.end);
        self.clear();
        for hit in hits {
            self.add(hit.atom, hit.start, hit.end);
        }
    }

    /// The hits of an atom, and where in the list they stand.
    pub(super) fn of(&self, atom: u32) -> impl Iterator<Item = (usize, &Hit)> {
        let first = has(&self.seen, atom).then(|| self.ends[atom as usize % MAX_ATOMS].0);
        let mut next = first.map(usize::from);
        std::iter::from_fn(move || {
            let at = next?;
            let hit = self.list.get(at)?;
            next = hit.next.map(|next| usize::from(next.get()));
            Some((at, hit))
        })
    }
}

// === impl Triggers ===

impl Triggers {
    /// From atoms and alternatives in the order of atoms.
    pub(super) fn new(triggers: &[(u32, u32)]) -> Self {
        let mut made = Self { atoms: [0; MAX_ATOMS / 64], ranges: Vec::new(), alternatives: Vec::new() };
        for (atom, alternative) in triggers {
            debug_assert!((*alternative as usize) < MAX_ALTERNATIVES, "too many phrases");
            insert(&mut made.atoms, *atom);
            let at = to_u32(made.alternatives.len());
            made.ranges.resize(*atom as usize + 1, (at, at));
            made.ranges[*atom as usize].1 = at + 1;
            made.alternatives.push(u16::try_from(*alternative).unwrap_or(u16::MAX));
        }
        made
    }

    /// The alternatives that may begin with an atom.
    pub(super) fn of(&self, atom: usize) -> &[u16] {
        self.ranges.get(atom).map_or(&[], |(from, to)| &self.alternatives[*from as usize..*to as usize])
    }
}

#[inline]
pub(super) fn has(atoms: &Atoms, atom: u32) -> bool {
    atoms[atom as usize / 64 % atoms.len()] >> (atom % 64) & 1 == 1
}

#[inline]
pub(super) fn insert(atoms: &mut Atoms, atom: u32) {
    atoms[atom as usize / 64 % atoms.len()] |= 1 << (atom % 64);
}

pub(super) fn remove(atoms: &mut Atoms, atom: u32) {
    atoms[atom as usize / 64 % atoms.len()] &= !(1 << (atom % 64));
}

pub(super) fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
