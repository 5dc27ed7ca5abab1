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
        Failure, FailureClass, InvalidRequestDetail, ProviderError, Surface, ToolFault,
        TransportFault, VerdictBasis, Wait, words,
    },
    policy::{
        phrase,
        provider_message::provider_message,
        quoted::{Quotes, own_words},
        redact::redact,
    },
};

mod engine;
mod evidence;
mod reading;
mod rule;
mod status;
mod tool_words;
mod user;
mod waits;

pub use self::user::{RuleFault, UserRule};

use self::{
    engine::{Found, RuleContext, RuleEngine},
    evidence::NumericEvidence,
    reading::NormalizedText,
    tool_words::{may_pass, says_only_where, says_why},
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

/// A rule that holds for a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingRule {
    /// The rule's name.
    pub rule: String,
    /// The class that it assigns.
    pub class: FailureClass,
    /// The words on which it matched, redacted and bounded.
    pub fact: String,
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
    evidence: VerdictBasis,
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

    /// Returns the built-in tables under rules of the configuration; the first user rule that holds
    /// wins.
    ///
    /// # Errors
    /// Every fault of every rule, with the rule's index.
    pub fn with_rules(rules: &[UserRule]) -> Result<Self, Vec<RuleFault>> {
        Ok(Self {
            user: UserRules::compile(rules)?,
            ..Self::new()
        })
    }

    /// Judges one failure. `now` is the time at which it happened, and the clock for absolute times
    /// if the failure has no `date` of its own.
    #[must_use]
    pub fn classify(&self, error: &ProviderError, now: Timestamp) -> Failure {
        let (readings, whole) = readings(error);
        let mut verdicts = Vec::new();
        for quotes in readings {
            let verdict = self.classify_without(*quotes, error, now);
            if is_of_request(verdict.class) {
                return verdict;
            }
            verdicts.push(verdict);
        }
        verdicts.swap_remove(whole)
    }

    /// Returns the built-in rules besides the deciding one that hold as well, in their order.
    #[must_use]
    pub fn also_holding(&self, error: &ProviderError) -> Vec<HoldingRule> {
        let decided = self.classify(error, Timestamp::UNIX_EPOCH).rule;
        let (readings, whole) = readings(error);
        let error = &without(readings[whole], error);
        let reading = read(error);
        let evidence = NumericEvidence::gather(error, &reading);
        let scene = RuleContext::of(error, &evidence);
        let mut rules: Vec<HoldingRule> = Vec::new();
        for Found { rule, span } in self.engine.holding(&reading, &scene) {
            if rule.name != decided && rules.last().is_none_or(|last| last.rule != rule.name) {
                rules.push(HoldingRule {
                    rule: rule.name.clone(),
                    class: rule.class,
                    fact: fact(&reading, span),
                });
            }
        }
        rules
    }

    fn classify_without(
        &self,
        quotes: Quotes,
        received: &ProviderError,
        now: Timestamp,
    ) -> Failure {
        let error = &without(quotes, received);
        if let Some(cause) = unwrapped(error) {
            let verdict = self.classify_without(quotes, &cause, now);
            if verdict.class != FailureClass::Unknown {
                return Failure {
                    message: provider_message(received, MESSAGE_BYTES),
                    ..verdict
                };
            }
        }
        let reading = &read(error);
        let evidence = NumericEvidence::gather(error, reading);
        if let Some(found) = self.user.find(received, reading, &evidence) {
            let wait = found
                .retry_after
                .or_else(|| waits::stated(error, reading, found.judgement.class, now));
            return found.judgement.into_failure(received, wait, now);
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
        if error.surface == Surface::Tool
            && judgement.class == FailureClass::ServerError
            && evidence.status().is_none()
            && !may_pass(reading)
        {
            // A tool's own bug, which the same call meets again.
            judgement.retry = judgement.retry.or(Some(false));
        }
        judgement.evidence = self.evidence(&judgement, error, reading, &evidence);
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
        judgement.into_failure(received, wait, now)
    }

    fn judge(
        &self,
        error: &ProviderError,
        reading: &NormalizedText,
        evidence: &NumericEvidence,
    ) -> Judgement {
        let scene = RuleContext::of(error, evidence);
        let found = self.engine.find(reading, &scene);
        let by_status = || {
            // What a tool says of a conflict is about a state that the same call meets again.
            let conflict = |status: &u16| *status == 409 && says_why(error, reading);
            let status = evidence.status().filter(|status| !conflict(status))?;
            let (class, detail, retry) = status::http(status)?;
            let judgement = Judgement::new(class, "status.http", format!("status {status}"));
            Some(judgement.with(detail, retry))
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
            ..Judgement::new(rule.class, &rule.name, fact(reading, span))
        };
        match found {
            Some(found) if status::outweighs(found.rule, evidence) => {
                by_status().unwrap_or_else(|| by_rule(found))
            }
            Some(found) => by_rule(found),
            None => by_status()
                .or_else(|| by_grpc(error, evidence))
                .unwrap_or_else(|| unread(error, reading)),
        }
    }

    /// Returns the strongest kind of fact that leads to the class of a judgement: the response's
    /// own status, then its codes without any other word.
    fn evidence(
        &self,
        judgement: &Judgement,
        error: &ProviderError,
        reading: &NormalizedText,
        evidence: &NumericEvidence,
    ) -> VerdictBasis {
        let is_class = |class| class == judgement.class;
        let by_status = error.status.and_then(status::http);
        let by_number = by_status.or_else(|| error.grpc_status.and_then(status::grpc));
        let is_stated = by_number.is_some_and(|(class, ..)| is_class(class));
        let codes = || {
            let scene = RuleContext {
                codes: &evidence.keyed,
                ..RuleContext::of(error, evidence)
            };
            self.engine.find(&reading.codes_alone(), &scene)
        };
        if error.fault.is_some() {
            VerdictBasis::Own
        } else if is_stated || judgement.rule == "rate.exhausted_window" {
            VerdictBasis::Status
        } else if codes().is_some_and(|found| is_class(found.rule.class)) {
            VerdictBasis::Code
        } else {
            VerdictBasis::Words
        }
    }
}

/// Returns the readings in order, and which one counts if none finds the request at fault.
fn readings(error: &ProviderError) -> (&[Quotes], usize) {
    match error.status {
        Some(status) if status::blames_request(status) => (&[Quotes::Refused, Quotes::All], 0),
        _ if error.surface == Surface::Tool => (&[Quotes::Names, Quotes::Pairs], 1),
        Some(500..) => (&[Quotes::Failed], 0),
        None if states_failure(&without(Quotes::Failed, error)) => (&[Quotes::Failed], 0),
        _ => (&[Quotes::Pairs], 0),
    }
}

/// Returns whether a text states the status of a server that failed.
fn states_failure(error: &ProviderError) -> bool {
    let evidence = NumericEvidence::gather(error, &read(error));
    evidence.status().is_some_and(|status| status >= 500)
}

/// Returns a failure without what its texts quote of the request.
fn without(quotes: Quotes, error: &ProviderError) -> ProviderError {
    let own = |text: &Option<String>| text.as_deref().map(|text| own_words(text, quotes));
    ProviderError {
        body: own(&error.body),
        message: own(&error.message),
        ..error.clone()
    }
}

/// Returns the error that a program unwrapped when it panicked, as a failure of its own.
fn unwrapped(error: &ProviderError) -> Option<ProviderError> {
    let (_, cause) = error.text()?.split_once("on an `Err` value: ")?;
    Some(ProviderError {
        body: None,
        message: Some(cause.to_owned()),
        ..error.clone()
    })
}

/// Returns whether a class blames the request alone, or could not read the statement about it.
const fn is_of_request(class: FailureClass) -> bool {
    matches!(
        class,
        FailureClass::InvalidRequest
            | FailureClass::ContextLength
            | FailureClass::NotFound
            | FailureClass::MalformedResponse
    )
}

/// Reads all texts of a failure.
fn read(error: &ProviderError) -> NormalizedText {
    let mut reading = NormalizedText::default();
    for text in error.body.iter().chain(&error.message) {
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
    let judgement = Judgement::new(class, "status.grpc", format!("grpc status {code}"));
    Some(judgement.with(detail, retry))
}

/// Returns the judgement if nothing is recognised.
fn unread(error: &ProviderError, reading: &NormalizedText) -> Judgement {
    if says_why(error, reading) {
        let fact = "what the tool says of the call";
        return Judgement::new(FailureClass::InvalidRequest, "tool.own_words", fact)
            .with(Some(InvalidRequestDetail::Other), None);
    }
    if says_only_where(error, reading) {
        let fact = "a step of the tool's";
        return Judgement::new(FailureClass::ServerError, "tool.failed", fact)
            .with(None, Some(false));
    }
    let empty = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    let answered = error
        .status
        .is_some_and(|status| (200..300).contains(&status));
    let malformed = FailureClass::MalformedResponse;
    if answered && empty(&error.body) && empty(&error.message) {
        Judgement::new(malformed, "answer.empty", "an empty answer")
    } else if answered && error.body.is_some() {
        let fact = "a success status on an unclear error";
        Judgement::new(malformed, "answer.unclear", fact)
    } else {
        Judgement::new(FailureClass::Unknown, "unknown", "nothing known")
    }
}

/// A fault of this service's own client is a fact and needs no reading.
fn by_fault(fault: TransportFault) -> Judgement {
    let (class, retry) = status::fault(fault);
    Judgement::new(class, "fault", fault.as_str()).with(None, retry)
}

fn fact(reading: &NormalizedText, (from, to): (usize, usize)) -> String {
    if to == 0 {
        return "a numeric code".to_owned();
    }
    redact(&reading.text[from..to], FACT_BYTES)
}

/// Returns whether the provider itself states that a retry makes sense (`x-should-retry`). It may
/// forbid one after any failure, and allow one only if time can mend the cause.
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
            evidence: VerdictBasis::Words,
        }
    }

    fn with(self, detail: Option<InvalidRequestDetail>, retry: Option<bool>) -> Self {
        Self {
            detail,
            retry,
            ..self
        }
    }

    fn into_failure(self, error: &ProviderError, wait: Option<Wait>, at: Timestamp) -> Failure {
        let tool = error.surface == Surface::Tool;
        let fallback = self
            .fallback
            .unwrap_or_else(|| self.class.fallback_helps(self.detail));
        let wait_words = wait.and_then(words::wait_text);
        let wait_words = wait_words.as_deref();
        let hint = words::for_operator(self.class, self.detail, wait_words, tool);
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
            user_message: words::for_user(self.class, wait_words, tool).into_owned(),
            recovery_hint: hint.into_owned(),
            rule: self.rule.into_owned(),
            fact: self.fact,
            evidence: self.evidence,
            target: None,
            status: error.status,
            fault: error.fault,
            param: None,
            never_sent: error.fault.is_some_and(TransportFault::never_sent),
            adaptation: None,
            tool: ToolFault::of(error),
            at,
        }
    }
}

#[cfg(test)]
mod tests;
