//! Sets of small numbers, and which alternatives are worth a look for which atoms.

use std::collections::{BTreeMap, HashMap};

/// Most atoms, most alternatives and most of other small numbers that a [`Set`] can hold.
pub(in crate::policy::classify) const MOST: usize = 16384;
/// Blocks of a set.
const BLOCKS: usize = MOST / 64;

/// Some of the atoms, or of other small numbers.
#[derive(Debug, Clone)]
pub(in crate::policy::classify) struct Set([u64; BLOCKS]);

/// The alternatives that are worth a look; few of them at a time, so that all can be told and forgotten quickly.
#[derive(Debug)]
pub(super) struct Candidates {
    bits: [u64; BLOCKS],
    /// Of which of these any bit may be set: a byte each, so that one can be noted without a look at the others.
    used: [u8; BLOCKS],
}

/// Some atoms of which any will do: blocks of a [`Set`], and which of their bits.
#[derive(Debug)]
pub(super) struct Any(Box<[(u16, u64)]>);

/// What follows from an atom that was found.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    by_atom: Vec<Trigger>,
    /// Blocks of alternatives beside the first, of atoms that have more than one; at first none, for all others.
    more: Vec<Box<[(u16, u64)]>>,
    /// By alternative.
    needs: Vec<Need>,
}

/// What follows from an atom: the alternatives that it makes worth a look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trigger {
    /// Which bits of one block.
    bits: u64,
    block: u16,
    /// Where the other blocks stand.
    more: u16,
    /// Whether it counts where the atom stands; if not, the first find is enough.
    pub(super) placed: bool,
}

/// Some atoms of which an alternative needs one beside what made it worth a look: of no more than two blocks, so that most
/// alternatives are passed over at one glance.
#[derive(Debug, Clone, Copy, Default)]
struct Need {
    blocks: [u16; 2],
    bits: [u64; 2],
}

// === impl Set ===

impl Default for Set {
    fn default() -> Self {
        Self([0; BLOCKS])
    }
}

impl Set {
    #[inline]
    pub(in crate::policy::classify) fn has(&self, one: u32) -> bool {
        self.block(block_of(one)) >> (one % 64) & 1 == 1
    }

    #[inline]
    pub(in crate::policy::classify) fn insert(&mut self, one: u32) {
        self.0[usize::from(block_of(one)) % BLOCKS] |= 1 << (one % 64);
    }

    #[inline]
    fn block(&self, block: u16) -> u64 {
        self.0[usize::from(block) % BLOCKS]
    }

    pub(in crate::policy::classify) fn clear(&mut self) {
        self.0.fill(0);
    }
}

// === impl Candidates ===

impl Default for Candidates {
    fn default() -> Self {
        Self { bits: [0; BLOCKS], used: [0; BLOCKS] }
    }
}

impl Candidates {
    /// Inserts bits of a block.
    #[inline]
    fn insert(&mut self, block: u16, bits: u64) {
        let block = usize::from(block) % BLOCKS;
        self.bits[block] |= bits;
        self.used[block] = 1;
    }

    pub(super) fn clear(&mut self) {
        for (at, used) in self.used.as_chunks_mut().0.iter_mut().enumerate() {
            if u64::from_le_bytes(*used) != 0 {
                self.bits[8 * at..8 * at + 8].fill(0);
                used.fill(0);
            }
        }
    }

    /// Tells all of them, the lowest first, until told to stop.
    #[inline]
    pub(super) fn each(&self, mut tell: impl FnMut(usize) -> bool) {
        for (at, used) in self.used.as_chunks().0.iter().enumerate() {
            let mut used = u64::from_le_bytes(*used);
            while used != 0 {
                let block = 8 * at + used.trailing_zeros() as usize / 8;
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

// === impl Triggers ===

impl Triggers {
    /// For alternatives each of which needs one atom of every group: by the group that stands least often in texts, as far as
    /// one can tell from how often its atoms stand in the tables. Without groups an alternative is never worth a look.
    /// `placed` are the atoms of which it counts where they stand; of the others the first find is enough.
    pub(super) fn rarest(alternatives: &[Vec<Vec<u32>>], placed: &Set) -> Self {
        let mut uses: HashMap<u32, usize> = HashMap::new();
        for atom in alternatives.iter().flatten().flatten() {
            *uses.entry(*atom).or_default() += 1;
        }
        let mut by_atom: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let placed = (0..).take(MOST).map(|atom| Trigger { placed: placed.has(atom), ..Trigger::default() });
        let mut made = Self { by_atom: placed.collect(), more: vec![Box::default()], needs: Vec::new() };
        for (alternative, groups) in (0..).zip(alternatives) {
            let mut groups: Vec<_> = groups.iter().collect();
            groups.sort_by_key(|group| group.iter().map(|atom| uses[atom]).sum::<usize>());
            let (rarest, others) = groups.split_first().map_or((&[][..], &[][..]), |(one, others)| (one, others));
            for atom in rarest {
                by_atom.entry(*atom).or_default().push(alternative);
            }
            made.needs.push(others.iter().find_map(|group| Need::of(group)).unwrap_or_default());
        }
        debug_assert!(alternatives.len() <= MOST, "too many phrases");
        for (atom, alternatives) in by_atom {
            let Any(blocks) = Any::of(&alternatives);
            let Some(((block, bits), others)) = blocks.split_first() else { continue };
            let more = if others.is_empty() { 0 } else { to_u16(made.more.len()) };
            made.more.extend((more > 0).then(|| others.into()));
            let trigger = &mut made.by_atom[atom as usize % MOST];
            (trigger.bits, trigger.block, trigger.more) = (*bits, *block, more);
        }
        made
    }

    /// Whether an alternative that is worth a look may hold: whether one more of the atoms that it needs was found.
    #[inline]
    pub(super) fn may_hold(&self, alternative: usize, seen: &Set) -> bool {
        let Need { blocks: [one, two], bits } = self.needs[alternative];
        bits[0] == 0 || seen.block(one) & bits[0] | seen.block(two) & bits[1] != 0
    }

    /// What follows from an atom.
    pub(super) fn of(&self, atom: u16) -> Trigger {
        self.by_atom.get(usize::from(atom)).copied().unwrap_or_default()
    }

    /// Notes the alternatives that an atom makes worth a look.
    #[inline]
    pub(super) fn note(&self, Trigger { bits, block, more, .. }: Trigger, candidates: &mut Candidates) {
        candidates.insert(block, bits);
        if more > 0 {
            self.more[usize::from(more)].iter().for_each(|(block, bits)| candidates.insert(*block, *bits));
        }
    }
}

// === impl Need ===

impl Need {
    /// Any of some atoms, if they are of no more than two blocks.
    fn of(atoms: &[u32]) -> Option<Self> {
        match *Any::of(atoms).0 {
            [(block, bits)] => Some(Self { blocks: [block; 2], bits: [bits, 0] }),
            [(one, bits), (two, more)] => Some(Self { blocks: [one, two], bits: [bits, more] }),
            _ => None,
        }
    }
}

/// The block of a [`Set`] in which one stands.
fn block_of(one: u32) -> u16 {
    u16::try_from(one / 64).unwrap_or(u16::MAX)
}

pub(super) fn to_u16(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

pub(super) fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
