//! Decides whether a note is written, and builds its text.
//!
//! The text is Relight's own: the phrase of the failure class, the facts of its own validators, and
//! names from the caller's own tools and schemas. `Failure::message`, `fact` and `user_message` may
//! quote upstream, so they are not read here, except for the excerpt that is put into a tool result
//! and is marked as untrusted, and if the policy allows it (`error: message`).

use crate::domain::{
    failure::{Failure, FailureClass, InvalidRequestDetail, TransportFault},
    ids::Operation,
    invocation::InjectionMode,
    message::ModelCall,
};

use super::{
    ErrorWords, Finding, InjectionPolicy, MAX_EXCERPT_BYTES, MAX_FAILURES_LISTED, MAX_NOTE_CHARS,
    PLACEHOLDER,
    finding::Mismatch,
    sanitize,
    vocabulary::{self, Vocabulary},
};

/// Template of the note if there may be no failure: a fixed "failed" would be false.
const OUTCOME_UNKNOWN_TEMPLATE: &str = "The result of the previous action was lost: {error}. Check whether it took effect before repeating it.";

/// Returns whether the model can do something about this failure, judged as `class`.
#[must_use]
pub fn is_actionable(class: FailureClass, failure: &Failure) -> bool {
    match class {
        // A model that was not reached has nothing to change.
        FailureClass::Timeout | FailureClass::Crash | FailureClass::Unknown => !failure.never_sent,
        FailureClass::ToolFailed | FailureClass::OutcomeUnknown => true,
        // A page, a torn document or an empty body is not the model's fault: it did not write them.
        FailureClass::MalformedResponse => {
            failure.fault != Some(TransportFault::Protocol) || Finding::of(failure).is_some()
        }
        // Only if the model wrote the fault.
        FailureClass::InvalidRequest => {
            failure.detail == Some(InvalidRequestDetail::ParameterMismatch)
                || Finding::of(failure).is_some()
        }
        // An unknown tool is the model's fault; an unknown model is not. A completion cut at the
        // output limit is; a cut connection is not.
        FailureClass::NotFound | FailureClass::StreamInterrupted => Finding::of(failure).is_some(),
        _ => false,
    }
}

/// Returns whether no note is written for this class, whatever the mode: a note after a refusal
/// presses the model to evade a policy, one after an overflow makes it worse, and the rest does not
/// concern the model.
pub(super) const fn is_never_noted(class: FailureClass) -> bool {
    class.is_local_refusal()
        || is_closed_to_notes(class)
        || matches!(
            class,
            FailureClass::Cancelled | FailureClass::ApprovalRejected
        )
}

/// Returns whether this class, as the newest, forbids a note about the failures before it as well.
const fn is_closed_to_notes(class: FailureClass) -> bool {
    matches!(
        class,
        FailureClass::ContentFiltered | FailureClass::ContextLength
    )
}

/// Returns the failures that a note should cover, oldest first.
pub(super) fn worth_noting<'a>(mode: InjectionMode, failures: &[&'a Failure]) -> Vec<&'a Failure> {
    let newest = failures
        .iter()
        .rev()
        .find(|failure| !failure.class.is_local_refusal());
    if newest.is_none_or(|failure| is_closed_to_notes(failure.class)) {
        return Vec::new();
    }
    let is_noted = |failure: &&&Failure| match mode {
        InjectionMode::Never => false,
        InjectionMode::WhenActionable => is_actionable(failure.class, failure),
        InjectionMode::Always => {
            !is_never_noted(failure.class)
                && (failure.retryable || is_actionable(failure.class, failure))
        }
    };
    failures.iter().filter(is_noted).copied().collect()
}

/// Returns the note about `failures` (oldest first, those that it should cover): at most
/// [`MAX_NOTE_CHARS`] characters.
///
/// Where not everything fits, the list of previous attempts is dropped first, then the hint, then
/// the facts. Empty without failures.
#[must_use]
pub fn note_text(
    policy: &InjectionPolicy,
    operation: &Operation,
    call: &ModelCall,
    failures: &[&Failure],
) -> String {
    let Some(newest) = failures.last() else {
        return String::new();
    };
    let vocabulary = Vocabulary::of(call);
    let template = template(policy, operation, newest.class);
    let room = MAX_NOTE_CHARS;
    let plain = template.replacen(PLACEHOLDER, newest.class.phrase(), 1);
    let detailed = template.replacen(
        PLACEHOLDER,
        &error_words(policy, template, newest, &vocabulary),
        1,
    );
    let hinted = match hint(newest, &vocabulary) {
        Some(hint) => format!("{detailed} {hint}"),
        None => detailed.clone(),
    };
    let mut candidates = Vec::new();
    for listed in (2..=MAX_FAILURES_LISTED.min(failures.len())).rev() {
        let tried = failures.get(failures.len() - listed..).unwrap_or_default();
        let facts: Vec<String> = tried
            .iter()
            .map(|failure| described(failure, &vocabulary))
            .collect();
        let phrases: Vec<String> = tried
            .iter()
            .map(|failure| failure.class.phrase().to_owned())
            .collect();
        candidates.push(format!("{hinted} {}", list(&facts)));
        candidates.push(format!("{hinted} {}", list(&phrases)));
    }
    candidates.extend([hinted, detailed]);
    candidates
        .into_iter()
        .find(|note| note.chars().count() <= room)
        .unwrap_or_else(|| sanitize::cut(&plain, room))
}

