//! What crosses the border between the layers and a provider: one call, one stream of deltas, bare errors.
//!
//! Layers and providers do not know each other; both know these types.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use tokio::time::Instant;

use super::{
    adaptation::Wording,
    completion::Delta,
    failure::ProviderError,
    ids::InvocationId,
    invocation::TraceContext,
    message::ModelCall,
    target::Target,
    upstream::{Tether, UpstreamHandle},
};

/// One attempt on the wire: exactly one request for an answer to exactly one provider.
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
    /// How long the answer may be silent between two tokens before the attempt is given up; `None` where nobody times it.
    pub idle: Option<Duration>,
    /// The trace context to send to the provider; empty where it is not sent.
    pub trace: TraceContext,
    /// What ties its invocation to answers that are made in the background.
    pub tether: Tether,
    /// The answer that is read on from its beginning instead of asking for one: what an earlier owner of the invocation
    /// had asked of this target. Nothing new is made or paid for.
    pub attach: Option<UpstreamHandle>,
}

/// An answer as it comes. It is whole only if a `Delta::Finish` came; an end without one is a cut. Dropping it
/// cancels the request upstream.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, ProviderError>> + Send>>;
