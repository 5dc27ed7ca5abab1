//! The types between the layers and a provider: one request, one stream of deltas, raw errors.
//!
//! Layers and providers do not import each other; both use these types.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::Stream;
use tokio::time::Instant;

use super::{
    adaptation::DialectOverrides,
    completion::Delta,
    failure::ProviderError,
    ids::InvocationId,
    invocation::TraceContext,
    message::ModelCall,
    target::Target,
    tool::ToolRequest,
    upstream::{BackgroundResponses, UpstreamHandle},
};

/// One attempt on the wire: exactly one request to exactly one provider.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// The invocation of the attempt.
    pub invocation: InvocationId,
    /// 1 for the invocation's first.
    pub attempt: u32,
    /// The target.
    pub target: Arc<Target>,
    /// The call: this attempt's own copy, with its note if it has one.
    pub call: Arc<ModelCall>,
    /// Tool call that is made instead, if a tool is called.
    pub tool: Option<Arc<ToolRequest>>,
    /// Deviations of this target from its dialect that were found.
    pub wording: DialectOverrides,
    /// Form in which the completion is wanted.
    pub form: CompletionForm,
    /// Time by which the whole invocation must be over.
    pub deadline: Instant,
    /// Longest silence between two tokens before the attempt is abandoned; `None` for no limit.
    pub idle: Option<Duration>,
    /// Trace context to send to the provider; empty if it is not sent.
    pub trace: TraceContext,
    /// Place in which its URL is noted when it is sent.
    pub sent_to: SentTo,
    /// The background responses of its invocation.
    pub background: BackgroundResponses,
    /// The response to read from its beginning instead of requesting one: an earlier owner of the
    /// invocation requested it from this target. Nothing new is generated or paid for.
    pub attach: Option<UpstreamHandle>,
}

/// Form in which the completion of one attempt is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionForm {
    /// Piece by piece: the caller reads along.
    Pieces,
    /// Once it is whole; that pieces come shows that it goes on.
    Whole,
    /// Once it is whole, and usually so soon that pieces would show nothing before: it may be
    /// requested as one document.
    Document,
}

/// The URL of a request, set by the provider's client that sends it and read for spans.
#[derive(Debug, Clone, Default)]
pub struct SentTo(Arc<OnceLock<String>>);

impl SentTo {
    /// Notes the URL; the first one stays.
    pub fn note(&self, url: &str) {
        self.0.get_or_init(|| url.to_owned());
    }

    /// Returns the URL, once the request was sent.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The deltas of a response. It is complete only after a `Delta::Finish`; an end without one is a
/// cut. Dropping it cancels the request upstream.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, Box<ProviderError>>> + Send>>;

/// Headers in which providers and gateways return their id of a request, the nearest one first.
pub const REQUEST_IDS: [&str; 6] = [
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-generation-id",
    "llm_provider-x-request-id",
];

/// Longest request id that is reported, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Returns the responder's id of the request, to quote to its support; `None` if it sent none or an
/// invalid one.
#[must_use]
pub fn request_id(headers: &[(String, String)]) -> Option<&str> {
    let value = |wanted: &&str| {
        headers
            .iter()
            .find(|(name, _)| name == *wanted)
            .map(|(_, value)| value.as_str())
    };
    let id = REQUEST_IDS.iter().find_map(value)?;
    let sound = !id.is_empty()
        && id.len() <= MAX_REQUEST_ID_BYTES
        && id.bytes().all(|byte| byte.is_ascii_graphic());
    sound.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_request_id_is_reported_and_an_invalid_one_is_not() {
        let headers = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let both = headers(&[
            ("llm_provider-x-request-id", "far"),
            ("x-request-id", "req-1"),
            ("date", "today"),
        ]);
        assert_eq!(request_id(&both), Some("req-1"));
        assert_eq!(
            request_id(&headers(&[("request-id", "req_011")])),
            Some("req_011")
        );
        for nonsense in ["", "two words", "\u{1b}[2J", &"x".repeat(129)] {
            assert_eq!(request_id(&headers(&[("x-request-id", nonsense)])), None);
        }
        assert_eq!(request_id(&[]), None);
    }
}
