//! The course of a split call: which parts run next, what becomes of each, and the one result in
//! the end.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{super::arguments::Arguments, ChunkPart, ChunkPlan, MAX_CALLS, merge, smaller_helps};
use crate::domain::{
    failure::{Failure, FailureClass},
    tool::{Coverage, ToolOutput, ToolReply},
};

/// Number of times that a part is called again after a failure that has nothing to do with its
/// size.
const RETRIES: u32 = 1;
/// Wait before that if the failure states none, and the longest one that is waited out.
const USUAL_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Most missing parts that are named.
const MAX_NAMED: usize = 20;

/// A call that is being done part by part; it is given results and returns which calls come next.
#[derive(Debug)]
pub struct ChunkRun {
    plan: ChunkPlan,
    /// Parts by number, which starts with those of the parts it was cut from: their order is that
    /// of the whole.
    parts: BTreeMap<Vec<u32>, RunningPart>,
    calls: usize,
    parallel: usize,
    /// Reason for which no more parts are called.
    stopped: Option<String>,
    last_failure: Option<Failure>,
}

/// A part that is to be called.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkTask {
    /// Its number, to be handed back with its outcome.
    pub number: Vec<u32>,
    /// Its arguments.
    pub arguments: Arguments,
    /// Range that it covers, in words (`2024-03-01..2024-03-31`).
    pub label: String,
    /// Time for which it is waited for: zero, except for one that is called again.
    pub wait: Duration,
}

#[derive(Debug)]
struct RunningPart {
    part: ChunkPart,
    retries: u32,
    wait: Duration,
    state: PartState,
}

#[derive(Debug)]
enum PartState {
    Waiting,
    InFlight,
    Done(ToolReply),
    Missing,
}

// === impl ChunkRun ===

impl ChunkRun {
    /// Begins with the parts of a plan.
    #[must_use]
    pub fn new(plan: ChunkPlan) -> Self {
        let waiting =
            |(number, part): (u32, &ChunkPart)| (vec![number], RunningPart::new(part.clone()));
        Self {
            parts: (0_u32..).zip(&plan.parts).map(waiting).collect(),
            calls: 0,
            parallel: plan.parallel.max(1),
            stopped: None,
            last_failure: None,
            plan,
        }
    }

    /// Returns the parts that are to be called now; each is in flight until its outcome is handed
    /// in.
    pub fn start_next(&mut self) -> Vec<ChunkTask> {
        let mut tasks = Vec::new();
        if self.stopped.is_some() {
            return tasks;
        }
        let in_flight = self
            .parts
            .values()
            .filter(|it| matches!(it.state, PartState::InFlight))
            .count();
        let free = self
            .parallel
            .saturating_sub(in_flight)
            .min(MAX_CALLS - self.calls);
        let waiting = self
            .parts
            .iter_mut()
            .filter(|(_, it)| matches!(it.state, PartState::Waiting));
        for (number, running) in waiting.take(free) {
            running.state = PartState::InFlight;
            self.calls += 1;
            tasks.push(ChunkTask {
                number: number.clone(),
                arguments: self.plan.arguments_of(&running.part),
                label: running.part.label(),
                wait: running.wait,
            });
        }
        if self.calls >= MAX_CALLS
            && self
                .parts
                .values()
                .any(|it| matches!(it.state, PartState::Waiting))
        {
            self.stop("no more calls are allowed for one split call");
        }
        tasks
    }

    /// Hands in the result of a part.
    pub fn succeed(&mut self, number: &[u32], reply: ToolReply) {
        if let Some(running) = self.in_flight(number) {
            running.state = PartState::Done(reply);
        }
    }

