//! The parameters that a caller may ask for, in each protocol of callers and in each dialect of
//! providers: one closed table, which `docs/dialects.md` shows.

use crate::domain::{
    message::{Message, ModelCall, Part, ResponseFormat, Role, ToolChoice},
    own_fields,
    target::Dialect,
};

/// The dialects of providers, in the order of the table's columns.
pub const DIALECTS: [Dialect; 5] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Bedrock,
];

/// The handling of a parameter in one dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Handling {
    /// It is in the request, in the dialect's own words.
    Sent,
    /// It is obtained in another way, and the caller is informed.
    Emulated,
    /// It is not in the request, and the caller is informed.
    Missing,
    /// It is a label of the invocation, and not in the request.
    Label,
    /// Every front refuses it by its name.
    Refused,
}

/// A parameter, or one kind of its values, as the neutral call holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallParameter {
    /// The longest answer.
    MaxOutputTokens,
    /// Sampling temperature.
    Temperature,
    /// Nucleus sampling.
    TopP,
    /// The number of most likely tokens to sample from.
    TopK,
    /// Texts at which the model stops.
    Stop,
    /// Best-effort determinism.
    Seed,
    /// Penalty on frequent tokens.
    FrequencyPenalty,
    /// Penalty on tokens that occurred already.
    PresencePenalty,
    /// The amount of reasoning, in a word that every dialect has.
    ReasoningEffort,
    /// The same, in a word beyond the levels of some dialect.
    ExtremeEffort,
    /// The demand that at most one tool is called at once.
    OneToolAtOnce,
    /// The demand that no tool is called.
    NoTool,
    /// The demand that some tool is called.
    AnyTool,
    /// The demand that this tool is called.
    NamedTool,
    /// A completion in JSON.
    JsonObject,
    /// A completion in JSON that satisfies a schema.
    JsonSchema,
    /// The demand that a tool's arguments are held to its schema while they are written.
    StrictTool,
    /// Instructions of the operator's within the conversation.
    LaterInstructions,
    /// The author's name among several of one role.
    SpeakerName,
    /// The detail in which the model looks at an image.
    ImageDetail,
    /// Marks up to which a provider is to keep what it read.
    CacheMarks,
    /// Betas of the Messages API.
    Betas,
    /// A field of `extra`.
    Extra(&'static str),
    /// One that no provider sees.
    Internal,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ParameterRow {
    /// The parameter.
    pub parameter: CallParameter,
    /// Its name in reports and on the page.
    pub name: &'static str,
    /// Its field in chat completions, the Messages API, the Responses API and the contract. Empty:
    /// the protocol has no such field, and one of that name is like any other field that is not
    /// read (it goes to the protocol's own dialect, and is reported for another).
    pub fields: [&'static str; 4],
    /// Its handling, by the dialect's place in [`DIALECTS`].
    pub dialects: [Handling; 5],
}

const S: Handling = Handling::Sent;
const E: Handling = Handling::Emulated;
const M: Handling = Handling::Missing;
const L: Handling = Handling::Label;
const R: Handling = Handling::Refused;

/// The whole table.
pub static TABLE: [ParameterRow; 43] = {
    use CallParameter as P;
    [
        row(
            P::MaxOutputTokens,
            "max_tokens",
            [
                "max_completion_tokens",
                "max_tokens",
                "max_output_tokens",
                "max_output_tokens",
            ],
            [S, S, S, S, S],
        ),
        row(
            P::Temperature,
            "temperature",
            [
                "temperature",
                "temperature",
                "temperature",
                "sampling.temperature",
            ],
            [S, S, S, S, S],
        ),
        row(
            P::TopP,
            "top_p",
            ["top_p", "top_p", "top_p", "sampling.top_p"],
            [S, S, S, S, S],
        ),
        row(
            P::TopK,
            "top_k",
            ["top_k", "top_k", "", "sampling.top_k"],
            [S, M, S, S, M],
        ),
        row(
            P::Stop,
            "stop",
            ["stop", "stop_sequences", "", "stop"],
            [S, E, S, S, S],
        ),
        row(
            P::Seed,
            "seed",
            ["seed", "", "", "sampling.seed"],
            [S, M, M, S, M],
        ),
        row(
            P::FrequencyPenalty,
            "frequency_penalty",
            ["frequency_penalty", "", "", "sampling.frequency_penalty"],
            [S, M, M, S, M],
        ),
        row(
            P::PresencePenalty,
            "presence_penalty",
            ["presence_penalty", "", "", "sampling.presence_penalty"],
            [S, M, M, S, M],
        ),
        row(
            P::ReasoningEffort,
            "reasoning_effort",
            EFFORT,
            [S, S, S, S, M],
        ),
        row(
            P::ExtremeEffort,
            "reasoning_effort none, xhigh, max",
            EFFORT,
            [S, S, S, E, M],
        ),
        row(
            P::OneToolAtOnce,
            "parallel_tool_calls false",
            [
                "parallel_tool_calls",
                "tool_choice.disable_parallel_tool_use",
                "parallel_tool_calls",
                "parallel_tool_calls",
            ],
            [S, S, S, M, M],
        ),
        row(P::NoTool, "tool_choice none", CHOICE, [S, S, S, S, E]),
        row(P::AnyTool, "tool_choice required", CHOICE, [S, S, S, S, S]),
        row(P::NamedTool, "tool_choice by name", CHOICE, [S, S, S, S, S]),
        row(
            P::JsonObject,
            "response_format json_object",
            ["response_format", "", "text.format", "response_format"],
            [S, S, E, S, E],
        ),
        row(
            P::JsonSchema,
            "response_format json_schema",
            [
                "response_format",
                "output_config.format",
                "text.format",
                "response_format",
            ],
            [S, S, S, S, E],
        ),
        row(
            P::StrictTool,
            "strict",
            [
                "tools[].function.strict",
                "tools[].strict",
                "tools[].strict",
                "tools[].strict",
            ],
            [S, S, S, M, M],
        ),
        row(
            P::LaterInstructions,
            "later system message",
            [
                "messages[].role",
                "messages[].role",
                "input[].role",
                "messages[].role",
            ],
            [S, S, E, E, E],
        ),
        row(
            P::SpeakerName,
            "message name",
            ["messages[].name", "", "", "messages[].name"],
            [S, M, M, M, M],
        ),
        row(
            P::ImageDetail,
            "image detail",
            [
                "image_url.detail",
                "",
                "input_image.detail",
                "ImagePart.detail",
            ],
            [S, S, M, M, M],
        ),
        row(
            P::CacheMarks,
            "cache_control",
            ["", "cache_control", "", ""],
            [M, M, S, M, M],
        ),
        row(
            P::Betas,
            "anthropic-beta",
            ["", "anthropic-beta", "", ""],
            [M, M, S, M, M],
        ),
        hint("logit_bias", "extra.logit_bias", [S, M, M, M, M]),
        hint("prediction", "extra.prediction", [S, M, M, M, M]),
        shared("verbosity", "text.verbosity", "extra.verbosity"),
        shared(
            "prompt_cache_key",
            "prompt_cache_key",
            "extra.prompt_cache_key",
        ),
        shared(
            "prompt_cache_retention",
            "prompt_cache_retention",
            "extra.prompt_cache_retention",
        ),
        shared(
            "safety_identifier",
            "safety_identifier",
            "extra.safety_identifier",
        ),
        hint("store", "extra.store", [S, S, M, M, M]),
        hint("service_tier", "extra.service_tier", [S, S, S, M, M]),
        row(
            P::Internal,
            "metadata",
            ["metadata", "", "metadata", "labels"],
            [L; 5],
        ),
        row(P::Internal, "user", ["user", "", "user", "labels"], [L; 5]),
        row(P::Internal, "n above 1", ["n", "", "", "extra.n"], [R; 5]),
        row(
            P::Internal,
            "log probabilities",
            ["logprobs", "", "include", "extra.logprobs"],
            [R; 5],
        ),
        row(
            P::Internal,
            "top_logprobs",
            ["top_logprobs", "", "top_logprobs", "extra.top_logprobs"],
            [R; 5],
        ),
        row(P::Internal, "audio", ["audio", "", "", ""], [R; 5]),
        row(
            P::Internal,
            "background",
            ["background", "", "background", ""],
            [R; 5],
        ),
        row(
            P::Internal,
            "modalities",
            ["modalities", "", "", ""],
            [R; 5],
        ),
        row(P::Internal, "functions", ["functions", "", "", ""], [R; 5]),
        row(
            P::Internal,
            "function_call",
            ["function_call", "", "", ""],
            [R; 5],
        ),
        row(
            P::Internal,
            "conversation",
            ["", "", "conversation", ""],
            [R; 5],
        ),
        row(P::Internal, "prompt", ["", "", "prompt", ""], [R; 5]),
        row(
            P::Internal,
            "max_tool_calls",
            ["", "", "max_tool_calls", ""],
            [R; 5],
        ),
    ]
};

const EFFORT: [&str; 4] = [
    "reasoning_effort",
    "output_config.effort",
    "reasoning.effort",
    "reasoning_effort",
];
const CHOICE: [&str; 4] = ["tool_choice"; 4];
/// Efforts that some dialect has no level for.
const EXTREME_EFFORTS: [&str; 3] = ["none", "xhigh", "max"];

const fn row(
    parameter: CallParameter,
    name: &'static str,
    fields: [&'static str; 4],
    dialects: [Handling; 5],
) -> ParameterRow {
    ParameterRow {
        parameter,
        name,
        fields,
        dialects,
    }
}

/// Returns a field of chat completions that the neutral call has in `extra`.
const fn hint(
    name: &'static str,
    in_contract: &'static str,
    dialects: [Handling; 5],
) -> ParameterRow {
    let fields = [name, "", "", in_contract];
    row(CallParameter::Extra(name), name, fields, dialects)
}

/// Returns such a field that the Responses API has as well.
const fn shared(
    name: &'static str,
    in_responses: &'static str,
    in_contract: &'static str,
) -> ParameterRow {
    let fields = [name, "", in_responses, in_contract];
    row(CallParameter::Extra(name), name, fields, [S, S, M, M, M])
}

/// Returns whether a message is the operator's, and another one's is before it.
pub(super) fn is_later(messages: &[Message], place: usize) -> bool {
    let is_operators = |message: &Message| message.role.is_operator();
    is_operators(&messages[place]) && !messages[..place].iter().all(is_operators)
}

// === impl ParameterRow ===

impl ParameterRow {
    /// Returns its handling in this dialect.
    #[must_use]
    pub fn handling(&self, dialect: Dialect) -> Handling {
        let mut columns = DIALECTS.into_iter().zip(self.dialects);
        columns
            .find(|(column, _)| *column == dialect)
            .map_or(Handling::Sent, |(_, handling)| handling)
    }
}

// === impl CallParameter ===

impl CallParameter {
    /// Returns whether the call has it.
    #[must_use]
    pub fn is_in(self, call: &ModelCall) -> bool {
        let sampling = &call.sampling;
        let effort = |is_extreme: bool| {
            let effort = call.reasoning_effort.as_deref();
            effort.is_some_and(|effort| EXTREME_EFFORTS.contains(&effort) == is_extreme)
        };
        // A choice among no tools asks for nothing.
        let choice =
            |is_it: fn(&ToolChoice) -> bool| !call.tools.is_empty() && is_it(&call.tool_choice);
        let message = |is_it: fn(&Message) -> bool| call.messages.iter().any(is_it);
        match self {
            Self::MaxOutputTokens => call.max_output_tokens.is_some(),
            Self::Temperature => sampling.temperature.is_some(),
            Self::TopP => sampling.top_p.is_some(),
            Self::TopK => sampling.top_k.is_some(),
            Self::Stop => !call.stop.is_empty(),
            Self::Seed => sampling.seed.is_some(),
            Self::FrequencyPenalty => sampling.frequency_penalty.is_some(),
            Self::PresencePenalty => sampling.presence_penalty.is_some(),
            Self::ReasoningEffort => effort(false),
            Self::ExtremeEffort => effort(true),
            // Several calls at once are what a dialect without a place for it allows anyway.
            Self::OneToolAtOnce => {
                call.parallel_tool_calls == Some(false) && choice(|it| *it != ToolChoice::None)
            }
            Self::NoTool => choice(|it| *it == ToolChoice::None),
            Self::AnyTool => choice(|it| *it == ToolChoice::Required),
            Self::NamedTool => choice(|it| matches!(it, ToolChoice::Tool(_))),
            Self::JsonObject => call.response_format == ResponseFormat::JsonObject,
            Self::JsonSchema => matches!(call.response_format, ResponseFormat::JsonSchema { .. }),
            Self::StrictTool => call.tools.iter().any(|tool| tool.strict == Some(true)),
            Self::LaterInstructions => {
                (0..call.messages.len()).any(|place| is_later(&call.messages, place))
            }
            Self::SpeakerName => message(|it| it.role != Role::Tool && it.name.is_some()),
            Self::ImageDetail => message(|it| it.parts.iter().any(has_detail)),
            Self::CacheMarks => {
                const MARK: &str = "cache_control";
                let mut tools = call.tools.iter();
                message(|it| !it.cache_marks.is_empty())
                    || tools.any(|tool| {
                        let own = tool.own.as_ref();
                        own_fields::fields_in(Dialect::Anthropic, own).contains_key(MARK)
                    })
                    || call.extra_of.is_some() && call.extra.contains_key(MARK)
            }
            Self::Betas => !call.betas.is_empty(),
            Self::Extra(name) => call.extra.contains_key(name),
            Self::Internal => false,
        }
    }
}

/// Returns whether the part is an image with a demand for its detail beyond the default.
fn has_detail(part: &Part) -> bool {
    let Part::Image(media) = part else {
        return false;
    };
    media
        .detail
        .as_deref()
        .is_some_and(|detail| detail != "auto")
}
