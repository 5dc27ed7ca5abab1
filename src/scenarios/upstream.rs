//! The scripted provider: fails as the scenario specifies, and records what it was sent.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_stream::stream;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;

use super::{
    arrivals::{self, Draw, FIRST_TOKEN},
    spec::{Does, Scenario, UpstreamFault},
};
use crate::{
    domain::{
        completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
        failure::{ProviderError, Surface, TransportFault},
        ids::InvocationId,
        wire::{DeltaStream, ProviderRequest},
    },
    layers::BoxFuture,
};

/// Tokens of every completion.
pub(super) const OUTPUT_TOKENS: u32 = 300;
/// Tokens of every prompt.
const PROMPT_TOKENS: u64 = 1000;
/// Number of pieces of a completion.
const PIECES: u32 = 6;

/// A request that was sent to an upstream.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// Time at which it was sent, from the start of the run.
    pub(super) at: Duration,
    /// To which upstream.
    pub(super) upstream: usize,
    /// The number of the call among the arrivals.
    pub(super) call: usize,
    /// Time at which it was over.
    pub(super) ended: Option<Duration>,
    /// The status of a refusal.
    pub(super) status: Option<u16>,
    /// Tokens that were sent.
    pub(super) tokens: u32,
    /// `true` if the response was complete.
    pub(super) whole: bool,
}

/// All upstreams of a scenario, as a replica reaches them; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct World {
    shared: Arc<UpstreamState>,
    replica: usize,
}

#[derive(Debug)]
struct UpstreamState {
    scenario: Arc<Scenario>,
    seed: u64,
    began: Instant,
    state: Mutex<ServiceState>,
}

#[derive(Debug, Default)]
struct ServiceState {
    sent: Vec<Sent>,
    /// Tokens of a limit, and when they were counted; by upstream.
    buckets: Vec<Option<(f64, Instant)>>,
    /// Times at which each worker is free; by upstream.
    workers: Vec<Vec<Instant>>,
}

// === impl World ===

impl World {
    pub(super) fn new(scenario: Arc<Scenario>, seed: u64) -> Self {
        let began = Instant::now();
        let state = ServiceState {
            sent: Vec::new(),
            buckets: vec![None; scenario.upstreams.len()],
            workers: scenario
                .upstreams
                .iter()
                .map(|one| vec![began; one.workers.unwrap_or(0)])
                .collect(),
        };
        Self {
            shared: Arc::new(UpstreamState {
                scenario,
                seed,
                began,
                state: Mutex::new(state),
            }),
            replica: 0,
        }
    }

    /// Returns the same upstreams as this replica reaches them.
    pub(super) fn at(&self, replica: usize) -> Self {
        Self {
            replica,
            ..self.clone()
        }
    }

    /// Returns the requests sent so far.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.shared.lock().sent.clone()
    }
}

impl Service<ProviderRequest> for World {
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = BoxFuture<Result<DeltaStream, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ProviderRequest) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let replica = self.replica;
        Box::pin(async move { shared.play(call, replica).await })
    }
}

// === impl UpstreamState ===

