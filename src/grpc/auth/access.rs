//! A caller's access as long as its stream lasts: a key that is removed or expires, a token that
//! ends, a role or route that is taken away end what they opened.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::time::sleep;

use super::{Authenticator, Identity, SigningKeys, Unrecognised};
use crate::{
    call_error::{
        CallError,
        table::{ACCESS_WITHDRAWN, UNAUTHENTICATED},
    },
    domain::clock::wall_now,
};

/// Interval of the check.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Credential that a caller showed when its stream started, and the configuration by which it was
/// recognised.
#[derive(Clone)]
pub struct Access {
    authenticator: Arc<ArcSwap<Authenticator>>,
    authorization: Option<Arc<str>>,
    certificate: Option<Arc<[u8]>>,
    seen: RecognisedBy,
    until: Option<Timestamp>,
}

/// Reason for which a stream may not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// The caller is not recognised any more.
    Unrecognised(Unrecognised),
    /// It is, and may no longer do what its stream does.
    Lessened,
}

/// State by which a caller was recognised: it is recognised again if one of its parts changes.
#[derive(Clone)]
struct RecognisedBy {
    authenticator: Arc<Authenticator>,
    keys: Option<Arc<SigningKeys>>,
}

// === impl Access ===

impl Access {
    /// The access of a caller who showed this `authorization` header and this certificate (DER),
    /// and was recognised by what `in_force` was then.
    pub fn new(
        authenticator: &Arc<ArcSwap<Authenticator>>,
        in_force: &Arc<Authenticator>,
        (authorization, certificate): (Option<&str>, Option<&[u8]>),
        identity: &Identity,
    ) -> Self {
        Self {
            authenticator: Arc::clone(authenticator),
            authorization: authorization.map(Arc::from),
            certificate: certificate.map(Arc::from),
            seen: RecognisedBy::of(in_force),
            until: identity.until,
        }
    }

    /// Returns when the caller is no longer recognised as somebody who is allowed this.
    pub async fn withdrawn(mut self, allows: impl Fn(&Identity) -> bool) -> Withdrawn {
        loop {
            sleep(LOOK_EVERY).await;
            let authenticator = self.authenticator.load_full();
            let has_ended = self.until.is_some_and(|until| until <= wall_now());
            if !has_ended && self.seen.is_of(&authenticator) {
                continue;
            }
            self.seen = RecognisedBy::of(&authenticator);
            match self.recognised(&authenticator) {
                Err(reason) => return Withdrawn::Unrecognised(reason),
                Ok(identity) if !allows(&identity) => return Withdrawn::Lessened,
                Ok(identity) => self.until = identity.until,
            }
        }
    }

    fn recognised(&self, authenticator: &Authenticator) -> Result<Identity, Unrecognised> {
        authenticator.recognise(self.authorization.as_deref(), self.certificate.as_deref())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

// === impl Withdrawn ===

impl From<Withdrawn> for CallError {
    /// The end of a stream whose caller's access ended.
    fn from(why: Withdrawn) -> Self {
        Self::new(match why {
            Withdrawn::Unrecognised(_) => UNAUTHENTICATED,
            Withdrawn::Lessened => ACCESS_WITHDRAWN,
        })
    }
}

// === impl RecognisedBy ===

impl RecognisedBy {
    fn of(authenticator: &Arc<Authenticator>) -> Self {
        Self {
            authenticator: Arc::clone(authenticator),
            keys: authenticator.signing_keys(),
        }
    }

    fn is_of(&self, authenticator: &Arc<Authenticator>) -> bool {
        let same_keys = match (&self.keys, authenticator.signing_keys()) {
            (None, None) => true,
            (Some(before), Some(now)) => Arc::ptr_eq(before, &now),
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_keys && Arc::ptr_eq(&self.authenticator, authenticator)
    }
}

/// Works as [`Access::withdrawn`]; never returns if nobody checks the access.
pub async fn withdrawn(access: Option<Access>, allows: impl Fn(&Identity) -> bool) -> Withdrawn {
    match access {
        Some(access) => access.withdrawn(allows).await,
        None => std::future::pending().await,
    }
}
