//! Gates: they keep calls from a target that is well but takes none now, by rate limit, credential
//! and configuration. The design is `docs/gates.md`.
//!
//! A refusal binds the call that got it; for the others it is evidence. A gate closes when chance
//! does not explain the refusals, lets probes pass while it is closed, and opens with the first
//! success of a call that was admitted after the last refusal. It closes for the tenants whose calls
//! were refused, so that no single one closes it for others.
//!
//! It has no clock and no lock, and counts nothing for a circuit: a closed gate shows nothing about
//! the target's health.

mod closing;
mod evidence;
mod limits;
mod pace;
mod probes;
mod setting;
mod shared;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

pub use self::{
    closing::closed_by,
    evidence::CallNumber,
    pace::ReplicaPlace,
    setting::GatePolicy,
    shared::{ClosedTenant, SharedClosing},
};
use self::{
    evidence::RefusalEvidence,
    pace::Pacer,
    probes::{ProbePlan, StatedEnd},
};
use crate::{
    domain::{
        circuit::GateKind,
        failure::{Failure, FailureClass, WaitSource},
        ids::TenantId,
    },
    policy::sliding::Sliding,
};

/// From how many tenants refusals must come to close a gate for all.
const MANY_TENANTS: usize = 3;
/// Over which time the calls that come are counted.
const COMING: Duration = Duration::from_secs(10);
/// Time after a probe is due at which a rate gate opens to which nobody came.
const UNUSED: Duration = Duration::from_secs(5);
/// Shortest time for which those behind a probe wait for it.
const RESULT: Duration = Duration::from_millis(10);
/// For how long headers that were wrong are not believed.
const DISBELIEVED: Duration = Duration::from_mins(10);

/// Permission to pass a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePass {
    /// The call, as its result is reported.
    pub call: CallNumber,
    /// `true` if the gate is closed, and this call finds out whether it still must be.
    pub probe: bool,
}

/// A change of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateChange {
    /// The gate closed, or it became known until when it stays closed.
    Closed {
        /// Time from now until it reopens, as far as is known.
        reopens_in: Duration,
    },
    /// The gate opened.
    Opened {
        /// Time for which it was closed.
        closed_for: Duration,
    },
}

/// A gate of one target.
#[derive(Debug)]
pub struct Gate {
    kind: GateKind,
    policy: Arc<GatePolicy>,
    evidence: RefusalEvidence,
    closed: Option<Closed>,
    /// Of a rate gate after a limit was reached.
    pace: Option<Pacer>,
    /// Whom it is closed or paced for.
    tenants: Vec<TenantId>,
    stated: StatedEnd,
    /// The calls that come, passed or waiting.
    coming: Sliding<u32>,
    disbelieved_until: Option<Instant>,
    /// A change that was not returned yet.
    change: Option<GateChange>,
    /// For how long it leaves a probe that is due to other replicas.
    back: Duration,
    /// Its turn among the replicas when it opens.
    place: ReplicaPlace,
    /// Grows whenever it is opened from outside; what a call that passed before reports then is out
    /// of date.
    epoch: u64,
}

/// A gate that is closed.
#[derive(Debug)]
struct Closed {
    since: Instant,
    /// Of each tenant that it is closed for, in the order of `Gate::tenants`.
    probes: Vec<ProbePlan>,
    class: FailureClass,
    /// Failure that closed it; `None` if headers did.
    cause: Option<Arc<Failure>>,
}

