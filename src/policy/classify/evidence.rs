//! Numbers that mean something: the statuses and codes that a text states, told apart from ports, positions and ids.
//!
//! Never counts a number as a status because of its size alone: a word, a bracket or the status's own phrase must say so.

use std::sync::LazyLock;

use memchr::{
    memchr_iter,
    memmem::{self, Finder},
};

use super::reading::{HEAD, Number, Reading, Sieve, last_mark, mark, without_frames};
use crate::{
    domain::failure::{ProviderError, Surface},
    policy::redact::redact,
};

/// Codes kept of one text.
const MAX_CODES: usize = 32;

/// What numbers say.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The answer's own status.
    pub outer_status: Option<u16>,
    /// The last, that is innermost, error status that the text states.
    pub inner_status: Option<u16>,
    /// Numbers that stand as a code.
    pub codes: Vec<u32>,
    /// A gRPC code that the text states.
    pub grpc: Option<i32>,
    /// Whether more is said to be requested at once than the limit allows in all (`Limit 6000, Used 0, Requested 9000`).
    pub never_fits: bool,
}

// === impl Evidence ===

impl Evidence {
    /// Reads the numbers of a text.
    pub(super) fn gather(error: &ProviderError, reading: &Reading) -> Self {
        let mut evidence = Self { outer_status: error.status, ..Self::default() };
        let (mut limit, mut first) = (None, None);
        for (index, number) in reading.numbers.iter().enumerate() {
            let (before, after) = (&reading.text[..number.at], reading.text.get(number.at + 1..).unwrap_or_default());
            let word = number.words.checked_sub(1).and_then(|at| reading.text.words().get(at));
            if number.alone
                && number.digits == 3
                && (400..600).contains(&number.whole)
                && (is_status(before, after, index == 0) || is_outcome(error, number.source, before, after))
            {
                // An envelope that repeats its own status behind the message is not further inside.
                let status = u16::try_from(number.whole).ok();
                let keyed = before.ends_with(b" code ") || before.ends_with(b" status ");
                if evidence.inner_status.is_none() || !keyed || (status != error.status && status != first) {
                    evidence.inner_status = status;
                }
                first = first.or(status);
            } else if !word.is_some_and(|word| NAMING.may_have(word.mark)) {
                // Nearly no number is named by the word before it.
            } else if before.ends_with(b" limit ") {
                limit = Some(number.whole);
            } else if before.ends_with(b" requested ") {
                evidence.never_fits |= limit.is_some_and(|limit| number.whole > limit);
            } else if number.alone && is_code(before) && evidence.codes.len() < MAX_CODES {
                evidence.codes.push(number.whole);
                if evidence.grpc.is_none() {
                    evidence.grpc = grpc(number, before, after, error.surface);
                }
            }
        }
        if evidence.grpc.is_none() && error.surface == Surface::Grpc {
            evidence.grpc = reading.numbers.first().and_then(|number| {
                let after = reading.text.get(number.at + 1..).unwrap_or_default();
                grpc(number, b" grpc status ", after, error.surface)
            });
        }
        evidence
    }

    /// The status that counts: the innermost that the text states, else the answer's own.
    pub(super) fn status(&self) -> Option<u16> {
        self.inner_status.or(self.outer_status)
    }
}

/// Words after which three digits are a status.
const STATUS_WORDS: [&[u8]; 29] = [
    b" status ",
    b" code ",
    b" http ",
    b" error ",
    b" http # ",
    b" response ",
    b" returned ",
    b" received ",
    b" got ",
    b" status is ",
    b" with ",
    b" responded ",
    b" replied ",
    b" exhausted ",
    b" denied ",
    b" exception ",
    b" httperror ",
    b" unexpected status ",
    b" response code ",
    b" answered ",
    b" failed ",
    b" api ",
    b" failure ",
    b" server returned ",
    b" message ",
    b" statuscode ",
    b" errors ",
    b" request failed ",
    b" too many ",
];

/// The phrases of the statuses themselves.
const PHRASES: [&[u8]; 29] = [
    b" bad request",
    b" unauthorized",
    b" payment required",
    b" forbidden",
    b" not found",
    b" method not allowed",
    b" request timeout",
    b" conflict",
    b" gone",
    b" payload too large",
    b" request entity",
    b" unprocessable",
    b" too many requests",
    b" internal server",
    b" bad gateway",
    b" service unavailable",
    b" service temporarily",
    b" gateway time",
    b" status code",
    b" unavailable",
    b" resource exhausted",
    b" invalid argument",
    b" permission denied",
    b" overloaded",
    b" client error",
    b" server error",
    b" error responses",
    b" provider returned",
    b" upstream provider",
];

fn is_status(before: &[u8], after: &[u8], first: bool) -> bool {
    // At the very beginning, and nothing that is counted follows.
    let counted = [b" tokens".as_slice(), b" requests", b" ms", b" seconds", b" bytes", b" characters"];
    if counted.iter().any(|word| after.starts_with(word)) && !after.starts_with(b" requests per") {
        return false;
    }
    (first && before == b" ")
        || STATUS_WORDS.iter().any(|word| before.ends_with(word))
        || PHRASES.iter().any(|phrase| after.starts_with(phrase))
}

