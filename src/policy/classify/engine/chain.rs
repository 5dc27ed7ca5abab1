//! Finds the ordered parts of a phrase among what was found: each part behind the one before, no further than its gap.
//!
//! Hits of one atom are gone through once for all beginnings of one kind, so the cost follows the hits.
//!
//! Never looks at words that no phrase holds, but for those that a gap allows.

use super::hits::{Any, Hits, NONE, Set};
use crate::policy::classify::{phrase::Part, reading::Reading};

/// Atoms of which it is remembered how many hits are passed; those of any more are gone through from the first.
const REMEMBERED: usize = 16;

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

/// By atom of each part behind the first: its first hit that is not passed yet.
type Passed = [Option<u16>; REMEMBERED];

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
    pub(super) fn first(&self, hits: &Hits, reading: &Reading) -> Option<(usize, usize)> {
        let (begin, links) = self.links.split_first()?;
        let matches = begin.any.among(&hits.seen).filter_map(|atom| {
            let mut passed = Passed::default();
            hits.of(atom).find_map(|hit| {
                let here = !self.whole_value || reading.is_value((hit.start, hit.end));
                Some((hit.start, here.then(|| end(links, hit.end, hits, reading, &mut passed))??))
            })
        });
        matches.min_by_key(|span| span.0)
    }
}

/// The end of the match of which the first part ends here, and later than any before.
fn end(links: &[Link], mut end: usize, hits: &Hits, reading: &Reading, passed: &mut Passed) -> Option<usize> {
    let mut passed = passed.iter_mut();
    for link in links {
        let last = end + link.gap;
        let mut next = NONE;
        for atom in link.any.among(&hits.seen) {
            let (passed, mut forgotten) = (passed.next(), None);
            let passed = passed.unwrap_or(&mut forgotten);
            let mut at = passed.unwrap_or_else(|| hits.first(atom));
            while let Some(hit) = hits.get(at).filter(|hit| hit.start < end) {
                at = hit.next;
            }
            *passed = Some(at);
            while let Some(hit) = hits.get(at).filter(|hit| hit.start <= last) {
                if link.allows(&reading.text[end..hit.start]) {
                    next = next.min(at);
                    break;
                }
                at = hit.next;
            }
        }
        end = hits.get(next)?.end;
    }
    Some(end)
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
