//! A stack over a wire whose every answer a test decides.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        failure::{Failure, ProviderError, Surface},
        fold::StreamStep,
        ids::{InvocationId, RouteName, TargetId},
        invocation::{Call, InjectionMode, Invocation, Outcome},
        message::{Message, ModelCall, Role},
        target::{Capabilities, Dialect, Target},
        wire::{DeltaStream, ProviderRequest},
    },
    events::EventBus,
    layers::{
        BoxFuture, StepStream,
        invocation::{InvocationContext, Plan},
        spans::{EntryPoint, Spans},
        targets::{SharedPolicies, TargetSpec, TargetState, Targets},
    },
    policy::{
        admission::{Admission, AdmissionPolicy},
        circuit::CircuitPolicy,
        classify::Classifier,
        concurrency::ConcurrencyPolicy,
        gates::GatePolicy,
        hedge::HedgePolicy,
        retry::RetryPolicy,
        retry_budget::BudgetPolicy,
        tenant_limits::TenantMeters,
        timers::TimersPolicy,
    },
    stack::{Shared, Stack, stack},
};
use tokio::{sync::Notify, time::Instant};
use tower::{Service, ServiceExt as _};

/// What the wire does with one call.
#[derive(Clone)]
pub(crate) enum Plays {
    /// It is answered after that time.
    Answer(Duration),
    /// It fails after that time.
    Status(
        u16,
        Duration,
        Vec<(&'static str, &'static str)>,
        &'static str,
    ),
    /// Nothing comes until it is notified, then an answer or a reset.
    Wait(Arc<Notify>, bool),
    /// Nothing ever comes.
    Hang,
}

type Script = dyn Fn(usize, &ProviderRequest) -> Plays + Send + Sync;

/// A wire that counts.
#[derive(Clone)]
pub(crate) struct Wire {
    script: Arc<Script>,
    pub(crate) seen: Arc<Mutex<Vec<(TargetId, Instant, Instant)>>>,
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) max: Arc<AtomicUsize>,
}

/// Settings of a test stack.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) targets: usize,
    pub(crate) deadline: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) circuit: CircuitPolicy,
    pub(crate) concurrency: ConcurrencyPolicy,
    pub(crate) timers: TimersPolicy,
    pub(crate) hedge: HedgePolicy,
}

/// The stack, and its parts.
#[derive(Clone)]
pub(crate) struct TestStack {
    pub(crate) stack: Stack,
    pub(crate) targets: Targets,
    pub(crate) events: EventBus,
    pub(crate) wire: Wire,
    settings: Settings,
    route: Vec<Arc<Target>>,
    next: Arc<AtomicUsize>,
}

// === impl Plays ===

impl Plays {
    pub(crate) fn status(code: u16) -> Self {
        Self::Status(code, Duration::from_millis(10), Vec::new(), "")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            targets: 1,
            deadline: Duration::from_secs(20),
            retry: RetryPolicy::default(),
            circuit: CircuitPolicy::default(),
            concurrency: ConcurrencyPolicy::default(),
            timers: TimersPolicy::default(),
            hedge: HedgePolicy::default(),
        }
    }
}

// === impl TestStack ===

impl TestStack {
    pub(crate) fn new(
        settings: Settings,
        script: impl Fn(usize, &ProviderRequest) -> Plays + Send + Sync + 'static,
    ) -> Self {
        let events = EventBus::new(65_536);
        let target = |number: usize| {
            Arc::new(Target {
                id: TargetId::from(format!("target-{number}")),
                provider: "scripted".into(),
                family: "openai".into(),
                dialect: Dialect::Scripted,
                model: "model".into(),
                credential: format!("key-{number}").into(),
                endpoint: "scripted://".into(),
                capabilities: Capabilities::default(),
                system_prompt: None,
            })
        };
        let route: Vec<_> = (0..settings.targets).map(target).collect();
        let specs: Vec<_> = route
            .iter()
            .map(|target| TargetSpec {
                target: Arc::clone(target),
                circuit: Arc::new(settings.circuit.clone()),
                concurrency: settings.concurrency.clone(),
                settings: 0,
                pool: Vec::new(),
            })
            .collect();
        let shared = SharedPolicies {
            budget: BudgetPolicy::default(),
            gates: Arc::new(GatePolicy::default()),
        };
        let targets = Targets::new(events.clone(), &specs, &shared);
        let wire = Wire {
            script: Arc::new(script),
            seen: Arc::default(),
            running: Arc::default(),
            max: Arc::default(),
        };
        let parts = Shared {
            events: events.clone(),
            spans: Spans::disabled(),
            targets: targets.clone(),
            meters: Arc::new(parking_lot::Mutex::new(TenantMeters::new(BTreeMap::new()))),
            admission: Arc::new(parking_lot::Mutex::new(Admission::new(
                AdmissionPolicy::default(),
            ))),
            classifier: Arc::new(ArcSwap::from_pointee(Classifier::default())),
        };
        let stack = stack(parts, wire.clone());
        Self {
            stack,
            targets,
            events,
            wire,
            settings,
            route,
            next: Arc::default(),
        }
    }

