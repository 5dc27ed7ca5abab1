//! The callers of the real stack of one replica.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    arrivals::ExpectedCall,
    call::{CallResult, request},
    spec::Scenario,
    upstream::World,
};
use crate::{
    config::Config,
    domain::{
        failure::{Failure, FailureClass},
        fold::{AnswerState, StreamStep},
        ids::{InvocationId, RouteName, TargetId, TenantId},
        invocation::{Call, Invocation, Outcome},
        message::ModelCall,
        target::{Capabilities, Dialect, Target},
    },
    events::EventBus,
    fleet::FleetHost,
    layers::{
        invocation::{InvocationContext, Plan, PlannedSelection},
        spans::{EntryPoint, Spans},
        targets::{SharedPolicies, TargetSpec, Targets},
    },
    policy::{
        admission::{Admission, AdmissionPolicy},
        classify::Classifier,
        rng::SeededRng,
        tenant_limits::TenantMeters,
    },
    stack::{Shared, Stack, stack},
};

/// The callers of one replica.
pub(super) struct LoadGenerator {
    scenario: Arc<Scenario>,
    seed: u64,
    /// Id of the replica.
    id: InvocationId,
    stack: Stack,
    events: EventBus,
    targets: Targets,
    config: Arc<Config>,
    draws: AtomicU32,
    specs: Vec<TargetSpec>,
    shared: SharedPolicies,
    plans: Vec<Arc<Plan>>,
    request: Arc<ModelCall>,
}

impl LoadGenerator {
    /// The callers of the replica with this id.
    pub(super) fn new(
        scenario: &Arc<Scenario>,
        seed: u64,
        id: &str,
        events: EventBus,
        world: World,
    ) -> Self {
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
                selection: PlannedSelection::by(policy.select.clone()),
                timers: policy.timers.clone(),
                hedge: policy.hedge.clone(),
                seed,
                ..Plan::new(RouteName::from(callers.name.as_str()), targets.collect())
            })
        });
        // Room for all calls: admission is not measured here.
        let room = AdmissionPolicy {
            max_in_flight: 1_000_000,
        };
        let parts = Shared {
            events: events.clone(),
            spans: Spans::disabled(),
            targets: targets.clone(),
            meters: Arc::new(Mutex::new(TenantMeters::new(BTreeMap::new()))),
            admission: Arc::new(Mutex::new(Admission::new(room))),
            classifier: Arc::new(ArcSwap::from_pointee(Classifier::default())),
        };
        let plans = plans.collect();
        Self {
            scenario: Arc::clone(scenario),
            seed,
            id: InvocationId::from(id),
            stack: stack(parts, world),
            events,
            targets,
            config: Arc::new(Config::default()),
            draws: AtomicU32::new(0),
            specs,
            shared,
            plans,
            request: Arc::new(request()),
        }
    }

    /// Applies other credentials at the scenario's time.
    pub(super) async fn reload(self: Arc<Self>, began: Instant) {
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

    /// Returns the reports of calls that came too late to count.
    pub(super) fn stale(&self) -> u64 {
        let now = Instant::now();
        let all = self.targets.all();
        let reports = all
            .iter()
            .map(|state| state.circuit().snapshot(now).stale_reports);
        reports.sum()
    }

    /// Makes a call.
    pub(super) async fn call(
        &self,
        arrival: ExpectedCall,
        number: usize,
        began: Instant,
    ) -> CallResult {
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

impl FleetHost for LoadGenerator {
    fn targets(&self) -> &Targets {
        &self.targets
    }

    fn events(&self) -> &EventBus {
        &self.events
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Its tenants have no limits.
    fn share_limits(&self, _: f64) {}

    fn dice(&self) -> f64 {
        let number = self.draws.fetch_add(1, Ordering::Relaxed);
        SeededRng::new(self.seed, &self.id, number).unit()
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
pub(super) fn targets(scenario: &Scenario) -> Vec<Arc<Target>> {
    let target = |upstream: &super::Upstream| {
        Arc::new(Target {
            id: TargetId::from(upstream.name.as_str()),
            provider: "scripted".into(),
            family: "openai".into(),
            dialect: Dialect::Scripted,
            model: upstream.name.as_str().into(),
            credential: upstream.credential.as_str().into(),
            // Replicas share what they know of targets with an HTTP address.
            endpoint: format!("http://{}", upstream.name).into(),
            capabilities: Capabilities::default(),
            system_prompt: None,
        })
    };
    scenario.upstreams.iter().map(target).collect()
}
