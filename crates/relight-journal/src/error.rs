//! The errors of the journal: each operation has its own type, so that callers know exactly what
//! may happen.
//!
//! Texts hold neither payloads nor credentials: a reason is the store's own code or phrase.

use crate::domain::ids::InvocationId;

/// A failure of the store itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The store cannot be reached, is locked, or refused; nothing was written. Worth another try.
    #[error("the journal is unavailable: {0}")]
    Unavailable(String),
    /// Stored data cannot be read back; another try will not help.
    #[error("the journal holds something that cannot be read: {0}")]
    Corrupt(String),
    /// A bound of the configuration is reached, so nothing more is accepted.
    #[error("the journal is full: {0}")]
    Full(String),
    /// The operation needs content, and `journal.payloads` is `none`.
    #[error("the journal keeps no payloads, which {0} needs")]
    NotKept(&'static str),
}

// === impl JournalError ===

impl JournalError {
    /// Returns whether the store may be at fault, rather than the operation's arguments.
    pub(super) const fn is_of_the_store(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Corrupt(_))
    }

    /// Returns the reason without the common prefix of such errors.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unavailable(reason) => reason.clone(),
            Self::Corrupt(_) | Self::Full(_) | Self::NotKept(_) => self.to_string(),
        }
    }
}

/// Error returned if steps were not recorded; none of the batch was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another process owns the execution now: stop at once and send clients nothing more.
    #[error("the invocation is at epoch {current_epoch}: another replica owns it")]
    Fenced {
        /// The epoch that is in force.
        current_epoch: u64,
    },
    /// The invocation has its outcome already.
    #[error("the invocation is finished")]
    Finished,
    /// The batch does not start right after what is recorded, or is not contiguous itself.
    #[error("step {expected} was expected, not {got}")]
    Gap {
        /// The next number that would be accepted.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// The invocation's own cap is reached: continue as `ATOMIC`, and pass the remaining steps to
    /// `finish`.
    #[error("the invocation holds {held} bytes of events, of at most {cap}")]
    Full {
        /// Bytes recorded.
        held: u64,
        /// The cap in bytes.
        cap: u64,
    },
    /// No such invocation; it never started or its retention is over.
    #[error("no such invocation")]
    Unknown,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] JournalError),
}

/// Error returned if a thread was not changed; nothing of the change was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThreadError {
    /// The thread moved on since it was loaded.
    #[error("the thread is at version {current}")]
    Version {
        /// Its version now.
        current: u64,
    },
    /// The invocation does not hold the thread's lock (any more).
    #[error("the thread is not locked by this invocation")]
    NotLocked {
        /// Invocation that holds the lock, if there is one.
        holder: Option<InvocationId>,
    },
    /// A live invocation runs on the thread.
    #[error("invocation {running} runs on the thread")]
    Busy {
        /// The invocation that runs on it.
        running: InvocationId,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] JournalError),
}

/// Error returned if an outcome was not recorded; neither it, nor its last steps, nor its thread's
/// change was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// The steps or the epoch were refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The thread's change was refused.
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

// === impl conversions ===

impl From<JournalError> for FinishError {
    fn from(error: JournalError) -> Self {
        Self::Append(AppendError::Store(error))
    }
}
