//! Cuts a completion at the stop sequences that its request could not have.
//!
//! What may be the beginning of one is held back until more is known. At the first one that is
//! whole the completion ends, as it does where a provider stops at it, and nothing more is read: the
//! response is dropped, which cancels it upstream.

use std::sync::Arc;

use async_stream::try_stream;
use futures_util::{FutureExt as _, StreamExt as _};

use crate::domain::{
    completion::{BlockKind, Delta, FinishReason, Usage},
    left_out::sent_stops,
    message::{Endpoint, ModelCall},
    stop_sequence::{cut_at, unsure_bytes},
    target::Dialect,
    wire::DeltaStream,
};

/// The word of most dialects for a completion that ended at a stop sequence.
const STOPPED: &str = "stop_sequence";

/// A block that has begun and not ended.
struct BegunBlock {
    block: u32,
    /// The end of a text that may be the beginning of a stop sequence; `None` for what is no text.
    held: Option<String>,
}

/// A filter of one completion's deltas.
struct StopCutter {
    stops: Vec<String>,
    open: Vec<BegunBlock>,
    has_calls: bool,
    /// Whether a stop sequence came. Then only blocks that had begun before are passed on.
    is_cut: bool,
    /// The provider's count so far.
    usage: Usage,
    /// Bytes of the completion so far, for providers that count at the end only.
    text_bytes: usize,
}

/// Returns the completion to a call, up to the first of the stop sequences that the dialect has no
/// place for.
pub(super) fn cut(mut answer: DeltaStream, call: &Arc<ModelCall>, dialect: Dialect) -> DeltaStream {
    if call.endpoint != Endpoint::Answer || sent_stops(call, dialect).len() == call.stop.len() {
        return answer;
    }
    let mut cutter = StopCutter::new(&call.stop);
    let call = Arc::clone(call);
    Box::pin(try_stream! {
        loop {
            let Some(delta) = answer.next().await else {
                return;
            };
            let mut out = Vec::new();
            cutter.take(delta?, &mut out);
            for delta in out {
                yield delta;
            }
            if cutter.is_over() {
                break;
            }
        }
        // What the provider counted, where that has come already.
        let mut counted = None;
        while let Some(Some(Ok(delta))) = answer.next().now_or_never() {
            match delta {
                Delta::Usage(usage) => counted = Some(usage),
                Delta::Finish { .. } => break,
                _ => {}
            }
        }
        drop(answer);
        let estimated = cutter.usage.at_least(&call, cutter.text_bytes);
        yield Delta::Usage(counted.unwrap_or(estimated));
        yield cutter.finish();
    })
}

// === impl StopCutter ===

impl StopCutter {
    fn new(stops: &[String]) -> Self {
        Self {
            stops: stops
                .iter()
                .filter(|stop| !stop.is_empty())
                .cloned()
                .collect(),
            open: Vec::new(),
            has_calls: false,
            is_cut: false,
            usage: Usage::default(),
            text_bytes: 0,
        }
    }

    /// Returns whether the completion ends here.
    fn is_over(&self) -> bool {
        self.is_cut && self.open.is_empty()
    }

    fn finish(&self) -> Delta {
        let reason = if self.has_calls {
            FinishReason::ToolCalls
        } else {
            FinishReason::Stop
        };
        Delta::Finish {
            reason,
            raw: STOPPED.to_owned(),
        }
    }

    fn place(&self, block: u32) -> Option<usize> {
        self.open.iter().position(|open| open.block == block)
    }

    /// Takes one piece of the completion, and adds what may be passed on.
    fn take(&mut self, delta: Delta, out: &mut Vec<Delta>) {
        match delta {
            Delta::BlockStart { block, ref kind } => {
                if self.is_cut {
                    return;
                }
                self.has_calls |= matches!(kind, BlockKind::ToolCall { .. });
                let held = matches!(kind, BlockKind::Text).then(String::new);
                self.open.push(BegunBlock { block, held });
                out.push(delta);
            }
            Delta::BlockDelta { block, text } => self.text(block, text, out),
            Delta::BlockStop { block, .. } => {
                if let Some(place) = self.place(block) {
                    let begun = self.open.remove(place);
                    out.extend(begun.rest());
                    out.push(delta);
                }
            }
            Delta::Finish { .. } => {
                let rest = self.open.drain(..).filter_map(BegunBlock::rest);
                out.extend(rest);
                if !self.is_cut {
                    out.push(delta);
                }
            }
            Delta::Usage(usage) => {
                self.usage = usage;
                out.push(delta);
            }
            Delta::Start { .. } | Delta::Around(_) | Delta::ReadOn(_) | Delta::ToolReply(_) => {
                out.push(delta);
            }
        }
    }

