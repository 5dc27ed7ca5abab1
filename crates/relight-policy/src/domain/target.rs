//! Targets: a model at a provider, and its capabilities.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    adaptation::OutputLimitField,
    ids::TargetId,
    message::{ModelCall, Part},
};

/// The wire protocol of a provider.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dialect {
    /// Chat completions as `OpenAI` defined them.
    OpenaiChat,
    /// The `OpenAI` Responses API.
    OpenaiResponses,
    /// The Anthropic Messages API.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// AWS Bedrock Converse.
    Bedrock,
    /// The embedded provider that plays a script.
    Scripted,
    /// A tool server's, whatever it speaks; no provider of models has it.
    #[serde(skip_deserializing)]
    Tool,
}

impl Dialect {
    /// Returns the dialect's name in snake case, as in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Features that a model over a transport supports; data that the configuration may override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent capability of the model"
)]
pub struct Capabilities {
    /// Accepts a system or developer message at the tail of the history.
    pub tail_system_message: bool,
    /// Accepts a user message right after tool results.
    pub user_after_tool: bool,
    /// Continues an assistant message that the request starts.
    pub assistant_prefill: bool,
    /// Mark of that assistant message in a request.
    pub prefill_mark: PrefillMark,
    /// Supports developer messages; other targets get the operator's instructions as system
    /// messages.
    pub developer_role: bool,
    /// Name of the output limit, if the dialect has several names for it.
    pub output_limit_field: OutputLimitField,
    /// Supports tools.
    pub tools: bool,
    /// Accepts a limit on the number of parallel tool calls.
    pub parallel_tools: bool,
    /// Accepts images.
    pub images: bool,
    /// Refuses tool calls of the current turn without the signatures that it gave them.
    pub signed_calls: bool,
    /// Generates responses in the background, so that they can be resumed when their reader is cut
    /// off.
    pub background: bool,
    /// May be asked for a completion as a document if a stream would show nothing sooner.
    pub documents: bool,
    /// Largest prompt plus answer, in tokens; unset if unknown.
    pub context_window_tokens: Option<u64>,
}

/// Way in which a request makes the model continue an assistant message instead of starting a new
/// one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PrefillMark {
    /// By the message alone.
    #[default]
    None,
    /// `continue_final_message: true` without `add_generation_prompt`.
    ContinueFinalMessage,
    /// By `prefix` in the message.
    Prefix,
}

impl Capabilities {
    /// Returns whether it takes the contents of a call.
    #[must_use]
    pub fn take(&self, call: &ModelCall) -> bool {
        let shows = || {
            call.messages
                .iter()
                .flat_map(|message| &message.parts)
                .any(|part| matches!(part, Part::Image(_)))
        };
        (self.tools || call.tools.is_empty()) && (self.images || !shows())
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            tail_system_message: true,
            user_after_tool: true,
            assistant_prefill: false,
            prefill_mark: PrefillMark::None,
            developer_role: false,
            output_limit_field: OutputLimitField::MaxTokens,
            tools: true,
            parallel_tools: true,
            images: true,
            signed_calls: false,
            background: false,
            documents: false,
            context_window_tokens: None,
        }
    }
}

/// A model at a provider with its credential and endpoint, or a tool on a tool server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in the configuration.
    pub id: TargetId,
    /// The provider's or tool server's name in the configuration.
    pub provider: Arc<str>,
    /// The provider's family for the classifier and for `gen_ai.provider.name` (`openai`,
    /// `anthropic`, …).
    pub family: Arc<str>,
    /// Its wire protocol.
    pub dialect: Dialect,
    /// The model, as the provider names it; empty for a tool.
    pub model: Arc<str>,
    /// The name of the credential, not its value.
    pub credential: Arc<str>,
    /// The base URL, without credentials.
    pub endpoint: Arc<str>,
    /// Features that it supports.
    pub capabilities: Capabilities,
    /// A system message that is put before each conversation it gets; `None` for none.
    pub system_prompt: Option<Arc<str>>,
}

// === impl Target ===

impl Target {
    /// Returns the id of the target that a tool at a server is.
    #[must_use]
    pub fn tool_id(server: &str, tool: &str) -> TargetId {
        TargetId::from(format!("{server}/{tool}"))
    }

    /// A tool at a tool server.
    #[must_use]
    pub fn of_tool(server: &str, tool: &str, family: &str, endpoint: &str) -> Self {
        Self {
            id: Self::tool_id(server, tool),
            provider: server.into(),
            family: family.into(),
            dialect: Dialect::Tool,
            model: Arc::from(""),
            credential: Arc::from(""),
            endpoint: endpoint.into(),
            capabilities: Capabilities::default(),
            system_prompt: None,
        }
    }

    /// Returns the tool that it is, by its name at its server; `None` for a model.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        let name = self
            .id
            .as_str()
            .strip_prefix(&*self.provider)?
            .strip_prefix('/')?;
        (self.dialect == Dialect::Tool).then_some(name)
    }
}
