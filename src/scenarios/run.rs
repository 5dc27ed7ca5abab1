//! Runs the load of a scenario in virtual time, through the real stack or as a naive client.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::{runtime::Builder, task::JoinSet, time::Instant};
use tower::ServiceExt as _;

use super::{
    ScenarioError,
    arrivals::ExpectedCall,
    call::{CallResult, request},
    naive::Naive,
    spec::Scenario,
    upstream::{Sent, World},
};
use crate::{
    domain::{
        event::{Event, EventBody},
        failure::{Failure, FailureClass},
        fold::{AnswerState, StreamStep},
        ids::{RouteName, TargetId, TenantId},
        invocation::{Call, Invocation, Outcome},
        message::ModelCall,
        target::{Capabilities, Dialect, Target},
    },
    events::{BusItem, EventBus, EventReader},
    layers::{
        invocation::{InvocationContext, Plan},
        spans::{EntryPoint, Spans},
        targets::{SharedPolicies, TargetSpec, Targets},
    },
    policy::{
        admission::{Admission, AdmissionPolicy},
        classify::Classifier,
        tenant_limits::TenantMeters,
    },
    stack::{Shared, Stack, stack},
};

/// A change of a circuit or gate.
#[derive(Debug, Clone)]
pub(super) struct StateChange {
    pub(super) at: Duration,
    pub(super) target: String,
    pub(super) what: String,
}

/// Everything recorded in a run.
#[derive(Debug, Default)]
pub(super) struct ScenarioRun {
    pub(super) results: Vec<CallResult>,
    pub(super) sent: Vec<Sent>,
    pub(super) circuits: Vec<StateChange>,
    /// Reports that came too late to count.
    pub(super) stale: u64,
    /// A hash of every event, in order, with its virtual time.
    pub(super) events_hash: String,
    /// The same of what circuits did.
    pub(super) circuits_hash: String,
}

/// Time that a run may continue after the last deadline.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// Runs the real stack.
pub(super) fn ours(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
) -> Result<ScenarioRun, ScenarioError> {
    virtually(async {
        let scenario = Arc::new(scenario.clone());
        let began = Instant::now();
        let world = World::new(Arc::clone(&scenario), seed);
        let events = EventBus::new(4096);
        let crowd = Arc::new(LoadGenerator::new(
            &scenario,
            seed,
            events.clone(),
            world.clone(),
        ));
        let mut listening = JoinSet::new();
        let observed = Arc::new(Mutex::new(Observed::default()));
        listening.spawn(listen(
            events.reader(crate::domain::ids::Cursor(0)),
            began,
            Arc::clone(&observed),
        ));
        listening.spawn(Arc::clone(&crowd).reload(began));
        let results = attend(arrivals, began, |arrival, number| {
            let crowd = Arc::clone(&crowd);
            async move { crowd.call(arrival, number, began).await }
        });
        let results = results.await;
        tokio::time::sleep(LAST_EVENTS).await;
        let stale = crowd
            .targets
            .all()
            .iter()
            .map(|state| state.circuit().snapshot(Instant::now()).stale_reports)
            .sum();
        listening.shutdown().await;
        let observed = std::mem::take(&mut *observed.lock());
        ScenarioRun {
            results,
            sent: world.sent(),
            circuits: observed.circuits,
            stale,
            events_hash: observed.all.hex(),
            circuits_hash: observed.moves.hex(),
        }
    })
}

/// Runs the naive client.
pub(super) fn naive(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
) -> Result<ScenarioRun, ScenarioError> {
    virtually(async {
        let scenario = Arc::new(scenario.clone());
        let began = Instant::now();
        let world = World::new(Arc::clone(&scenario), seed);
        let naive = Arc::new(Naive::new(
            Arc::clone(&scenario),
            seed,
            world.clone(),
            targets(&scenario),
        ));
        let results = attend(arrivals, began, |arrival, number| {
            let naive = Arc::clone(&naive);
            async move { naive.call(arrival, number, began).await }
        });
        ScenarioRun {
            results: results.await,
            sent: world.sent(),
            ..ScenarioRun::default()
        }
    })
}

/// Runs a future to its end on one thread, with a clock that jumps when there is nothing to do.
fn virtually<T>(future: impl Future<Output = T>) -> Result<T, ScenarioError> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(future))
}

