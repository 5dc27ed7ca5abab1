//! The one verdict: turns bare facts into a judged failure. It is the only change of error type in the stack, so a
//! stack without it does not compile.
//!
//! An answer that came is judged here too: one that ends without its end mark is a cut, and one that is whole but
//! cannot be used (empty, tool arguments that are no JSON, a shape that was not asked for) is malformed.

use std::{sync::Arc, task::Poll};

use arc_swap::ArcSwap;
use async_stream::stream;
use futures_util::StreamExt as _;
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, Deltas, attempt::Attempt};
use crate::{
    domain::{
        adaptation::Adaptation,
        clock,
        completion::Delta,
        failure::{Failure, FailureClass, InvalidRequestDetail, ProviderError, TransportFault},
        wire::DeltaStream,
    },
    policy::{adapt, answer::AnswerCheck, classify::Classifier},
};

/// Judges failures.
#[derive(Debug, Clone)]
pub struct ClassifyLayer {
    classifier: Arc<ArcSwap<Classifier>>,
}

/// See [`ClassifyLayer`].
#[derive(Debug, Clone)]
pub struct Classify<S> {
    inner: S,
    classifier: Arc<ArcSwap<Classifier>>,
}

// === impl ClassifyLayer ===

impl ClassifyLayer {
    /// Judges by this classifier, which may be replaced at any time.
    pub fn new(classifier: Arc<ArcSwap<Classifier>>) -> Self {
        Self { classifier }
    }
}

impl<S> tower::Layer<S> for ClassifyLayer {
    type Service = Classify<S>;

    fn layer(&self, inner: S) -> Classify<S> {
        Classify { inner, classifier: Arc::clone(&self.classifier) }
    }
}

// === impl Classify ===

impl<S> Service<Attempt> for Classify<S>
where
    S: Service<Attempt, Response = DeltaStream, Error = ProviderError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Deltas;
    type Error = Failure;
    type Future = BoxFuture<Result<Deltas, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        let inner = self.inner.clone();
        let judge = Judge { classifier: self.classifier.load_full(), attempt: attempt.clone() };
        Box::pin(async move {
            let deltas = inner.oneshot(attempt).await;
            let mut deltas = deltas.map_err(|facts| judge.verdict(&facts))?;
            let mut check = AnswerCheck::new(Arc::clone(&judge.attempt.call));
            Ok(Box::pin(stream! {
                let mut whole = false;
                while let Some(item) = deltas.next().await {
                    match item {
                        Ok(delta) => {
                            check.see(&delta);
                            let verdict = match &delta {
                                Delta::Finish { .. } => check.verdict(),
                                // Before it is committed: a call that is committed may be acted upon.
                                Delta::BlockStop { block, .. } => check.block(*block),
                                _ => Ok(()),
                            };
                            if let Err(unusable) = verdict {
                                yield Err(judge.unusable(unusable));
                                return;
                            }
                            whole = whole || matches!(delta, Delta::Finish { .. });
                            yield Ok(delta);
                        }
                        Err(facts) => {
                            // What the provider calls malformed is told better by what is seen of it here.
                            let malformed = facts.fault == Some(TransportFault::Protocol);
                            yield Err(match check.broken_call().filter(|_| malformed) {
                                Some(unusable) => judge.unusable(unusable),
                                None => judge.verdict(&facts),
                            });
                            return;
                        }
                    }
                }
                if !whole {
                    let family = Arc::clone(&judge.attempt.target.family);
                    let words = "the answer ended without its end mark";
                    yield Err(judge.verdict(&ProviderError::transport(family, TransportFault::Cut, words)));
                }
            }) as Deltas)
        })
    }
}

/// Judges what comes of one attempt.
struct Judge {
    classifier: Arc<Classifier>,
    attempt: Attempt,
}

impl Judge {
    fn verdict(&self, facts: &ProviderError) -> Failure {
        self.attempt.learn_request_id(&facts.headers);
        let now = clock::wall_now();
        let verdict = self.classifier.classify(facts, now);
        let mut failure = verdict.into_failure(facts, Some(self.attempt.target.id.clone()), now);
        failure.adaptation = adapt::find(facts, &failure, &self.attempt.call);
        if failure.adaptation == Some(Adaptation::LeaveOutReasoning) {
            // By its words alone such a refusal passes as one of the key; the key is well.
            failure.class = FailureClass::InvalidRequest;
            failure.detail = Some(InvalidRequestDetail::Other);
        }
        failure
    }

    fn unusable(&self, unusable: crate::policy::answer::Unusable) -> Failure {
        let family = Arc::clone(&self.attempt.target.family);
        let facts = ProviderError::transport(family, TransportFault::Protocol, unusable.words);
        let mut failure = self.verdict(&facts);
        unusable.finding.mark(&mut failure);
        failure
    }
}
