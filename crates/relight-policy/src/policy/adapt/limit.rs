//! The output limit that a rejection states: too high for the model, too low for it, or too high
//! beside this prompt.
//!
//! A table of sentences, each as some provider or server writes it. A sentence without a number, or
//! with one that changes nothing, yields no limit.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::domain::{adaptation::Adaptation, message::ModelCall};

/// Smallest useful answer beside a long prompt, in tokens: if there is room only for a shorter one,
/// the prompt is too long.
const MIN_ROOM: u32 = 256;

/// Meaning of the numbers in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// `max`: the largest limit.
    Most,
    /// `past`: the first limit that is too large.
    Past,
    /// `min`: the smallest limit.
    Least,
    /// `min` and `max`.
    Range,
    /// `window` and `prompt`: what they leave between them is the largest limit.
    Room,
}

/// The names of the limit on all wires, quotation marks left out.
const FIELD: &str = r"max(?:imum)?[ _]?(?:new[ _]|completion[ _]|output[ _])?tokens(?:tosample)?";

/// The provider that writes a sentence is named beside it.
const SENTENCES: [(&str, Reads); 15] = [
    // OpenAI and its imitators; OpenRouter (`of text input`).
    (
        r"maximum context length is (?P<window>\d+) tokens\b.*\((?P<prompt>\d+) (?:in|of|from)\b",
        Reads::Room,
    ),
    // vLLM.
    (
        r"maximum context length is (?P<window>\d+) tokens and your request has (?P<prompt>\d+) input",
        Reads::Room,
    ),
    // Anthropic.
    (
        r"input length and max_tokens exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",
        Reads::Room,
    ),
    // Text generation inference.
    (
        r"inputs tokens \+ max_new_tokens must be <= (?P<window>\d+)\. given: (?P<prompt>\d+) inputs tokens",
        Reads::Room,
    ),
    // OpenAI.
    (
        r"supports at most (?P<most>\d+) (?:completion|output) tokens",
        Reads::Most,
    ),
    // Anthropic.
    (
        r"> (?P<most>\d+), which is the maximum allowed number of output tokens",
        Reads::Most,
    ),
    // Bedrock.
    (
        r"maximum tokens you requested exceeds the model limit of (?P<most>\d+)",
        Reads::Most,
    ),
    // Gemini on Vertex.
    (
        r"range is from (?P<least>\d+) \(inclusive\) to (?P<past>\d+) \(exclusive\)",
        Reads::Range,
    ),
    // DeepSeek.
    (
        r"range of %FIELD% is \[(?P<least>\d+), ?(?P<most>\d+)\]",
        Reads::Range,
    ),
    // Groq, Cohere, Mistral (pydantic).
    (
        r"%FIELD%\b.{0,80}?(?:less than or equal to|<=|at most|no more than|maximum (?:value )?of) (?P<most>\d+)",
        Reads::Most,
    ),
    (
        r"%FIELD%\b.{0,80}?(?:must be )?(?:less than|<|below) (?P<past>\d+)",
        Reads::Past,
    ),
    // OpenAI Responses, and pydantic.
    (
        r"%FIELD%\b.{0,80}?(?:greater than or equal to|>=|at least|minimum (?:value )?of) (?P<least>\d+)",
        Reads::Least,
    ),
    (
        r"(?:less than or equal to|<=) (?P<most>\d+)\b.{0,80}?%FIELD%",
        Reads::Most,
    ),
    (
        r"(?:greater than or equal to|>=) (?P<least>\d+)\b.{0,80}?%FIELD%",
        Reads::Least,
    ),
    // Fireworks, and gateways.
    (
        r"%FIELD% (?:is )?too (?:large|high)\b.{0,80}?(?:limit|maximum|max) (?:is |of )?(?P<most>\d+)",
        Reads::Most,
    ),
];

static TABLE: LazyLock<Vec<(Regex, Reads)>> = LazyLock::new(|| {
    let compile = |(pattern, reads): &(&str, Reads)| {
        let pattern = format!("(?s){}", pattern.replace("%FIELD%", FIELD));
        Regex::new(&pattern).ok().map(|pattern| (pattern, *reads))
    };
    SENTENCES.iter().filter_map(compile).collect()
});

/// Returns the limit that the target accepts in place of the call's, if this text (lower case, no
/// quotation marks) states one.
pub(super) fn other_limit(words: &str, call: &ModelCall) -> Option<Adaptation> {
    let from = call.max_output_tokens;
    let words = without_separators(words);
    let to = thinking_budget(&words, call).or_else(|| {
        let read =
            |(pattern, reads): &(Regex, Reads)| reads.limit(&pattern.captures(&words)?, from);
        TABLE.iter().find_map(read)
    })?;
    Some(Adaptation::OutputLimit { from, to })
}

// === impl Reads ===

impl Reads {
    /// Returns the limit that follows from the numbers of a sentence; `None` if it is the requested
    /// one.
    fn limit(self, numbers: &Captures<'_>, from: Option<u32>) -> Option<u32> {
        let number = |name: &str| numbers.name(name)?.as_str().parse::<u32>().ok();
        let max = number("most").or_else(|| number("past")?.checked_sub(1));
        let lower = |max: u32| (max > 0 && from.is_none_or(|from| max < from)).then_some(max);
        let higher = |min: u32| from.is_some_and(|from| min > from).then_some(min);
        match self {
            Self::Most | Self::Past => lower(max?),
            Self::Least => higher(number("least")?),
            Self::Range => number("least").and_then(higher).or_else(|| lower(max?)),
            Self::Room => {
                let room = number("window")?.checked_sub(number("prompt")?)?;
                lower(room).filter(|room| *room >= MIN_ROOM)
            }
        }
    }
}

/// Returns the smallest output limit above the thinking budget that the caller put into `extra`, as
/// Anthropic requires.
fn thinking_budget(words: &str, call: &ModelCall) -> Option<u32> {
    if !words.contains("max_tokens must be greater than thinking.budget_tokens") {
        return None;
    }
    let budget = u32::try_from(call.extra.get("thinking")?.get("budget_tokens")?.as_u64()?).ok()?;
    let requested = call.max_output_tokens?;
    // The requested limit was for the completion itself, without reasoning.
    (requested <= budget).then_some(budget.checked_add(requested)?)
}

/// Returns the text without the commas within numbers.
fn without_separators(words: &str) -> String {
    let bytes = words.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separates = |at: usize| {
        at > 0 && is_digit(at - 1) && is_digit(at + 1) && is_digit(at + 2) && is_digit(at + 3)
    };
    words
        .char_indices()
        .filter(|(at, letter)| *letter != ',' || !separates(*at))
        .map(|(_, letter)| letter)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_of_the_table_can_be_read() {
        assert_eq!(TABLE.len(), SENTENCES.len());
    }
}
