//! The scenes of `relight demo --provider`: one provider fails in its own words, over its own wire.
//!
//! The wires are scripted servers on real sockets, the rest is Relight as it serves. Each promise is checked against what
//! the caller got and against what the wire saw, so that the demo cannot show what is not so.

use std::io;

use crate::{
    domain::target::Dialect,
    grpc::v1::{FailureClass, FinishReason, RecoveryStrategy, WaitSource, invoke_with_recovery_response::Outcome},
    wire_server::{
        Request, WireServer,
        answers::{self, Answers},
    },
};
use clap::ValueEnum;
use serde_json::Value;

use super::{
    scenes::{Scene, TOOL, all_answered, ensure, failed_by, two_attempts},
    stage::Played,
};

/// The configuration, with places to fill in.
const CONFIG: &str = include_str!("wires.yaml");

const STORY: &str =
    "Sunlight is made of all colours. Air scatters the blue ones most, so blue reaches us from everywhere.";

/// Whose wire is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Provider {
    /// Chat completions.
    Openai,
    /// The Responses API.
    Responses,
    /// Anthropic's Messages API.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// AWS Bedrock's Converse API.
    Bedrock,
}

/// A wire that breaks, and one that does not.
pub(super) struct Wires {
    provider: Provider,
    main: WireServer,
    spare: WireServer,
}

// === impl Provider ===

impl Provider {
    /// The provider's name for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Openai => "OpenAI (chat completions)",
            Self::Responses => "OpenAI (Responses)",
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::Bedrock => "Bedrock",
        }
    }

    const fn dialect(self) -> Dialect {
        match self {
            Self::Openai => Dialect::OpenaiChat,
            Self::Responses => Dialect::OpenaiResponses,
            Self::Anthropic => Dialect::Anthropic,
            Self::Gemini => Dialect::Gemini,
            Self::Bedrock => Dialect::Bedrock,
        }
    }

    /// The family, the model, and what its API begins with behind the host.
    const fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Openai | Self::Responses => ("openai", "gpt-5", "/v1"),
            Self::Anthropic => ("anthropic", "claude-haiku-4-5", ""),
            Self::Gemini => ("gemini", "gemini-2.5-flash", "/v1beta"),
            Self::Bedrock => ("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", ""),
        }
    }

    /// What is asked for, in tokens, that this provider's `unfit` does not take.
    const fn unfit_limit(self) -> u32 {
        match self {
            Self::Responses => 8,
            Self::Openai | Self::Anthropic | Self::Gemini | Self::Bedrock => 100_000,
        }
    }

    /// The scenes of this wire, in their order.
    pub(super) fn scenes(self) -> Vec<Scene> {
        let mut scenes = SCENES.to_vec();
        for scene in &mut scenes {
            if scene.name == "unfit" {
                scene.max_output_tokens = Some(self.unfit_limit());
            }
        }
        if self == Self::Bedrock {
            // AWS never says for how long.
            scenes[0].promise = limit_is_waited_out;
            scenes[0].story = "The refusal is in AWS's own words, which state no wait: Relight backs off by its own.";
            scenes[0].moral = "Backed off by its own, then answered.";
        }
        scenes
    }
}

// === impl Wires ===

impl Wires {
    /// Starts both wires.
    pub(super) async fn start(provider: Provider) -> io::Result<Self> {
        let wires = Self { provider, main: WireServer::start().await?, spare: WireServer::start().await? };
        let text = wires.answers().text;
        wires.main.otherwise(move |_| text(STORY));
        wires.spare.otherwise(move |_| text("The spare answers."));
        Ok(wires)
    }

    /// The configuration that leads to them.
    pub(super) fn config(&self) -> String {
        let (family, model, path) = self.provider.place();
        let url = |server: &WireServer| format!("http://{}{path}", server.address());
        let dialect = self.provider.dialect().as_str();
        let places = [("{dialect}", dialect), ("{family}", family), ("{model}", model)];
        let text = places.iter().fold(CONFIG.to_owned(), |text, (place, value)| text.replace(place, value));
        text.replace("{main}", &url(&self.main)).replace("{spare}", &url(&self.spare))
    }

    /// How many requests both wires saw.
    pub(super) fn seen(&self) -> [usize; 2] {
        [self.main.requests().len(), self.spare.requests().len()]
    }

    /// What the wire that breaks saw since then, and how much the spare did.
    pub(super) fn since(&self, seen: [usize; 2]) -> (Vec<Request>, usize) {
        let main = self.main.requests().split_off(seen[0]);
        (main, self.spare.requests().len() - seen[1])
    }

    const fn answers(&self) -> Answers {
        answers::of(self.provider.dialect())
    }
}