/// Starts every call at its time, and waits for the last.
async fn attend<F>(
    arrivals: &[ExpectedCall],
    began: Instant,
    make: impl Fn(ExpectedCall, usize) -> F,
) -> Vec<CallResult>
where
    F: Future<Output = CallResult> + Send + 'static,
{
    let mut calls = JoinSet::new();
    let mut results = Vec::with_capacity(arrivals.len());
    for (number, arrival) in arrivals.iter().enumerate() {
        tokio::time::sleep_until(began + arrival.at).await;
        calls.spawn(make(arrival.clone(), number));
        while let Some(result) = calls.try_join_next() {
            results.extend(result);
        }
    }
    while let Some(result) = calls.join_next().await {
        results.extend(result);
    }
    results.sort_by_key(|result: &CallResult| result.call);
    results
}

/// Data read from the bus.
#[derive(Debug, Default)]
struct Observed {
    circuits: Vec<StateChange>,
    all: RunFingerprint,
    moves: RunFingerprint,
}

async fn listen(mut reader: EventReader, began: Instant, observed: Arc<Mutex<Observed>>) {
    loop {
        let reading = reader.next().await;
        let at = began.elapsed();
        let mut observed = observed.lock();
        match reading {
            BusItem::Event(event) => observed.record(at, &event),
            // The ring is larger than what happens at one instant, so this is a defect that the
            // hash shows.
            BusItem::Missed { count, .. } => observed.all.update(&format!("missed {count}")),
        }
    }
}

impl Observed {
    fn record(&mut self, at: Duration, event: &Event) {
        let who = event
            .scope
            .as_ref()
            .map_or("-", |scope| scope.invocation.as_str());
        let target = event.target.as_ref().map_or("-", TargetId::as_str);
        self.all.update(&format!(
            "{} {who} {} {target} {:?}\n",
            at.as_micros(),
            event.attempt,
            event.body
        ));
        let what = match &event.body {
            EventBody::CircuitOpened {
                reason,
                retry_in_ms,
                ..
            } => {
                format!("opened {} ms: {reason}", retry_in_ms.unwrap_or_default())
            }
            EventBody::CircuitHalfOpen { .. } => "half open".to_owned(),
            EventBody::CircuitRecovering {
                admitted_percent, ..
            } => format!("recovering {admitted_percent} %"),
            EventBody::CircuitClosed { .. } => "closed".to_owned(),
            EventBody::GateClosed {
                gate,
                reopens_in_ms,
                ..
            } => {
                format!("{} gate closed {reopens_in_ms} ms", gate.as_str())
            }
            EventBody::GateOpened { gate, .. } => format!("{} gate opened", gate.as_str()),
            _ => return,
        };
        self.moves
            .update(&format!("{} {target} {what}\n", at.as_micros()));
        self.circuits.push(StateChange {
            at,
            target: target.to_owned(),
            what,
        });
    }
}

impl StateChange {
    /// Returns the change for a report: seconds since the fault started, target, change.
    pub(super) fn seconds_target_and_change(&self, warm: Duration) -> (f64, String, String) {
        (
            self.at.as_secs_f64() - warm.as_secs_f64(),
            self.target.clone(),
            self.what.clone(),
        )
    }
}

/// The callers of the real stack.
struct LoadGenerator {
    scenario: Arc<Scenario>,
    stack: Stack,
    targets: Targets,
    specs: Vec<TargetSpec>,
    shared: SharedPolicies,
    plans: Vec<Arc<Plan>>,
    request: Arc<ModelCall>,
}

