//! Changes to a request that a target rejected, so that the target accepts it: one small, named
//! change at a time.
//!
//! A rejection that names the unsupported field is worth one more attempt without it. The shape
//! of the completion (tools, the response format, stop sequences) is never changed: the caller would get
//! something other than requested.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::message::{Message, ModelCall, Part, Role};

/// One change to a request, made because its target rejected the original.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Adaptation {
    /// A parameter is removed.
    #[serde(rename = "leave_out")]
    DropParameter {
        /// The parameter that is removed.
        parameter: Parameter,
    },
    /// A field that the caller put into `extra` is removed.
    #[serde(rename = "leave_out_extra")]
    DropExtra {
        /// The field's name.
        field: String,
    },
    /// The output limit is sent under another field name.
    OutputLimitField {
        /// The name that the target accepts.
        field: OutputLimitField,
    },
    /// The output limit gets another value.
    OutputLimit {
        /// Requested limit, in tokens; `None` if the dialect's default applied.
        from: Option<u32>,
        /// The largest limit that the target accepts, in tokens.
        to: u32,
    },
    /// Signed reasoning of earlier turns is removed.
    #[serde(rename = "leave_out_reasoning")]
    DropReasoning,
    /// Developer messages are sent as system messages.
    DeveloperAsSystem,
    /// The completion is requested as a stream and not as a document.
    AsStream,
}

/// A request parameter that may be removed without changing the shape of the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Parameter {
    /// Sampling temperature.
    Temperature,
    /// Nucleus sampling: the share of probability mass to sample from.
    TopP,
    /// The number of most likely tokens to sample from.
    TopK,
    /// Seed for best-effort determinism.
    Seed,
    /// Penalty on frequent tokens.
    FrequencyPenalty,
    /// Penalty on tokens that occurred already.
    PresencePenalty,
    /// Effort with which the model reasons.
    ReasoningEffort,
    /// Permission for several tool calls at once; a request for at most one is never removed.
    ParallelToolCalls,
    /// The demand that the arguments of tools are held to their schemas while they are written; they
    /// are checked here in any case.
    #[serde(rename = "strict")]
    #[strum(serialize = "strict")]
    StrictTools,
    /// Relight's own request that a stream end with its usage.
    #[strum(serialize = "stream_options")]
    StreamUsage,
}

/// The field names of the output limit in chat completions.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OutputLimitField {
    /// The current name, the only one that reasoning models take.
    MaxCompletionTokens,
    /// The old name, the only one that most compatible servers know.
    MaxTokens,
}

/// Deviations of one target from its dialect; changes beyond these are made to the call itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DialectOverrides {
    /// Field name of the output limit, if it is not the usual one.
    pub output_limit_field: Option<OutputLimitField>,
    /// If set, `include_usage` is not requested for streams.
    pub without_stream_usage: bool,
    /// If set, developer messages are sent as system messages.
    pub developer_as_system: bool,
}

// === impl Adaptation ===

impl Adaptation {
    /// Returns whether both change the same thing; each thing is changed at most once.
    #[must_use]
    pub fn same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OutputLimit { .. }, Self::OutputLimit { .. })
            | (Self::OutputLimitField { .. }, Self::OutputLimitField { .. }) => true,
            _ => self == other,
        }
    }

    /// Makes the change to a call, as far as it concerns the call.
    pub fn change(&self, call: &mut ModelCall) {
        match self {
            Self::DropParameter { parameter } => parameter.leave_out(call),
            Self::DropExtra { field } => {
                call.extra.remove(field);
            }
            Self::OutputLimit { to, .. } => call.max_output_tokens = Some(*to),
            Self::DropReasoning => call.messages.retain_mut(strip_signed_reasoning),
            Self::OutputLimitField { .. } | Self::DeveloperAsSystem | Self::AsStream => {}
        }
    }

    /// Makes the change to a target's overrides, as far as it concerns them.
    pub fn apply(&self, wording: &mut DialectOverrides) {
        match self {
            Self::OutputLimitField { field } => wording.output_limit_field = Some(*field),
            Self::DropParameter {
                parameter: Parameter::StreamUsage,
            } => wording.without_stream_usage = true,
            Self::DeveloperAsSystem => wording.developer_as_system = true,
            Self::DropParameter { .. }
            | Self::DropExtra { .. }
            | Self::OutputLimit { .. }
            | Self::DropReasoning
            | Self::AsStream => {}
        }
    }
}

impl fmt::Display for Adaptation {
    /// Writes the change in a few words; used in events, spans and responses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropParameter { parameter } => write!(f, "{} was left out", parameter.as_str()),
            Self::DropExtra { field } => write!(f, "{field} was left out"),
            Self::OutputLimitField { field } => {
                write!(f, "the output limit was sent as {}", field.as_str())
            }
            Self::OutputLimit {
                from: Some(from),
                to,
            } => {
                let how = if to < from { "lowered" } else { "raised" };
                write!(f, "the output limit was {how} from {from} to {to} tokens")
            }
            Self::OutputLimit { from: None, to } => {
                write!(f, "the output limit was set to {to} tokens")
            }
            Self::DropReasoning => {
                f.write_str("signed reasoning and unknown fields of earlier turns were left out")
            }
            Self::DeveloperAsSystem => {
                f.write_str("developer messages were sent as system messages")
            }
            Self::AsStream => f.write_str("the completion was requested as a stream"),
        }
    }
}

// === impl Parameter ===

impl Parameter {
    /// Every parameter.
    pub const ALL: [Self; 10] = [
        Self::Temperature,
        Self::TopP,
        Self::TopK,
        Self::Seed,
        Self::FrequencyPenalty,
        Self::PresencePenalty,
        Self::ReasoningEffort,
        Self::ParallelToolCalls,
        Self::StrictTools,
        Self::StreamUsage,
    ];

