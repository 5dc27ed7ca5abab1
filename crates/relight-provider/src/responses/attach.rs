//! The reading position in a background response, and how reading resumes after a break.
//!
//! The provider numbers the events of such a response and sends those behind any number again.
//! Resuming is part of the attempt: bounded, not a second request for a completion, and abandoned if
//! the numbers do not fit together. A response without a reader continues and is paid for, so that
//! dropping a running one cancels it, unless another owner of the invocation may be reading it:
//! that owner reads it from its start.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{runtime::Handle, task::JoinSet};

use crate::{
    domain::{
        completion::Break,
        failure::{ProviderError, TransportFault},
        upstream::UpstreamHandle,
        wire::ProviderRequest,
    },
    {
        http::{HttpClient, Post, ProviderResponse},
        reading::ParseError,
    },
};

/// Most requests to resume one response.
const MAX_REQUESTS: u32 = 3;
/// Most of them in a row that bring nothing new.
const MAX_FRUITLESS: u32 = 2;
/// The wait before one that follows a fruitless one: what broke twice at once needs a moment.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest time that a cancellation may take; after it, the provider either has it or will not take
/// it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Length of the longest id that goes into a path, in bytes.
const MAX_ID_BYTES: usize = 256;
/// The events after which a response no longer runs upstream.
const ENDS: [&str; 4] = [
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
];

/// The cancellations in flight, of one provider; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancels(Arc<Mutex<JoinSet<()>>>);

/// An attempt's attachment to its response.
#[derive(Debug)]
pub(super) struct Hold {
    http: HttpClient,
    call: ProviderRequest,
    cancels: Cancels,
    /// Handle under which the response is found, once its id is known.
    handle: Option<UpstreamHandle>,
    /// The number of the last event that was read.
    last: Option<u64>,
    /// If set, the response can be resumed: all events so far had consecutive numbers, and no
    /// request to resume was refused for good.
    has_rest: bool,
    /// If set, it runs upstream, as far as is known.
    runs: bool,
    requests: u32,
    fruitless: u32,
    /// Position of reading at the last request.
    asked_at: Option<u64>,
    /// If set, the next event is the first one of a response that another owner of the invocation
    /// requested.
    is_at_beginning: bool,
}

// === impl Hold ===

impl Hold {
    pub(super) fn new(http: HttpClient, call: ProviderRequest, cancels: Cancels) -> Self {
        Self {
            http,
            call,
            cancels,
            handle: None,
            last: None,
            has_rest: true,
            runs: false,
            requests: 0,
            fruitless: 0,
            asked_at: None,
            is_at_beginning: false,
        }
    }

    /// Returns the attachment of an attempt to a response that an earlier owner of its invocation
    /// requested; `None` if the attempt is not such a one, or cannot.
    pub(super) fn taking_over(
        http: HttpClient,
        call: ProviderRequest,
        cancels: Cancels,
    ) -> Option<Self> {
        let id = call
            .attach
            .as_ref()
            .map(|handle| handle.id.clone())
            .filter(|id| is_path_segment(id))?;
        let mut register = Self::new(http, call, cancels);
        register.is_at_beginning = true;
        register.holds(id);
        Some(register)
    }

    /// Requests the whole response from its start.
    ///
    /// # Errors
    /// Returns a cut if another request would get the same refusal: only that response is lost, and
    /// nothing is wrong with the target. Else returns the facts.
    pub(super) async fn take_over(&mut self) -> Result<ProviderResponse, ProviderError> {
        let id = self
            .handle
            .as_ref()
            .map(|handle| handle.id.as_str())
            .unwrap_or_default();
        let path = format!("/responses/{id}?stream=true");
        self.http
            .get(&self.call, path, "text/event-stream")
            .await
            .map_err(|error| {
                // What is not there does not run.
                self.runs &= error.status != Some(404);
                let Some(status) = error.status.filter(|status| is_final(*status)) else {
                    return error;
                };
                let message = format!(
                    "the answer that was being made is not to be had any more (status {status})"
                );
                ProviderError {
                    message: Some(message),
                    body: None,
                    fault: Some(TransportFault::Cut),
                    ..error
                }
            })
    }

    /// Returns whether an earlier owner of the invocation requested it.
    pub(super) const fn is_taken_over(&self) -> bool {
        self.call.attach.is_some()
    }

    /// Takes the id from a response and registers it as running.
    pub(super) fn note(&mut self, response: &Value) {
        if self.handle.is_none()
            && let Some(id) = response
                .get("id")
                .and_then(Value::as_str)
                .filter(|id| is_path_segment(id))
        {
            self.holds(id.to_owned());
        }
    }

    /// Notes that it no longer runs.
    pub(super) fn ended(&mut self) {
        self.runs = false;
    }

    fn holds(&mut self, id: String) {
        let handle = UpstreamHandle {
            attempt: self.call.attempt,
            target: self.call.target.id.clone(),
            id,
        };
        self.call.background.register(handle.clone());
        self.handle = Some(handle);
        self.runs = true;
    }

    /// Returns whether the event of this number was read before the response was resumed.
    pub(super) fn was_read(&self, number: Option<u64>) -> bool {
        self.requests > 0
            && number.is_some_and(|number| self.last.is_some_and(|last| number <= last))
    }

