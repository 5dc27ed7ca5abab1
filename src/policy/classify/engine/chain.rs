//! Finds the ordered parts of a phrase among what was found: each part behind the one before, no further than its gap.
//!
//! Hits of one atom are gone through once for all beginnings of one kind, so the cost follows the hits.
//!
//! Never looks at words that no phrase holds, but for those that a gap allows.

use Unmatched::{Never, NoEarlier};

use super::{
    hits::{Hit, Lane, NOWHERE, Places},
    sets::{Any, Set},
};
use crate::policy::classify::{
    phrase::Part,
    reading::{Reading, Text},
};

/// Ordered parts of a phrase.
#[derive(Debug)]
pub(super) struct Chain {
    links: Vec<Link>,
    /// Whether the first part must be a whole keyed value.
    whole_value: bool,
}

/// One part: any of these atoms, at most `gap` bytes after the part before.
#[derive(Debug)]
struct Link {
    any: Any,
    gap: usize,
    /// The only words that may stand in the gap; `None` for any.
    between: Option<Vec<String>>,
}

/// Why no match begins at a place.
enum Unmatched {
    /// None begins behind it either.
    Never,
    /// None of which the first part ends earlier than here.
    NoEarlier(usize),
}

// === impl Chain ===

impl Chain {
    /// From the parts and the atoms of each.
    pub(super) fn new(parts: &[Part], atoms: &[Vec<u32>], whole_value: bool) -> Self {
        let link = |(part, atoms): (&Part, &Vec<u32>)| Link {
            any: Any::of(atoms),
            gap: part.gap,
            between: part.between.clone(),
        };
        Self { links: parts.iter().zip(atoms).map(link).collect(), whole_value }
    }

    /// Whether each part was found anywhere.
    pub(super) fn is_in(&self, seen: &Set) -> bool {
        self.links.iter().all(|link| link.any.is_in(seen))
    }

    /// The span of the match that begins first.
    pub(super) fn first(&self, seen: &Set, places: &mut Places, reading: &Reading) -> Option<(usize, usize)> {
        let (begin, links) = self.links.split_first()?;
        let words = reading.text.words();
        let mut lanes = std::mem::take(&mut places.lanes);
        lanes.clear();
        for (part, link) in (0..).zip(links) {
            for atom in link.any.among(seen) {
                lanes.extend(places.lanes(atom, part, words));
            }
        }
        let count = lanes.len();
        let mut best: Option<(usize, usize)> = None;
        for mut begins in begin.any.among(seen).flat_map(|atom| places.lanes(atom, 0, words)) {
            // From the first place of each part on.
            lanes.truncate(count);
            lanes.extend_from_within(..);
            let mut no_earlier = 0;
            while begins.hit.start != NOWHERE && best.is_none_or(|best| begins.hit.start < best.0) {
                let Hit { start, end: behind } = begins.hit;
                places.pass(&mut begins, words);
                if behind < no_earlier || self.whole_value && !reading.is_value((start, behind)) {
                    continue;
                }
                match end(links, behind, &mut lanes[count..], places, &reading.text) {
                    Ok(end) => best = Some((start, end)),
                    Err(Never) => break,
                    Err(NoEarlier(than)) => no_earlier = than,
                }
            }
        }
        places.lanes = lanes;
        best
    }
}

/// The end of the match of which the first part ends here, and later than any before.
fn end(links: &[Link], from: usize, lanes: &mut [Lane], places: &Places, text: &Text) -> Result<usize, Unmatched> {
    let words = text.words();
    let mut end = from;
    for (link, lanes) in links.iter().zip(lanes.chunk_by_mut(|one, other| one.part == other.part)) {
        let last = end + link.gap;
        let (mut next, mut nearest) = (NOWHERE, NOWHERE);
        for lane in lanes {
            while lane.hit.start < end {
                places.pass(lane, words);
            }
            nearest = nearest.min(lane.hit.start);
            let mut lane = *lane;
            while lane.hit.start <= last {
                if link.allows(&text[end..lane.hit.start]) {
                    next = next.min(lane.hit.end);
                    break;
                }
                places.pass(&mut lane, words);
            }
        }
        if next == NOWHERE {
            return Err(match nearest {
                NOWHERE => Never,
                // Only the first part behind the beginning tells how near that has to be.
                nearest if end == from => NoEarlier(nearest.saturating_sub(link.gap)),
                _ => NoEarlier(0),
            });
        }
        end = next;
    }
    Ok(end)
}

// === impl Link ===

impl Link {
    /// Whether only allowed words stand in a gap.
    fn allows(&self, gap: &[u8]) -> bool {
        let Some(between) = &self.between else { return true };
        // An open stem ends inside its word; the rest of that word is no word of its own.
        let rest = gap.iter().position(|b| *b == b' ').map_or(&gap[gap.len()..], |at| &gap[at..]);
        rest.split(|b| *b == b' ').all(|word| word.is_empty() || between.iter().any(|w| w.as_bytes() == word))
    }
}
