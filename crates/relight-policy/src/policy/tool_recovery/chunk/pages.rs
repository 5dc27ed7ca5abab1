//! A number of results from a place on, which is split into smaller pages.

use super::MAX_PARTS;

/// Parts of a page, if they need not be equal.
const PARTS: u64 = 4;

/// Some results of a longer list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pages {
    /// Number of results that are passed over.
    start: u64,
    len: u64,
    /// `true` if the tool counts pages, so that the number of results passed over is a multiple of
    /// the length.
    numbered: bool,
}

// === impl Pages ===

impl Pages {
    pub(super) fn from_offset(offset: u64, limit: u64) -> Option<Self> {
        (limit > 0 && offset.checked_add(limit).is_some()).then_some(Self {
            start: offset,
            len: limit,
            numbered: false,
        })
    }

    /// `page` counts from 0.
    pub(super) fn from_page(page: u64, limit: u64) -> Option<Self> {
        let start = page.checked_mul(limit)?;
        (limit > 0 && start.checked_add(limit).is_some()).then_some(Self {
            start,
            len: limit,
            numbered: true,
        })
    }

    /// In quarters; numbered pages in equal parts, `MAX_PARTS` at most.
    pub(super) fn parts(&self) -> Vec<Self> {
        self.split(self.len.div_ceil(PARTS), MAX_PARTS)
    }

    /// In parts of so many results, or more so that there are at most `max` parts.
    pub(super) fn split(&self, size: u64, max: usize) -> Vec<Self> {
        let max = u64::try_from(max).unwrap_or(u64::MAX);
        let wanted = size.max(self.len.div_ceil(max)).max(1);
        let size = if self.numbered {
            let counts = self.len.div_ceil(wanted)..=max.min(self.len);
            match counts
                .into_iter()
                .find(|count| self.len.is_multiple_of(*count))
            {
                Some(count) => self.len / count,
                None => return vec![self.clone()],
            }
        } else {
            wanted
        };
        let end = self.start + self.len;
        let mut parts = Vec::new();
        let mut start = self.start;
        while start < end {
            parts.push(Self {
                start,
                len: size.min(end - start),
                numbered: self.numbered,
            });
            start += size;
        }
        parts
    }

    /// Two halves, or with numbered pages as few equal parts as there are.
    pub(super) fn halves(&self) -> Vec<Self> {
        if self.len < 2 {
            return Vec::new();
        }
        if !self.numbered {
            return self.split(self.len.div_ceil(2), 2);
        }
        // As few as possible, but not so many that a page of a prime number becomes as many calls.
        let parts = [2, 3, 5, 7]
            .into_iter()
            .find(|parts| self.len.is_multiple_of(*parts));
        parts.map_or_else(Vec::new, |parts| self.split(self.len / parts, 7))
    }

    pub(super) const fn start(&self) -> u64 {
        self.start
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of the page, from 0.
    pub(super) const fn number(&self) -> u64 {
        self.start / self.len
    }

    pub(super) fn label(&self) -> String {
        format!("results {} to {}", self.start + 1, self.start + self.len)
    }
}
