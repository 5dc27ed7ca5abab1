//! A closing of a gate as replicas share it: what another one needs to keep its calls away, too.
//!
//! Times are lengths from now on, so that clocks need not agree. A replica that took a closing over
//! does not probe when the first one does: it stays back for a while, and probes only if nobody
//! else did until then.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Closed, Gate, GateChange, RESULT, ReplicaPlace, probes::ProbePlan};
use crate::domain::{
    failure::{Failure, FailureClass},
    ids::TenantId,
};

/// A closed gate, without anything that a provider or a caller wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedClosing {
    /// Reason for which it closed.
    pub class: FailureClass,
    /// HTTP status of the refusal that closed it; `None` if headers or something else did.
    pub status: Option<u16>,
    /// If set, the headers of a response closed it.
    #[serde(default)]
    pub by_headers: bool,
    /// Milliseconds for which it has been closed.
    pub closed_ms: u64,
    /// Milliseconds that a refusal took; 0 if that is not known.
    #[serde(default)]
    pub took_ms: u64,
    /// Milliseconds until the end that is believed; `None` if none is.
    pub ends_ms: Option<u64>,
    /// Those that it is closed for.
    pub tenants: Vec<ClosedTenant>,
}

/// A tenant that a gate is closed for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// Milliseconds until its next probe.
    pub probe_ms: u64,
}

// === impl SharedClosing ===

impl SharedClosing {
    /// Returns the same closing as it is after this time.
    #[must_use]
    pub fn after(mut self, passed: Duration) -> Self {
        let passed = millis(passed);
        self.closed_ms = self.closed_ms.saturating_add(passed);
        self.ends_ms = self.ends_ms.and_then(|ends| ends.checked_sub(passed));
        for tenant in &mut self.tenants {
            tenant.probe_ms = tenant.probe_ms.saturating_sub(passed);
        }
        self
    }

    /// Returns the failure that refused calls get.
    fn cause(&self) -> Option<Arc<Failure>> {
        let row = self.class.row();
        (!self.by_headers).then(|| {
            Arc::new(Failure {
                status: self.status,
                retryable: row.retry,
                fallback_helps: row.fallback,
                rule: "fleet".to_owned(),
                ..Failure::local(self.class, self.class.phrase())
            })
        })
    }
}

// === impl Gate: what replicas share of it ===

impl Gate {
    /// Returns the closing, if it is closed.
    #[must_use]
    pub fn shared(&self, now: Instant) -> Option<SharedClosing> {
        let closed = self.closed.as_ref()?;
        let until = |at: Instant| millis(at.saturating_duration_since(now));
        let tenants = self.tenants.iter().zip(&closed.probes);
        Some(SharedClosing {
            class: closed.class,
            status: closed.cause.as_ref().and_then(|cause| cause.status),
            by_headers: closed.cause.is_none(),
            closed_ms: millis(now.saturating_duration_since(closed.since)),
            took_ms: self.pace.as_ref().map_or(0, |pace| millis(pace.took())),
            ends_ms: self.stated.believed(now).map(until),
            tenants: tenants
                .map(|(tenant, probes)| ClosedTenant {
                    tenant: tenant.clone(),
                    probe_ms: until(probes.due()),
                })
                .collect(),
        })
    }

    /// Closes as another replica did, or takes over what it knows: of two times the later one counts.
    /// Calls that were admitted before show nothing then.
    pub fn close_as(&mut self, now: Instant, closing: &SharedClosing) -> Option<GateChange> {
        let was_closed = self.closed.is_some();
        let known = self.stated.believed(now);
        let after = |ms: u64| now.checked_add(Duration::from_millis(ms));
        if !was_closed {
            self.evidence.begin_anew();
            let took = Duration::from_millis(closing.took_ms);
            self.close(now, took, closing.class, closing.cause());
        }
        if let Some(end) = closing.ends_ms.and_then(after)
            && known.is_none_or(|known| end > known)
        {
            self.stated.set(now, end);
        }
        self.close_for(
            now,
            closing
                .tenants
                .iter()
                .map(|one| one.tenant.clone())
                .collect(),
        );
        for one in &closing.tenants {
            let place = self.place_of(&one.tenant);
            let probes = self.closed.as_mut().zip(place);
            let probes = probes.and_then(|(closed, place)| closed.probes.get_mut(place));
            if let Some((probes, due)) = probes.zip(after(one.probe_ms)) {
                probes.not_before(now, due);
            }
        }
        let earlier = now.checked_sub(Duration::from_millis(closing.closed_ms));
        if let Some((closed, since)) = self.closed.as_mut().zip(earlier) {
            closed.since = closed.since.min(since);
        }
        let news = !was_closed || (known.is_none() && closing.ends_ms.is_some());
        let reopens_in = self.reopens_in(now).unwrap_or_default();
        news.then_some(GateChange::Closed { reopens_in })
    }

    /// Sets for how long it leaves a probe that is due to others; zero if it does not.
    pub fn stay_back(&mut self, back: Duration) {
        self.back = back;
    }

    /// Shares what passes after it opened with other replicas, in turn.
    pub fn share_with(&mut self, place: ReplicaPlace) {
        self.place = place;
        if let Some(pace) = &mut self.pace {
            pace.share(place);
        }
    }

    /// Opens, as another replica did that had a success.
    pub fn open_as(&mut self, now: Instant) -> Option<GateChange> {
        self.closed.is_some().then(|| self.opened(now))
    }

    /// Checks whether a call may pass that goes before those that wait for their turn.
    ///
    /// # Errors
    /// Returns the time until the next probe of any replica.
    pub fn peek_ahead(&self, now: Instant, tenant: &TenantId) -> Result<(), Duration> {
        self.peek(now, tenant)
            .map_err(|own| own.saturating_sub(self.back).max(RESULT))
    }

    /// Returns the time at which a probe of this replica may pass.
    pub(super) fn due_here(&self, probes: &ProbePlan) -> Instant {
        probes.due() + self.back
    }
}

impl Closed {
    /// Returns the time of the next probe of anybody.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.probes.iter().map(ProbePlan::due).min()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
