//! What the journal remembers of tools: earlier attempts at the goal of a call, and what was learnt
//! from outcomes.
//!
//! Replicas on one journal share what they learn: each brings its own lessons to what is kept, and
//! takes what is there.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::ExecutionShared;
use crate::{
    domain::{failure::words::phrase_of_tool, invocation::Call},
    journal::{ExecutionListing, ExecutionState, JournalError, ToolExecution, goal_key},
    layers::{
        invocation::InvocationContext,
        tools::{EarlierAttempt, ToolPlan},
    },
    policy::tool_recovery::{
        arguments::quoted,
        history::{PastAttempt, REMEMBERED},
        learning::{ToolLearning, is_refusal},
    },
};

/// Under which name the journal keeps what was learnt.
const PROPERTY: &str = "tool_learning";

/// Interval at which lessons are brought to the journal.
const SYNCHRONIZED_EVERY: Duration = Duration::from_secs(2);

/// Number of times one is tried in a row if other replicas are faster.
const ROUNDS: usize = 5;

/// Time that earlier attempts may take to be looked up; a call does not wait for more.
const LOOK_UP_WITHIN: Duration = Duration::from_millis(300);

impl ExecutionShared {
    /// Gives a tool call the last attempts at its goal, if it has one.
    pub(super) async fn recall_attempts(&self, incoming: &mut InvocationContext) {
        let invocation = &incoming.invocation;
        let (Call::Tool(call), Some(plan)) = (&invocation.call, &incoming.plan.tool) else {
            return;
        };
        let key = goal_key(&invocation.tenant, invocation.thread.as_ref(), &call.goal);
        if key.is_empty() {
            return;
        }
        let wanted = ExecutionListing {
            tenant: Some(invocation.tenant.clone()),
            goal_key: Some(key),
            ..ExecutionListing::default()
        };
        // Without a memory the call is made all the same.
        let found = timeout(LOOK_UP_WITHIN, self.journal.executions(&wanted, REMEMBERED)).await;
        let Ok(Ok(found)) = found else { return };
        let past = found.iter().rev().map(earlier).collect();
        let plan = Arc::new(ToolPlan {
            past,
            ..ToolPlan::clone(plan)
        });
        Arc::make_mut(&mut incoming.plan).tool = Some(plan);
    }

    /// Brings lessons to the journal, and takes what other replicas learnt, as long as this replica
    /// lives.
    pub(super) async fn keep_learning(&self) {
        let mut often = interval(SYNCHRONIZED_EVERY);
        often.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            often.tick().await;
            if let Err(error) = self.synchronize_learning().await {
                tracing::debug!(%error, "what was learnt about tools could not be kept; it is tried again");
            }
        }
    }

    pub(super) async fn synchronize_learning(&self) -> Result<(), JournalError> {
        let knowledge = self.engine.tool_knowledge();
        for _ in 0..ROUNDS {
            let (own, pending) = {
                let learnt = knowledge.learnt();
                (learnt.tools.clone(), learnt.pending())
            };
            if !self.journal.keeps_properties() {
                knowledge.learnt().synchronized(own, pending.len());
                return Ok(());
            }
            let kept = self.journal.property(PROPERTY, String::new()).await?;
            // What cannot be read is of another version: it is learnt anew.
            let mut tools: ToolLearning = if kept.is_empty() {
                own.emptied()
            } else {
                serde_json::from_str(&kept).unwrap_or_else(|_| own.emptied())
            };
            for lesson in &pending {
                lesson.apply(&mut tools);
            }
            let is_kept = if pending.is_empty() {
                true
            } else {
                let text = serde_json::to_string(&tools).map_err(|error| {
                    JournalError::Corrupt(format!("what was learnt cannot be written: {error}"))
                })?;
                self.journal.swap_property(PROPERTY, &kept, text).await?
            };
            if is_kept {
                knowledge.learnt().synchronized(tools, pending.len());
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns an earlier attempt as a call remembers it.
fn earlier(one: &ToolExecution) -> EarlierAttempt {
    let tool = one
        .target
        .as_str()
        .split_once('/')
        .map_or(one.target.as_str(), |(_, tool)| tool);
    let detail = one.detail.clone().unwrap_or_default();
    let arguments = if detail.arguments.is_empty() {
        String::new()
    } else {
        format!(" with {}", detail.arguments)
    };
    let error = match one.state {
        ExecutionState::Succeeded => String::new(),
        ExecutionState::Failed | ExecutionState::Unknown | ExecutionState::Cancelled => {
            one.class.map_or("It failed", phrase_of_tool).to_owned()
        }
    };
    EarlierAttempt {
        target: one.target.clone(),
        refused: one.class.is_some_and(is_refusal),
        attempt: PastAttempt {
            reasoning: format!("Called {}{arguments}", quoted(tool)),
            error,
        },
    }
}