/// Bytes before a number in which a word belongs to it.
const NEAR: usize = 256;

/// A number that tells how a call came out: `POST /v1/chat → 503`, and at the very end `failed to get a token: 500`.
fn is_outcome(error: &ProviderError, at: usize, before: &[u8], after: &[u8]) -> bool {
    const METHODS: [&[u8]; 5] = [b" get ", b" post ", b" put ", b" patch ", b" delete "];
    const FAILED: [&[u8]; 6] = [b" failed ", b" could not ", b" couldnt ", b" cannot ", b" unable to ", b" error "];
    let near = &before[before.len().saturating_sub(NEAR)..];
    let says = |words: &[&[u8]]| words.iter().any(|word| memmem::find(near, word).is_some());
    let lead = error.text().and_then(|text| text.get(..at)).unwrap_or_default().trim_end();
    let arrow = lead.ends_with("->") || lead.ends_with("=>") || lead.ends_with('→');
    (arrow && says(&METHODS)) || (lead.ends_with(':') && after.trim_ascii().is_empty() && says(&FAILED))
}

/// Words after which a number is a code.
const CODE_WORDS: [&str; 15] = [
    " code ",
    " error ",
    " errcode ",
    " err code ",
    " status ",
    " errno ",
    " errorcode ",
    " ret ",
    // Families whose codes are a name and a number, and messages that begin with their number.
    " model arts ",
    " apig ",
    " ngrok ",
    " message ",
    " sqlstate ",
    " exception ",
    " err no ",
];

/// The last of those words, and the names of a limit.
const NAMING: Sieve = {
    let (mut naming, mut at) = (Sieve::NONE.and_all(&[mark("limit"), mark("requested")]), 0);
    while at < CODE_WORDS.len() {
        naming = naming.and(last_mark(CODE_WORDS[at]));
        at += 1;
    }
    naming
};

fn is_code(before: &[u8]) -> bool {
    CODE_WORDS.iter().any(|word| before.ends_with(word.as_bytes()))
}

/// A gRPC code: `14 UNAVAILABLE`, `grpc_status:7`, a bare `code` on the gRPC surface.
fn grpc(number: &Number, before: &[u8], after: &[u8], surface: Surface) -> Option<i32> {
    const NAMES: [&[u8]; 16] = [
        b" cancelled",
        b" unknown",
        b" invalid argument",
        b" deadline exceeded",
        b" not found",
        b" already exists",
        b" permission denied",
        b" resource exhausted",
        b" failed precondition",
        b" aborted",
        b" out of range",
        b" unimplemented",
        b" internal",
        b" unavailable",
        b" data loss",
        b" unauthenticated",
    ];
    let code = usize::try_from(number.whole).ok().filter(|code| (1..=16).contains(code))?;
    let named = after.starts_with(NAMES[code - 1]);
    let keyed = before.ends_with(b" grpc status ") || before.ends_with(b" grpc code ");
    (named || keyed || (surface == Surface::Grpc && before.ends_with(b" code ")))
        .then(|| i32::try_from(code).unwrap_or(2))
}

/// Keys whose value is a message.
static MESSAGES: LazyLock<[Finder<'_>; 4]> =
    LazyLock::new(|| ["\"message\":", "\"msg\":", "\"detail\":", "\"error\":"].map(Finder::new));

/// What ends a key of JSON.
static KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\":"));

/// What the title of a page begins with.
static TITLE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("<title>"));

/// The title of a page, which says in short what the page says.
fn title(window: &str) -> Option<&str> {
    let at = TITLE.find(window.as_bytes())? + TITLE.needle().len();
    let title = window[at..].split('<').next()?.trim();
    (!title.is_empty()).then_some(title)
}

/// The message for people: the answer's own `message` where one stands in it, or a page's title; without frames of tracebacks,
/// redacted and bounded.
pub(super) fn message(error: &ProviderError, reading: &Reading, limit: usize) -> String {
    let text = error.message.as_deref().or(error.body.as_deref()).unwrap_or_default();
    let window = &text[..text.floor_char_boundary(4096)];
    // Prose has no keys.
    let keys = KEY.find(window.as_bytes()).map_or(&[][..], |_| &MESSAGES[..]);
    let found = keys.iter().find_map(|key| {
        let at = key.find(window.as_bytes())?;
        let rest = window[at + key.needle().len()..].trim_start().strip_prefix('"')?;
        let end = memchr_iter(b'"', rest.as_bytes()).find(|at| !rest[..*at].ends_with('\\')).unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    });
    let message = match found {
        Some(message) if error.body.is_some() => message,
        None if text.trim_start().starts_with('<') => title(window).unwrap_or(text),
        _ => text,
    };
    if reading.left_out > 0 {
        return redact(&without_frames(&message[..message.floor_char_boundary(HEAD)]), limit);
    }
    redact(message, limit)
}
