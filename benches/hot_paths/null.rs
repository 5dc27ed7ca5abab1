//! The whole stack over a wire that answers at once: what is measured is Relight alone.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        failure::ProviderError,
        fold::StreamStep,
        ids::{InvocationId, RouteName, TargetId},
        invocation::{Call, Invocation},
        message::{Message, ModelCall, Role},
        target::{Capabilities, Dialect, Target},
        wire::{DeltaStream, ProviderRequest},
    },
    events::EventBus,
    layers::{
        invocation::{InvocationContext, Plan},
        spans::{EntryPoint, Spans},
        targets::{SharedPolicies, TargetSpec, Targets},
    },
    policy::{
        admission::{Admission, AdmissionPolicy},
        circuit::CircuitPolicy,
        classify::Classifier,
        concurrency::ConcurrencyPolicy,
        tenant_limits::TenantMeters,
    },
    stack::{Shared, Stack, stack},
};
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

/// A wire on which every call is answered at once.
#[derive(Debug, Clone, Copy)]
struct Null;

impl Service<ProviderRequest> for Null {
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = Ready<Result<DeltaStream, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ProviderRequest) -> Self::Future {
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
        ready(Ok(Box::pin(futures_util::stream::iter(deltas.map(Ok)))))
    }
}

/// The stack, with one route of one target.
pub(crate) struct TestStack {
    stack: Stack,
    plan: Arc<Plan>,
    next: AtomicU64,
}

impl TestStack {
    pub(crate) fn new() -> Self {
        let target = Arc::new(Target {
            id: TargetId::from("null"),
            provider: "null".into(),
            family: "openai".into(),
            dialect: Dialect::Scripted,
            model: "model".into(),
            credential: "key".into(),
            endpoint: "null://".into(),
            capabilities: Capabilities::default(),
            system_prompt: None,
        });
        let spec = TargetSpec {
            target: Arc::clone(&target),
            circuit: Arc::new(CircuitPolicy::default()),
            concurrency: ConcurrencyPolicy::default(),
            settings: 0,
            pool: Vec::new(),
        };
        let events = EventBus::new(4096);
        let targets = Targets::new(events.clone(), &[spec], &SharedPolicies::default());
        let parts = Shared {
            events,
            spans: Spans::disabled(),
            targets,
            meters: Arc::new(Mutex::new(TenantMeters::new(BTreeMap::new()))),
            admission: Arc::new(Mutex::new(Admission::new(AdmissionPolicy::default()))),
            classifier: Arc::new(ArcSwap::from_pointee(Classifier::default())),
        };
        let plan = Arc::new(Plan {
            seed: 7,
            ..Plan::new(RouteName::from("route"), vec![target])
        });
        Self {
            stack: stack(parts, Null),
            plan,
            next: AtomicU64::new(0),
        }
    }

    /// One call from its begin to its outcome.
    pub(crate) async fn pass(&self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let messages = vec![Message::text(Role::User, "What is the answer?")];
        let call = Call::Model(Arc::new(ModelCall {
            messages,
            ..ModelCall::default()
        }));
        let id = InvocationId::from(format!("call-{number}"));
        let deadline = Instant::now() + Duration::from_mins(1);
        let invocation = Invocation::new(id, self.plan.route.clone(), call, deadline);
        let entry = EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");
        let incoming = InvocationContext::new(invocation, Arc::clone(&self.plan), entry);
        let mut steps = self
            .stack
            .clone()
            .oneshot(incoming)
            .await
            .expect("there is room");
        while let Some(step) = steps.next().await {
            if let StreamStep::Terminal(outcome) = step {
                assert!(
                    outcome.result.is_ok(),
                    "a wire that answers fails nobody: {}",
                    outcome.reasoning
                );
                return;
            }
        }
        panic!("a progress ends with its outcome");
    }
}