/// Returns the template about one failure, and no more.
pub(super) fn sentence(
    policy: &InjectionPolicy,
    operation: &Operation,
    call: &ModelCall,
    failure: &Failure,
) -> String {
    let template = template(policy, operation, failure.class);
    let note = template.replacen(
        PLACEHOLDER,
        &error_words(policy, template, failure, &Vocabulary::of(call)),
        1,
    );
    if note.chars().count() <= MAX_NOTE_CHARS {
        return note;
    }
    sanitize::cut(
        &template.replacen(PLACEHOLDER, failure.class.phrase(), 1),
        MAX_NOTE_CHARS,
    )
}

/// Returns the text that replaces the placeholder; a message is cut to the space that the template
/// leaves, without the full stop at its end.
fn error_words(
    policy: &InjectionPolicy,
    template: &str,
    failure: &Failure,
    vocabulary: &Vocabulary,
) -> String {
    let message = match policy.error {
        ErrorWords::Phrase => String::new(),
        ErrorWords::Message => sanitize::one_line(&failure.message, MAX_EXCERPT_BYTES),
    };
    let message = message.trim_end_matches('.');
    if message.is_empty() {
        return described(failure, vocabulary);
    }
    let taken = template.chars().count().saturating_sub(PLACEHOLDER.len());
    sanitize::cut(message, MAX_NOTE_CHARS.saturating_sub(taken))
}

/// Returns a tool's upstream error text in one bounded line, for a tool result only; `None` if it
/// is not about a tool.
pub(super) fn excerpt(failure: &Failure) -> Option<String> {
    let is_of_a_tool = matches!(
        failure.class,
        FailureClass::ToolFailed | FailureClass::OutcomeUnknown
    ) || failure.detail == Some(InvalidRequestDetail::ParameterMismatch);
    let excerpt = sanitize::one_line(&failure.message, MAX_EXCERPT_BYTES);
    (is_of_a_tool && !excerpt.is_empty()).then_some(excerpt)
}

fn template<'a>(
    policy: &'a InjectionPolicy,
    operation: &Operation,
    class: FailureClass,
) -> &'a str {
    if let Some(own) = policy.templates.get(class.as_str()) {
        return own;
    }
    if class == FailureClass::OutcomeUnknown {
        return OUTCOME_UNKNOWN_TEMPLATE;
    }
    if policy
        .short_for
        .iter()
        .any(|name| name == operation.as_str())
    {
        return &policy.short_template;
    }
    &policy.template
}

/// Returns the previous attempts, oldest first; equal ones in a row are listed once, with their
/// count.
fn list(tried: &[String]) -> String {
    let runs: Vec<String> = tried
        .chunk_by(|left, right| left == right)
        .filter_map(|run| run.first().map(|text| (text, run.len())))
        .map(|(text, count)| {
            if count == 1 {
                text.clone()
            } else {
                format!("{text} ({count} times)")
            }
        })
        .collect();
    format!("What was tried, newest last: {}.", runs.join("; "))
}

fn described(failure: &Failure, vocabulary: &Vocabulary) -> String {
    match fact(failure, vocabulary) {
        Some(fact) => format!("{} ({fact})", failure.class.phrase()),
        None => failure.class.phrase().to_owned(),
    }
}

