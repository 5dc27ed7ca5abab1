//! Going on from a begun answer, where the restarted one says something else.
//!
//! Some models continue an assistant's turn that is given to them begun. Where the route has a target that can, the
//! text that was sent is given back and the rest is asked for, within the same deadline: the reader then holds one
//! text, begun by one model and ended by another. Only plain text is ever continued: a tool call or an answer of a
//! given shape that two models wrote half each would be worse than none.

use crate::{
    domain::{
        ids::TargetId,
        invocation::{Call, Overrides},
        message::{Message, ModelCall, Part, ResponseFormat, Role},
        target::Target,
    },
    engine::Asked,
    layers::observe::Incoming,
};

/// What is asked to go on from `sent`; `None` where nobody on the route can.
pub(super) fn asked(asked: &Asked, incoming: &Incoming, sent: &str) -> Option<Asked> {
    let Call::Model(call) = &asked.call else { return None };
    let is_plain = call.tools.is_empty() && call.response_format == ResponseFormat::Text;
    // A turn that ends in white space is refused by most servers, and cannot be ended otherwise.
    if !is_plain || sent.is_empty() || sent.ends_with(char::is_whitespace) {
        return None;
    }
    let able = |target: &&std::sync::Arc<Target>| target.capabilities.assistant_prefill;
    let targets: Vec<TargetId> = incoming.plan.targets.iter().filter(able).map(|target| target.id.clone()).collect();
    if targets.is_empty() {
        return None;
    }
    let begun = Message { role: Role::Assistant, parts: vec![Part::Text(sent.to_owned())] };
    let mut messages = call.messages.clone();
    messages.push(begun);
    let remaining = incoming.invocation.deadline.saturating_duration_since(tokio::time::Instant::now());
    Some(Asked {
        call: Call::Model(ModelCall { messages, ..call.clone() }),
        // The key belongs to the whole answer, not to its rest.
        request_id: None,
        overrides: Overrides { allowed_targets: targets, max_retries: Some(0), ..asked.overrides.clone() },
        time_allowed: Some(remaining),
        ..asked.clone()
    })
}
