//! What was learnt from the outcomes of tool calls, shared by all calls of this process and brought
//! together with what other replicas learnt.
//!
//! Each change is applied here at once and noted, so that it can be applied again to what the
//! journal keeps.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use crate::{
    domain::ids::Operation,
    policy::tool_recovery::{adapt::AdaptationMemory, learning::ToolLearning},
};

/// Most changes that wait to be brought to the journal; the oldest are then known to this process
/// alone.
const MAX_PENDING: usize = 10_000;

/// What was learnt, shared; cheap to clone.
#[derive(Debug, Clone)]
pub struct ToolKnowledge {
    shared: Arc<Mutex<Learnt>>,
}

/// What was learnt.
#[derive(Debug)]
pub struct Learnt {
    /// Whether anything is learnt and used.
    pub enabled: bool,
    /// Which tool was right in place of which, and how often each succeeds.
    pub tools: ToolLearning,
    /// Adaptations that worked.
    pub adaptations: AdaptationMemory,
    pending: VecDeque<Lesson>,
}

/// One change of what is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Lesson {
    /// A tool succeeded or failed.
    Outcome {
        /// What the caller was doing.
        operation: Operation,
        /// The tool.
        tool: String,
        /// Whether it succeeded.
        succeeded: bool,
        /// When.
        at: Timestamp,
    },
    /// A tool was called where another one was right.
    Corrected {
        /// What the caller was doing.
        operation: Operation,
        /// The tool that was called.
        chosen: String,
        /// The tool that was right.
        right: String,
        /// When.
        at: Timestamp,
    },
    /// A tool was called because that was learnt, and was not right.
    Refuted {
        /// What the caller was doing.
        operation: Operation,
        /// The tool that was named.
        chosen: String,
        /// The tool that was called in its place.
        right: String,
    },
    /// An operator had it forgotten.
    Forgotten {
        /// Of which operation; `None` for all.
        operation: Option<Operation>,
        /// About which tool; `None` for all.
        tool: Option<String>,
    },
}

// === impl ToolKnowledge ===

impl ToolKnowledge {
    /// What was learnt before.
    #[must_use]
    pub fn new(tools: ToolLearning, max_entries: usize, enabled: bool) -> Self {
        let adaptations = AdaptationMemory::new(max_entries);
        let learnt = Learnt {
            enabled,
            tools,
            adaptations,
            pending: VecDeque::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(learnt)),
        }
    }

    /// What was learnt. Held shortly, never across an await.
    pub fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Learnt ===

impl Learnt {
    /// Learns something, unless nothing is learnt.
    pub fn learn(&mut self, lesson: Lesson) {
        if !self.enabled {
            return;
        }
        lesson.apply(&mut self.tools);
        if self.pending.len() >= MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(lesson);
    }

    /// Forgets what was learnt, of one operation or about one tool where they are given; returns
    /// how many entries went.
    pub fn reset(&mut self, operation: Option<Operation>, tool: Option<String>) -> usize {
        let forgotten = self.tools.reset(operation.as_ref(), tool.as_deref());
        self.pending
            .push_back(Lesson::Forgotten { operation, tool });
        forgotten
    }

    /// The changes that the journal does not have yet, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Lesson> {
        self.pending.iter().cloned().collect()
    }

    /// Takes what the journal has now, which holds the first `count` changes that were pending.
    pub fn synchronized(&mut self, kept: ToolLearning, count: usize) {
        self.pending.drain(..count.min(self.pending.len()));
        self.tools = kept;
        for lesson in &self.pending {
            lesson.apply(&mut self.tools);
        }
    }
}

// === impl Lesson ===

impl Lesson {
    /// Changes what is known.
    pub fn apply(&self, tools: &mut ToolLearning) {
        match self {
            Self::Outcome {
                operation,
                tool,
                succeeded,
                at,
            } => tools.record(operation, tool, *succeeded, *at),
            Self::Corrected {
                operation,
                chosen,
                right,
                at,
            } => tools.correct(operation, chosen, right, *at),
            Self::Refuted {
                operation,
                chosen,
                right,
            } => tools.refute(operation, chosen, right),
            Self::Forgotten { operation, tool } => {
                tools.reset(operation.as_ref(), tool.as_deref());
            }
        }
    }
}
