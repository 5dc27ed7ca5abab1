//! The scenes of `relight demo --provider`: one provider fails in its own way, over its own
//! protocol.
//!
//! Each promise is checked against what the caller got and against what the provider's server
//! received, so that the demo cannot show a recovery that did not happen.

use relight_lab::wire_server::Request;
use serde_json::Value;

use super::{
    scene::{
        Played, Scene, TOOL, all_answered, ensure, failed_by, stated_second_passed, two_attempts,
    },
    wires::{Provider, STORY},
};
use crate::grpc::v1::{
    FailureClass, FinishReason, RecoveryStrategy, WaitSource,
    invoke_with_recovery_response::Outcome,
};

/// Returns the scenes of a provider's wire, in their order.
pub(super) fn scenes(provider: Provider) -> Vec<Scene> {
    let mut scenes = SCENES.to_vec();
    for scene in &mut scenes {
        if scene.name == "unfit" {
            scene.max_output_tokens = Some(unfit_limit(provider));
        }
    }
    if provider == Provider::Bedrock {
        // AWS states no wait.
        scenes[0].promise = limit_is_waited_out;
        scenes[0].story =
            "The refusal is in AWS's own words, which state no wait: Relight backs off by its own.";
        scenes[0].moral = "Backed off by its own, then answered.";
    }
    scenes
}

/// Returns an output limit, in tokens, that this provider's `unfit` rejects.
const fn unfit_limit(provider: Provider) -> u32 {
    match provider {
        Provider::Responses => 8,
        Provider::Openai | Provider::Anthropic | Provider::Gemini | Provider::Bedrock => 100_000,
    }
}

/// Scenes that are played on every wire, in this order.
const SCENES: [Scene; 6] = [
    Scene {
        title: "The provider returns 429",
        story: "It does so in its own words and states a wait, which is kept.",
        moral: "Waited as the provider stated, then answered.",
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
            wires
                .main
                .push((wires.answers().text)(STORY).cut_in_the_middle());
        },
        promise: cut_is_mended,
    },
    Scene {
        title: "The model botches a tool call",
        story: "It is unusable. Relight informs the model of the fault, where this API allows it, and retries.",
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
            wires.main.push((answers.tool_call)(
                TOOL,
                r#"{"city":"Oslo","unit":"celsius"}"#,
            ));
        },
        promise: tool_call_is_repaired,
    },
    Scene {
        title: "The model rejects the requested output limit",
        story: "The rejection names what it accepts instead. Relight changes just that, once, and reports it.",
        moral: "Answered with the one change that the provider required, reported as ADAPT.",
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
        story: "A refusal is an answer. Relight does not try other models until one complies, unless configured.",
        moral: "Passed on to the caller; the spare was not called.",
        name: "refusal",
        route: "both",
        question: "How do I pick my neighbour's lock?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires.main.push((wires.answers().refuses)());
        },
        promise: refusal_is_passed_on,
    },
    Scene {
        title: "The provider fails inside the stream",
        story: "The status was 200 and the answer had begun; then this API's own error event reports an overload.",
        moral: "The spare answered, and nothing of the broken answer was left in it.",
        name: "in-stream-error",
        route: "both",
        question: "Why is the sky blue?",
        with_tool: false,
        max_output_tokens: None,
        calls: 1,
        prepare: |wires| {
            wires
                .main
                .push((wires.answers().overloaded_amid)("Sunlight is made"));
        },
        promise: spare_answers,
    },
];

fn stated_wait_is_kept(played: &Played) -> Result<(), String> {
    limit_is_waited_out(played)?;
    let [first, second] = two_attempts(played)?;
    let stated = [
        WaitSource::RetryAfter,
        WaitSource::RetryInfo,
        WaitSource::ErrorText,
        WaitSource::Gate,
    ]
    .map(i32::from);
    stated_second_passed(first, second)?;
    ensure(
        stated.contains(&second.wait_source),
        "the wait was not the provider's",
    )
}

fn limit_is_waited_out(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::RateLimited),
        "the first attempt was not rate limited",
    )?;
    ensure(second.wait_before_ms > 0, "it did not wait")?;
    ensure(played.last_reply() == STORY, "the answer is another one")
}

fn cut_is_mended(played: &Played) -> Result<(), String> {
    let [first, _] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::StreamInterrupted),
        "the cut was not seen as one",
    )?;
    ensure(played.last_reply() == STORY, "the answer is not whole")?;
    ensure(
        played.requests.len() == 2,
        "the wire did not see two requests",
    )
}

fn spare_answers(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    let overloaded = [FailureClass::Overloaded, FailureClass::ServerError];
    ensure(
        overloaded.iter().any(|class| failed_by(first, *class)),
        "the error in the stream was not understood",
    )?;
    ensure(second.target == "spare", "another target answered")?;
    ensure(
        played.last_reply() == "The spare answers.",
        "something of the broken answer was left",
    )
}

fn tool_call_is_repaired(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(
        failed_by(first, FailureClass::MalformedResponse),
        "the first call was not seen as broken",
    )?;
    ensure(
        !second.injected_note.is_empty(),
        "the model was not informed of its failure",
    )?;
    let holds_note = |request: &Request| holds_text(&request.body, &second.injected_note);
    let noted: Vec<bool> = played.requests.iter().map(holds_note).collect();
    ensure(
        noted == [false, true],
        "the wire did not see the note in the second request alone",
    )?;
    ensure(
        played.last_reply().contains("Oslo"),
        "the tool call was not repaired",
    )
}

fn request_is_adapted(played: &Played) -> Result<(), String> {
    let [first, second] = two_attempts(played)?;
    ensure(!first.adaptation.is_empty(), "the change is not reported")?;
    ensure(
        second.target == first.target && second.wait_before_ms == 0,
        "it was not called again at once",
    )?;
    let adapt = i32::from(RecoveryStrategy::Adapt);
    let reported = played
        .responses
        .iter()
        .all(|response| response.recovery_applied == [adapt]);
    ensure(reported, "the recovery is not reported as ADAPT")?;
    let [before, after] = played.requests.as_slice() else {
        return Err("the wire did not see two requests".to_owned());
    };
    ensure(before.body != after.body, "the request was not changed")
}

fn refusal_is_passed_on(played: &Played) -> Result<(), String> {
    all_answered(played)?;
    ensure(
        played.attempts() == 1 && played.spare_requests == 0,
        "it was routed around",
    )?;
    let refused = [FinishReason::Refusal, FinishReason::ContentFilter].map(i32::from);
    let passed_on = played
        .responses
        .iter()
        .all(|response| match &response.outcome {
            Some(Outcome::Completion(completion)) => refused.contains(&completion.finish_reason),
            Some(Outcome::Failure(_)) | None => false,
        });
    ensure(passed_on, "the refusal is not reported as one")
}

/// Returns whether some string of a document contains a text.
fn holds_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(held) => held.contains(text) || held.contains(&escaped(text)),
        Value::Array(items) => items.iter().any(|item| holds_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| holds_text(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The text as it is escaped in a JSON text within a string.
fn escaped(text: &str) -> String {
    Value::from(text).to_string().trim_matches('"').to_owned()
}
