//! The numbers of a response's events: each is one more than the last, so that none is missing and
//! none came twice.

use crate::reading::ParseError;

/// The largest number that a first event has.
const FIRST: u64 = 1;

/// State of the numbers of one response. Servers that number nothing, or every event alike, prove
/// nothing by it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EventNumbers {
    last: Option<u64>,
    /// If set, an event had a higher number than the one before it.
    counts: bool,
}

// === impl EventNumbers ===

impl EventNumbers {
    /// Takes the number of the next event.
    ///
    /// # Errors
    /// When it is not the one that follows.
    pub(super) fn follow(&mut self, number: Option<u64>) -> Result<(), ParseError> {
        let Some(number) = number else {
            return Ok(());
        };
        let is_next = match self.last {
            None => number <= FIRST,
            Some(last) if number == last => !self.counts,
            Some(last) => number == last.saturating_add(1),
        };
        if !is_next {
            let last = self
                .last
                .map_or("nothing".to_owned(), |last| last.to_string());
            let words = format!("event {number} of the answer came after {last}");
            return Err(ParseError::Cut(words));
        }
        self.counts |= self.last.is_some_and(|last| number > last);
        self.last = Some(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(numbers: &[Option<u64>]) -> bool {
        let mut known = EventNumbers::default();
        numbers.iter().all(|number| known.follow(*number).is_ok())
    }

    #[test]
    fn a_number_that_is_missing_or_comes_twice_is_refused_once_the_server_counts() {
        for (numbers, expected) in [
            (vec![Some(0), Some(1), Some(2)], true),
            (vec![Some(1), Some(2)], true),
            (vec![Some(0), None, Some(1)], true),
            (vec![Some(0), Some(0), Some(0)], true),
            (vec![Some(0), Some(0), Some(1)], true),
            (vec![None, None], true),
            (vec![Some(2)], false),
            (vec![Some(0), Some(2)], false),
            (vec![Some(0), Some(1), Some(1)], false),
            (vec![Some(0), Some(1), Some(0)], false),
            (vec![Some(0), Some(2), Some(1)], false),
        ] {
            assert_eq!(is_taken(&numbers), expected, "{numbers:?}");
        }
    }
}