    /// Hands in the failure of a part: it is called again, cut into smaller ones, or missing.
    pub fn fail(&mut self, number: &[u32], failure: &Failure) {
        let stopped = self.stopped.is_some();
        let wait = failure.retry_after.map_or(USUAL_WAIT, |wait| wait.duration);
        let Some(running) = self.in_flight(number) else {
            return;
        };
        let halves = if smaller_helps(failure) && !stopped {
            running.part.halves()
        } else {
            Vec::new()
        };
        if !halves.is_empty() {
            self.parts.remove(number);
            for (at, part) in (0_u32..).zip(halves) {
                self.parts
                    .insert([number, &[at]].concat(), RunningPart::new(part));
            }
        } else if failure.retryable && running.retries < RETRIES && wait <= MAX_WAIT && !stopped {
            running.retries += 1;
            running.wait = wait;
            running.state = PartState::Waiting;
        } else {
            running.state = PartState::Missing;
        }
        self.last_failure = Some(failure.clone());
        if concerns_all(failure) {
            self.stop("the tool refuses every part");
        }
    }

    /// Ends it, such as when the time is up: parts that do not run yet are missing. Those in flight
    /// may still be handed in.
    pub fn stop(&mut self, reason: &str) {
        for running in self
            .parts
            .values_mut()
            .filter(|it| matches!(it.state, PartState::Waiting))
        {
            running.state = PartState::Missing;
        }
        self.stopped.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns whether every part is done or missing.
    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.parts
            .values()
            .all(|it| matches!(it.state, PartState::Done(_) | PartState::Missing))
    }

    /// Returns the number of calls that were made.
    #[cfg(test)]
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// Returns the merged result of the parts that were done, with the missing ones named.
    ///
    /// # Errors
    /// Returns the last failure, if not one part was done.
    pub fn finish(self, tool: &str) -> Result<ToolOutput, Option<Failure>> {
        let total = count(self.parts.len());
        let mut replies = Vec::new();
        let mut sent = Vec::new();
        let mut missing = Vec::new();
        for running in self.parts.into_values() {
            let label = running.part.label();
            match running.state {
                PartState::Done(reply) => {
                    sent.push(Value::Object(self.plan.arguments_of(&running.part)));
                    replies.push(reply);
                }
                PartState::Waiting | PartState::InFlight | PartState::Missing => {
                    missing.push(label);
                }
            }
        }
        if replies.is_empty() {
            return Err(self.last_failure);
        }
        let done = count(replies.len());
        let merged = merge::merge(replies, &self.plan.rule.sum);
        let mut sentences = vec![format!(
            "{}; {done} of {total} were done",
            self.plan.words()
        )];
        if !missing.is_empty() {
            let more = missing.len().saturating_sub(MAX_NAMED);
            let named = missing
                .iter()
                .take(MAX_NAMED)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            sentences.push(format!("the result is incomplete, missing: {named}{more}"));
        }
        sentences.extend(self.stopped.filter(|_| !missing.is_empty()));
        sentences.extend(merged.remarks);
        Ok(ToolOutput {
            tool: tool.to_owned(),
            reply: merged.reply,
            arguments: Some(Value::Array(sent).to_string()),
            coverage: Some(Coverage {
                done,
                total,
                missing,
            }),
            reasoning: sentences.join("; "),
        })
    }

    fn in_flight(&mut self, number: &[u32]) -> Option<&mut RunningPart> {
        self.parts
            .get_mut(number)
            .filter(|it| matches!(it.state, PartState::InFlight))
    }
}

// === impl RunningPart ===

impl RunningPart {
    const fn new(part: ChunkPart) -> Self {
        Self {
            part,
            retries: 0,
            wait: Duration::ZERO,
            state: PartState::Waiting,
        }
    }
}

/// Returns whether a failure of one part will be that of all others.
const fn concerns_all(failure: &Failure) -> bool {
    matches!(
        failure.class,
        FailureClass::Authentication
            | FailureClass::PermissionDenied
            | FailureClass::QuotaExceeded
            | FailureClass::Configuration
            | FailureClass::Cancelled
            | FailureClass::ApprovalRejected
            | FailureClass::Deadline
    )
}

fn count(parts: usize) -> u32 {
    u32::try_from(parts).unwrap_or(u32::MAX)
}