    /// One more call, begun but not followed.
    pub(crate) async fn begin(&self) -> Result<StepStream, Failure> {
        self.begin_within(self.settings.deadline).await
    }

    pub(crate) async fn begin_within(&self, allowed: Duration) -> Result<StepStream, Failure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let settings = &self.settings;
        let messages = vec![Message::text(Role::User, "What is the answer?")];
        let call = Call::Model(Arc::new(ModelCall {
            messages,
            ..ModelCall::default()
        }));
        let id = InvocationId::from(format!("call-{number}"));
        let invocation =
            Invocation::new(id, RouteName::from("route"), call, Instant::now() + allowed);
        let mut plan = Plan {
            retry: settings.retry.clone(),
            timers: settings.timers.clone(),
            hedge: settings.hedge.clone(),
            seed: 7,
            ..Plan::new(RouteName::from("route"), self.route.clone())
        };
        plan.changes.injection_mode = InjectionMode::Never;
        let entry = EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");
        self.stack
            .clone()
            .oneshot(InvocationContext::new(invocation, Arc::new(plan), entry))
            .await
    }

    /// One more call, followed to its end.
    pub(crate) async fn call(&self) -> Outcome {
        finish(self.begin().await.expect("admitted")).await
    }

    pub(crate) fn state(&self, target: usize) -> Arc<TargetState> {
        self.targets
            .state(&self.route[target].id)
            .expect("there is such a target")
    }

    /// How many requests the wire has seen.
    pub(crate) fn sent(&self) -> usize {
        self.wire.seen.lock().expect("no test panics in it").len()
    }
}

/// Follows a call to its end.
pub(crate) async fn finish(mut steps: StepStream) -> Outcome {
    while let Some(step) = steps.next().await {
        if let StreamStep::Terminal(outcome) = step {
            return Arc::unwrap_or_clone(outcome);
        }
    }
    panic!("a progress ends with its outcome");
}

/// Follows a call for some time without ending it.
pub(crate) async fn follow_for(steps: &mut StepStream, time: Duration) {
    let end = Instant::now() + time;
    while let Ok(Some(step)) = tokio::time::timeout_at(end, steps.next()).await {
        assert!(
            !matches!(step, StreamStep::Terminal(_)),
            "it is not over yet"
        );
    }
}

impl Service<ProviderRequest> for Wire {
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = BoxFuture<Result<DeltaStream, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ProviderRequest) -> Self::Future {
        let number = {
            let mut seen = self.seen.lock().expect("no test panics in it");
            seen.push((call.target.id.clone(), Instant::now(), call.deadline));
            seen.len() - 1
        };
        let plays = (self.script)(number, &call);
        let running = Running::begin(self);
        Box::pin(async move {
            let running = running;
            let refused = |code: u16| ProviderError {
                provider: "openai".into(),
                surface: Surface::Http,
                status: Some(code),
                ..ProviderError::default()
            };
            match plays {
                Plays::Answer(after) => tokio::time::sleep(after).await,
                Plays::Status(code, after, headers, body) => {
                    tokio::time::sleep(after).await;
                    let headers = headers
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value.to_owned()));
                    let body = (!body.is_empty()).then(|| body.to_owned());
                    return Err(ProviderError {
                        headers: headers.collect(),
                        body,
                        ..refused(code)
                    });
                }
                Plays::Wait(told, answers) => {
                    told.notified().await;
                    if !answers {
                        return Err(refused(503));
                    }
                }
                Plays::Hang => std::future::pending().await,
            }
            let deltas = [
                Delta::BlockStart {
                    block: 0,
                    kind: BlockKind::Text,
                },
                Delta::BlockDelta {
                    block: 0,
                    text: "42".to_owned(),
                },
                Delta::BlockStop {
                    block: 0,
                    opaque: None,
                },
                Delta::Finish {
                    reason: FinishReason::Stop,
                    raw: "stop".to_owned(),
                },
            ];
            let deltas = futures_util::stream::iter(deltas.map(Ok));
            Ok(Box::pin(deltas.inspect(move |_| _ = &running)) as DeltaStream)
        })
    }
}

/// A request that is under way; dropped, it is not.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(wire: &Wire) -> Self {
        let now = wire.running.fetch_add(1, Ordering::SeqCst) + 1;
        wire.max.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(&wire.running))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
