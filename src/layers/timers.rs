//! Limits of an attempt's silence: until its first token, and between tokens after it.
//!
//! If a floor is set, a completion that drips below it is given up, too.
//!
//! There is no total timeout per attempt but the deadline. The clocks run only while the caller
//! waits for the next delta, so a caller that is slow to read is never mistaken for a provider that
//! is slow to write.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Service, ServiceExt as _};

use super::{attempt::Attempt, guarded::NextLayer, targets::Targets};
use crate::{
    domain::{
        completion::Delta,
        failure::{ProviderError, TransportFault},
        message::Endpoint,
        units,
        wire::{CompletionForm, DeltaStream, ProviderRequest},
    },
    policy::timers::{AttemptTimers, TimersPolicy},
};

/// Times attempts.
#[derive(Debug, Clone)]
pub struct TimersLayer {
    targets: Targets,
}

/// See [`TimersLayer`].
#[derive(Debug)]
pub struct Timers<W> {
    wire: W,
    targets: Targets,
}

/// Answer whose silences are timed.
pub struct TimedStream {
    /// `None` once it is over.
    deltas: Option<DeltaStream>,
    /// Due when the silence may be too long, or before.
    alarm: Pin<Box<Sleep>>,
    /// Time at which the silence is too long.
    by: Instant,
    silence: Silence,
    /// No content came yet.
    first: bool,
    /// Something came since `by` was set.
    has_data: bool,
    /// Since when the next delta is waited for.
    waiting_since: Option<Instant>,
    throughput: Throughput,
}

/// Limits of an attempt's silence, and the error for one that was silent for longer.
#[derive(Debug)]
struct Silence {
    family: Arc<str>,
    /// Fault of a silence before the first token.
    fault: TransportFault,
    /// Thing that is waited for then, in words.
    awaited: &'static str,
    timers: AttemptTimers,
}

/// Time that a completion is waited for before its bytes are compared with the floor.
const THROUGHPUT_WINDOW: Duration = Duration::from_secs(3);

/// Time before the deadline at which a tool that still runs is given up.
const TOOL_MARGIN: Duration = Duration::from_millis(20);

/// Bytes of a completion that came in the current window, against a floor if there is one.
#[derive(Debug)]
struct Throughput {
    floor: Option<u64>,
    /// Time of this window in which the completion was waited for.
    waited: Duration,
    bytes: u64,
}

/// Bytes per second of a completion that came below the floor.
#[derive(Debug, PartialEq)]
struct Drips(f64);

// === impl TimersLayer ===

impl TimersLayer {
    /// Looks for other targets here: one that has no alternative is given more time.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<W> tower::Layer<W> for TimersLayer {
    type Service = Timers<W>;

    fn layer(&self, wire: W) -> Timers<W> {
        Timers {
            wire,
            targets: self.targets.clone(),
        }
    }
}

// === impl Timers ===

impl<W> NextLayer<Arc<Attempt>> for Timers<W>
where
    W: Service<ProviderRequest, Response = DeltaStream, Error = ProviderError>
        + Clone
        + Send
        + Sync
        + 'static,
    W::Future: Send,
{
    type Out = TimedStream;
    type Error = ProviderError;

    async fn call(&self, attempt: Arc<Attempt>) -> Result<TimedStream, ProviderError> {
        let now = Instant::now();
        let other_ready =
            self.targets
                .alternative_healthy(&attempt.scope, &attempt.target().id, now);
        // What became of a tool is reported by its attempt, before the deadline ends all of it.
        let margin = if attempt.calls_tool() {
            TOOL_MARGIN
        } else {
            Duration::ZERO
        };
        let remaining = attempt
            .deadline()
            .saturating_duration_since(now)
            .saturating_sub(margin);
        let may_repeat = attempt
            .request
            .tool
            .as_ref()
            .is_none_or(|tool| tool.effects.repeatable);
        let is_lone = !other_ready && !attempt.calls_tool();
        let observed = &attempt.at.state.observed;
        let next = (may_repeat && attempt.scope.may_try_again())
            .then(|| observed.usual_first_token(is_lone, now))
            .flatten();
        let timers = match &attempt.request.tool {
            Some(tool) => TimersPolicy::of_tool(tool.timeout).for_attempt(false, remaining, next),
            None => attempt
                .scope
                .plan
                .timers
                .for_attempt(other_ready, remaining, next),
        };
        let first_token_by = now + timers.first_token;
        // A caller who has little time left says nothing about the target: its silence is then the
        // caller's deadline.
        let is_own = first_token_by + margin < attempt.deadline();
        let silence = Silence {
            family: Arc::clone(&attempt.target().family),
            fault: if is_own {
                TransportFault::FirstTokenTimeout
            } else {
                TransportFault::Deadline
            },
            awaited: if attempt.calls_tool() {
                "result"
            } else {
                "first token"
            },
            timers,
        };
        let call = wire_call(&attempt, &timers, now);
        drop(attempt);
        let mut alarm = Box::pin(sleep_until(first_token_by));
        let opened = tokio::select! {
            biased;
            opened = self.wire.clone().oneshot(call) => opened,
            () = &mut alarm => Err(silence.before_the_first_token()),
        };
        Ok(TimedStream {
            deltas: Some(opened?),
            alarm,
            by: first_token_by,
            silence,
            first: true,
            has_data: false,
            waiting_since: None,
            throughput: Throughput::new(timers.min_bytes_per_second),
        })
    }
}