    /// Notes the position of an event.
    ///
    /// # Errors
    /// When events are missing before the first one.
    pub(super) fn follow(&mut self, kind: &str, event: &Value) -> Result<(), ParseError> {
        let is_first = std::mem::take(&mut self.is_at_beginning);
        if is_first && event.get("response").is_none() && kind != "error" {
            return Err(ParseError::Cut(format!(
                "the answer was sent from a {kind} on instead of from its beginning"
            )));
        }
        let number = event.get("sequence_number").and_then(Value::as_u64);
        self.has_rest &= number.is_some_and(|number| self.last.is_none_or(|last| number > last));
        self.last = number.or(self.last);
        if let Some(response) = event.get("response") {
            self.note(response);
        }
        self.runs &= !ENDS.contains(&kind);
        Ok(())
    }

    /// Returns the time for which silence is taken for silence, and not for a lost connection: half
    /// of what the attempt is given.
    pub(super) fn silence_limit(&self) -> Option<Duration> {
        let is_possible = self.place().is_some() && self.is_worth_it(self.fruitless_now());
        self.call.idle.filter(|_| is_possible).map(|idle| idle / 2)
    }

    /// Requests the rest of the response.
    ///
    /// # Errors
    /// Returns the break itself, if it cannot be resumed.
    pub(super) async fn read_on(
        &mut self,
        cut: ProviderError,
    ) -> Result<(ProviderResponse, Break), ProviderError> {
        let fault = cut.fault.unwrap_or(TransportFault::Cut);
        let Some((path, last)) = self.place().filter(|_| fault != TransportFault::TooLarge) else {
            return Err(self.explained(cut, None));
        };
        let mut refusal = None;
        loop {
            let fruitless = self.fruitless_now();
            if !self.is_worth_it(fruitless) {
                return Err(self.explained(cut, refusal));
            }
            self.fruitless = fruitless;
            self.asked_at = Some(last);
            self.requests += 1;
            if fruitless > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let path = format!("{path}?stream=true&starting_after={last}");
            match self.http.get(&self.call, path, "text/event-stream").await {
                Ok(reply) => {
                    return Ok((
                        reply,
                        Break {
                            fault,
                            requests: self.requests,
                        },
                    ));
                }
                Err(error) => {
                    refusal = error.status;
                    self.has_rest &= !error.status.is_some_and(is_final);
                    // What is not there does not run.
                    self.runs &= error.status != Some(404);
                }
            }
        }
    }

    /// Returns the path of the response and the number of the last event, if it can be read on
    /// behind that.
    fn place(&self) -> Option<(String, u64)> {
        let last = self.last.filter(|_| self.has_rest && self.runs)?;
        self.handle
            .as_ref()
            .map(|handle| (format!("/responses/{}", handle.id), last))
    }

    /// Returns the fruitless requests in a row, the last one counted if nothing came since.
    fn fruitless_now(&self) -> u32 {
        if self.requests > 0 && self.asked_at == self.last {
            self.fruitless + 1
        } else {
            0
        }
    }

    const fn is_worth_it(&self, fruitless: u32) -> bool {
        self.has_rest && self.requests < MAX_REQUESTS && fruitless < MAX_FRUITLESS
    }

    /// Returns the break with a note that resuming failed.
    fn explained(&self, cut: ProviderError, refusal: Option<u16>) -> ProviderError {
        if self.requests == 0 {
            return cut;
        }
        let words = cut.message.as_deref().unwrap_or("the answer broke off");
        let answer = refusal
            .map(|status| format!(" (status {status})"))
            .unwrap_or_default();
        let message = format!(
            "{words}; {} requests to read on did not mend it{answer}",
            self.requests
        );
        ProviderError {
            message: Some(message),
            ..cut
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        self.call.background.release(&handle);
        if self.runs && !self.call.background.must_continue(&handle) {
            self.cancels
                .send(self.http.clone(), self.call.clone(), &handle.id);
        }
    }
}

// === impl Cancels ===

impl Cancels {
    /// Cancels a response upstream, beside everything else.
    fn send(&self, http: HttpClient, call: ProviderRequest, id: &str) {
        // Without a runtime the whole process ends.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let path = format!("/responses/{id}/cancel");
        // A provider that a new configuration has no more still owes its cancellations.
        let owner = self.clone();
        let cancelling = async move {
            let post = Post {
                path,
                body: b"{}".to_vec(),
                accept: "application/json",
                ..Post::default()
            };
            let sent = tokio::time::timeout(CANCEL_TIMEOUT, http.post(&call, post)).await;
            let failed = match sent {
                Ok(Ok(mut reply)) => {
                    reply.body.discard_rest().await;
                    None
                }
                Ok(Err(error)) => Some(
                    error
                        .status
                        .map_or("not sent".to_owned(), |status| status.to_string()),
                ),
                Err(_) => Some("no answer in time".to_owned()),
            };
            if let Some(error) = failed {
                tracing::warn!(target_id = %call.target.id, error, "a response without a reader was not cancelled");
            }
            drop(owner);
        };
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(cancelling, &runtime);
    }
}

/// Returns whether another request gets the same refusal.
const fn is_final(status: u16) -> bool {
    status < 500 && !matches!(status, 408 | 409 | 425 | 429)
}

/// Returns whether an id can be used in a path unescaped.
fn is_path_segment(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= MAX_ID_BYTES
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && id.bytes().all(is_plain)
}
