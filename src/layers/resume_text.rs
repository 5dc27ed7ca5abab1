//! Makes an attempt continue a text that followers hold: requests the rest, and puts the text
//! before what comes.
//!
//! For the layers above, the attempt then just repeats the text and continues, which they know how
//! to handle. Below the note, so that the begun message comes last, and above the race, so that
//! both of its attempts say the same.

use std::sync::Arc;

use async_stream::stream;
use futures_util::StreamExt as _;

use super::{Deltas, attempt::Attempt, invocation::InvocationScope};
use crate::{
    domain::{
        completion::{BlockKind, Delta},
        failure::{Failure, FailureClass},
        invocation::AttemptCause,
    },
    policy::continuation::{ContinuationStitcher, Stitched, request},
};

/// Text that an attempt continues, and the course of action if the model starts anew.
pub(super) struct Continued {
    stitcher: ContinuationStitcher,
    /// If set, a text that starts anew is passed on as another completion: the one that is held may be
    /// taken back. An extension of a whole completion fails instead, and that completion stays as it is.
    may_begin_anew: bool,
    scope: Arc<InvocationScope>,
}

/// Has the attempt request the rest of its text, if it is to.
pub(super) fn with_prefill(mut attempt: Attempt) -> Attempt {
    if let Some((held, way)) = &attempt.request.goes_on {
        attempt.request.call = Arc::new(request(&attempt.request.call, held, *way));
    }
    attempt
}

/// Returns the text that the attempt continues; `None` if its completion is made from its start.
pub(super) fn continued(attempt: &Arc<Attempt>) -> Option<Continued> {
    let (held, way) = attempt.request.goes_on.clone()?;
    let may_begin_anew = attempt.cause != AttemptCause::Extend;
    let scope = Arc::clone(&attempt.scope);
    Some(Continued {
        stitcher: ContinuationStitcher::new(held, way),
        may_begin_anew,
        scope,
    })
}

/// Returns the completion as if it had been made from its start.
pub(super) fn from_its_beginning(continued: Option<Continued>, mut deltas: Deltas) -> Deltas {
    let Some(Continued {
        stitcher,
        may_begin_anew,
        scope,
    }) = continued
    else {
        return deltas;
    };
    Box::pin(stream! {
        let mut stitched = StitchedStream { stitcher, block: None, began_anew: false };
        while let Some(item) = deltas.next().await {
            match item {
                Ok(delta) => {
                    let passed = stitched.pass(delta);
                    if stitched.began_anew && !may_begin_anew {
                        yield Err(Box::new(scope.reject(began_anew())));
                        return;
                    }
                    for delta in passed { yield Ok(delta); }
                }
                Err(failure) => {
                    for delta in stitched.broken() { yield Ok(delta); }
                    yield Err(failure);
                    return;
                }
            }
        }
    })
}

fn began_anew() -> Failure {
    let words = "the model began anew instead of continuing its answer";
    let mut failure = Failure::local(FailureClass::MalformedResponse, words);
    failure.never_sent = false;
    failure
}

/// Seam between the held text and its continuation.
struct StitchedStream {
    stitcher: ContinuationStitcher,
    /// The block that continues the text, and whether it is still open what of it is new.
    block: Option<(u32, bool)>,
    began_anew: bool,
}