fn fact(failure: &Failure, vocabulary: &Vocabulary) -> Option<String> {
    let Some(finding) = Finding::of(failure) else {
        return fault_fact(failure.fault?);
    };
    let tool = |name: &str| match vocabulary.tool(name) {
        Some(known) => format!("tool {}", vocabulary::quoted(known)),
        None => "the tool".to_owned(),
    };
    Some(match finding {
        Finding::OutputLimit => "it was cut at the output limit".to_owned(),
        Finding::Empty => "it was empty".to_owned(),
        Finding::UnreadableToolCall => "the tool call could not be read".to_owned(),
        Finding::RepeatedCall { tool: name } => {
            format!("it repeated an identical call of {}", tool(&name))
        }
        Finding::NotJson { line, column } => {
            format!("not valid JSON at line {line}, column {column}")
        }
        Finding::Schema(mismatch) => mismatch_fact(&mismatch, &vocabulary.of_response()),
        Finding::ToolArgumentsNotJson {
            tool: name,
            line,
            column,
        } => {
            format!(
                "the arguments of {} were not valid JSON at line {line}, column {column}",
                tool(&name)
            )
        }
        Finding::ToolArguments {
            tool: name,
            mismatch,
        } => {
            format!(
                "arguments of {}: {}",
                tool(&name),
                mismatch_fact(&mismatch, &vocabulary.of_tool(&name))
            )
        }
        Finding::UnknownTool { tool: name } => match vocabulary.tool(&name) {
            Some(known) => format!("tool {} is not available", vocabulary::quoted(known)),
            None => "the tool does not exist".to_owned(),
        },
    })
}

fn fault_fact(fault: TransportFault) -> Option<String> {
    match fault {
        TransportFault::FirstTokenTimeout => Some("no answer began in time".to_owned()),
        TransportFault::IdleTimeout => Some("the answer stalled".to_owned()),
        TransportFault::TooLarge => Some("it exceeded a size limit".to_owned()),
        TransportFault::Deadline => Some("no time was left".to_owned()),
        // The class covers the rest, or it does not concern the model.
        _ => None,
    }
}

/// `field "date" must match "^\d{4}$"`, as far as the caller's own schema contains the words.
fn mismatch_fact(mismatch: &Mismatch, schema: &vocabulary::SchemaWords) -> String {
    let path = schema
        .path(&mismatch.path)
        .map(|path| vocabulary::quoted(&path));
    let field = path
        .as_ref()
        .map_or_else(|| "a field".to_owned(), |path| format!("field {path}"));
    let limit = schema.limit(&mismatch.limit).map(vocabulary::quoted);
    match (mismatch.keyword.as_str(), limit) {
        ("required", _) => match path {
            Some(path) => format!("missing required field {path}"),
            None => "a required field is missing".to_owned(),
        },
        ("additionalProperties" | "unevaluatedProperties", _) => {
            "it holds a field that the schema does not know".to_owned()
        }
        ("enum" | "const", _) => format!("{field} must be one of the values that the schema lists"),
        ("type", Some(limit)) => format!("{field} must be of type {limit}"),
        ("format", Some(limit)) => format!("{field} must have the format {limit}"),
        ("pattern", Some(limit)) => format!("{field} must match {limit}"),
        ("minimum" | "exclusiveMinimum", Some(limit)) => {
            format!("{field} is below its minimum {limit}")
        }
        ("maximum" | "exclusiveMaximum", Some(limit)) => {
            format!("{field} is above its maximum {limit}")
        }
        ("minLength" | "minItems", Some(limit)) => format!("{field} is shorter than {limit}"),
        ("maxLength" | "maxItems", Some(limit)) => format!("{field} is longer than {limit}"),
        _ => format!("{field} does not fit the schema"),
    }
}

/// Returns a hint at what must differ next time.
fn hint(failure: &Failure, vocabulary: &Vocabulary) -> Option<String> {
    let others = |refused: Option<&str>| match vocabulary.other_tools(refused) {
        Some(names) => format!("Available tools: {names}."),
        None => "Answer without a tool.".to_owned(),
    };
    if let Some(finding) = Finding::of(failure) {
        return Some(match finding {
            Finding::OutputLimit => "Be shorter, or split the work into smaller steps.".to_owned(),
            Finding::Empty => "Answer with text or a tool call.".to_owned(),
            Finding::RepeatedCall { .. } => {
                "Do not repeat the identical call: change its arguments or take another way."
                    .to_owned()
            }
            Finding::NotJson { .. } => "Answer with valid JSON only.".to_owned(),
            Finding::Schema(_) => "Follow the given schema exactly.".to_owned(),
            Finding::UnreadableToolCall | Finding::ToolArgumentsNotJson { .. } => {
                "Send the arguments as one valid JSON object.".to_owned()
            }
            Finding::ToolArguments { .. } => {
                "Correct the arguments; do not repeat the identical call.".to_owned()
            }
            Finding::UnknownTool { tool } => others(vocabulary.tool(&tool)),
        });
    }
    if failure.fault == Some(TransportFault::TooLarge) {
        return Some("Be shorter.".to_owned());
    }
    failure.class.row().model.map(ToOwned::to_owned)
}
