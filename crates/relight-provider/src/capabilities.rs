//! Capabilities of a model that differ from what is known of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{
    adaptation::OutputLimitField,
    target::{Capabilities, PrefillMark},
};

/// Capabilities of a model, if they differ from what is known; unset: as known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CapabilityOverrides {
    /// Accepts a system or developer message at the tail of the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_system_message: Option<bool>,
    /// Accepts a user message right after tool results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_after_tool: Option<bool>,
    /// Continues an assistant message that the request starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_prefill: Option<bool>,
    /// Way in which a request marks that assistant message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_mark: Option<PrefillMark>,
    /// Supports developer messages; other targets get the operator's instructions as system
    /// messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_role: Option<bool>,
    /// Name of the output limit, in the dialect `openai_chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit_field: Option<OutputLimitField>,
    /// Supports tools; a call with tools goes to targets that do, if the route has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Accepts a limit on the number of parallel tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tools: Option<bool>,
    /// Accepts images; a call with images goes to targets that do, if the route has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// Refuses tool calls of the current turn without the signatures that it gave them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_calls: Option<bool>,
    /// If set, responses are generated in the background, in streams of the dialect
    /// `openai_responses` alone (default: no). One that is cut off or falls silent is then resumed
    /// from its position, instead of requested and paid for again; so is, once and from its
    /// beginning, one whose replica died or was stopped, if the journal is a file or a database
    /// that keeps payloads. One without a reader is cancelled, once its id came. The provider keeps
    /// such responses (`store`), which contracts without data retention forbid, and takes longer to
    /// start them; the rest of one that was cut off may come without encrypted reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// Largest prompt plus answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window_tokens: Option<u64>,
}

// === impl CapabilityOverrides ===

impl CapabilityOverrides {
    /// Returns the known facts, with the overrides on top.
    #[must_use]
    pub fn apply(&self, mut known: Capabilities) -> Capabilities {
        for (known, configured) in [
            (&mut known.tail_system_message, self.tail_system_message),
            (&mut known.user_after_tool, self.user_after_tool),
            (&mut known.assistant_prefill, self.assistant_prefill),
            (&mut known.developer_role, self.developer_role),
            (&mut known.tools, self.tools),
            (&mut known.parallel_tools, self.parallel_tools),
            (&mut known.images, self.images),
            (&mut known.signed_calls, self.signed_calls),
            (&mut known.background, self.background),
        ] {
            *known = configured.unwrap_or(*known);
        }
        known.prefill_mark = self.prefill_mark.unwrap_or(known.prefill_mark);
        known.output_limit_field = self.output_limit_field.unwrap_or(known.output_limit_field);
        known.context_window_tokens = self.context_window_tokens.or(known.context_window_tokens);
        known
    }
}
