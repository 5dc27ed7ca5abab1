//! Decides about failed calls of language models and of tools: what went wrong, whether another
//! attempt helps, after which wait, and where.
//!
//! No I/O, no async runtime, no clock of its own: time, random numbers and history are arguments.
//!
//! - [`domain`]: the words of the field as plain data.
//! - [`policy`]: decisions as pure functions and small state machines.
//!
//! # Examples
//!
//! ```
//! use relight_policy::{Classifier, FailureClass, ProviderError, Surface};
//!
//! let error = ProviderError {
//!     surface: Surface::Http,
//!     status: Some(429),
//!     headers: vec![("retry-after".to_owned(), "20".to_owned())],
//!     body: Some(r#"{"error": {"code": "rate_limit_exceeded"}}"#.to_owned()),
//!     ..ProviderError::default()
//! };
//! let failure = Classifier::new().classify(&error, jiff::Timestamp::UNIX_EPOCH);
//! assert_eq!(failure.class, FailureClass::RateLimited);
//! assert!(failure.retryable);
//! assert_eq!(failure.retry_after.unwrap().duration.as_secs(), 20);
//! ```

pub mod domain;
pub mod policy;

pub use crate::{
    domain::{
        failure::{Failure, FailureClass, ProviderError, Surface},
        ids::TargetId,
    },
    policy::{
        circuit::{Circuit, CircuitPolicy, ReportContext, Signal},
        classify::Classifier,
        retry::{Candidate, Decision, RetryPolicy, Situation, plan},
        rng::SeededRng,
    },
};