impl UpstreamState {
    async fn play(
        self: Arc<Self>,
        call: ProviderRequest,
        replica: usize,
    ) -> Result<DeltaStream, ProviderError> {
        let now = Instant::now();
        let Some(upstream) = self
            .scenario
            .upstreams
            .iter()
            .position(|one| one.name == call.target.id.as_str())
        else {
            return Err(ProviderError::transport(
                "scripted",
                TransportFault::Dns,
                "no such upstream",
            ));
        };
        let mut draw = arrivals::of_attempt(self.seed, &call.invocation, call.attempt);
        let sending = Sending::begin(&self, now, upstream, &call.invocation);
        let fault = self.fault(upstream, &call.invocation, replica, now, &mut draw);
        let slower = self
            .scenario
            .upstreams
            .get(upstream)
            .map_or(1.0, |one| one.slower);
        let mut service = draw.service.mul_f64(slower);
        let mut begins = now;
        let mut cut = None;
        match fault.map(|fault| &fault.does) {
            None | Some(Does::WorkersDown { .. }) => {}
            Some(Does::Status {
                code,
                after,
                headers,
                body,
            }) => {
                sleep(*after).await;
                return Err(sending.refused(&call, *code, headers.clone(), body.clone()));
            }
            Some(Does::Reset { after }) => {
                sleep(*after).await;
                return Err(ProviderError::transport(
                    "openai",
                    TransportFault::Reset,
                    "connection reset by peer",
                ));
            }
            Some(Does::Unreachable) => {
                return Err(ProviderError::transport(
                    "openai",
                    TransportFault::Refused,
                    "connection refused",
                ));
            }
            Some(Does::Hang) => std::future::pending().await,
            Some(Does::Slow { times }) => service = service.mul_f64(*times),
            Some(Does::Limit {
                per_second,
                burst,
                min,
                max,
            }) => {
                if !self.within(upstream, now, *per_second, *burst) {
                    let wait = *min + (*max - *min).mul_f64(draw.wait);
                    sleep(Duration::from_millis(20)).await;
                    let headers = vec![(
                        "retry-after".to_owned(),
                        format!("{:.3}", wait.as_secs_f64()),
                    )];
                    return Err(sending.refused(&call, 429, headers, String::new()));
                }
            }
            Some(Does::Until) => {
                sleep(Duration::from_millis(20)).await;
                let end = fault.map_or(Duration::ZERO, |fault| fault.end(&self.scenario));
                let end = self.began + self.scenario.warm + end;
                let wait = end.saturating_duration_since(Instant::now());
                let wait = wait.as_secs_f64().ceil().to_string();
                let headers = vec![("retry-after".to_owned(), wait)];
                return Err(sending.refused(&call, 429, headers, String::new()));
            }
            Some(Does::Cut) => cut = Some(draw.cut),
            Some(Does::Late { at, answers }) => {
                sleep_until(self.began + self.scenario.warm + *at).await;
                if !answers {
                    return Err(ProviderError::transport(
                        "openai",
                        TransportFault::Reset,
                        "connection reset by peer",
                    ));
                }
                begins = Instant::now();
                service = Duration::from_secs(1);
            }
        }
        begins = begins.max(self.worker(upstream, begins, service));
        let first = begins + service.mul_f64(FIRST_TOKEN);
        sleep_until(first).await;
        Ok(answer(sending, &call, first, begins + service, cut))
    }

    /// Returns the fault that hits this attempt.
    fn fault(
        &self,
        upstream: usize,
        id: &InvocationId,
        replica: usize,
        now: Instant,
        draw: &mut Draw,
    ) -> Option<&UpstreamFault> {
        let at = now.checked_duration_since(self.began + self.scenario.warm)?;
        let caller = id.as_str().rsplit_once('-').map_or("", |(name, _)| name);
        let faults = &self.scenario.upstreams.get(upstream)?.faults;
        let thrown: Vec<f64> = faults.iter().map(|_| draw.faults.unit()).collect();
        faults.iter().zip(thrown).find_map(|(fault, sample)| {
            (fault.hits(caller, replica) && sample < fault.share_at(at, &self.scenario))
                .then_some(fault)
        })
    }

    fn within(&self, upstream: usize, now: Instant, per_second: f64, burst: f64) -> bool {
        let mut state = self.lock();
        let Some(bucket) = state.buckets.get_mut(upstream) else {
            return true;
        };
        let (held, counted) = bucket.unwrap_or((burst, now));
        let held = (held + (now - counted).as_secs_f64() * per_second).min(burst);
        let allowed = held >= 1.0;
        *bucket = Some((if allowed { held - 1.0 } else { held }, now));
        allowed
    }

    /// Returns the time at which a worker starts; workers do not notice that a caller is gone.
    fn worker(&self, upstream: usize, now: Instant, service: Duration) -> Instant {
        let downs = self
            .scenario
            .upstreams
            .get(upstream)
            .map_or(&[][..], |one| &one.faults);
        let mut state = self.lock();
        let Some(workers) = state
            .workers
            .get_mut(upstream)
            .filter(|workers| !workers.is_empty())
        else {
            return now;
        };
        let fault_at = self.began + self.scenario.warm;
        let free_at = |index: usize, free: Instant| {
            let mut at = free.max(now);
            for fault in downs {
                if let Does::WorkersDown { count } = fault.does {
                    let from = fault_at + fault.from;
                    let to = fault_at + fault.end(&self.scenario);
                    if index < count && at >= from && at < to {
                        at = to;
                    }
                }
            }
            at
        };
        let soonest = workers
            .iter()
            .enumerate()
            .map(|(index, free)| (free_at(index, *free), index))
            .min();
        let Some((begins, index)) = soonest else {
            return now;
        };
        if let Some(worker) = workers.get_mut(index) {
            *worker = begins + service;
        }
        begins
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock()
    }
}

