//! Turns one step of a script into what a provider would return: an error, or a stream of deltas in
//! time.
//!
//! The words of a completion are its tokens: they are counted and paced as such.

use std::{sync::Arc, time::Duration};

use async_stream::try_stream;
use serde_json::Value;

use super::script::{AnswerStep, Malformed, StatusStep, Step, ToolCallStep, UsageStep};
use crate::domain::{
    completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
    failure::{ProviderError, Surface, TransportFault},
    message::{Message, ModelCall, Part, Role},
    wire::{DeltaStream, ProviderRequest},
};

/// Answer used if a script specifies none.
const ECHO: &str = "You said: \"{user}\". This is the embedded model; it needs no network and no key, and it answers \
                    like this until a real provider is configured.";

/// End of a played completion.
enum PlayEnd {
    Finish {
        reason: FinishReason,
        usage: UsageStep,
    },
    Silence,
    Fault(TransportFault, String),
}

/// Block of a played completion, word by word.
struct PlayedBlock {
    kind: BlockKind,
    words: Vec<String>,
    /// If set, it is whole at the end.
    stops: bool,
}

/// Plays one step; resolves when the response head would have come.
pub(super) async fn play(
    step: Step,
    informed: bool,
    call: &ProviderRequest,
) -> Result<DeltaStream, ProviderError> {
    let provider = Arc::clone(&call.target.family);
    match step {
        Step::Answer(answer) => Ok(answer_stream(&answer, call)),
        Step::SlowFirstToken(slow) => {
            let first_token_after = slow.answer.first_token_after.saturating_add(slow.after);
            Ok(answer_stream(
                &AnswerStep {
                    first_token_after,
                    ..slow.answer
                },
                call,
            ))
        }
        Step::Timeout => std::future::pending().await,
        Step::Status(status) => Err(status_error(provider, status)),
        Step::Reset => Err(ProviderError::transport(
            provider,
            TransportFault::Reset,
            "connection reset by peer",
        )),
        Step::Crash => Err(ProviderError::transport(
            provider,
            TransportFault::ProcessExited,
            "the process exited: signal 9",
        )),
        Step::Stall(at) => {
            let blocks = vec![PlayedBlock::text(BlockKind::Text, &at.after_text, false)];
            Ok(stream(call, blocks, PlaySpeed::AtOnce, PlayEnd::Silence))
        }
        Step::Cut(at) => {
            let blocks = vec![PlayedBlock::text(BlockKind::Text, &at.after_text, false)];
            let message = "the answer ended without its end mark".to_owned();
            Ok(stream(
                call,
                blocks,
                PlaySpeed::AtOnce,
                PlayEnd::Fault(TransportFault::Cut, message),
            ))
        }
        Step::Malformed(kind) => malformed(kind, call),
        Step::WhenTold(choice) => {
            let chosen = if informed {
                *choice.then
            } else {
                *choice.otherwise
            };
            Box::pin(play(chosen, informed, call)).await
        }
    }
}

fn malformed(kind: Malformed, call: &ProviderRequest) -> Result<DeltaStream, ProviderError> {
    let provider = Arc::clone(&call.target.family);
    match kind {
        Malformed::ToolArguments => {
            let name = call
                .call
                .tools
                .first()
                .map_or_else(|| "lookup".to_owned(), |tool| tool.name.clone());
            let message = format!(
                "tool call `{name}`: arguments are not JSON: EOF while parsing a string at line 1 column 14"
            );
            let kind = BlockKind::ToolCall {
                id: "call_1".to_owned(),
                name,
            };
            let blocks = vec![PlayedBlock::text(kind, "{\"query\": \"unf", false)];
            Ok(stream(
                call,
                blocks,
                PlaySpeed::AtOnce,
                PlayEnd::Fault(TransportFault::Protocol, message),
            ))
        }
        Malformed::NotJson => Err(ProviderError {
            provider,
            surface: Surface::Http,
            status: Some(200),
            body: Some("<html><body>It works!</body></html>".to_owned()),
            fault: Some(TransportFault::Protocol),
            ..ProviderError::default()
        }),
        Malformed::Empty => Err(ProviderError {
            provider,
            surface: Surface::Http,
            status: Some(200),
            message: Some("the answer is empty".to_owned()),
            fault: Some(TransportFault::Protocol),
            ..ProviderError::default()
        }),
    }
}

fn status_error(provider: Arc<str>, status: StatusStep) -> ProviderError {
    ProviderError {
        provider,
        surface: Surface::Http,
        status: Some(status.code),
        headers: status
            .headers
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect(),
        body: match status.body {
            Value::Null => None,
            body => Some(as_written(&body)),
        },
        ..ProviderError::default()
    }
}

