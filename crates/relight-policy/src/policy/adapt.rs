//! Derives from a target's rejection the one small change after which it accepts the request.
//!
//! Providers of one dialect differ in parameters, their names and their limits, and report this
//! only with a 400. The response names the parameter or the limit, so the request is sent once more
//! with just that changed. Everything that shapes the completion (tools, response format, stop sequences,
//! safety settings) is not changed, and nothing is guessed: if the text does not name the fault,
//! nothing is changed.

mod limit;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::redact::redact;
use crate::domain::{
    adaptation::{Adaptation, OutputLimitField, Parameter},
    failure::{Failure, FailureClass, InvalidRequestDetail, ProviderError},
    message::{ModelCall, Part, Role},
    own_fields,
};

/// Fields of `extra` that may be removed; all others are the caller's requirements.
const DISPENSABLE: [&str; 16] = [
    "enable_thinking",
    "logit_bias",
    "min_p",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_a",
    "top_p",
    "typical_p",
    "verbosity",
];

/// Wording for a parameter that is not supported at all; a value out of range is left to the
/// caller.
static NOT_TAKEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        "unsupported|not (?:currently |yet )?support|n't support|unknown|unrecogni[sz]ed|unexpected|not permitted|\
         not allowed|deprecated|extra inputs|extra_forbidden|cannot find field|no such field|only the default|\
         not available|can(?:not|'t) be (?:used|set|specified)|may only be set|not compatible|incompatible|\
         does ?n[o']t accept|(?:cannot|can't) both|not both|only one of",
    )
    .ok()
});

/// Wording for signed reasoning that was not accepted.
static NOT_VERIFIED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        "invalid_encrypted_content|encrypted content .*(?:could not|cannot) be (?:verified|decrypted)|\
         (?:invalid|corrupt(?:ed)?|malformed|expired|mismatched) (?:thought|thinking|reasoning)?[ _]?signature|\
         (?:thought|thinking|reasoning) signature .*(?:not valid|invalid|corrupt|mismatch)|\
         signature .*in thinking block|thinking or redacted_thinking blocks .*cannot be modified",
    )
    .ok()
});

/// The text of a rejection, as far as it matters here.
struct RefusedRequest {
    /// The text in lower case, without quotation marks.
    words: String,
    /// The parameter that it names as such.
    named: Option<String>,
}

/// Longest name of a field that is kept, in bytes.
const MAX_PARAM_BYTES: usize = 128;

/// Records the change after which the target that refused `call` with these facts may take it, if
/// there is one, and the field that it names.
pub fn record(facts: &ProviderError, failure: &mut Failure, call: &ModelCall) {
    failure.adaptation = find(facts, failure, call);
    if failure.adaptation == Some(Adaptation::DropReasoning) {
        // By its words alone such a refusal passes as one of the key; the key is well.
        failure.class = FailureClass::InvalidRequest;
        failure.detail = Some(InvalidRequestDetail::Other);
    }
    if matches!(
        failure.class,
        FailureClass::InvalidRequest | FailureClass::ContextLength
    ) {
        let body = facts
            .body
            .as_deref()
            .and_then(|body| serde_json::from_str::<Value>(body).ok());
        failure.param = body
            .as_ref()
            .and_then(named)
            .map(|name| redact(name, MAX_PARAM_BYTES));
    }
}

/// Returns whether the target that refused a request for a document wants streams alone.
///
/// Every such refusal names the word: "only support stream mode", "stream must be set to true".
#[must_use]
pub fn wants_stream(facts: &ProviderError, failure: &Failure) -> bool {
    failure.class == FailureClass::InvalidRequest
        && RefusedRequest::of(facts).words.contains("stream")
}

fn find(facts: &ProviderError, failure: &Failure, call: &ModelCall) -> Option<Adaptation> {
    let is_unfit = failure.class == FailureClass::InvalidRequest;
    let is_too_long = failure.class == FailureClass::ContextLength;
    let is_signed = has_signed_reasoning(call);
    if !is_unfit && !is_too_long && !is_signed {
        return None;
    }
    let rejection = RefusedRequest::of(facts);
    // By its text alone such a rejection may look like that of an API key: what was sent
    // distinguishes them.
    if is_signed && matches(&NOT_VERIFIED, &rejection.words) {
        Some(Adaptation::DropReasoning)
    } else if is_unfit {
        output_limit_field(&rejection, call)
            .or_else(|| limit::other_limit(&rejection.words, call))
            .or_else(|| left_out(&rejection, call))
            .or_else(|| developer(&rejection, call))
            .or_else(|| refused_fields(&rejection, call))
    } else if is_too_long {
        // Prompt plus answer are too long together: a shorter answer may fit.
        limit::other_limit(&rejection.words, call)
    } else {
        None
    }
}

// === impl RefusedRequest ===

impl RefusedRequest {
    fn of(facts: &ProviderError) -> Self {
        let mut words = facts.message.clone().unwrap_or_default();
        let mut named = None;
        match facts.body.as_deref().map(serde_json::from_str::<Value>) {
            Some(Ok(body)) => {
                named = self::named(&body).map(str::to_lowercase);
                collect(&body, &mut words);
            }
            Some(Err(_)) => words.push_str(facts.body.as_deref().unwrap_or_default()),
            None => {}
        }
        words.retain(|letter| !matches!(letter, '\'' | '"' | '`'));
        Self {
            words: words.to_lowercase(),
            named,
        }
    }

    /// Returns whether it reports one of these names as unsupported.
    fn refuses(&self, names: &[&str]) -> bool {
        if !matches(&NOT_TAKEN, &self.words) {
            return false;
        }
        match &self.named {
            Some(named) => names.contains(&named.as_str()),
            // A tool's own properties may have any name.
            None if ["schema", "properties", "function", "tools"]
                .iter()
                .any(|word| self.words.contains(word)) =>
            {
                false
            }
            None => names.iter().any(|name| holds_word(&self.words, name)),
        }
    }

