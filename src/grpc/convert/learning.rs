//! What was learnt about tools, as operators read it.

use jiff::Timestamp;

use super::time::wire_time;
use crate::{grpc::v1, policy::tool_recovery::learning::ToolLearning};

/// Returns what was learnt, as it weighs now.
#[must_use]
pub fn tool_learning(learning: &ToolLearning, now: Timestamp) -> v1::GetToolLearningResponse {
    let confusions = learning
        .confusions(now)
        .into_iter()
        .map(|pair| v1::ToolConfusion {
            tenant: pair.learner.tenant.to_string(),
            operation: pair.learner.operation.to_string(),
            chosen: pair.chosen,
            right: pair.right,
            weight: pair.weight,
            last_at: Some(wire_time(pair.at)),
        });
    let records = learning
        .records(now)
        .into_iter()
        .map(|record| v1::ToolTrackRecord {
            tenant: record.learner.tenant.to_string(),
            operation: record.learner.operation.to_string(),
            tool: record.tool,
            succeeded: record.succeeded,
            failed: record.failed,
            last_at: Some(wire_time(record.at)),
        });
    v1::GetToolLearningResponse {
        confusions: confusions.collect(),
        records: records.collect(),
    }
}
