//! The classifier: judges one failed attempt, and names the rule and the fact that decided.
//!
//! Every failure passes through here – HTTP responses, errors inside a 200 or a stream, transport
//! faults, gRPC statuses, tool errors – so that every policy works on the same classes. The rules
//! are data (`rules/*.yaml`), compiled once; rules of the configuration come before them, and a
//! reload builds a new [`Classifier`] to be swapped in.
//!
//! In this order: the configuration's rules; a typed fault of this service's own client; the rules
//! over the text; the status that the text or the response states; the gRPC status. What nothing
//! matches stays [`FailureClass::Unknown`].
//!
//! It reads no clock, does not guess from digits or letters inside other words, and repeats no
//! secret.

use std::{borrow::Cow, sync::LazyLock};

use jiff::Timestamp;

use crate::{
    domain::failure::{
        Failure, FailureClass, InvalidRequestDetail, ProviderError, Surface, TransportFault, Wait,
        words,
    },
    policy::{provider_message::provider_message, redact::redact},
};

mod engine;
mod evidence;
mod phrase;
mod reading;
mod rule;
mod status;
mod user;
mod waits;

pub use self::user::{RuleFault, UserRule};

use self::{
    engine::{Found, RuleContext, RuleEngine},
    evidence::NumericEvidence,
    reading::NormalizedText,
    user::UserRules,
};

/// Bytes of an upstream message that a failure keeps.
const MESSAGE_BYTES: usize = 400;
/// Bytes of a fact that a failure keeps.
const FACT_BYTES: usize = 120;

/// The built-in rules, shared by every classifier; compiled when the first failure is judged, so
/// that a start costs nothing.
static RULES: LazyLock<RuleEngine> = LazyLock::new(|| RuleEngine::new(rule::embedded()));

/// The compiled rules: immutable, shared behind an `Arc`; only the rules of the configuration are
/// its own.
#[derive(Debug)]
pub struct Classifier {
    engine: &'static LazyLock<RuleEngine>,
    user: UserRules,
}

/// A judgement before its texts are written.
#[derive(Debug)]
struct Judgement {
    class: FailureClass,
    detail: Option<InvalidRequestDetail>,
    retry: Option<bool>,
    fallback: Option<bool>,
    rule: Cow<'static, str>,
    fact: String,
}

// === impl Classifier ===

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// The built-in tables alone.
    #[must_use]
    pub fn new() -> Self {
        Self {
            engine: &RULES,
            user: UserRules::default(),
        }
    }

    /// The built-in tables under rules of the configuration; the first user rule that holds wins.
    ///
    /// # Errors
    /// Every fault of every rule, with the rule's index.
    pub fn with_rules(rules: &[UserRule]) -> Result<Self, Vec<RuleFault>> {
        Ok(Self {
            user: UserRules::compile(rules)?,
            ..Self::new()
        })
    }

    /// Judges one failure. `now` is when it happened, and the clock for absolute times where the
    /// failure has no `date` of its own.
    #[must_use]
    pub fn classify(&self, error: &ProviderError, now: Timestamp) -> Failure {
        let reading = &read(error);
        let evidence = NumericEvidence::gather(error, reading);
        if let Some(found) = self.user.find(error, reading, &evidence) {
            let wait = found
                .retry_after
                .or_else(|| waits::stated(error, reading, found.judgement.class, now));
            return found.judgement.into_failure(error, wait, now);
        }
        let mut judgement = error
            .fault
            .map_or_else(|| self.judge(error, reading, &evidence), by_fault);
        let refused =
            judgement.rule == "status.http" && judgement.class == FailureClass::PermissionDenied;
        if refused && waits::window_is_exhausted(error) {
            // Some services send 403 when a window of requests is used up.
            judgement.class = FailureClass::RateLimited;
            judgement.rule = Cow::Borrowed("rate.exhausted_window");
        }
        let wait = waits::stated(error, reading, judgement.class, now);
        if judgement.class == FailureClass::RateLimited {
            if evidence.never_fits {
                (judgement.class, judgement.retry) = (FailureClass::ContextLength, None);
                judgement.rule = Cow::Borrowed("context.never_fits");
            } else if wait.is_some_and(|wait| wait.duration > ONLINE) {
                // A window that frees up only after ten minutes is a quota to any caller on line.
                (judgement.class, judgement.retry) = (FailureClass::QuotaExceeded, None);
                judgement.rule = Cow::Borrowed("quota.long_wait");
            }
        }
        judgement.into_failure(error, wait, now)
    }

    fn judge(
        &self,
        error: &ProviderError,
        reading: &NormalizedText,
        evidence: &NumericEvidence,
    ) -> Judgement {
        let scene = RuleContext {
            provider: &error.provider,
            surface: error.surface,
            status: evidence.status(),
            codes: &evidence.codes,
        };
        let found = self.engine.find(reading, &scene);
        let by_status = || {
            let status = evidence.status()?;
            let (class, detail, retry) = status::http(status)?;
            let judgement = Judgement::new(class, "status.http", format!("status {status}"));
            Some(Judgement {
                detail,
                retry,
                ..judgement
            })
        };
        let by_rule = |Found { rule, span }: Found<'static>| Judgement {
            class: match scene.status {
                Some(401 | 403) => rule.class_if_refused.unwrap_or(rule.class),
                None => rule.class_if_unsent.unwrap_or(rule.class),
                Some(_) => rule.class,
            },
            detail: rule.detail,
            retry: rule.retry,
            fallback: rule.fallback,
            rule: Cow::Borrowed(&rule.name),
            fact: fact(reading, span),
        };
        match found {
            Some(found) if status::outweighs(found.rule, evidence) => {
                by_status().unwrap_or_else(|| by_rule(found))
            }
            Some(found) => by_rule(found),
            None => by_status()
                .or_else(|| by_grpc(error, evidence))
                .unwrap_or_else(|| unread(error)),
        }
    }
}

