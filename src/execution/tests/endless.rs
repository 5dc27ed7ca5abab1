//! A completion without a pause: no part of it leaves the time for anything else, and it ends all the
//! same.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::harness::{Ask, engine};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        fold::StreamStep,
    },
    events::EventBus,
    layers::{StepStream, deadline::DeadlineLayer, invocation::InvocationScope, spans::Spans},
};

#[tokio::test]
async fn an_answer_whose_next_step_is_always_there_ends_at_its_deadline() {
    let engine = engine("{ otherwise: { answer: { text: Well. } } }");
    let mut incoming = Ask::new("Hello").resolved(&engine);
    Arc::make_mut(&mut incoming.invocation).deadline = Instant::now() + Duration::from_millis(50);
    let span = Spans::disabled().invocation(incoming.entry, &incoming.invocation);
    let scope = InvocationScope::new(incoming, span.trace(), EventBus::new(16));
    let below = service_fn(|_: Arc<InvocationScope>| async {
        let step = StreamStep::BlockDelta {
            block: 0,
            offset: 0,
            text: "more".to_owned(),
        };
        Ok::<StepStream, Failure>(Box::pin(stream::repeat(step)))
    });
    let mut steps = DeadlineLayer
        .layer(below)
        .oneshot(Arc::new(scope))
        .await
        .unwrap();
    let began = Instant::now();
    let outcome = loop {
        if let Some(StreamStep::Terminal(outcome)) = steps.next().await {
            break outcome;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "it has no end");
    };
    let failure = outcome.result.as_ref().unwrap_err();
    assert_eq!(failure.class, FailureClass::Timeout);
}
