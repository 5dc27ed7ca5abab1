//! Sets of small numbers, and which alternatives are worth a look for which atoms.

use std::collections::{BTreeMap, HashMap};

/// Most atoms, most alternatives and most of other small numbers that a [`Set`] can hold.
pub(in crate::policy::classify) const MOST: usize = 16384;
/// Blocks of a set.
const BLOCKS: usize = MOST / 64;

/// Some of the atoms, of the alternatives, or of other small numbers; few of them at a time, so that all can be told and
/// forgotten quickly.
#[derive(Debug, Clone)]
pub(in crate::policy::classify) struct Set {
    bits: [u64; BLOCKS],
    /// Of which of these any bit is set: a byte each, so that one can be noted without a look at the others.
    used: [[u8; 8]; BLOCKS / 8],
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
    /// By alternative.
    needs: Vec<Need>,
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
        Self { bits: [0; BLOCKS], used: [[0; 8]; BLOCKS / 8] }
    }
}

impl Set {
    #[inline]
    pub(in crate::policy::classify) fn has(&self, one: u32) -> bool {
        self.bits[one as usize / 64 % BLOCKS] >> (one % 64) & 1 == 1
    }

    #[inline]
    pub(in crate::policy::classify) fn insert(&mut self, one: u32) {
        self.insert_all(block_of(one), 1 << (one % 64));
    }

    /// Inserts bits of a block.
    #[inline]
    fn insert_all(&mut self, block: u16, bits: u64) {
        let block = usize::from(block) % BLOCKS;
        self.bits[block] |= bits;
        self.used[block / 8][block % 8] = 1;
    }

    #[inline]
    fn block(&self, block: u16) -> u64 {
        self.bits[usize::from(block) % BLOCKS]
    }

    pub(in crate::policy::classify) fn clear(&mut self) {
        for (at, used) in self.used.iter_mut().enumerate() {
            if u64::from_le_bytes(*used) != 0 {
                self.bits[8 * at..8 * at + 8].fill(0);
                used.fill(0);
            }
        }
    }

    /// Tells all of them, the lowest first, until told to stop.
    #[inline]
    pub(super) fn each(&self, mut tell: impl FnMut(usize) -> bool) {
        for (at, used) in self.used.iter().enumerate() {
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
    pub(super) fn rarest(alternatives: &[Vec<Vec<u32>>]) -> Self {
        let mut uses: HashMap<u32, usize> = HashMap::new();
        for atom in alternatives.iter().flatten().flatten() {
            *uses.entry(*atom).or_default() += 1;
        }
        let mut by_atom: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut made = Self::default();
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
            let from = to_u32(made.blocks.len());
            made.blocks.extend(Any::of(&alternatives).0);
            made.ranges.resize(atom as usize, (from, from));
            made.ranges.push((from, to_u32(made.blocks.len())));
        }
        made
    }

    /// Whether an alternative that is worth a look may hold: whether one more of the atoms that it needs was found.
    #[inline]
    pub(super) fn may_hold(&self, alternative: usize, seen: &Set) -> bool {
        let Need { blocks: [one, two], bits } = self.needs[alternative];
        bits[0] == 0 || seen.block(one) & bits[0] | seen.block(two) & bits[1] != 0
    }

    /// Notes the alternatives that are worth a look for any of some atoms.
    pub(super) fn note(&self, seen: &Set, candidates: &mut Set) {
        seen.each(|atom| {
            self.of(atom).iter().for_each(|(block, bits)| candidates.insert_all(*block, *bits));
            true
        });
    }

    /// The alternatives that an atom makes worth a look.
    fn of(&self, atom: usize) -> &[(u16, u64)] {
        self.ranges.get(atom).map_or(&[], |(from, to)| &self.blocks[*from as usize..*to as usize])
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

pub(super) fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