/// Reads all texts of a failure.
fn read(error: &ProviderError) -> NormalizedText {
    let mut reading = NormalizedText::default();
    for text in [error.body.as_deref(), error.message.as_deref()]
        .into_iter()
        .flatten()
    {
        reading.add(text);
    }
    if let Some(code) = error.header("x-amzn-errortype") {
        reading.add_code(code.split(':').next().unwrap_or(code));
    }
    reading
}

/// Longest wait that an interactive caller can be expected to wait.
const ONLINE: std::time::Duration = std::time::Duration::from_mins(10);

fn by_grpc(error: &ProviderError, evidence: &NumericEvidence) -> Option<Judgement> {
    let code = error.grpc_status.or(evidence.grpc)?;
    let (class, detail, retry) = status::grpc(code)?;
    Some(Judgement {
        detail,
        retry,
        ..Judgement::new(class, "status.grpc", format!("grpc status {code}"))
    })
}

/// The judgement where nothing is recognised.
fn unread(error: &ProviderError) -> Judgement {
    let empty = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    let answered = error
        .status
        .is_some_and(|status| (200..300).contains(&status));
    let (class, rule, fact) = if answered && empty(&error.body) && empty(&error.message) {
        (
            FailureClass::MalformedResponse,
            "answer.empty",
            "an empty answer",
        )
    } else if answered && error.body.is_some() {
        (
            FailureClass::MalformedResponse,
            "answer.unclear",
            "a success status on an unclear error",
        )
    } else {
        (FailureClass::Unknown, "unknown", "nothing known")
    };
    Judgement::new(class, rule, fact)
}

/// A fault of this service's own client is a fact and needs no reading.
fn by_fault(fault: TransportFault) -> Judgement {
    let (class, retry) = status::fault(fault);
    Judgement {
        retry,
        ..Judgement::new(class, "fault", fault.as_str())
    }
}

fn fact(reading: &NormalizedText, (from, to): (usize, usize)) -> String {
    if to == 0 {
        return "a numeric code".to_owned();
    }
    redact(&reading.text[from..to], FACT_BYTES)
}

/// Whether the provider itself states that a retry makes sense (`x-should-retry`). It may forbid
/// one after any failure, and allow one only where time can mend the cause.
fn stated_retry(error: &ProviderError, class: FailureClass) -> Option<bool> {
    match error.header("x-should-retry")?.trim() {
        "false" => Some(false),
        "true" if class.retry_helps() => Some(true),
        _ => None,
    }
}

// === impl Judgement ===

impl Judgement {
    fn new(class: FailureClass, rule: &'static str, fact: impl Into<String>) -> Self {
        Self {
            class,
            detail: None,
            retry: None,
            fallback: None,
            rule: Cow::Borrowed(rule),
            fact: fact.into(),
        }
    }

    fn into_failure(self, error: &ProviderError, wait: Option<Wait>, at: Timestamp) -> Failure {
        let tool = error.surface == Surface::Tool;
        let fallback = self
            .fallback
            .unwrap_or_else(|| self.class.fallback_helps(self.detail));
        let wait_words = wait.and_then(words::wait_text);
        Failure {
            class: self.class,
            detail: self.detail,
            retryable: stated_retry(error, self.class)
                .or(self.retry)
                .unwrap_or_else(|| self.class.retry_helps()),
            // What a model wrote for a tool, another model may write better; a tool has no other
            // target.
            fallback_helps: fallback && (!tool || self.class == FailureClass::MalformedResponse),
            retry_after: wait,
            message: provider_message(error, MESSAGE_BYTES),
            user_message: words::for_user(self.class, wait_words.as_deref()).into_owned(),
            recovery_hint: words::for_operator(
                self.class,
                self.detail,
                wait_words.as_deref(),
                tool,
            )
            .into_owned(),
            rule: self.rule.into_owned(),
            fact: self.fact,
            target: None,
            status: error.status,
            fault: error.fault,
            param: None,
            never_sent: error.fault.is_some_and(TransportFault::never_sent),
            adaptation: None,
            tool: None,
            at,
        }
    }
}

#[cfg(test)]
mod tests;