impl StitchedStream {
    fn pass(&mut self, delta: Delta) -> Vec<Delta> {
        match (&delta, self.block) {
            (
                Delta::BlockStart {
                    block,
                    kind: BlockKind::Text,
                },
                None,
            ) => {
                self.block = Some((*block, true));
                vec![delta]
            }
            (Delta::BlockDelta { block, text }, Some((own, true))) if *block == own => {
                let stitched = self.stitcher.push(text);
                self.settle(own, stitched)
            }
            (Delta::BlockStop { .. } | Delta::Finish { .. }, Some((own, true))) => {
                let stitched = self.stitcher.finish();
                let mut all = self.settle(own, stitched);
                all.push(delta);
                all
            }
            (Delta::Finish { .. }, None) => {
                // Nothing was left to say: the text was whole.
                self.block = Some((0, false));
                let text = self.stitcher.held().to_owned();
                let start = Delta::BlockStart {
                    block: 0,
                    kind: BlockKind::Text,
                };
                vec![start, Delta::BlockDelta { block: 0, text }, delta]
            }
            (
                Delta::Start { .. }
                | Delta::BlockStart { .. }
                | Delta::BlockDelta { .. }
                | Delta::BlockStop { .. }
                | Delta::Usage(_)
                | Delta::Around(_)
                | Delta::ReadOn(_)
                | Delta::ToolReply(_)
                | Delta::Finish { .. },
                _,
            ) => vec![delta],
        }
    }

    /// Passes on what is known of the text by now.
    fn settle(&mut self, block: u32, stitched: Stitched) -> Vec<Delta> {
        let text = match stitched {
            Stitched::Undecided => return Vec::new(),
            Stitched::New(text) => format!("{}{text}", self.stitcher.held()),
            Stitched::Anew(text) => {
                self.began_anew = true;
                text
            }
        };
        self.block = Some((block, false));
        vec![Delta::BlockDelta { block, text }]
    }

    /// Returns the completion broke off. An undecided part may be an echo, and is lost; the held text
    /// is not.
    fn broken(&mut self) -> Vec<Delta> {
        match self.block {
            Some((block, true)) => vec![Delta::BlockDelta {
                block,
                text: self.stitcher.held().to_owned(),
            }],
            Some((_, false)) | None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::completion::FinishReason, policy::continuation::Way};

    fn stitched(held: &str, way: Way) -> StitchedStream {
        StitchedStream {
            stitcher: ContinuationStitcher::new(held.into(), way),
            block: None,
            began_anew: false,
        }
    }

    fn play(way: Way, more: &[&str]) -> String {
        let mut stitched = stitched("It was the best of times", way);
        let finish = Delta::Finish {
            reason: FinishReason::Stop,
            raw: String::new(),
        };
        let start = Delta::BlockStart {
            block: 0,
            kind: BlockKind::Text,
        };
        let more = more.iter().map(|text| Delta::BlockDelta {
            block: 0,
            text: (*text).to_owned(),
        });
        let all = std::iter::once(start).chain(more).chain([
            Delta::BlockStop {
                block: 0,
                opaque: None,
            },
            finish,
        ]);
        let out = all
            .flat_map(|delta| stitched.pass(delta))
            .map(|delta| match delta {
                Delta::BlockDelta { text, .. } => text,
                _ => String::new(),
            });
        out.collect()
    }

    #[test]
    fn the_answer_reads_as_if_it_had_been_made_from_its_beginning() {
        assert_eq!(
            play(Way::Prefill, &[", it was", " the worst."]),
            "It was the best of times, it was the worst."
        );
        assert_eq!(
            play(Way::Prompt, &["was the best of", " times, it was"]),
            "It was the best of times, it was"
        );
        assert_eq!(
            play(Way::Prompt, &[", it was"]),
            "It was the best of times, it was"
        );
        assert_eq!(
            play(Way::Prefill, &["It was the best of times, it"]),
            "It was the best of times, it"
        );
        assert_eq!(
            play(Way::Prefill, &["It was the best", " of days."]),
            "It was the best of days.",
            "another answer"
        );
    }

    #[test]
    fn a_text_that_was_whole_stays_as_it_is() {
        let mut stitched = stitched("Whole.", Way::Prefill);
        let out = stitched.pass(Delta::Finish {
            reason: FinishReason::Stop,
            raw: String::new(),
        });
        assert!(
            matches!(&out[1], Delta::BlockDelta { text, .. } if text == "Whole."),
            "{out:?}"
        );
        assert_eq!(out.len(), 3);
    }
}
