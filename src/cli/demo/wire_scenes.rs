//! The scenes of `relight demo --provider`: one provider fails in its own words, over its own wire.
//!
//! Each promise is checked against what the caller got and against what the wire saw, so that the demo cannot show what is
//! not so.

use serde_json::Value;

use super::{
    scene::{Played, Scene, TOOL, all_answered, ensure, failed_by, two_attempts},
    wires::{Provider, STORY},
};
use crate::{
    grpc::v1::{FailureClass, FinishReason, RecoveryStrategy, WaitSource, invoke_with_recovery_response::Outcome},
    wire_server::Request,
};

/// The scenes of a provider's wire, in their order.
pub(super) fn scenes(provider: Provider) -> Vec<Scene> {
    let mut scenes = SCENES.to_vec();
    for scene in &mut scenes {
        if scene.name == "unfit" {
            scene.max_output_tokens = Some(unfit_limit(provider));
        }
    }
    if provider == Provider::Bedrock {
        // AWS never says for how long.
        scenes[0].promise = limit_is_waited_out;
        scenes[0].story = "The refusal is in AWS's own words, which state no wait: Relight backs off by its own.";
        scenes[0].moral = "Backed off by its own, then answered.";
    }
    scenes
}

/// What is asked for, in tokens, that this provider's `unfit` does not take.
const fn unfit_limit(provider: Provider) -> u32 {
    match provider {
        Provider::Responses => 8,
        Provider::Openai | Provider::Anthropic | Provider::Gemini | Provider::Bedrock => 100_000,
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