/// What is played on every wire, in this order.
const SCENES: [Scene; 6] = [
    Scene {
        title: "The provider says 429",
        story: "It does so in its own words and states a wait, which is kept.",
        moral: "Waited as the provider said, then answered.",
        name: "rate-limit",
        route: "limited",
        question: "Why is the sky blue?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().rate_limited)());
        },
        promise: stated_wait_is_kept,
    },
    Scene {
        title: "The connection is cut in the middle of the answer",
        story: "Half of the stream came. Without this wire's own end mark that is a cut, never a short answer.",
        moral: "The caller holds the whole answer.",
        name: "cut",
        route: "alone",
        question: "Why is the sky blue?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().text)(STORY).cut_in_the_middle());
        },
        promise: cut_is_mended,
    },
    Scene {
        title: "The model botches a tool call",
        story: "Nobody can use it. Relight tells the model what was wrong, where this wire allows it, and asks again.",
        moral: "The caller never saw the broken call, only the right one.",
        name: "tool-call",
        route: "alone",
        question: "What is the weather in Oslo?",
        with_tool: true,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            let answers = wires.answers();
            wires.main.push((answers.broken_tool_call)(TOOL));
            wires.main.push((answers.tool_call)(TOOL, r#"{"city":"Oslo","unit":"celsius"}"#));
        },
        promise: tool_call_is_repaired,
    },
    Scene {
        title: "The model does not take the output limit as it was asked for",
        story: "The refusal names what it takes instead. Relight changes just that, once, and says so.",
        moral: "Answered with the one change that the provider asked for, told as ADAPT.",
        name: "unfit",
        route: "alone",
        question: "Why is the sky blue?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().unfit)());
        },
        promise: request_is_adapted,
    },
    Scene {
        title: "The model refuses to answer",
        story: "A refusal is an answer. Asking another model until one gives in is nothing that Relight does by itself.",
        moral: "Told to the caller as it came; the spare was never asked.",
        name: "refusal",
        route: "both",
        question: "How do I pick my neighbour's lock?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().refuses)());
        },
        promise: refusal_is_told,
    },
    Scene {
        title: "The provider fails inside the stream",
        story: "The status was 200 and the answer had begun; then this wire's own error event says that it is overloaded.",
        moral: "The spare answered, and nothing of the broken answer was left in it.",
        name: "in-stream-error",
        route: "both",
        question: "Why is the sky blue?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().overloaded_amid)("Sunlight is made"));
        },
        promise: spare_answers,
    },
];

fn stated_wait_is_kept(played: &Played) -> Result<(), String> {
    limit_is_waited_out(played)?;
    let [_, second] = two_attempts(played)?;
    let stated =
        [WaitSource::RetryAfter, WaitSource::RetryInfo, WaitSource::ErrorText, WaitSource::Gate].map(i32::from);
    ensure(second.wait_before_ms >= 1000, "it did not wait as long as the provider said")?;
    ensure(stated.contains(&second.wait_source), "the wait was not the provider's")
}

fn limit_is_waited_out(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(failed_by(first, FailureClass::RateLimited), "the first attempt was not rate limited")?;
    ensure(second.wait_before_ms > 0, "it did not wait")?;
    ensure(played.last_reply() == STORY, "the answer is another one")
}

fn cut_is_mended(played: &Played) -> Result<(), String> {
    let [first, _] = two_attempts(played)?;
    ensure(failed_by(first, FailureClass::StreamInterrupted), "the cut was not seen as one")?;
    ensure(played.last_reply() == STORY, "the answer is not whole")?;
    ensure(played.requests.len() == 2, "the wire did not see two requests")
}

fn spare_answers(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    let overloaded = [FailureClass::Overloaded, FailureClass::ServerError];
    ensure(overloaded.iter().any(|class| failed_by(first, *class)), "the error in the stream was not understood")?;
    ensure(second.target == "spare", "another target answered")?;
    ensure(played.last_reply() == "The spare answers.", "something of the broken answer was left")
}

fn tool_call_is_repaired(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(failed_by(first, FailureClass::MalformedResponse), "the first call was not seen as broken")?;
    ensure(!second.injected_note.is_empty(), "the model was not told")?;
    let holds_note = |request: &Request| holds_text(&request.body, &second.injected_note);
    let told: Vec<bool> = played.requests.iter().map(holds_note).collect();
    ensure(told == [false, true], "the wire did not see the note in the second request alone")?;
    ensure(played.last_reply().contains("Oslo"), "the tool call was not repaired")
}

fn request_is_adapted(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(!first.adaptation.is_empty(), "nobody is told what was changed")?;
    ensure(second.target == first.target && second.wait_before_ms == 0, "it was not asked again at once")?;
    let adapt = i32::from(RecoveryStrategy::Adapt);
    let told = played.responses.iter().all(|response| response.recovery_applied == [adapt]);
    ensure(told, "the recovery is not told as ADAPT")?;
    let [before, after] = played.requests.as_slice() else {
        return Err("the wire did not see two requests".to_owned());
    };
    ensure(before.body != after.body, "the request was not changed")
}

fn refusal_is_told(played: &Played) -> Result<(), String> {
    all_answered(played)?;
    ensure(played.attempts() == 1 && played.spare_requests == 0, "it was routed around")?;
    let refused = [FinishReason::Refusal, FinishReason::ContentFilter].map(i32::from);
    let told = played.responses.iter().all(|response| match &response.outcome {
        Some(Outcome::Completion(completion)) => refused.contains(&completion.finish_reason),
        Some(Outcome::Failure(_)) | None => false,
    });
    ensure(told, "the refusal is not told as one")
}

/// Whether a text stands in some string of a document.
fn holds_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(held) => held.contains(text) || held.contains(&escaped(text)),
        Value::Array(items) => items.iter().any(|item| holds_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| holds_text(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// As it stands in a JSON text that is itself within a string.
fn escaped(text: &str) -> String {
    Value::from(text).to_string().trim_matches('"').to_owned()
}
