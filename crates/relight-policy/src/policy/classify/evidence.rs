//! The statuses and codes that a text states, distinguished from ports, positions and ids.
//!
//! A number does not count as a status because of its size alone: a word, a bracket or the status's
//! own phrase must mark it.

use super::reading::{NormalizedText, Number, ends_with_any};
use crate::domain::failure::{ProviderError, Surface};

/// Codes kept of one text.
const MAX_CODES: usize = 32;

/// The numeric evidence of a failure.
#[derive(Debug, Default)]
pub(super) struct NumericEvidence {
    /// The response's own status.
    pub outer_status: Option<u16>,
    /// The last, that is innermost, error status that the text states.
    pub inner_status: Option<u16>,
    /// Numbers that occur as a code.
    pub codes: Vec<u32>,
    /// Those that are the value of a key.
    pub keyed: Vec<u32>,
    /// A gRPC code that the text states.
    pub grpc: Option<i32>,
    /// `true` if the request alone exceeds the limit (`Limit 6000, Used 0, Requested 9000`).
    pub never_fits: bool,
}

// === impl NumericEvidence ===

impl NumericEvidence {
    /// Reads the numbers of a text.
    pub(super) fn gather(error: &ProviderError, reading: &NormalizedText) -> Self {
        let mut evidence = Self {
            outer_status: error.status,
            ..Self::default()
        };
        let mut limit = None;
        let mut first = None;
        for (index, number) in reading.numbers.iter().enumerate() {
            let before = &reading.text[..number.at];
            let after = reading.text.get(number.at + 1..).unwrap_or_default();
            if number.alone
                && number.digits == 3
                && (400..600).contains(&number.whole)
                // Mail and file servers have replies of three digits, too.
                && !(error.surface == Surface::Tool && matches!(number.whole, 530 | 535 | 550..=559))
                && (is_status(before, after, index == 0)
                    || is_outcome(error, number.source, before, after))
            {
                // An envelope that repeats its own status behind the message is not further inside.
                let status = u16::try_from(number.whole).ok();
                let keyed = before.ends_with(" code ") || before.ends_with(" status ");
                if evidence.inner_status.is_none()
                    || !keyed
                    || (status != error.status && status != first)
                {
                    evidence.inner_status = status;
                }
                first = first.or(status);
            } else if before.ends_with(" limit ") {
                limit = Some(number.whole);
            } else if before.ends_with(" requested ") {
                evidence.never_fits |= limit.is_some_and(|limit| number.whole > limit);
            } else if number.alone
                && ends_with_any(before, CODE_WORDS)
                && evidence.codes.len() < MAX_CODES
            {
                evidence.codes.push(number.whole);
                if number.keyed {
                    evidence.keyed.push(number.whole);
                }
                if evidence.grpc.is_none() {
                    evidence.grpc = grpc(number, before, after, error.surface);
                }
            }
        }
        if evidence.grpc.is_none() && error.surface == Surface::Grpc {
            evidence.grpc = reading.numbers.first().and_then(|number| {
                let after = reading.text.get(number.at + 1..).unwrap_or_default();
                grpc(number, " grpc status ", after, error.surface)
            });
        }
        evidence
    }

    /// Returns the status that counts: the innermost that the text states, else the response's own.
    pub(super) fn status(&self) -> Option<u16> {
        self.inner_status.or(self.outer_status)
    }
}

/// Words after which three digits are a status.
const STATUS_WORDS: &str = "\
    status|code|http|error|http #|response|returned|received|got|status is|with|responded|replied|exhausted|\
    denied|exception|httperror|unexpected status|response code|answered|failed|api|failure|server returned|\
    message|statuscode|errors|request failed|too many";

/// The phrases of the statuses themselves.
const PHRASES: &str = "\
    bad request|unauthorized|payment required|forbidden|not found|method not allowed|request timeout|\
    conflict|gone|payload too large|request entity|unprocessable|too many requests|internal server|\
    bad gateway|service unavailable|service temporarily|gateway time|status code|unavailable|\
    resource exhausted|invalid argument|permission denied|overloaded|client error|server error|\
    error responses|provider returned|upstream provider";

fn is_status(before: &str, after: &str, first: bool) -> bool {
    // At the very beginning, and nothing that is counted follows.
    let mut counted = " tokens| requests| ms| seconds| bytes| characters".split('|');
    if counted.any(|word| after.starts_with(word)) && !after.starts_with(" requests per") {
        return false;
    }
    (first && before == " ")
        || ends_with_any(before, STATUS_WORDS)
        || after
            .strip_prefix(' ')
            .is_some_and(|after| PHRASES.split('|').any(|phrase| after.starts_with(phrase)))
}

/// Distance in bytes before a number within which a word belongs to it.
const NEAR: usize = 256;

/// Returns whether a number states the result of a call: `POST /v1/chat → 503`, at the very end
/// `failed to get a token: 500`, and before a body `openai [400]: {"error": …}`.
fn is_outcome(error: &ProviderError, at: usize, before: &str, after: &str) -> bool {
    const METHODS: &str = " get | post | put | patch | delete ";
    const FAILED: &str = " failed | could not | couldnt | cannot | unable to | error ";
    let near = &before[before.ceil_char_boundary(before.len().saturating_sub(NEAR))..];
    let mentions = |words: &str| words.split('|').any(|word| near.contains(word));
    let text = error.text().and_then(|text| text.split_at_checked(at));
    let (lead, rest) = text.unwrap_or_default();
    let bracket = lead.ends_with(['[', '(']).then(|| rest.get(3..)).flatten();
    let body = bracket.and_then(|rest| rest.strip_prefix([']', ')']));
    let lead = lead.trim_end();
    let arrow = lead.ends_with("->") || lead.ends_with("=>") || lead.ends_with('→');
    (arrow && mentions(METHODS))
        || (lead.ends_with(':') && after.trim().is_empty() && mentions(FAILED))
        || body.is_some_and(|body| body.trim_start_matches([':', ' ']).starts_with('{'))
}

/// Words after which a number is a code.
const CODE_WORDS: &str = "\
    code|error|errcode|err code|status|errno|errorcode|ret|model arts|apig|ngrok|message|sqlstate|exception|\
    err no";

/// Returns a gRPC code: `14 UNAVAILABLE`, `grpc_status:7`, a bare `code` on the gRPC surface.
fn grpc(number: &Number, before: &str, after: &str, surface: Surface) -> Option<i32> {
    const NAMES: &str = "\
        cancelled|unknown|invalid argument|deadline exceeded|not found|already exists|permission denied|\
        resource exhausted|failed precondition|aborted|out of range|unimplemented|internal|unavailable|\
        data loss|unauthenticated";
    let code = usize::try_from(number.whole)
        .ok()
        .filter(|code| (1..=16).contains(code))?;
    let named = NAMES.split('|').nth(code - 1).is_some_and(|name| {
        after
            .strip_prefix(' ')
            .is_some_and(|after| after.starts_with(name))
    });
    let keyed = before.ends_with(" grpc status ") || before.ends_with(" grpc code ");
    (named || keyed || (surface == Surface::Grpc && before.ends_with(" code ")))
        .then(|| i32::try_from(code).unwrap_or(2))
}