fn answer_stream(answer: &AnswerStep, call: &ProviderRequest) -> DeltaStream {
    let mut blocks = Vec::new();
    if !answer.reasoning.is_empty() {
        blocks.push(PlayedBlock::text(
            BlockKind::Reasoning,
            &answer.reasoning,
            true,
        ));
    }
    let text = match &answer.text {
        Some(text) => text.as_str(),
        None if answer.tool_calls.is_empty() => ECHO,
        None => "",
    };
    let text = text
        .replace("{user}", &last_user_text(&call.call))
        .replace("{model}", &call.target.model);
    if !text.is_empty() {
        blocks.push(PlayedBlock::text(BlockKind::Text, &text, true));
    }
    for (number, tool) in (1..).zip(&answer.tool_calls) {
        blocks.push(PlayedBlock::tool_call(number, tool));
    }
    let pace = PlaySpeed::Of {
        first: answer.first_token_after,
        tokens_per_second: answer.tokens_per_second,
    };
    let implied = if answer.tool_calls.is_empty() {
        FinishReason::Stop
    } else {
        FinishReason::ToolCalls
    };
    let reason = answer.finish.unwrap_or(implied);
    stream(
        call,
        blocks,
        pace,
        PlayEnd::Finish {
            reason,
            usage: answer.usage,
        },
    )
}

#[derive(Clone, Copy)]
enum PlaySpeed {
    AtOnce,
    Of {
        first: Duration,
        tokens_per_second: f64,
    },
}

fn stream(
    call: &ProviderRequest,
    blocks: Vec<PlayedBlock>,
    pace: PlaySpeed,
    ending: PlayEnd,
) -> DeltaStream {
    let start = Delta::Start {
        model: Some(call.target.model.to_string()),
        response_id: Some(format!("scripted-{}-{}", call.invocation, call.attempt)),
        headers: Vec::new(),
    };
    let provider = Arc::clone(&call.target.family);
    let input_words = input_words(&call.call);
    Box::pin(try_stream! {
        yield start;
        let mut sent_words = 0_u64;
        for (block, played) in (0_u32..).zip(blocks) {
            pace.wait(sent_words == 0).await;
            yield Delta::BlockStart { block, kind: played.kind };
            for (position, text) in played.words.into_iter().enumerate() {
                if position > 0 {
                    pace.wait(false).await;
                }
                sent_words += 1;
                yield Delta::BlockDelta { block, text };
            }
            if played.stops {
                yield Delta::BlockStop { block, opaque: None };
            }
        }
        match ending {
            PlayEnd::Silence => std::future::pending::<()>().await,
            PlayEnd::Fault(fault, message) => {
                let error = ProviderError { surface: Surface::Stream, ..ProviderError::transport(provider, fault, message) };
                Err(error)?;
            }
            PlayEnd::Finish { reason, usage } => {
                if sent_words == 0 {
                    pace.wait(true).await;
                }
                if let Some(usage) = reported_usage(usage, input_words, sent_words) {
                    yield Delta::Usage(usage);
                }
                yield Delta::Finish { reason, raw: reason.as_str().to_owned() };
            }
        }
    })
}

// === impl PlaySpeed ===

impl PlaySpeed {
    async fn wait(self, is_first: bool) {
        let wait = match self {
            Self::Of { first, .. } if is_first => first,
            Self::Of {
                tokens_per_second, ..
            } if tokens_per_second > 0.0 => {
                Duration::try_from_secs_f64(1.0 / tokens_per_second).unwrap_or(Duration::ZERO)
            }
            Self::AtOnce | Self::Of { .. } => Duration::ZERO,
        };
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        }
    }
}

// === impl PlayedBlock ===

impl PlayedBlock {
    fn text(kind: BlockKind, text: &str, stops: bool) -> Self {
        Self {
            kind,
            words: text.split_inclusive(' ').map(str::to_owned).collect(),
            stops,
        }
    }

    fn tool_call(number: u32, call: &ToolCallStep) -> Self {
        let arguments = match &call.arguments {
            Value::Null => "{}".to_owned(),
            arguments => as_written(arguments),
        };
        Self::text(
            BlockKind::ToolCall {
                id: format!("call_{number}"),
                name: call.name.clone(),
            },
            &arguments,
            true,
        )
    }
}

fn as_written(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn reported_usage(usage: UsageStep, input_tokens: u64, output_tokens: u64) -> Option<Usage> {
    let exactness = match usage {
        UsageStep::Exact => Exactness::Exact,
        UsageStep::Estimated => Exactness::Estimated,
        UsageStep::None => return None,
    };
    Some(Usage {
        input_tokens,
        output_tokens,
        exactness,
        ..Usage::default()
    })
}

fn last_user_text(call: &ModelCall) -> String {
    let from_user = call
        .messages
        .iter()
        .rev()
        .find(|message| message.role == Role::User);
    from_user
        .map(Message::joined_text)
        .unwrap_or_default()
        .into_owned()
}

fn input_words(call: &ModelCall) -> u64 {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    let words = parts.map(|part| match part {
        Part::Text(text) | Part::Refusal(text) => text.split_whitespace().count(),
        Part::ToolResult(result) => result.content.split_whitespace().count(),
        Part::ToolCall(made) => made.arguments.split_whitespace().count(),
        Part::Reasoning(reasoning) => reasoning.text.split_whitespace().count(),
        Part::Image(_) | Part::File(_) => 0,
    });
    words.map(|count| count as u64).sum()
}
