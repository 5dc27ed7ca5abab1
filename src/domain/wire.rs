//! What crosses the border between the layers and a provider: one call, one stream of deltas, bare errors.
//!
//! Layers and providers do not know each other; both know these types.

use std::{pin::Pin, sync::Arc};

use futures_util::Stream;
use tokio::time::Instant;

use super::{
    adaptation::Wording, completion::Delta, failure::ProviderError, ids::InvocationId, invocation::TraceContext,
    message::ModelCall, target::Target,
};

/// One attempt on the wire: exactly one request to exactly one provider.
#[derive(Debug, Clone)]
pub struct WireCall {
    /// Whose attempt it is.
    pub invocation: InvocationId,
    /// 1 for the invocation's first.
    pub attempt: u32,
    /// Who is asked.
    pub target: Arc<Target>,
    /// What is asked: this attempt's own copy, with its note if it has one.
    pub call: Arc<ModelCall>,
    /// Which of the dialect's usual words this target was found not to take.
    pub wording: Wording,
    /// When the whole invocation must be over.
    pub deadline: Instant,
    /// The trace context to send to the provider; empty where it is not sent.
    pub trace: TraceContext,
}

/// An answer as it comes. It is whole only if a `Delta::Finish` came; an end without one is a cut. Dropping it
/// cancels the request upstream.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, ProviderError>> + Send>>;
