//! Names and numbers that identify things, as types of their own so that a route is never passed
//! for a target.
//!
//! Every identifier is parsed once, at the edge; inside the process it is a cheap reference-counted
//! string.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest identifier accepted from outside, in bytes.
pub const MAX_ID_BYTES: usize = 256;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name that is already known to be good.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns whether the name is the empty string (nothing was named).
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name.into())
            }
        }
    };
}

string_id!(
    /// One invocation, unique for ever (a version 7 UUID when Relight mints it).
    InvocationId
);
string_id!(
    /// One target: a provider, model, credential and endpoint, or a tool on a tool server.
    TargetId
);
string_id!(
    /// Name that a caller uses for an ordered list of targets and a policy.
    RouteName
);

impl RouteName {
    /// Returns whether a caller that is limited to these routes may use it; an empty list is not a
    /// limit.
    #[must_use]
    pub fn is_allowed_by(&self, limit: &[Self]) -> bool {
        limit.is_empty() || limit.contains(self)
    }
}
string_id!(
    /// Activity of the caller (`executor`, `planner`, …).
    Operation
);
string_id!(
    /// The tenant, as authenticated.
    TenantId
);
string_id!(
    /// A conversation that Relight keeps for the caller.
    ThreadId
);
string_id!(
    /// The caller's idempotency key.
    RequestId
);

impl InvocationId {
    /// Mints a new, time-ordered id.
    #[must_use]
    pub fn mint() -> Self {
        Self::new(uuid::Uuid::now_v7().to_string())
    }

    /// Returns the time at which it was minted; `None` if it was not.
    #[must_use]
    pub fn minted_at(&self) -> Option<jiff::Timestamp> {
        let minted = uuid::Uuid::parse_str(self.as_str()).ok()?.get_timestamp()?;
        let (seconds, nanos) = minted.to_unix();
        jiff::Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
    }
}

/// A position in the event journal; grows by one with each event of this process.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cursor(pub u64);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
