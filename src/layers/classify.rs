//! The one verdict: turns bare facts into a judged failure. It is the only change of error type in
//! the stack, so a stack without it does not compile.
//!
//! A received answer is judged here too: one that ends without its end mark is a cut, and one that
//! is whole but cannot be used (empty, tool arguments that are not valid JSON, a shape that was not
//! requested) is malformed. JSON that was demanded is taken out of its fence before.

mod bounded;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_stream::stream;
use futures_util::{Stream, StreamExt as _, future::Either};

use self::bounded::BoundedCheck;
use super::{Deltas, attempt::Attempt, guarded::NextLayer};
use crate::{
    domain::{
        clock,
        completion::Delta,
        failure::{Failure, ProviderError, TransportFault},
        message::ResponseFormat,
    },
    policy::{
        adapt,
        answer::{AnswerCheck, Checked},
        classify::Classifier,
        fence::Unfenced,
    },
};

/// Judges failures.
#[derive(Debug, Clone)]
pub struct ClassifyLayer {
    classifier: Arc<ArcSwap<Classifier>>,
}

/// See [`ClassifyLayer`].
#[derive(Debug)]
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
        Classify {
            inner,
            classifier: Arc::clone(&self.classifier),
        }
    }
}

// === impl Classify ===

impl<S> NextLayer<Arc<Attempt>> for Classify<S>
where
    S: NextLayer<Arc<Attempt>, Error = ProviderError>,
    S::Out: Stream<Item = Result<Delta, Box<ProviderError>>> + Unpin + 'static,
{
    type Out = Deltas;
    type Error = Failure;

    async fn call(&self, attempt: Arc<Attempt>) -> Result<Deltas, Failure> {
        let judge = Judge {
            classifier: self.classifier.load_full(),
            attempt: Arc::clone(&attempt),
        };
        let deltas = self.inner.call(attempt).await;
        let deltas = deltas.map_err(|facts| judge.verdict(&facts))?;
        if judge.attempt.calls_tool() {
            return Ok(judge.tool_result(deltas));
        }
        let mut deltas = match judge.attempt.request.call.response_format {
            ResponseFormat::Text => Either::Left(deltas),
            ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. } => {
                Either::Right(Box::pin(unfenced(deltas)))
            }
        };
        let mut check = BoundedCheck::new(
            AnswerCheck::new(Arc::clone(&judge.attempt.request.call))
                .of_the_rest(judge.attempt.request.goes_on.is_some()),
        );
        Ok(Box::pin(stream! {
            let mut whole = false;
            let mut unfit = None;
            while let Some(item) = deltas.next().await {
                match item {
                    Ok(delta) => {
                        if let Some(seen) = check.seen() {
                            seen.see(&delta);
                        }
                        let verdict = match &delta {
                            Delta::Finish { .. } => {
                                let verdict = check.judge(AnswerCheck::verdict).await;
                                verdict.and_then(|checked| unfit.take().map_or(Ok(checked), Err))
                            }
                            // Before it is committed: a call that is committed may be acted upon.
                            Delta::BlockStop { block, .. } => {
                                let block = *block;
                                check.judge(move |check| check.block(block)).await
                            }
                            _ => Ok(Checked::Complete),
                        };
                        match verdict {
                            Ok(Checked::Complete) => {}
                            Ok(Checked::Unchecked(reason)) => judge.unchecked(reason),
                            // A whole completion that may be passed on is read to its end: whether
                            // another attempt is made is decided then.
                            Err(unusable) if unusable.finding.may_be_passed_on() => {
                                if matches!(delta, Delta::Finish { .. }) {
                                    let failure = judge.unusable(unusable);
                                    judge.attempt.scope.unfit.found(failure);
                                } else {
                                    unfit.get_or_insert(unusable);
                                }
                            }
                            Err(unusable) => {
                                yield Err(Box::new(judge.unusable(unusable)));
                                return;
                            }
                        }
                        whole = whole || matches!(delta, Delta::Finish { .. });
                        yield Ok(delta);
                    }
                    Err(facts) => {
                        // What the provider calls malformed is described better by what is seen of
                        // it here.
                        let malformed = facts.fault == Some(TransportFault::Protocol);
                        let broken = |check: &AnswerCheck| check.broken_call().map_or(Ok(Checked::Complete), Err);
                        yield Err(Box::new(match if malformed { check.judge(broken).await } else { Ok(Checked::Complete) } {
                            Err(unusable) => judge.unusable(unusable),
                            Ok(_) => judge.verdict(&facts),
                        }));
                        return;
                    }
                }
            }
            if !whole {
                let family = Arc::clone(&judge.attempt.target().family);
                let words = "the answer ended without its end mark";
                yield Err(Box::new(judge.verdict(&ProviderError::transport(family, TransportFault::Cut, words))));
            }
        }))
    }
}

