//! Checks responses within a bounded time, and off the runtime's workers if a check may take long.

use std::{panic::resume_unwind, time::Duration};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use crate::policy::answer::{AnswerCheck, Checked, Unusable};

/// Most long checks at once in this process; more wait for a place, within their time.
const MAX_CHECKS: usize = 2;
static PLACES: Semaphore = Semaphore::const_new(MAX_CHECKS);

/// Time that a check may take, the wait for a place included.
const TIME_LIMIT: Duration = Duration::from_secs(2);

const LATE: Checked = Checked::Unchecked("checking it took longer than 2 s");

/// Checks one response as it passes; what cannot be checked in time passes unchecked.
pub(super) struct BoundedCheck {
    /// `None` once a check was given up.
    check: Option<AnswerCheck>,
}

impl BoundedCheck {
    pub(super) fn new(check: AnswerCheck) -> Self {
        Self { check: Some(check) }
    }

    /// Returns the observations of the response so far; `None` once a check was given up.
    pub(super) fn seen(&mut self) -> Option<&mut AnswerCheck> {
        self.check.as_mut()
    }

    /// Judges what was seen so far.
    pub(super) async fn judge(
        &mut self,
        judge: impl FnOnce(&AnswerCheck) -> Result<Checked, Unusable> + Send + 'static,
    ) -> Result<Checked, Unusable> {
        let Some(check) = self.check.take() else {
            return Ok(LATE);
        };
        if !check.is_costly() {
            let verdict = judge(&check);
            self.check = Some(check);
            return verdict;
        }
        let judging = async {
            let place = PLACES.acquire().await;
            spawn_blocking(move || {
                // Held as long as the thread is busy, even when it is no longer waited for.
                let _place = place;
                let verdict = judge(&check);
                (check, verdict)
            })
            .await
        };
        match timeout(TIME_LIMIT, judging).await {
            Ok(Ok((check, verdict))) => {
                self.check = Some(check);
                verdict
            }
            Ok(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Only a shutdown of the runtime cancels it.
                Err(_) => Ok(LATE),
            },
            Err(_) => Ok(LATE),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::domain::{
        completion::{BlockKind, Delta},
        message::{ModelCall, ResponseFormat},
    };

    #[tokio::test]
    async fn a_check_that_does_not_end_in_time_is_left_out_and_holds_no_worker() {
        let call = ModelCall {
            response_format: ResponseFormat::JsonObject,
            ..ModelCall::default()
        };
        let mut check = AnswerCheck::new(Arc::new(call));
        check.see(&Delta::BlockStart {
            block: 0,
            kind: BlockKind::Text,
        });
        check.see(&Delta::BlockDelta {
            block: 0,
            text: "x".repeat(2_000),
        });
        let mut bounded = BoundedCheck::new(check);
        let (release, released) = mpsc::channel::<()>();
        let endless = move |_: &AnswerCheck| {
            let _ = released.recv();
            Ok(Checked::Complete)
        };
        assert_eq!(bounded.judge(endless).await, Ok(LATE));
        assert!(bounded.seen().is_none());
        assert_eq!(
            bounded.judge(AnswerCheck::verdict).await,
            Ok(LATE),
            "what follows passes at once"
        );
        drop(release);
    }
}