/// Returns the text of a completion: it differs in every attempt, so that a mixture of two is
/// detected.
pub(super) fn piece(id: &InvocationId, attempt: u32, number: u32) -> String {
    format!("<{id}/{attempt}:{number}>")
}

/// Returns the complete text of an attempt's answer.
pub(super) fn text(id: &InvocationId, attempt: u32) -> String {
    (0..PIECES)
        .map(|number| piece(id, attempt, number))
        .collect()
}

fn answer(
    mut sending: Sending,
    call: &ProviderRequest,
    first: Instant,
    end: Instant,
    cut: Option<f64>,
) -> DeltaStream {
    let id = call.invocation.clone();
    let attempt = call.attempt;
    let model = call.target.model.to_string();
    Box::pin(stream! {
        let start = Delta::Start { model: Some(model), response_id: Some(format!("{id}/{attempt}")), headers: Vec::new() };
        yield Ok(start);
        yield Ok(Delta::BlockStart { block: 0, kind: BlockKind::Text });
        for number in 0..PIECES {
            let way = f64::from(number) / f64::from(PIECES);
            if cut.is_some_and(|cut| cut < way) {
                return;
            }
            sleep_until(first + (end - first).mul_f64(way)).await;
            sending.tokens(OUTPUT_TOKENS / PIECES);
            yield Ok(Delta::BlockDelta { block: 0, text: piece(&id, attempt, number) });
        }
        sleep_until(end).await;
        if cut.is_some() {
            return;
        }
        sending.whole();
        yield Ok(Delta::BlockStop { block: 0, opaque: None });
        yield Ok(Delta::Usage(Usage {
            input_tokens: PROMPT_TOKENS,
            output_tokens: u64::from(OUTPUT_TOKENS),
            exactness: Exactness::Exact,
            ..Usage::default()
        }));
        yield Ok(Delta::Finish { reason: FinishReason::Stop, raw: "stop".to_owned() });
    })
}

/// A request in flight; dropping it ends it.
struct Sending {
    shared: Arc<UpstreamState>,
    index: usize,
}

impl Sending {
    fn begin(
        shared: &Arc<UpstreamState>,
        now: Instant,
        upstream: usize,
        id: &InvocationId,
    ) -> Self {
        let call = id
            .as_str()
            .rsplit_once('-')
            .and_then(|(_, number)| number.parse().ok())
            .unwrap_or(usize::MAX);
        let at = now - shared.began;
        let mut state = shared.lock();
        let index = state.sent.len();
        state.sent.push(Sent {
            at,
            upstream,
            call,
            ended: None,
            status: None,
            tokens: 0,
            whole: false,
        });
        drop(state);
        Self {
            shared: Arc::clone(shared),
            index,
        }
    }

    fn refused(
        self,
        call: &ProviderRequest,
        code: u16,
        headers: Vec<(String, String)>,
        body: String,
    ) -> ProviderError {
        self.update(|sent| sent.status = Some(code));
        ProviderError {
            provider: Arc::clone(&call.target.family),
            surface: Surface::Http,
            status: Some(code),
            headers,
            body: (!body.is_empty()).then_some(body),
            ..ProviderError::default()
        }
    }

    fn tokens(&mut self, more: u32) {
        self.update(|sent| sent.tokens += more);
    }

    fn whole(&mut self) {
        self.update(|sent| sent.whole = true);
    }

    fn update(&self, write: impl FnOnce(&mut Sent)) {
        if let Some(sent) = self.shared.lock().sent.get_mut(self.index) {
            write(sent);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let now = Instant::now() - self.shared.began;
        self.update(|sent| sent.ended = Some(now));
    }
}
