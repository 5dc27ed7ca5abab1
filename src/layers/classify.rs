//! The one verdict: turns bare facts into a judged failure. It is the only change of error type in
//! the stack, so a stack without it does not compile.
//!
//! A received answer is judged here too: one that ends without its end mark is a cut, and one that
//! is whole but cannot be used (empty, tool arguments that are not valid JSON, a shape that was not
//! requested) is malformed. JSON that was demanded is taken out of its fence before.

mod bounded;

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::{Stream, StreamExt as _, future::Either, stream::iter};

use self::bounded::BoundedCheck;
use super::{Deltas, attempt::Attempt, guarded::NextLayer};
use crate::{
    domain::{
        adaptation::Adaptation,
        clock,
        completion::Delta,
        failure::{Failure, ProviderError, TransportFault},
        item_source::{ItemSource, items_of},
        message::ResponseFormat,
    },
    policy::{
        adapt,
        answer::{AnswerCheck, Checked, Unusable},
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
            return Ok(Box::pin(items_of(JudgedToolResult {
                deltas,
                judge,
                is_over: false,
            })));
        }
        let call = &judge.attempt.request.call;
        let deltas = match call.response_format {
            ResponseFormat::Text => Either::Left(deltas),
            ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. } => {
                Either::Right(unfenced(deltas))
            }
        };
        let check = AnswerCheck::new(Arc::clone(call));
        Ok(Box::pin(items_of(JudgedCompletion {
            deltas,
            judge,
            check: BoundedCheck::new(check),
            unfit: None,
            is_whole: false,
            is_over: false,
        })))
    }
}

/// Returns the same deltas with JSON out of its fence.
fn unfenced<S>(
    deltas: S,
) -> impl Stream<Item = Result<Delta, Box<ProviderError>>> + Send + Unpin + 'static
where
    S: Stream<Item = Result<Delta, Box<ProviderError>>> + Send + Unpin + 'static,
{
    let mut fences = Unfenced::default();
    deltas.flat_map(move |item| match item {
        Ok(delta) => Either::Left(iter(fences.pass(delta)).map(Ok)),
        Err(facts) => Either::Right(iter([Err(facts)])),
    })
}

/// The completion of one attempt, judged delta by delta.
struct JudgedCompletion<S> {
    deltas: S,
    judge: Judge,
    check: BoundedCheck,
    /// First flaw of a block that may be passed on; it counts once the completion is whole.
    unfit: Option<Unusable>,
    /// The end mark came.
    is_whole: bool,
    /// A failure ended it.
    is_over: bool,
}

// === impl JudgedCompletion ===

impl<S> ItemSource for JudgedCompletion<S>
where
    S: Stream<Item = Result<Delta, Box<ProviderError>>> + Send + Unpin,
{
    type Item = Result<Delta, Box<Failure>>;

    async fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let item = match self.deltas.next().await {
            Some(Ok(delta)) => self.judged(delta).await,
            Some(Err(facts)) => Err(self.failed(&facts).await),
            None if self.is_whole => return None,
            None => Err(self.judge.cut("the answer ended without its end mark")),
        };
        self.is_over = item.is_err();
        Some(item)
    }
}

impl<S: Send> JudgedCompletion<S> {
    /// Returns a delta if it may be passed on, else the failure that it ends in.
    async fn judged(&mut self, delta: Delta) -> Result<Delta, Box<Failure>> {
        if let Some(seen) = self.check.seen() {
            seen.see(&delta);
        }
        let is_end = matches!(delta, Delta::Finish { .. });
        match self.verdict(&delta).await {
            Ok(Checked::Complete) => {}
            Ok(Checked::Unchecked(reason)) => self.judge.unchecked(reason),
            Err(unusable) if !unusable.finding.may_be_passed_on() => {
                return Err(Box::new(self.judge.unusable(unusable)));
            }
            // A whole completion that may be passed on is read to its end: whether another attempt
            // is made is decided then.
            Err(unusable) if is_end => {
                let failure = self.judge.unusable(unusable);
                self.judge.attempt.scope.unfit.found(failure);
            }
            Err(unusable) => {
                self.unfit.get_or_insert(unusable);
            }
        }
        self.is_whole |= is_end;
        Ok(delta)
    }

    /// Judges what this delta is the end of.
    async fn verdict(&mut self, delta: &Delta) -> Result<Checked, Unusable> {
        match delta {
            Delta::Finish { .. } => {
                let checked = self.check.judge(AnswerCheck::verdict).await?;
                self.unfit.take().map_or(Ok(checked), Err)
            }
            // Before it is committed: a call that is committed may be acted upon.
            Delta::BlockStop { block, .. } => {
                let block = *block;
                self.check.judge(move |check| check.block(block)).await
            }
            _ => Ok(Checked::Complete),
        }
    }

    /// Returns the failure that these facts are.
    async fn failed(&mut self, facts: &ProviderError) -> Box<Failure> {
        let is_malformed = facts.fault == Some(TransportFault::Protocol);
        let broken = |check: &AnswerCheck| check.broken_call().map_or(Ok(Checked::Complete), Err);
        // What the provider calls malformed is described better by what is seen of it here.
        if is_malformed && let Err(unusable) = self.check.judge(broken).await {
            return Box::new(self.judge.unusable(unusable));
        }
        Box::new(self.judge.verdict(facts))
    }
}

/// The result of a tool, which its caller reads: only its end is looked at here.
struct JudgedToolResult<S> {
    deltas: S,
    judge: Judge,
    is_over: bool,
}

// === impl JudgedToolResult ===

impl<S> ItemSource for JudgedToolResult<S>
where
    S: Stream<Item = Result<Delta, Box<ProviderError>>> + Send + Unpin,
{
    type Item = Result<Delta, Box<Failure>>;

    async fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let item = match self.deltas.next().await {
            Some(item) => item.map_err(|facts| Box::new(self.judge.verdict(&facts))),
            None => Err(self
                .judge
                .cut("the tool's result ended without its end mark")),
        };
        self.is_over = matches!(item, Ok(Delta::Finish { .. }) | Err(_));
        Some(item)
    }
}

/// Judges what comes of one attempt.
struct Judge {
    classifier: Arc<Classifier>,
    attempt: Arc<Attempt>,
}

// === impl Judge ===

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
        if self.attempt.sent.is_document() && adapt::wants_stream(facts, &failure) {
            failure.adaptation = Some(Adaptation::AsStream);
            self.attempt.at.state.observed.document_refused();
        }
        failure
    }

    /// Returns the failure of what ended without its end mark.
    fn cut(&self, words: &str) -> Box<Failure> {
        let family = Arc::clone(&self.attempt.target().family);
        let facts = ProviderError::transport(family, TransportFault::Cut, words);
        Box::new(self.verdict(&facts))
    }

    /// Reports that the response passed without a check of its shape.
    fn unchecked(&self, reason: &'static str) {
        let scope = &self.attempt.scope;
        let number = self.attempt.number();
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

    fn unusable(&self, unusable: Unusable) -> Failure {
        let family = Arc::clone(&self.attempt.target().family);
        let facts = ProviderError::transport(family, TransportFault::Protocol, unusable.words);
        let mut failure = self.verdict(&facts);
        unusable.finding.mark(&mut failure);
        failure
    }
}