    /// Returns whether it reports a field of a tool as unsupported.
    fn refuses_of_tools(&self, name: &str) -> bool {
        let words = self.named.as_deref().unwrap_or(&self.words);
        matches(&NOT_TAKEN, &self.words) && holds_word(words, name)
    }
}

/// Returns the parameter that a rejection names as such.
fn named(body: &Value) -> Option<&str> {
    let mut params = ["/error/param", "/param", "/0/error/param"]
        .iter()
        .filter_map(|at| body.pointer(at)?.as_str());
    params.find(|name| !name.is_empty())
}

/// All texts of a document, one a line.
fn collect(value: &Value, words: &mut String) {
    match value {
        Value::String(text) => {
            words.push_str(text);
            words.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn matches(pattern: &LazyLock<Option<Regex>>, words: &str) -> bool {
    pattern
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(words))
}

/// Returns whether the text contains a name as a separate word.
fn holds_word(words: &str, name: &str) -> bool {
    let is_part = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    words.match_indices(name).any(|(at, _)| {
        !is_part(words[..at].chars().next_back())
            && !is_part(words[at + name.len()..].chars().next())
    })
}

/// `max_tokens` in place of `max_completion_tokens`, or the other way round.
fn output_limit_field(rejection: &RefusedRequest, call: &ModelCall) -> Option<Adaptation> {
    call.max_output_tokens?;
    let old_is_refused =
        rejection.refuses(&["max_tokens"]) && holds_word(&rejection.words, "max_completion_tokens");
    let field = if old_is_refused {
        OutputLimitField::MaxCompletionTokens
    } else if rejection.refuses(&["max_completion_tokens"]) {
        OutputLimitField::MaxTokens
    } else {
        return None;
    };
    Some(Adaptation::OutputLimitField { field })
}

fn left_out(rejection: &RefusedRequest, call: &ModelCall) -> Option<Adaptation> {
    // Two that exclude each other: the one that people set first stays.
    let names_both =
        holds_word(&rejection.words, "temperature") && holds_word(&rejection.words, "top_p");
    let mut order = Parameter::ALL;
    if names_both {
        order.swap(0, 1);
    }
    let is_refused = |parameter: &Parameter| {
        parameter.is_in(call)
            && match parameter {
                // Its name comes with that of the tool.
                Parameter::StrictTools => rejection.refuses_of_tools("strict"),
                _ => rejection.refuses(names(*parameter)),
            }
    };
    if let Some(parameter) = order.into_iter().find(is_refused) {
        return Some(Adaptation::DropParameter { parameter });
    }
    let field = call
        .extra
        .keys()
        .find(|key| DISPENSABLE.contains(&key.as_str()) && rejection.refuses(&[key.as_str()]))?;
    Some(Adaptation::DropExtra {
        field: field.clone(),
    })
}

/// Returns the names of a parameter on the wires, in lower case.
const fn names(parameter: Parameter) -> &'static [&'static str] {
    match parameter {
        Parameter::Temperature => &[
            "temperature",
            "inferenceconfig.temperature",
            "generation_config.temperature",
        ],
        Parameter::TopP => &[
            "top_p",
            "topp",
            "inferenceconfig.topp",
            "generation_config.top_p",
        ],
        Parameter::TopK => &["top_k", "topk", "generation_config.top_k"],
        Parameter::Seed => &["seed", "generation_config.seed"],
        Parameter::FrequencyPenalty => &["frequency_penalty", "frequencypenalty"],
        Parameter::PresencePenalty => &["presence_penalty", "presencepenalty"],
        Parameter::ReasoningEffort => &[
            "reasoning_effort",
            "reasoning.effort",
            "output_config.effort",
            "thinking_level",
            "thinkinglevel",
            "thinkingconfig",
            "thinking level",
        ],
        Parameter::ParallelToolCalls => &["parallel_tool_calls", "disable_parallel_tool_use"],
        Parameter::StrictTools => &["strict"],
        Parameter::StreamUsage => &[
            "stream_options",
            "stream_options.include_usage",
            "include_usage",
        ],
    }
}

fn developer(rejection: &RefusedRequest, call: &ModelCall) -> Option<Adaptation> {
    let is_sent = call
        .messages
        .iter()
        .any(|message| message.role == Role::Developer);
    let is_named = holds_word(&rejection.words, "developer")
        && ["role", "variant"]
            .iter()
            .any(|it| rejection.words.contains(it));
    (is_sent && is_named).then_some(Adaptation::DeveloperAsSystem)
}

/// Fields of messages and calls that only this dialect, or another server of it, knows.
fn refused_fields(rejection: &RefusedRequest, call: &ModelCall) -> Option<Adaptation> {
    let words = rejection.named.as_deref().unwrap_or(&rejection.words);
    let is_refused = |name: &String| holds_word(words, &name.to_lowercase());
    let is_named = own_fields::names(call, None).iter().any(is_refused);
    (is_named && matches(&NOT_TAKEN, &rejection.words)).then_some(Adaptation::DropReasoning)
}

fn has_signed_reasoning(call: &ModelCall) -> bool {
    call.messages
        .iter()
        .flat_map(|message| &message.parts)
        .any(|part| match part {
            Part::Reasoning(reasoning) => reasoning.opaque.is_some() && !part.is_fields(),
            Part::ToolCall(call) => call.opaque.is_some(),
            Part::Text(_)
            | Part::Image(_)
            | Part::File(_)
            | Part::ToolResult(_)
            | Part::Refusal(_) => false,
        })
}
