//! Writes an error of a call as a gRPC status.
//!
//! A status always identifies its source (`ErrorInfo` with domain, reason and facts), and one that
//! must not be retried carries the pushback trailer, so that no client library or mesh retries it.

use std::collections::HashMap;

use tonic::{
    Status,
    metadata::{MetadataMap, MetadataValue},
};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

use crate::call_error::{CallError, Violations};

/// The `ErrorInfo` domain of every status.
const DOMAIN: &str = "relight.dev";

/// The trailer that makes a client's own retry stop (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Most bytes of violations in one status: trailers beyond 8 KiB are refused by common clients, and
/// details travel in base64. What does not fit is counted in the metadata of `ErrorInfo`.
const MAX_VIOLATION_BYTES: usize = 4096;

/// Longest text of a status, in bytes.
const MAX_TEXT_BYTES: usize = 512;

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let row = error.row();
        let own = error.facts().iter();
        let mut facts: HashMap<String, String> = own
            .map(|(key, fact)| ((*key).to_owned(), fact.clone()))
            .collect();
        let mut details = ErrorDetails::new();
        if let Some(faults) = error.violations() {
            let shown = shown(faults);
            facts.insert("violations".to_owned(), faults.total().to_string());
            if shown.len() < faults.total() {
                let not_shown = faults.total() - shown.len();
                facts.insert("violationsNotShown".to_owned(), not_shown.to_string());
            }
            details.set_bad_request(shown);
        }
        if let (Some(subject), Some(bound)) = (error.get("subject"), error.get("bound")) {
            details.add_quota_failure_violation(subject, bound);
        }
        details.set_error_info(row.reason, DOMAIN, facts);
        let mut trailers = MetadataMap::new();
        match error.retry_after() {
            Some(wait) => {
                details.set_retry_info(Some(wait));
            }
            None => {
                trailers.insert(PUSHBACK, MetadataValue::from_static("-1"));
            }
        }
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        Self::with_error_details_and_metadata(row.grpc, text, details, trailers)
    }
}

impl From<Violations> for Status {
    fn from(faults: Violations) -> Self {
        CallError::from(faults).into()
    }
}

fn shown(faults: &Violations) -> Vec<FieldViolation> {
    let mut bytes = 0;
    let fits = faults.kept().iter().take_while(|fault| {
        bytes += fault.field.len() + fault.reason.len() + 8;
        bytes <= MAX_VIOLATION_BYTES
    });
    fits.map(|fault| FieldViolation::new(fault.field.as_str(), fault.reason.as_str()))
        .collect()
}

#[cfg(test)]
mod tests;
