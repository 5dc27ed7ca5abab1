//! The smallest layer: the shape of every real one. `docs/add-a-layer.md` walks through it.
//!
//! It counts how invocations end: with an outcome, refused by a layer below, or dropped by the
//! caller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use async_stream::stream;
use futures_util::StreamExt as _;
use tower::{Layer, Service, ServiceExt as _};

use crate::{
    domain::{failure::Failure, fold::StreamStep},
    layers::{BoxFuture, StepStream, invocation::InvocationContext},
};

/// Counts of how invocations ended.
#[derive(Debug, Default)]
struct Ends {
    outcomes: AtomicU32,
    refused: AtomicU32,
    dropped: AtomicU32,
}

/// The layer that counts how invocations end.
#[derive(Debug, Clone)]
struct ToyLayer {
    ends: Arc<Ends>,
}

/// The service of [`ToyLayer`].
#[derive(Debug, Clone)]
struct Toy<S> {
    inner: S,
    ends: Arc<Ends>,
}

/// A guard for an invocation that has not ended; dropping it counts the invocation as dropped by
/// its caller.
struct Open(Option<Arc<Ends>>);

// === impl ToyLayer ===

impl<S> Layer<S> for ToyLayer {
    type Service = Toy<S>;

    fn layer(&self, inner: S) -> Toy<S> {
        Toy {
            inner,
            ends: Arc::clone(&self.ends),
        }
    }
}

// === impl Toy ===

impl<S> Service<InvocationContext> for Toy<S>
where
    S: Service<InvocationContext, Response = StepStream, Error = Failure> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = StepStream;
    type Error = Failure;
    type Future = BoxFuture<Result<StepStream, Failure>>;

    /// Always ready: a layer refuses in `call`, after it knows the caller.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, invocation: InvocationContext) -> Self::Future {
        let inner = self.inner.clone();
        let mut open = Open(Some(Arc::clone(&self.ends)));
        Box::pin(async move {
            let mut steps = match inner.oneshot(invocation).await {
                Ok(steps) => steps,
                Err(failure) => {
                    open.end(|ends| &ends.refused);
                    return Err(failure);
                }
            };
            Ok(Box::pin(stream! {
                while let Some(step) = steps.next().await {
                    if matches!(step, StreamStep::Terminal(_)) {
                        open.end(|ends| &ends.outcomes);
                    }
                    yield step;
                }
            }) as StepStream)
        })
    }
}

// === impl Open ===

impl Open {
    fn end(&mut self, of: fn(&Ends) -> &AtomicU32) {
        if let Some(ends) = self.0.take() {
            of(&ends).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(|ends| &ends.dropped);
    }
}

mod tests {
    use super::*;
    use crate::{
        config::{GivenEnvironment, load_text},
        domain::{
            invocation::Call,
            message::{Message, ModelCall, Role},
        },
        engine::{Arrival, Engine, InvocationRequest},
        events::EventBus,
        layers::spans::{EntryPoint, Spans},
    };

    /// Returns an engine whose model plays this script and that sheds calls beyond this many, and a
    /// call for it.
    fn engine(script: &str, max_in_flight: u32) -> (Engine, InvocationContext) {
        let yaml = format!(
            "providers: {{ p: {{ dialect: scripted, script: {script} }} }}\n\
             targets: {{ t: {{ provider: p, model: m }} }}\nroutes: {{ default: {{ targets: [t] }} }}\n\
             admission: {{ max_in_flight: {max_in_flight} }}\n"
        );
        let loaded = load_text(&yaml, None, &GivenEnvironment::new()).unwrap();
        let engine = Engine::new(loaded.config, Spans::disabled(), EventBus::new(16)).unwrap();
        let call = ModelCall {
            messages: vec![Message::text(Role::User, "Hello")],
            ..ModelCall::default()
        };
        let arrival = Arrival::new("acme".into(), EntryPoint::Grpc("test"));
        let context = engine
            .resolve(InvocationRequest::new(arrival, Call::Model(Arc::new(call))))
            .unwrap();
        (engine, context)
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_sees_an_invocation_end_whichever_way_it_does() {
        let layer = ToyLayer {
            ends: Arc::default(),
        };
        let (engine, context) = engine("{ otherwise: { answer: { text: Well. } } }", 1);
        let layered = || layer.layer(engine.stack.clone());
        let counts = || {
            let Ends {
                outcomes,
                refused,
                dropped,
            } = &*layer.ends;
            [outcomes, refused, dropped].map(|count| count.load(Ordering::Relaxed))
        };
        let steps: Vec<StreamStep> = layered()
            .oneshot(context.clone())
            .await
            .unwrap()
            .collect()
            .await;
        assert!(
            matches!(steps.last(), Some(StreamStep::Terminal(_))),
            "{steps:?}"
        );
        assert_eq!(counts(), [1, 0, 0]);
        let open = layered().oneshot(context.clone()).await.unwrap();
        assert!(layered().oneshot(context).await.is_err(), "one at a time");
        assert_eq!(counts(), [1, 1, 0]);
        drop(open);
        assert_eq!(counts(), [1, 1, 1]);
    }
}
