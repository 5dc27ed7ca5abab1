//! Why an invocation does not even begin.

use crate::{domain::failure::Failure, domain::ids::InvocationId, journal::JournalError};

/// Why an invocation does not even begin.
#[derive(Debug)]
pub enum StartError {
    /// The engine refused it: too much work.
    Refused(Box<Failure>),
    /// This replica is about to end.
    Closing,
    /// The request id was used for another request.
    Conflict(InvocationId),
    /// The same request is finished, but its answer was not kept.
    ResultNotRetained(InvocationId),
    /// Another invocation runs on the thread.
    ThreadBusy(InvocationId),
    /// The thread began on a route that the caller may not use.
    ThreadOfOtherRoute,
    /// It needs the journal, and the journal fails.
    Journal(JournalError),
}