// === impl TimedStream ===

impl TimedStream {
    /// Judges what came after a wait; the wait is over.
    fn came(
        &mut self,
        item: Option<Result<Delta, Box<ProviderError>>>,
    ) -> Option<Result<Delta, Box<ProviderError>>> {
        let waited = self
            .waiting_since
            .take()
            .map(|since| since.elapsed())
            .unwrap_or_default();
        if !self.first {
            let bytes = match &item {
                Some(Ok(Delta::BlockDelta { text, .. })) => text.len(),
                _ => 0,
            };
            if let Err(drips) = self.throughput.add(waited, bytes) {
                self.deltas = None;
                return Some(Err(Box::new(self.silence.drips(&drips))));
            }
        }
        self.first = self.first && !matches!(&item, Some(Ok(delta)) if delta.is_content());
        // Reading a silent answer on does not end its silence.
        self.has_data |= !self.first && !matches!(item, Some(Ok(Delta::ReadOn(_))));
        item
    }

    /// Returns the time at which the running wait is over.
    fn wakes_at(&mut self) -> Instant {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if std::mem::take(&mut self.has_data) {
            self.by = since + self.silence.timers.idle;
        }
        let measured_by = if self.first {
            None
        } else {
            self.throughput.window_ends(since)
        };
        measured_by.map_or(self.by, |ends| self.by.min(ends))
    }

    /// Returns the error for a wait that is over; `None` if only the window of the throughput is,
    /// and enough came in it.
    fn too_long(&mut self) -> Option<ProviderError> {
        let waited = self
            .waiting_since
            .take()
            .map(|since| since.elapsed())
            .unwrap_or_default();
        if !self.first
            && let Err(drips) = self.throughput.add(waited, 0)
        {
            return Some(self.silence.drips(&drips));
        }
        match self.first {
            _ if Instant::now() < self.by => None,
            true => Some(self.silence.before_the_first_token()),
            false => Some(self.silence.between_tokens()),
        }
    }
}

impl Stream for TimedStream {
    type Item = Result<Delta, Box<ProviderError>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(deltas) = &mut this.deltas else {
                return Poll::Ready(None);
            };
            if let Poll::Ready(item) = deltas.as_mut().poll_next(context) {
                let item = this.came(item);
                if matches!(item, None | Some(Err(_))) {
                    this.deltas = None;
                }
                return Poll::Ready(item);
            }
            let wakes_at = this.wakes_at();
            // It is moved only when it is due: most waits are over long before.
            if this.alarm.deadline() > wakes_at {
                this.alarm.as_mut().reset(wakes_at);
            }
            std::task::ready!(this.alarm.as_mut().poll(context));
            if Instant::now() >= wakes_at
                && let Some(error) = this.too_long()
            {
                this.deltas = None;
                return Poll::Ready(Some(Err(Box::new(error))));
            }
            let wakes_at = this.wakes_at();
            this.alarm.as_mut().reset(wakes_at);
        }
    }
}

// === impl Silence ===

impl Silence {
    fn before_the_first_token(&self) -> ProviderError {
        let words = format!(
            "no {} after {}",
            self.awaited,
            units::duration_text(self.timers.first_token)
        );
        self.error(self.fault, words)
    }

    fn between_tokens(&self) -> ProviderError {
        let words = format!("no token for {}", units::duration_text(self.timers.idle));
        self.error(TransportFault::IdleTimeout, words)
    }

