//! What crosses the border between the layers and a provider: one call, one stream of deltas, bare errors.
//!
//! Layers and providers do not know each other; both know these types.

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
    upstream::{BackgroundResponses, UpstreamHandle},
};

/// One attempt on the wire: exactly one request for an answer to exactly one provider.
#[derive(Debug, Clone)]
pub struct ProviderRequest {
    /// Whose attempt it is.
    pub invocation: InvocationId,
    /// 1 for the invocation's first.
    pub attempt: u32,
    /// Who is asked.
    pub target: Arc<Target>,
    /// What is asked: this attempt's own copy, with its note if it has one.
    pub call: Arc<ModelCall>,
    /// Which of the dialect's usual words this target was found not to take.
    pub wording: DialectOverrides,
    /// When the whole invocation must be over.
    pub deadline: Instant,
    /// How long the answer may be silent between two tokens before the attempt is given up; `None` where nobody times it.
    pub idle: Option<Duration>,
    /// The trace context to send to the provider; empty where it is not sent.
    pub trace: TraceContext,
    /// Where its URL is noted when it is sent.
    pub sent_to: SentTo,
    /// What ties its invocation to answers that are made in the background.
    pub background: BackgroundResponses,
    /// The answer that is read on from its beginning instead of asking for one: what an earlier owner of the invocation
    /// had asked of this target. Nothing new is made or paid for.
    pub attach: Option<UpstreamHandle>,
}

/// The URL of a request, noted by the provider's client that sends it and read for spans.
#[derive(Debug, Clone, Default)]
pub struct SentTo(Arc<OnceLock<String>>);

impl SentTo {
    /// Notes the URL; the first one stays.
    pub fn note(&self, url: &str) {
        self.0.get_or_init(|| url.to_owned());
    }

    /// The URL, once the request was sent.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// An answer as it comes. It is whole only if a `Delta::Finish` came; an end without one is a cut. Dropping it
/// cancels the request upstream.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, ProviderError>> + Send>>;

/// Headers in which providers and gateways say by which id they know a request, the nearest first.
pub const REQUEST_IDS: [&str; 6] = [
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-generation-id",
    "llm_provider-x-request-id",
];

/// Longest id of a request that is told, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// By which id whoever answered knows the request, to be quoted to its support; `None` where it told none, or nonsense.
#[must_use]
pub fn request_id(headers: &[(String, String)]) -> Option<&str> {
    let value = |wanted: &&str| headers.iter().find(|(name, _)| name == *wanted).map(|(_, value)| value.as_str());
    let id = REQUEST_IDS.iter().find_map(value)?;
    let sound = !id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic());
    sound.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_id_of_a_request_counts_and_nonsense_is_none() {
        let headers = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let both = headers(&[("llm_provider-x-request-id", "far"), ("x-request-id", "req-1"), ("date", "today")]);
        assert_eq!(request_id(&both), Some("req-1"));
        assert_eq!(request_id(&headers(&[("request-id", "req_011")])), Some("req_011"));
        for nonsense in ["", "two words", "\u{1b}[2J", &"x".repeat(129)] {
            assert_eq!(request_id(&headers(&[("x-request-id", nonsense)])), None);
        }
        assert_eq!(request_id(&[]), None);
    }
}