    fn text(&mut self, block: u32, text: String, out: &mut Vec<Delta>) {
        self.text_bytes += text.len();
        let Some(place) = self.place(block) else {
            return;
        };
        let Some(held) = &mut self.open[place].held else {
            out.push(Delta::BlockDelta { block, text });
            return;
        };
        held.push_str(&text);
        // A second text that stops as well ends there, too.
        if let Some(end) = cut_at(held, &self.stops) {
            held.truncate(end);
            let begun = self.open.remove(place);
            out.extend(begun.rest());
            out.push(Delta::BlockStop {
                block,
                opaque: None,
            });
            self.is_cut = true;
        } else {
            let sure = held.len() - unsure_bytes(held, &self.stops);
            let text: String = held.drain(..sure).collect();
            if !text.is_empty() {
                out.push(Delta::BlockDelta { block, text });
            }
        }
    }
}

// === impl BegunBlock ===

impl BegunBlock {
    /// Returns the text that was held back and is no stop sequence.
    fn rest(self) -> Option<Delta> {
        let block = self.block;
        let text = self.held?;
        (!text.is_empty()).then_some(Delta::BlockDelta { block, text })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text that is passed on of these pieces, and whether the completion was cut.
    fn passed_on(pieces: &[String], stops: &[String]) -> (String, bool) {
        let mut cutter = StopCutter::new(stops);
        let mut out = Vec::new();
        let kind = BlockKind::Text;
        cutter.take(Delta::BlockStart { block: 0, kind }, &mut out);
        for text in pieces {
            let text = text.clone();
            cutter.take(Delta::BlockDelta { block: 0, text }, &mut out);
        }
        let reason = FinishReason::Stop;
        let raw = String::new();
        cutter.take(Delta::Finish { reason, raw }, &mut out);
        let texts = out.iter().filter_map(|delta| match delta {
            Delta::BlockDelta { text, .. } => Some(text.as_str()),
            _ => None,
        });
        (texts.collect(), cutter.is_cut)
    }

    /// Returns the same, one character after the other: as a model that stops would have written
    /// it.
    fn written(text: &str, stops: &[String]) -> (String, bool) {
        for (end, letter) in text.char_indices() {
            let so_far = &text[..end + letter.len_utf8()];
            let stopped = stops
                .iter()
                .filter_map(|stop| so_far.strip_suffix(stop.as_str()));
            if let Some(before) = stopped.min_by_key(|before| before.len()) {
                return (before.to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_a_text_comes_it_ends_before_its_first_stop_sequence(
            pieces in prop::collection::vec("[abé]{0,4}", 0..8),
            stops in prop::collection::vec("[abé]{1,4}", 1..4),
        ) {
            let expected = written(&pieces.concat(), &stops);
            prop_assert_eq!(passed_on(&pieces, &stops), expected);
        }
    }

    #[test]
    fn a_call_that_had_begun_is_passed_on_whole_and_what_begins_later_is_not() {
        let mut cutter = StopCutter::new(&["END".to_owned()]);
        let mut out = Vec::new();
        let call = BlockKind::ToolCall {
            id: "c".to_owned(),
            name: "look".to_owned(),
        };
        let text = |block: u32, text: &str| Delta::BlockDelta {
            block,
            text: text.to_owned(),
        };
        let stop = |block: u32| Delta::BlockStop {
            block,
            opaque: None,
        };
        let start = |block: u32, kind: BlockKind| Delta::BlockStart { block, kind };
        let pieces = [
            start(0, BlockKind::Text),
            start(1, call),
            text(0, "Look. E"),
            text(0, "ND of it"),
            start(2, BlockKind::Text),
            text(2, "more"),
            text(1, "{\"END\":1}"),
        ];
        for piece in pieces {
            cutter.take(piece, &mut out);
        }
        assert!(!cutter.is_over(), "the call has not ended");
        cutter.take(stop(1), &mut out);
        assert!(cutter.is_over());
        let expected = [text(0, "Look. "), stop(0), text(1, "{\"END\":1}"), stop(1)];
        assert_eq!(out[2..], expected);
        assert!(matches!(
            cutter.finish(),
            Delta::Finish {
                reason: FinishReason::ToolCalls,
                ..
            }
        ));
    }
}