    fn drips(&self, Drips(rate): &Drips) -> ProviderError {
        let floor = self.timers.min_bytes_per_second.unwrap_or_default();
        let words = format!("{rate:.0} bytes per second came, fewer than {floor}");
        self.error(TransportFault::IdleTimeout, words)
    }

    fn error(&self, fault: TransportFault, words: String) -> ProviderError {
        ProviderError::transport(Arc::clone(&self.family), fault, words)
    }
}

// === impl Throughput ===

impl Throughput {
    const fn new(floor: Option<u64>) -> Self {
        Self {
            floor,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Returns the time at which the current window ends if it is waited for from `now` on; `None`
    /// without a floor.
    fn window_ends(&self, now: Instant) -> Option<Instant> {
        self.floor
            .map(|_| now + THROUGHPUT_WINDOW.saturating_sub(self.waited))
    }

    /// Adds what came after this wait, and judges a window that is over.
    fn add(&mut self, waited: Duration, bytes: usize) -> Result<(), Drips> {
        self.waited += waited;
        self.bytes += bytes as u64;
        let Some(floor) = self.floor.filter(|_| self.waited >= THROUGHPUT_WINDOW) else {
            return Ok(());
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate in words and in a comparison of whole bytes"
        )]
        let [bytes, floor] = [self.bytes, floor].map(|bytes| bytes as f64);
        let rate = bytes / self.waited.as_secs_f64();
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        if rate < floor {
            Err(Drips(rate))
        } else {
            Ok(())
        }
    }
}

/// Returns the form in which the completion is wanted of an attempt with these limits.
///
/// Only the first attempt of a call is one for a document, and only if no caller reads along and
/// none was promised to find what had come: what follows a failure is to show its pieces.
fn form_of(attempt: &Attempt, timers: &AttemptTimers, now: Instant) -> CompletionForm {
    let invocation = &attempt.scope.invocation;
    if invocation.is_streamed() {
        return CompletionForm::Pieces;
    }
    let is_plain = !invocation.is_promised()
        && attempt.number() == 1
        && !attempt.calls_tool()
        && !attempt.is_attached()
        && attempt.request.goes_on.is_none()
        && attempt.request.call.endpoint == Endpoint::Answer
        // Hedging goes by the first tokens of all calls.
        && !attempt.scope.plan.hedge.enabled
        && attempt.target().capabilities.documents
        && timers.min_bytes_per_second.is_none();
    if !is_plain {
        return CompletionForm::Whole;
    }
    let state = &attempt.at.state;
    let raced_after = attempt.sent.raced_after.get().copied();
    let patience = timers
        .first_token
        .min(raced_after.unwrap_or(Duration::MAX))
        .min(state.circuit().policy().slow_threshold);
    if state.observed.allows_document(patience, now) {
        CompletionForm::Document
    } else {
        CompletionForm::Whole
    }
}

fn wire_call(attempt: &Attempt, timers: &AttemptTimers, now: Instant) -> ProviderRequest {
    let form = form_of(attempt, timers, now);
    // Set once, here.
    let _ = attempt.sent.form.set(form);
    ProviderRequest {
        invocation: attempt.scope.invocation.id.clone(),
        attempt: attempt.number(),
        target: Arc::clone(attempt.target()),
        call: Arc::clone(&attempt.request.call),
        tool: attempt
            .request
            .tool
            .as_ref()
            .map(|tool| Arc::clone(&tool.request)),
        wording: attempt.request.wording.clone(),
        form,
        deadline: attempt.deadline(),
        idle: Some(timers.idle),
        trace: attempt.sent.outgoing.get().cloned().unwrap_or_default(),
        sent_to: attempt.sent.to.clone(),
        background: attempt.scope.background().clone(),
        attach: attempt.request.attach.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_the_answer_is_waited_for_counts_and_each_window_counts_anew() {
        let second = Duration::from_secs(1);
        let mut throughput = Throughput::new(Some(10));
        let now = Instant::now();
        assert_eq!(throughput.window_ends(now), Some(now + 3 * second));
        assert_eq!(throughput.add(second, 0), Ok(()));
        assert_eq!(throughput.window_ends(now), Some(now + 2 * second));
        assert_eq!(
            throughput.add(Duration::ZERO, 1),
            Ok(()),
            "what is there already takes no time"
        );
        assert_eq!(throughput.add(2 * second, 29), Ok(()));
        assert_eq!(throughput.add(3 * second, 29), Err(Drips(29.0 / 3.0)));
        assert_eq!(Throughput::new(None).add(100 * second, 0), Ok(()));
    }
}