// === impl Gate ===

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn new(kind: GateKind, policy: Arc<GatePolicy>) -> Self {
        Self {
            kind,
            policy,
            evidence: RefusalEvidence::default(),
            closed: None,
            pace: None,
            tenants: Vec::new(),
            stated: StatedEnd::default(),
            coming: Sliding::new(COMING),
            disbelieved_until: None,
            change: None,
            back: Duration::ZERO,
            place: ReplicaPlace::default(),
            epoch: 0,
        }
    }

    /// Applies new settings.
    pub fn set_policy(&mut self, policy: Arc<GatePolicy>) {
        self.policy = policy;
    }

    /// Returns the kind of the gate.
    #[must_use]
    pub fn kind(&self) -> GateKind {
        self.kind
    }

    /// Returns the reason for which it closed, while it is closed.
    #[must_use]
    pub fn class(&self) -> Option<FailureClass> {
        self.closed.as_ref().map(|closed| closed.class)
    }

    /// Since when it is closed; a probe may be due.
    #[must_use]
    pub fn closed_since(&self) -> Option<Instant> {
        self.closed.as_ref().map(|closed| closed.since)
    }

    /// Returns the reason and the time of the first refusal since the last success, if the last call
    /// that shows anything was refused.
    #[must_use]
    pub fn in_doubt(&self) -> Option<(FailureClass, Instant)> {
        self.evidence.in_doubt()
    }

    /// Returns the number of times that it was opened from outside. See [`Gate::open`].
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the failure that a refused caller gets: the one that closed the gate, with the time
    /// until the next probe. `None` while calls may pass, and for a rate gate, which is worth
    /// waiting for. It has no words of the provider, which may quote the request of another caller.
    #[must_use]
    pub fn refusal(&self, now: Instant, tenant: &TenantId) -> Option<Failure> {
        let retry_in = self.peek(now, tenant).err()?;
        let cause = self.closed.as_ref()?.cause.as_ref()?;
        let message = format!(
            "{}, as an earlier call found; this one was not sent",
            cause.own_words()
        );
        let fact = cause.class.as_str().to_owned();
        let refused = Failure {
            never_sent: true,
            message,
            fact,
            ..Failure::clone(cause)
        };
        (self.kind != GateKind::Rate).then(|| refused.with_retry_after(retry_in, WaitSource::Gate))
    }

    /// Checks whether a call may pass, if only as a probe; the pace of those that wait is not looked at.
    ///
    /// # Errors
    /// Returns the time until the next probe.
    pub fn peek(&self, now: Instant, tenant: &TenantId) -> Result<(), Duration> {
        let probes = self.probes_of(tenant);
        match probes
            .map(|probes| self.due_here(probes))
            .filter(|due| *due > now)
        {
            Some(due) if !self.is_coming(now) => Err(due - now),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether it is closed, but the success of a call is coming that was admitted after the
    /// last one that was refused.
    fn is_coming(&self, now: Instant) -> bool {
        let coming = self.closed.as_ref().and(self.evidence.coming_at());
        coming.is_some_and(|at| at <= now)
    }

    /// Returns the time for which it stays closed as far as is known: until the believed end, else
    /// until the next probe of anybody.
    #[must_use]
    pub fn reopens_in(&self, now: Instant) -> Option<Duration> {
        let closed = self.closed.as_ref()?;
        let due = closed.next_probe()?;
        let reopens = self.stated.believed(now).map_or(due, |end| end.max(due));
        Some(reopens.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Passes a call, or returns when to retry; `ahead`: before those who wait for their turn at a
    /// rate gate. A closed gate opens first if the success of a call is coming; that change is kept for
    /// [`Gate::drain`].
    ///
    /// # Errors
    /// How long it has to wait at least.
    pub fn admit(
        &mut self,
        now: Instant,
        tenant: &TenantId,
        ahead: bool,
    ) -> Result<GatePass, Duration> {
        if self.is_coming(now) {
            self.change = Some(self.opened(now));
        }
        if let Err(wait) = self.peek(now, tenant) {
            let coming = self.closed.as_ref().and(self.evidence.coming_at());
            return Err(coming.map_or(wait, |at| wait.min(at - now)));
        }
        self.pace.take_if(|pace| pace.is_over(now));
        let probe = self.probes_of(tenant).is_some();
        let is_paced = !probe && !ahead && self.concerns(tenant);
        match &mut self.pace {
            Some(pace) if is_paced => pace.take(now)?,
            Some(pace) => pace.pass(now),
            None => {}
        }
        if probe {
            self.next_probe(now, tenant);
        }
        if ahead || !self.is_paced(now, tenant) {
            self.comes(now);
        }
        let call = self.evidence.admitted(now, tenant);
        Ok(GatePass { call, probe })
    }

    /// Returns a change that was not returned yet. Call it after `admit`.
    pub fn drain(&mut self) -> Option<GateChange> {
        self.change.take()
    }

    /// A call comes that will wait for its turn. If the end of the limit is not known, the next probe
    /// passes for it eight seconds after the last one at the latest, for it has nowhere else to go.
    pub fn joins_line(&mut self, now: Instant) {
        self.comes(now);
        if self.stated.believed(now).is_none() {
            let probes = self.closed.iter_mut().flat_map(|closed| &mut closed.probes);
            probes.for_each(ProbePlan::awaited);
        }
    }

    fn comes(&mut self, now: Instant) {
        self.coming.add(now, 1);
    }

    /// Checks whether a call may pass that comes after so many others, as far as is known.
    ///
    /// # Errors
    /// Returns the time that it has to wait.
    pub fn peek_after(&self, now: Instant, tenant: &TenantId, before: u32) -> Result<(), Duration> {
        if let Some(probes) = self.probes_of(tenant) {
            let due = self.due_here(probes);
            // Whichever replica's probe succeeds opens it.
            let opens = match self.stated.believed(now) {
                Some(end) => end.max(probes.due()),
                None => probes.due_if_awaited(),
            };
            return if due.max(opens) <= now && before == 0 {
                Ok(())
            } else {
                Err(opens.saturating_duration_since(now).max(RESULT))
            };
        }
        let pace = self.pace.as_ref();
        let paced = pace.filter(|pace| self.concerns(tenant) && !pace.is_over(now));
        match paced.map(|pace| pace.ready_at(now, before)) {
            Some(ready) if ready > now => Err(ready - now),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether the calls of a tenant pass one at a time, and are in line.
    #[must_use]
    pub fn is_paced(&self, now: Instant, tenant: &TenantId) -> bool {
        let paced = self.pace.as_ref().is_some_and(|pace| !pace.is_over(now));
        self.kind == GateKind::Rate && self.concerns(tenant) && (self.closed.is_some() || paced)
    }

    /// Records that a call that passed was refused. Returns the change, if it closes the gate or
    /// tells until when it is closed.
    pub fn refused(
        &mut self,
        now: Instant,
        call: CallNumber,
        failure: &Failure,
    ) -> Option<GateChange> {
        let took = self
            .evidence
            .refused(now, call, failure.class, self.closed.is_some())?;
        self.pace.iter_mut().for_each(Pacer::refused);
        let known = self.stated.believed(now).is_some();
        let end = self
            .stated
            .stated(now, failure.retry_after.map(|it| it.duration));
        if let Some((closed, end)) = self.closed.as_mut().zip(end) {
            for probes in &mut closed.probes {
                probes.believe(now, end);
            }
        }
        let tenants = self.evidence.more_than_chance(now)?;
        let was_closed = self.closed.is_some();
        if !was_closed {
            let cause = Arc::new(failure.without_reply());
            self.close(now, took, failure.class, Some(cause));
        }
        self.close_for(now, tenants);
        let news = !was_closed || (!known && end.is_some());
        let reopens_in = self.reopens_in(now).unwrap_or_default();
        news.then_some(GateChange::Closed { reopens_in })
    }

    /// Records that a call that passed succeeded: the gate opens, unless the call was admitted
    /// before the last one that was refused.
    pub fn succeeded(&mut self, now: Instant, call: CallNumber) -> Option<GateChange> {
        let shows_it = self.evidence.accepted(call);
        let by_headers = self.closed.as_ref()?.cause.is_none();
        if !shows_it {
            return None;
        }
        if by_headers {
            self.disbelieved_until = Some(now + DISBELIEVED);
        }
        Some(self.opened(now))
    }

    /// A call that passed ended in a way that shows nothing about this gate.
    pub fn ended(&mut self, call: CallNumber) {
        self.evidence.ended(call);
    }

    /// Reads the headers of a response: when a limit has nothing left, the rate gate closes until
    /// it is reset.
    pub fn observe_limits(
        &mut self,
        now: Instant,
        headers: &[(String, String)],
        tenant: &TenantId,
    ) -> Option<GateChange> {
        let believed = self.disbelieved_until.is_none_or(|until| now >= until);
        if self.kind != GateKind::Rate || !self.policy.pace || !believed || self.closed.is_some() {
            return None;
        }
        let end = now.checked_add(limits::wait_for_reset(headers)?)?;
        self.stated.set(now, end);
        self.evidence.begin_anew();
        self.close(now, Duration::ZERO, FailureClass::RateLimited, None);
        self.close_for(now, vec![tenant.clone()]);
        let reopens_in = end - now;
        Some(GateChange::Closed { reopens_in })
    }

    /// Opens, whatever was stated: an operator, or new settings, removed the cause. Reports of
    /// calls that passed before change nothing any more.
    pub fn open(&mut self, now: Instant) -> Option<GateChange> {
        self.epoch += 1;
        let change = self.closed.is_some().then(|| self.opened(now));
        (self.pace, self.evidence) = (None, RefusalEvidence::default());
        self.tenants.clear();
        change
    }

    /// Opens a rate gate to which nobody came when a probe was due; else returns when that may be.
    ///
    /// # Errors
    /// Returns the time for which nobody must come; `None` if it is open.
    pub fn expire(&mut self, now: Instant) -> Result<GateChange, Option<Duration>> {
        let closed = self.closed.as_ref().ok_or(None)?;
        let times = closed.probes.iter().map(|probes| self.due_here(probes));
        let due = times.max().unwrap_or(now);
        if now < due + UNUSED {
            return Err(Some(due + UNUSED - now));
        }
        let change = self.opened(now);
        self.pace = None;
        self.tenants.clear();
        Ok(change)
    }

    fn opened(&mut self, now: Instant) -> GateChange {
        let since = self.closed.take().map_or(now, |closed| closed.since);
        self.stated = StatedEnd::default();
        self.evidence.begin_anew();
        match &mut self.pace {
            Some(pace) => pace.opens(now),
            None => self.tenants.clear(),
        }
        GateChange::Opened {
            closed_for: now.saturating_duration_since(since),
        }
    }

    fn close(
        &mut self,
        now: Instant,
        took: Duration,
        class: FailureClass,
        cause: Option<Arc<Failure>>,
    ) {
        self.pace.take_if(|pace| pace.is_over(now));
        match &mut self.pace {
            Some(pace) => pace.limited(now, took),
            None => self.tenants.clear(),
        }
        if self.kind == GateKind::Rate {
            self.pace
                .get_or_insert_with(|| Pacer::new(now, took, self.place));
        }
        let probes = self.tenants.iter().map(|_| ProbePlan::new(now)).collect();
        self.closed = Some(Closed {
            since: now,
            probes,
            class,
            cause,
        });
    }

    /// Closes for these tenants, too.
    fn close_for(&mut self, now: Instant, tenants: Vec<TenantId>) {
        let Some(closed) = &mut self.closed else {
            return;
        };
        for tenant in tenants {
            if self.tenants.len() < MANY_TENANTS && !self.tenants.contains(&tenant) {
                self.tenants.push(tenant);
                closed.probes.push(ProbePlan::new(now));
            }
        }
    }

    fn next_probe(&mut self, now: Instant, tenant: &TenantId) {
        let rate = match self.kind {
            GateKind::Rate => f64::from(self.coming.total(now)) / COMING.as_secs_f64(),
            GateKind::Credential | GateKind::Configuration => 0.0,
        };
        let end = self.stated.believed(now);
        let step = self.pace.as_ref().map(Pacer::step);
        let place = self.place_of(tenant);
        let probes = self.closed.as_mut().zip(place);
        if let Some(probes) = probes.and_then(|(closed, place)| closed.probes.get_mut(place)) {
            probes.next(now, end, rate, step);
        }
    }

    /// Returns the probes of a tenant; `None` if the gate is open for it.
    fn probes_of(&self, tenant: &TenantId) -> Option<&ProbePlan> {
        self.closed.as_ref()?.probes.get(self.place_of(tenant)?)
    }

    fn place_of(&self, tenant: &TenantId) -> Option<usize> {
        let own = self.tenants.iter().position(|one| one == tenant);
        own.or((self.tenants.len() >= MANY_TENANTS).then_some(0))
    }

    fn concerns(&self, tenant: &TenantId) -> bool {
        self.place_of(tenant).is_some()
    }
}

#[cfg(test)]
mod tests;
