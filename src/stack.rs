//! The order of the layers: the design of Relight in one list.
//!
//! Read it from the top: a request goes down, its stream comes up. Each line states the reason
//! for the layer's place; `tests/it/stack_order.rs` checks each neighbouring pair.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tower::{Service, ServiceBuilder, util::BoxCloneSyncService};

use crate::{
    domain::{failure::Failure, failure::ProviderError, wire::DeltaStream, wire::ProviderRequest},
    events::EventBus,
    layers::{
        StepStream,
        admit::AdmitLayer,
        affinity::{AffinityLayer, MovedConversations},
        circuit::CircuitLayer,
        classify::ClassifyLayer,
        concurrency::ConcurrencyLayer,
        deadline::DeadlineLayer,
        gates::GatesLayer,
        hedge::HedgeLayer,
        inject::InjectLayer,
        invocation::InvocationContext,
        observe::ObserveLayer,
        observe_attempt::ObserveAttemptLayer,
        retry::RetryLayer,
        select::SelectLayer,
        spans::Spans,
        targets::Targets,
        tenant_limits::TenantLimitsLayer,
        timers::TimersLayer,
        trace_wire::TraceWireLayer,
    },
    policy::{admission::Admission, classify::Classifier, tenant_limits::TenantMeters},
};

/// The whole stack as one service: an invocation in, its progress out.
pub type Stack = BoxCloneSyncService<InvocationContext, StepStream, Failure>;

/// State that the layers share; everything else comes with the invocation.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Bus on which everything that happens is published.
    pub events: EventBus,
    /// Handle with which spans are opened.
    pub spans: Spans,
    /// State that is known of every target.
    pub targets: Targets,
    /// Holds tenants to their limits.
    pub meters: Arc<Mutex<TenantMeters>>,
    /// Admits invocations.
    pub admission: Arc<Mutex<Admission>>,
    /// Classifies failures; replaced on reload.
    pub classifier: Arc<ArcSwap<Classifier>>,
}

/// Stacks the layers on top of a provider service.
pub fn stack<W>(shared: Shared, wire: W) -> Stack
where
    W: Service<ProviderRequest, Response = DeltaStream, Error = ProviderError>
        + Clone
        + Send
        + Sync
        + 'static,
    W::Future: Send + 'static,
{
    let Shared {
        events,
        spans,
        targets,
        meters,
        admission,
        classifier,
    } = shared;
    let moved = MovedConversations::default();
    BoxCloneSyncService::new(
        ServiceBuilder::new()
            // INVOCATION PLANE: once per call.
            // Outermost, so that a refusal by any layer below is still one span and one event.
            .layer(ObserveLayer::new(spans, events))
            // Before admission: what a tenant may not have takes no place from others.
            .layer(TenantLimitsLayer::new(meters))
            // Before anything costs something: too much work is refused early, with a time to come
            // back.
            .layer(AdmitLayer::new(admission))
            // Outermost, so that neither a fallback nor a wait starts a new clock.
            .layer(DeadlineLayer)
            // Outside the circuit, because the circuit must see wire attempts; the only loop there
            // is.
            .layer(RetryLayer::new(targets.clone()))
            // Inside the loop: the target is chosen afresh for each attempt, after its wait.
            .layer(SelectLayer::new(targets.clone(), moved.clone()))
            // After select: what is legal depends on the target's dialect.
            .layer(InjectLayer)
            // Below the note, so that both attempts of a race send the same request.
            .layer(HedgeLayer::new(targets.clone()))
            // ATTEMPT PLANE: per wire attempt; state is looked up by target and not owned by a
            // layer. Outermost: a target that is refused here keeps no conversation.
            .layer(AffinityLayer::new(moved))
            // Cheap and without a permit: a closed gate takes no slot.
            .layer(GatesLayer)
            // Before the circuit admits: a permit must not age in a queue.
            .layer(ConcurrencyLayer)
            // With the slot in hand: the state is fresh, the generation and a probe's lease start
            // now.
            .layer(CircuitLayer::new(targets.clone()))
            // After the permit: what Relight refuses itself is not an attempt, and leaves no
            // record, event or span.
            .layer(ObserveAttemptLayer)
            // With a record: the client span hangs under the attempt's.
            .layer(TraceWireLayer)
            // The one verdict, and the only change of error type: a stack without it does not
            // compile.
            .layer(ClassifyLayer::new(classifier))
            // Inside classify, so that silence is judged like any other fact.
            .layer(TimersLayer::new(targets))
            .service(wire),
    )
}
