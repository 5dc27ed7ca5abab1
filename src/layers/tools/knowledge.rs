//! What was learnt from the outcomes of tool calls, shared by all calls of this process and brought
//! together with what other replicas learnt.
//!
//! Each change is applied here at once and noted, so that it can be applied again to what the
//! journal keeps.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{
    domain::ids::{Operation, TargetId, TenantId},
    policy::tool_recovery::{
        adapt::{AdaptationMemory, SchemaHistory},
        learning::{Learner, ToolLearning},
    },
};

/// Most changes that wait to be brought to the journal; the oldest are then known to this process
/// alone.
const MAX_PENDING: usize = 10_000;

/// Learnt facts, shared; cheap to clone.
#[derive(Debug, Clone)]
pub struct ToolKnowledge {
    shared: Arc<Mutex<Learnt>>,
}

/// Learnt facts.
#[derive(Debug)]
pub struct Learnt {
    /// If set, facts are learnt and used.
    pub enabled: bool,
    /// Tools that were right in place of others, and how often each succeeds.
    pub tools: ToolLearning,
    /// Adaptations that worked.
    pub adaptations: AdaptationMemory,
    /// The schemas that tools had.
    schemas: SchemaHistory,
    pending: VecDeque<Lesson>,
}

/// One change of what is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Lesson {
    /// A tool succeeded or failed.
    Outcome {
        /// Caller and operation.
        learner: Learner,
        /// The tool.
        tool: String,
        /// `true` if it succeeded.
        succeeded: bool,
        /// Time of the outcome.
        at: Timestamp,
    },
    /// A tool was called although another one was right.
    Corrected {
        /// Caller and operation.
        learner: Learner,
        /// The tool that was called.
        chosen: String,
        /// The tool that was right.
        right: String,
        /// Feature that tells this case from others.
        case: String,
        /// Time of the correction.
        at: Timestamp,
    },
    /// A tool was called because that was learnt, and was not right.
    Refuted {
        /// Caller and operation.
        learner: Learner,
        /// The tool that was named.
        chosen: String,
        /// The tool that was called in its place.
        right: String,
    },
    /// An operator had it forgotten.
    Forgotten {
        /// Of which tenant; `None` for all.
        tenant: Option<TenantId>,
        /// Of which operation; `None` for all.
        operation: Option<Operation>,
        /// About which tool; `None` for all.
        tool: Option<String>,
    },
}

// === impl ToolKnowledge ===

impl ToolKnowledge {
    /// Creates the knowledge from the facts learnt before.
    #[must_use]
    pub fn new(tools: ToolLearning, max_entries: usize, enabled: bool) -> Self {
        let adaptations = AdaptationMemory::new(max_entries);
        let learnt = Learnt {
            enabled,
            tools,
            adaptations,
            schemas: SchemaHistory::new(max_entries),
            pending: VecDeque::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(learnt)),
        }
    }

    /// Returns the learnt facts. Held shortly, never across an await.
    pub fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.shared.lock()
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

    /// Forgets the learnt facts, of one tenant, one operation or about one tool if they are given;
    /// returns how many entries were removed.
    pub fn reset(
        &mut self,
        tenant: Option<TenantId>,
        operation: Option<Operation>,
        tool: Option<String>,
    ) -> usize {
        let tools = &mut self.tools;
        let tool_name = tool.as_deref();
        let forgotten = tools.reset(tenant.as_ref(), operation.as_ref(), tool_name);
        self.pending.push_back(Lesson::Forgotten {
            tenant,
            operation,
            tool,
        });
        forgotten
    }

    /// Takes note of the schema that a tool has now; returns the one that it had before, if it had
    /// another one since this process started.
    pub fn schema_before(&mut self, tool: &TargetId, now: &Arc<Value>) -> Option<Arc<Value>> {
        self.schemas.before(tool, now)
    }

    /// Returns the changes that the journal does not have yet, oldest first.
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
                learner,
                tool,
                succeeded,
                at,
            } => tools.record(learner, tool, *succeeded, *at),
            Self::Corrected {
                learner,
                chosen,
                right,
                case,
                at,
            } => tools.correct(learner, (chosen, right), case, *at),
            Self::Refuted {
                learner,
                chosen,
                right,
            } => tools.refute(learner, chosen, right),
            Self::Forgotten {
                tenant,
                operation,
                tool,
            } => {
                tools.reset(tenant.as_ref(), operation.as_ref(), tool.as_deref());
            }
        }
    }
}
