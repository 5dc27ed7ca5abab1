//! The naive client, for comparison: three retries with full jitter after any failure that the
//! providers' own clients repeat (lost connections, 408, 409, 429, 5xx), and nothing else.
//!
//! Where a scenario sets a first-token timeout the client has the same, since no client waits for
//! ever.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep, timeout_at};
use tower::ServiceExt as _;

use super::{
    arrivals::ExpectedCall,
    call::{CallResult, request},
    spec::Scenario,
    upstream::World,
};
use crate::{
    domain::{
        adaptation::DialectOverrides, completion::Delta, invocation::TraceContext,
        message::ModelCall, target::Target, upstream::BackgroundResponses, wire::CompletionForm,
        wire::ProviderRequest, wire::SentTo,
    },
    policy::rng::SeededRng,
};

/// Attempts after the first.
const RETRIES: u32 = 3;
/// The longest first wait; doubled for each further one.
const BASE: Duration = Duration::from_secs(1);

/// A client of the first target of its route.
pub(super) struct Naive {
    scenario: Arc<Scenario>,
    seed: u64,
    world: World,
    targets: Vec<Arc<Target>>,
    request: Arc<ModelCall>,
}

/// End of one attempt.
enum NaiveEnd {
    Answered,
    /// By a status that a client does not repeat.
    Refused,
    Failed,
}

// === impl Naive ===

impl Naive {
    pub(super) fn new(
        scenario: Arc<Scenario>,
        seed: u64,
        world: World,
        targets: Vec<Arc<Target>>,
    ) -> Self {
        Self {
            scenario,
            seed,
            world,
            targets,
            request: Arc::new(request()),
        }
    }

    pub(super) async fn call(
        &self,
        arrival: ExpectedCall,
        number: usize,
        began: Instant,
    ) -> CallResult {
        let callers = self.scenario.callers.get(arrival.caller);
        let route = callers
            .map(|callers| self.scenario.route(callers))
            .unwrap_or_default();
        let now = Instant::now();
        let deadline = now
            + callers
                .and_then(|callers| callers.deadline)
                .unwrap_or(self.scenario.deadline);
        let patience = callers
            .and_then(|callers| callers.patience)
            .map_or(deadline, |patience| now + patience);
        let mut waiting = false;
        let answered = timeout_at(
            patience.min(deadline),
            self.attempts(&arrival, &route, deadline, &mut waiting),
        )
        .await;
        let mut result = CallResult::gone(number, began);
        result.answered = answered == Ok(true);
        result.doomed = answered.is_err() && waiting;
        result
    }

    async fn attempts(
        &self,
        arrival: &ExpectedCall,
        route: &[usize],
        deadline: Instant,
        waiting: &mut bool,
    ) -> bool {
        let id = &arrival.id;
        for retry in 0..=RETRIES {
            let mut rng = SeededRng::new(self.seed, id, retry + 1);
            if retry > 0 {
                *waiting = true;
                sleep((BASE * (1 << (retry - 1))).mul_f64(rng.unit())).await;
                *waiting = false;
            }
            // It does not track health: equal replicas are called in turn, of a list the first.
            let turn = match self.scenario.policy.select.order {
                crate::policy::select::Order::Listed => 0,
                crate::policy::select::Order::Shuffled
                | crate::policy::select::Order::Weighted
                | crate::policy::select::Order::LeastBusy => {
                    crate::policy::rng::place(rng.unit(), route.len())
                }
            };
            let Some(target) = route.get(turn).and_then(|index| self.targets.get(*index)) else {
                return false;
            };
            let call = ProviderRequest {
                tool: None,
                invocation: id.clone(),
                attempt: retry + 1,
                target: Arc::clone(target),
                call: Arc::clone(&self.request),
                wording: DialectOverrides::default(),
                form: CompletionForm::Whole,
                deadline,
                idle: None,
                trace: TraceContext::default(),
                sent_to: SentTo::default(),
                background: BackgroundResponses::default(),
                attach: None,
            };
            match self.answered(call, arrival.replica).await {
                NaiveEnd::Answered => return true,
                NaiveEnd::Refused => return false,
                NaiveEnd::Failed => {}
            }
        }
        false
    }

    async fn answered(&self, call: ProviderRequest, replica: usize) -> NaiveEnd {
        let silent = Instant::now() + self.scenario.policy.timers.first_token_alone;
        let mut deltas = match timeout_at(silent, self.world.at(replica).oneshot(call)).await {
            Ok(Ok(deltas)) => deltas,
            Ok(Err(error)) if error.status.is_some_and(is_final) => return NaiveEnd::Refused,
            Ok(Err(_)) | Err(_) => return NaiveEnd::Failed,
        };
        while let Some(item) = deltas.next().await {
            match item {
                Ok(Delta::Finish { .. }) => return NaiveEnd::Answered,
                Ok(_) => {}
                Err(_) => return NaiveEnd::Failed,
            }
        }
        NaiveEnd::Failed
    }
}

/// Returns whether the providers' own clients do not repeat a call that got this status.
fn is_final(status: u16) -> bool {
    (400..500).contains(&status) && ![408, 409, 429].contains(&status)
}
