//! Signals: what an attempt shows about its target, and how a classified failure maps to one.
//!
//! Only what concerns the target's health may count: a caller's mistake, a limit or Relight's own
//! refusal does not, or one tenant's bad requests would close the target for all.

use std::time::Duration;

use crate::domain::failure::{CircuitEffect, Failure, FailureClass, TransportFault};

/// Cost of detecting a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailKind {
    /// It comes at once; probing is cheap.
    Fast,
    /// It takes a timeout to see it; probing costs a caller's patience.
    Slow,
}

/// Evidence of an attempt about its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The target responded: the first token came, or a refusal that only a working model can give.
    FirstToken,
    /// The target failed. After [`Signal::FirstToken`] of the same permit: the response was cut or
    /// stalled.
    Failed {
        /// Cost of detecting it.
        kind: FailKind,
        /// The wait that the failure states.
        retry_after: Option<Duration>,
        /// The cause is on this host or its network: it does not count in the verdict that replicas
        /// share.
        local_origin: bool,
    },
    /// It shows nothing about the target's health.
    Neutral,
    /// The caller's limit was reached: the target works, but a probe showed nothing. The rate gate
    /// keeps its wait.
    RateLimited,
    /// The caller cancelled, or the deadline passed, before the first token.
    Cancelled {
        /// If set, the target had been silent for too long. If false, the circuit checks for
        /// itself: an attempt older than `slow_threshold` is taken as silent all the same.
        after_slow_threshold: bool,
    },
    /// The permit was dropped without a report; judged by its age, as if cancelled.
    Abandoned,
}

// === impl Signal ===

impl Signal {
    /// The signal of a judged failure; `after_slow_threshold`: whether the attempt was silent that
    /// long, `attached`: whether it read a response that was requested before, `any_failure`: as
    /// the circuit's policy states.
    #[must_use]
    pub fn of(
        failure: &Failure,
        after_slow_threshold: bool,
        attached: bool,
        any_failure: bool,
    ) -> Self {
        // That one response is gone shows nothing about the target.
        if attached
            && failure.class == FailureClass::StreamInterrupted
            && failure.status.is_some_and(|status| status >= 400)
        {
            return Self::Neutral;
        }
        let wait = failure.retry_after.map(|wait| wait.duration);
        let signal = signal_for(failure.class, failure.fault, wait, after_slow_threshold);
        let counts = failure.class != FailureClass::Cancelled && !failure.class.is_local_refusal();
        match signal {
            Self::Failed { .. } => signal,
            _ if counts && any_failure => Self::Failed {
                kind: FailKind::Fast,
                retry_after: None,
                local_origin: false,
            },
            _ => signal,
        }
    }
}

/// Returns the signal of a failed attempt of this class (the column *circuit* of the failure
/// classes).
///
/// `ToolFailed` counts as a failure: only a tool's own circuit receives it.
#[must_use]
pub fn signal_for(
    class: FailureClass,
    fault: Option<TransportFault>,
    retry_after: Option<Duration>,
    after_slow_threshold: bool,
) -> Signal {
    // The attempt was ended from this side: whatever it was classed as, the target has only been
    // silent.
    if matches!(
        fault,
        Some(TransportFault::Deadline | TransportFault::Cancelled)
    ) {
        return Signal::Cancelled {
            after_slow_threshold,
        };
    }
    let timed_out = matches!(
        fault,
        Some(TransportFault::FirstTokenTimeout | TransportFault::IdleTimeout)
    );
    let kind = if timed_out {
        FailKind::Slow
    } else {
        FailKind::Fast
    };
    let local_origin = fault.is_some_and(TransportFault::local_origin);
    match class.row().circuit {
        CircuitEffect::SlowFailure => Signal::Failed {
            kind: FailKind::Slow,
            retry_after,
            local_origin,
        },
        CircuitEffect::Failure => Signal::Failed {
            kind,
            retry_after,
            local_origin,
        },
        CircuitEffect::Limit => Signal::RateLimited,
        CircuitEffect::Alive => Signal::FirstToken,
        CircuitEffect::Cancelled => Signal::Cancelled {
            after_slow_threshold,
        },
        CircuitEffect::Neutral => Signal::Neutral,
    }
}
