//! Documents that are passed on whole, as the text of an answer: embeddings, and counts of tokens.
//!
//! Only one thing of their content is checked here: that they are what was requested.

use serde_json::Value;

use super::{
    reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
    sse::SseEvent,
};
use crate::domain::{
    completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
    message::Endpoint,
};

/// Reads one document.
#[derive(Debug)]
pub(super) struct DocumentReader {
    headers: Vec<(String, String)>,
    endpoint: Endpoint,
}

// === impl DocumentReader ===

impl DocumentReader {
    /// Reads what this endpoint returns, in an answer whose head had these headers.
    pub(super) fn new(headers: Vec<(String, String)>, endpoint: Endpoint) -> Self {
        Self { headers, endpoint }
    }

    fn is_requested(&self, document: &Value) -> bool {
        match self.endpoint {
            Endpoint::Answer => false,
            Endpoint::Embeddings => document.get("data").is_some_and(Value::is_array),
            Endpoint::CountTokens => document.get("input_tokens").is_some_and(Value::is_u64),
        }
    }
}

impl ResponseParser for DocumentReader {
    type Frames = SseFrames;

    fn event(&mut self, _: SseEvent, _: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        Err(ParseError::NotUnderstood)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let text = document.to_string();
        if document.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ParseError::Failed(Failed::new(None, &text)));
        }
        if !self.is_requested(document) {
            return Err(ParseError::NotUnderstood);
        }
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