    /// Returns the parameter's name in snake case, which most dialects have for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether a call holds it, so that it can be left out.
    #[must_use]
    pub fn is_in(self, call: &ModelCall) -> bool {
        let sampling = &call.sampling;
        match self {
            Self::Temperature => sampling.temperature.is_some(),
            Self::TopP => sampling.top_p.is_some(),
            Self::TopK => sampling.top_k.is_some(),
            Self::Seed => sampling.seed.is_some(),
            Self::FrequencyPenalty => sampling.frequency_penalty.is_some(),
            Self::PresencePenalty => sampling.presence_penalty.is_some(),
            Self::ReasoningEffort => call.reasoning_effort.is_some(),
            Self::ParallelToolCalls => call.parallel_tool_calls == Some(true),
            Self::StrictTools => call.tools.iter().any(|tool| tool.strict == Some(true)),
            // Relight adds this to every stream.
            Self::StreamUsage => true,
        }
    }

    fn leave_out(self, call: &mut ModelCall) {
        let sampling = &mut call.sampling;
        match self {
            Self::Temperature => sampling.temperature = None,
            Self::TopP => sampling.top_p = None,
            Self::TopK => sampling.top_k = None,
            Self::Seed => sampling.seed = None,
            Self::FrequencyPenalty => sampling.frequency_penalty = None,
            Self::PresencePenalty => sampling.presence_penalty = None,
            Self::ReasoningEffort => call.reasoning_effort = None,
            Self::ParallelToolCalls => call.parallel_tool_calls = None,
            Self::StrictTools => {
                for tool in &mut call.tools {
                    tool.strict = None;
                }
            }
            Self::StreamUsage => {}
        }
    }
}

// === impl OutputLimitField ===

impl OutputLimitField {
    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Removes signed reasoning from a message, and fields that only one dialect knows; returns `false`
/// if nothing is left of the message.
fn strip_signed_reasoning(message: &mut Message) -> bool {
    if message.role != Role::Assistant {
        drop(message.take_parts(Part::is_fields));
        return true;
    }
    let had_parts = !message.parts.is_empty();
    drop(message.take_parts(
        |part| matches!(part, Part::Reasoning(reasoning) if reasoning.opaque.is_some()),
    ));
    for part in &mut message.parts {
        if let Part::ToolCall(call) = part {
            call.opaque = None;
        }
    }
    !(had_parts && message.parts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::{Opaque, Reasoning, ToolCall, ToolDefinition};

    #[test]
    fn a_removed_parameter_is_no_longer_in_the_call() {
        let tool = |strict| ToolDefinition {
            strict,
            ..ToolDefinition::default()
        };
        let mut call = ModelCall {
            tools: vec![tool(Some(true))],
            parallel_tool_calls: Some(true),
            reasoning_effort: Some("low".to_owned()),
            ..ModelCall::default()
        };
        call.sampling.temperature = Some(0.5);
        call.sampling.top_p = Some(0.5);
        call.sampling.top_k = Some(5);
        call.sampling.seed = Some(5);
        call.sampling.frequency_penalty = Some(0.5);
        call.sampling.presence_penalty = Some(0.5);
        let mut wording = DialectOverrides::default();
        for parameter in Parameter::ALL {
            assert!(parameter.is_in(&call), "{parameter:?}");
            let change = Adaptation::DropParameter { parameter };
            change.change(&mut call);
            change.apply(&mut wording);
            assert_eq!(
                parameter.is_in(&call),
                parameter == Parameter::StreamUsage,
                "{parameter:?}"
            );
        }
        let bare = ModelCall {
            tools: vec![tool(None)],
            ..ModelCall::default()
        };
        assert_eq!(call, bare);
        assert!(wording.without_stream_usage);
    }

    #[test]
    fn removing_signed_reasoning_keeps_the_rest_of_the_turn() {
        let opaque = Some(Opaque {
            kind: "x".to_owned(),
            bytes: vec![1],
        });
        let signed = Part::Reasoning(Reasoning {
            text: "hm".to_owned(),
            opaque: opaque.clone(),
        });
        let call = |opaque| ToolCall {
            id: "a".into(),
            name: "f".into(),
            arguments: "{}".into(),
            opaque,
        };
        let turn = |parts| Message::new(Role::Assistant, parts);
        let mut request = ModelCall {
            messages: vec![
                Message::text(Role::User, "Hi"),
                turn(vec![
                    signed.clone(),
                    Part::Text("So.".into()),
                    Part::ToolCall(call(opaque)),
                ]),
                turn(vec![signed]),
            ],
            ..ModelCall::default()
        };
        Adaptation::DropReasoning.change(&mut request);
        let left = turn(vec![Part::Text("So.".into()), Part::ToolCall(call(None))]);
        assert_eq!(request.messages, [Message::text(Role::User, "Hi"), left]);
    }

    #[test]
    fn a_change_is_described_and_is_not_made_twice() {
        let lower = Adaptation::OutputLimit {
            from: Some(100_000),
            to: 8192,
        };
        let higher = Adaptation::OutputLimit {
            from: Some(1),
            to: 16,
        };
        assert_eq!(
            lower.to_string(),
            "the output limit was lowered from 100000 to 8192 tokens"
        );
        assert_eq!(
            higher.to_string(),
            "the output limit was raised from 1 to 16 tokens"
        );
        assert!(lower.same_kind(&higher));
        let without = |parameter| Adaptation::DropParameter { parameter };
        assert!(!without(Parameter::TopP).same_kind(&without(Parameter::Temperature)));
        assert_eq!(
            without(Parameter::Temperature).to_string(),
            "temperature was left out"
        );
    }
}
