//! Lets an attempt go on with a text that followers hold: asks for the rest, and puts the text before what comes.
//!
//! For everybody above, the attempt then just repeats the text and goes on, which they know how to handle. Below the
//! note, so that the begun message comes last, and above the race, so that both of its attempts say the same.

use std::sync::Arc;

use async_stream::stream;
use futures_util::StreamExt as _;

use super::{Deltas, attempt::Attempt};
use crate::{
    domain::completion::{BlockKind, Delta},
    policy::continuation::{LOOK_BYTES, Way, overlap, request},
};

/// Has the attempt ask for the rest of its text, where it is to.
pub(super) fn asking_for_the_rest(mut attempt: Attempt) -> Attempt {
    if let Some((held, way)) = &attempt.goes_on {
        attempt.call = Arc::new(request(&attempt.call, held, *way));
    }
    attempt
}

/// The answer as if it had been made from its beginning.
pub(super) fn from_its_beginning(goes_on: Option<(Arc<str>, Way)>, mut deltas: Deltas) -> Deltas {
    let Some((held, way)) = goes_on else { return deltas };
    Box::pin(stream! {
        let mut joint = Joint { held, way, block: None, looked_at: String::new() };
        while let Some(item) = deltas.next().await {
            match item {
                Ok(delta) => for delta in joint.pass(delta) { yield Ok(delta); },
                Err(failure) => {
                    for delta in joint.settle() { yield Ok(delta); }
                    yield Err(failure);
                    return;
                }
            }
        }
    })
}

/// Where the held text and its continuation meet.
struct Joint {
    held: Arc<str>,
    way: Way,
    /// The block that goes on, until it is settled what of it is new.
    block: Option<(u32, bool)>,
    looked_at: String,
}

impl Joint {
    fn pass(&mut self, delta: Delta) -> Vec<Delta> {
        match (&delta, self.block) {
            (Delta::BlockStart { block, kind: BlockKind::Text }, None) => {
                self.block = Some((*block, true));
                let text = self.held.to_string();
                vec![delta.clone(), Delta::BlockDelta { block: *block, text }]
            }
            (Delta::BlockDelta { block, text }, Some((own, true))) if *block == own && self.way == Way::Prompt => {
                self.looked_at.push_str(text);
                if self.looked_at.len() < LOOK_BYTES { Vec::new() } else { self.settle() }
            }
            (Delta::BlockStop { .. } | Delta::Finish { .. }, Some((_, true))) => {
                let mut all = self.settle();
                all.push(delta);
                all
            }
            (Delta::Finish { .. }, None) => {
                // Nothing was left to say: the text was whole.
                self.block = Some((0, false));
                let text = self.held.to_string();
                let start = Delta::BlockStart { block: 0, kind: BlockKind::Text };
                vec![start, Delta::BlockDelta { block: 0, text }, delta]
            }
            (
                Delta::Start { .. }
                | Delta::BlockStart { .. }
                | Delta::BlockDelta { .. }
                | Delta::BlockStop { .. }
                | Delta::Usage(_)
                | Delta::Finish { .. },
                _,
            ) => vec![delta],
        }
    }

    /// Lets out what was looked at, without what it repeats.
    fn settle(&mut self) -> Vec<Delta> {
        let Some((block, true)) = self.block else { return Vec::new() };
        self.block = Some((block, false));
        let mut text = std::mem::take(&mut self.looked_at);
        text.drain(..overlap(&self.held, &text));
        if text.is_empty() { Vec::new() } else { vec![Delta::BlockDelta { block, text }] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::completion::FinishReason;

    fn play(way: Way, more: &[&str]) -> String {
        let mut joint = Joint { held: "It was the best of times".into(), way, block: None, looked_at: String::new() };
        let finish = Delta::Finish { reason: FinishReason::Stop, raw: String::new() };
        let start = Delta::BlockStart { block: 0, kind: BlockKind::Text };
        let more = more.iter().map(|text| Delta::BlockDelta { block: 0, text: (*text).to_owned() });
        let all = std::iter::once(start).chain(more).chain([Delta::BlockStop { block: 0, opaque: None }, finish]);
        let out = all.flat_map(|delta| joint.pass(delta)).map(|delta| match delta {
            Delta::BlockDelta { text, .. } => text,
            _ => String::new(),
        });
        out.collect()
    }

    #[test]
    fn the_answer_reads_as_if_it_had_been_made_from_its_beginning() {
        assert_eq!(play(Way::Prefill, &[", it was", " the worst."]), "It was the best of times, it was the worst.");
        assert_eq!(play(Way::Prompt, &["was the best of", " times, it was"]), "It was the best of times, it was");
        assert_eq!(play(Way::Prompt, &[", it was"]), "It was the best of times, it was");
        assert_eq!(play(Way::Prefill, &["was the best of times"]), "It was the best of timeswas the best of times");
    }

    #[test]
    fn a_text_that_was_whole_stays_as_it_is() {
        let mut joint = Joint { held: "Whole.".into(), way: Way::Prefill, block: None, looked_at: String::new() };
        let out = joint.pass(Delta::Finish { reason: FinishReason::Stop, raw: String::new() });
        assert!(matches!(&out[1], Delta::BlockDelta { text, .. } if text == "Whole."), "{out:?}");
        assert_eq!(out.len(), 3);
    }
}