/// Returns the same deltas with JSON out of its fence.
fn unfenced<S>(mut deltas: S) -> impl Stream<Item = Result<Delta, Box<ProviderError>>> + Send
where
    S: Stream<Item = Result<Delta, Box<ProviderError>>> + Send + Unpin + 'static,
{
    stream! {
        let mut fences = Unfenced::default();
        while let Some(item) = deltas.next().await {
            match item {
                Ok(delta) => for passed in fences.pass(delta) { yield Ok(passed); },
                Err(facts) => yield Err(facts),
            }
        }
    }
}

/// Judges what comes of one attempt.
struct Judge {
    classifier: Arc<Classifier>,
    attempt: Arc<Attempt>,
}

impl Judge {
    fn verdict(&self, facts: &ProviderError) -> Failure {
        self.attempt.record_request_id(&facts.headers);
        let failure = self
            .classifier
            .classify(facts, clock::wall_now())
            .reported_cancellation_as_network();
        let mut failure = Failure {
            target: Some(self.attempt.target().id.clone()),
            ..failure
        };
        if let Some(tool) = &self.attempt.request.tool {
            return tool.effects.judged(failure.of_tool(&tool.request.tool));
        }
        adapt::record(facts, &mut failure, &self.attempt.request.call);
        failure
    }

    /// Passes on the result of a tool, which its caller reads: only its end is looked at here.
    fn tool_result(
        self,
        mut deltas: impl Stream<Item = Result<Delta, Box<ProviderError>>> + Unpin + Send + 'static,
    ) -> Deltas {
        Box::pin(stream! {
            while let Some(item) = deltas.next().await {
                let is_end = matches!(item, Ok(Delta::Finish { .. }) | Err(_));
                yield item.map_err(|facts| Box::new(self.verdict(&facts)));
                if is_end {
                    return;
                }
            }
            let family = Arc::clone(&self.attempt.target().family);
            let words = "the tool's result ended without its end mark";
            yield Err(Box::new(self.verdict(&ProviderError::transport(family, TransportFault::Cut, words))));
        })
    }

    /// Reports that the response passed without a check of its shape.
    fn unchecked(&self, reason: &'static str) {
        let (scope, number) = (&self.attempt.scope, self.attempt.number());
        let is_first = scope
            .record(number)
            .is_some_and(|record| record.unchecked.is_none());
        self.attempt
            .amend(|record| record.unchecked = Some(reason.to_owned()));
        if is_first {
            tracing::warn!(invocation = %scope.invocation.id, attempt = number, target = %self.attempt.target().id, reason,
                "the shape of a response was not checked");
        }
    }

    fn unusable(&self, unusable: crate::policy::answer::Unusable) -> Failure {
        let family = Arc::clone(&self.attempt.target().family);
        let facts = ProviderError::transport(family, TransportFault::Protocol, unusable.words);
        let mut failure = self.verdict(&facts);
        unusable.finding.mark(&mut failure);
        failure
    }
}