impl LoadGenerator {
    fn new(scenario: &Arc<Scenario>, seed: u64, events: EventBus, world: World) -> Self {
        let policy = &scenario.policy;
        let all = targets(scenario);
        let circuit = Arc::new(policy.circuit.clone());
        let specs: Vec<TargetSpec> = all
            .iter()
            .map(|target| TargetSpec {
                target: Arc::clone(target),
                circuit: Arc::clone(&circuit),
                concurrency: policy.concurrency.clone(),
                settings: 0,
                pool: Vec::new(),
            })
            .collect();
        let shared = SharedPolicies {
            budget: policy.budget.clone(),
            gates: Arc::new(policy.gates.clone()),
        };
        let targets = Targets::new(events.clone(), &specs, &shared);
        let plans = scenario.callers.iter().map(|callers| {
            let mut retry = policy.retry.clone();
            if let Some(retries) = callers.retries {
                retry.max_retries = retries;
            }
            let targets = scenario
                .route(callers)
                .into_iter()
                .filter_map(|one| all.get(one).map(Arc::clone));
            Arc::new(Plan {
                retry,
                select: policy.select.clone(),
                timers: policy.timers.clone(),
                hedge: policy.hedge.clone(),
                seed,
                ..Plan::new(RouteName::from(callers.name.as_str()), targets.collect())
            })
        });
        // Room for all calls: admission is not measured here.
        let room = AdmissionPolicy {
            max_in_flight: 1_000_000,
            ..AdmissionPolicy::default()
        };
        let parts = Shared {
            events,
            spans: Spans::disabled(),
            targets: targets.clone(),
            meters: Arc::new(Mutex::new(TenantMeters::new(BTreeMap::new()))),
            admission: Arc::new(Mutex::new(Admission::new(room))),
            classifier: Arc::new(ArcSwap::from_pointee(Classifier::default())),
        };
        let plans = plans.collect();
        Self {
            scenario: Arc::clone(scenario),
            stack: stack(parts, world),
            targets,
            specs,
            shared,
            plans,
            request: Arc::new(request()),
        }
    }

    /// Applies other credentials at the scenario's time.
    async fn reload(self: Arc<Self>, began: Instant) {
        let Some(at) = self.scenario.reload else {
            return;
        };
        tokio::time::sleep_until(began + self.scenario.warm + at).await;
        let specs: Vec<_> = self
            .specs
            .iter()
            .map(|spec| TargetSpec {
                settings: 1,
                ..spec.clone()
            })
            .collect();
        self.targets.update(&specs, &self.shared);
    }

    async fn call(&self, arrival: ExpectedCall, number: usize, began: Instant) -> CallResult {
        let (Some(callers), Some(plan)) = (
            self.scenario.callers.get(arrival.caller),
            self.plans.get(arrival.caller),
        ) else {
            return CallResult::gone(number, began);
        };
        let deadline = Instant::now() + callers.deadline.unwrap_or(self.scenario.deadline);
        let invocation = Invocation {
            tenant: TenantId::from(callers.name.as_str()),
            ..Invocation::new(
                arrival.id,
                plan.route.clone(),
                Call::Model(Arc::clone(&self.request)),
                deadline,
            )
        };
        let entry = EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");
        let observed = follow(
            self.stack.clone(),
            InvocationContext::new(invocation, Arc::clone(plan), entry),
        );
        let ended = match callers.patience {
            Some(patience) => tokio::time::timeout(patience, observed).await,
            None => Ok(observed.await),
        };
        let mut result = CallResult::gone(number, began);
        match ended {
            Ok(Ok((fold, outcome))) => result.read(fold.as_ref(), &outcome),
            Ok(Err(refused)) => result.class = Some(refused.class),
            Err(_) => {}
        }
        result
    }
}

/// Follows an invocation to its end, as a client does that folds what it is sent.
async fn follow(
    stack: Stack,
    incoming: InvocationContext,
) -> Result<(Option<AnswerState>, Outcome), Failure> {
    let mut steps = stack.oneshot(incoming).await?;
    let mut fold = Some(AnswerState::default());
    while let Some(step) = steps.next().await {
        fold = fold.and_then(|mut fold| fold.apply(&step).is_ok().then_some(fold));
        if let StreamStep::Terminal(outcome) = step {
            return Ok((fold, Arc::unwrap_or_clone(outcome)));
        }
    }
    Err(Failure::local(
        FailureClass::State,
        "the progress ended without an outcome",
    ))
}

/// Returns the targets of a scenario.
fn targets(scenario: &Scenario) -> Vec<Arc<Target>> {
    let target = |upstream: &super::Upstream| {
        Arc::new(Target {
            id: TargetId::from(upstream.name.as_str()),
            provider: "scripted".into(),
            family: "openai".into(),
            dialect: Dialect::Scripted,
            model: upstream.name.as_str().into(),
            credential: upstream.credential.as_str().into(),
            endpoint: format!("scripted://{}", upstream.name).into(),
            capabilities: Capabilities::default(),
            system_prompt: None,
        })
    };
    scenario.upstreams.iter().map(target).collect()
}

/// FNV-1a of all results: it distinguishes two runs, and is cheap in an unoptimized build.
#[derive(Debug)]
struct RunFingerprint(u128);

impl Default for RunFingerprint {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl RunFingerprint {
    fn update(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 =
                (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn hex(&self) -> String {
        format!("{:032x}", self.0)
    }
}
