//! Documents that are passed on whole, as the text of a completion: embeddings, and counts of tokens.
//!
//! Only one thing of their content is checked here: that they are what was requested, and, for
//! embeddings, that every vector is there.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
    sse::SseEvent,
    vectors::RequestedVectors,
};
use crate::domain::{
    completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
    message::{Endpoint, ModelCall},
};

/// Reads one document.
#[derive(Debug)]
pub(super) struct DocumentReader {
    headers: Vec<(String, String)>,
    endpoint: Endpoint,
    vectors: RequestedVectors,
}

// === impl DocumentReader ===

impl DocumentReader {
    /// Reads what this call requests, in a response whose head had these headers.
    pub(super) fn new(headers: Vec<(String, String)>, call: &ModelCall) -> Self {
        Self {
            headers,
            endpoint: call.endpoint,
            vectors: RequestedVectors::of(&call.extra),
        }
    }

    /// The document as it was requested.
    fn requested<'a>(&self, document: &'a Value) -> Result<Cow<'a, Value>, ParseError> {
        match self.endpoint {
            Endpoint::Embeddings => {
                let Some(data) = document.get("data").and_then(Value::as_array) else {
                    return Err(ParseError::NotUnderstood);
                };
                match self.vectors.check(data).map_err(ParseError::Unusable)? {
                    Some(data) => {
                        let mut document = document.clone();
                        document["data"] = Value::Array(data);
                        Ok(Cow::Owned(document))
                    }
                    None => Ok(Cow::Borrowed(document)),
                }
            }
            Endpoint::CountTokens if document.get("input_tokens").is_some_and(Value::is_u64) => {
                Ok(Cow::Borrowed(document))
            }
            Endpoint::Answer | Endpoint::CountTokens => Err(ParseError::NotUnderstood),
        }
    }
}

impl ResponseParser for DocumentReader {
    type Frames = SseFrames;

    fn event(&mut self, _: SseEvent, _: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        Err(ParseError::NotUnderstood)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if document.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ParseError::Failed(Failed::new(None, &document.to_string())));
        }
        let document = self.requested(document)?;
        let text = document.to_string();
        let model = document
            .get("model")
            .and_then(Value::as_str)
            .map(str::to_owned);
        out.push(Delta::Start {
            model,
            response_id: None,
            headers: std::mem::take(&mut self.headers),
        });
        out.push(Delta::BlockStart {
            block: 0,
            kind: BlockKind::Text,
        });
        out.push(Delta::BlockDelta { block: 0, text });
        out.push(Delta::BlockStop {
            block: 0,
            opaque: None,
        });
        // A count of tokens costs none.
        if let Some(input_tokens) = document
            .pointer("/usage/prompt_tokens")
            .and_then(Value::as_u64)
        {
            out.push(Delta::Usage(Usage {
                input_tokens,
                exactness: Exactness::Exact,
                ..Usage::default()
            }));
        }
        out.push(Delta::Finish {
            reason: FinishReason::Stop,
            raw: "stop".to_owned(),
        });
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        Err(ParseError::NotUnderstood)
    }
}
