//! Holds each tenant to its limits before its calls cost anything, and settles what they used.
//!
//! A call is settled when its stream ends or is dropped. One that another replica let in, and that
//! was taken over here, is counted and never refused. No target sees anything of it: a
//! tenant's limits say nothing about a provider.

use std::{sync::Arc, task::Poll};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Service;

use super::{BoxFuture, StepStream, held::holding, invocation::InvocationScope};
use crate::{
    domain::{
        completion::{Exactness, Usage, estimated_tokens},
        failure::{Failure, FailureClass, WaitSource},
        invocation::{AttemptRecord, Call},
    },
    policy::tenant_limits::{ExpectedTokens, OverLimit, TenantMeters, TokenAmount},
};

/// The layer that holds tenants to their limits.
#[derive(Debug, Clone)]
pub struct TenantLimitsLayer {
    meters: Arc<Mutex<TenantMeters>>,
}

/// The service of [`TenantLimitsLayer`].
#[derive(Debug, Clone)]
pub struct HeldToLimits<S> {
    inner: S,
    meters: Arc<Mutex<TenantMeters>>,
}

/// A guard for what one call took of its tenant's limits; dropping it settles that.
struct MeterGuard {
    meters: Arc<Mutex<TenantMeters>>,
    scope: Arc<InvocationScope>,
    taken: Option<TokenAmount>,
}

// === impl TenantLimitsLayer ===

impl TenantLimitsLayer {
    /// Counts with these meters, which every caller shares.
    pub fn new(meters: Arc<Mutex<TenantMeters>>) -> Self {
        Self { meters }
    }
}

impl<S> tower::Layer<S> for TenantLimitsLayer {
    type Service = HeldToLimits<S>;

    fn layer(&self, inner: S) -> HeldToLimits<S> {
        HeldToLimits {
            inner,
            meters: Arc::clone(&self.meters),
        }
    }
}

// === impl HeldToLimits ===

impl<S> Service<Arc<InvocationScope>> for HeldToLimits<S>
where
    S: Service<
            Arc<InvocationScope>,
            Response = StepStream,
            Error = Failure,
            Future = BoxFuture<Result<StepStream, Failure>>,
        >,
{
    type Response = StepStream;
    type Error = Failure;
    type Future = BoxFuture<Result<StepStream, Failure>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let guard = match MeterGuard::enter(Arc::clone(&self.meters), &scope) {
            Ok(Some(guard)) => guard,
            Ok(None) => return self.inner.call(scope),
            Err(refused) => return Box::pin(async { Err(refused) }),
        };
        let begun = self.inner.call(scope);
        Box::pin(async move {
            let steps = match begun.await {
                Ok(steps) => steps,
                Err(refused) => {
                    guard.withdraw();
                    return Err(refused);
                }
            };
            // The steps still report what a call used that was left.
            Ok(holding(steps, guard))
        })
    }
}

// === impl MeterGuard ===

impl MeterGuard {
    /// Lets a call in, or refuses it; `None` if its tenant has no limits.
    fn enter(
        meters: Arc<Mutex<TenantMeters>>,
        scope: &Arc<InvocationScope>,
    ) -> Result<Option<Self>, Failure> {
        let tenant = &scope.invocation.tenant;
        if meters.lock().limits_of(tenant).is_none() {
            return Ok(None);
        }
        let expected = expected(&scope.invocation.call);
        let now = Instant::now();
        let taken = if scope.was_owned() {
            meters.lock().enter_again(tenant, expected, now)
        } else {
            let entered = meters.lock().enter(tenant, expected, now);
            entered.map_err(refusal)?
        };
        Ok(taken.map(|taken| Self {
            meters,
            scope: Arc::clone(scope),
            taken: Some(taken),
        }))
    }

    /// Takes the call back: a layer below refused it, so that it used nothing.
    fn withdraw(mut self) {
        if let Some(taken) = self.taken.take() {
            let tenant = &self.scope.invocation.tenant;
            self.meters.lock().withdraw(tenant, taken, Instant::now());
        }
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            let used = used(&self.scope.attempts());
            let tenant = &self.scope.invocation.tenant;
            self.meters
                .lock()
                .settle(tenant, taken, used, Instant::now());
        }
    }
}

fn expected(call: &Call) -> ExpectedTokens {
    match call {
        Call::Model(call) => ExpectedTokens {
            input: estimated_tokens(call.text_bytes()),
            most_output: call.max_output_tokens.map(u64::from),
        },
        Call::Tool(_) => ExpectedTokens {
            input: 0,
            most_output: Some(0),
        },
    }
}

/// Returns the tokens that all attempts used; `None` if an answer came and nobody counted.
fn used(attempts: &[AttemptRecord]) -> Option<TokenAmount> {
    let usage = attempts
        .iter()
        .fold(Usage::default(), |sum, attempt| sum.plus(attempt.usage));
    let is_answered = attempts
        .iter()
        .any(|attempt| attempt.sent && attempt.failure.is_none());
    (usage.exactness != Exactness::Unknown || !is_answered).then_some(TokenAmount {
        input: usage.input_tokens,
        output: usage.output_tokens,
    })
}

fn refusal(over: OverLimit) -> Failure {
    let OverLimit {
        kind,
        max,
        retry_in,
    } = over;
    let limit = kind.as_str();
    let words = format!("the limit of its tenant is reached: {limit} {max}");
    let refused = Failure::local(FailureClass::RateLimited, words);
    Failure {
        param: Some(limit.to_owned()),
        retryable: true,
        ..refused.with_retry_after(retry_in, WaitSource::Backoff)
    }
}
