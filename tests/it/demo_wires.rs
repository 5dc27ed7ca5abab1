//! `relight demo --provider` plays each wire end to end, with the real binary, and keeps every
//! promise that it makes.

use serde_json::Value;

use crate::support::binary::run;

const SCENES: [&str; 6] = [
    "rate-limit",
    "cut",
    "tool-call",
    "unfit",
    "refusal",
    "in-stream-error",
];

/// The JSON output of the demo for that provider.
async fn output(provider: &str) -> Vec<Value> {
    let ran = run(&["demo", "--provider", provider, "--output", "json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    let output: Value = serde_json::from_str(&ran.out).unwrap();
    output["scenes"].as_array().unwrap().clone()
}

async fn assert_every_scene_is_as_promised(provider: &str) {
    let scenes = output(provider).await;
    let names: Vec<&str> = scenes
        .iter()
        .map(|scene| scene["scene"].as_str().unwrap())
        .collect();
    assert_eq!(names, SCENES, "{provider}");
    for scene in &scenes {
        assert_eq!(
            (&scene["as_promised"], &scene["broken"]),
            (&true.into(), &Value::Null),
            "{provider}: {scene}"
        );
    }
    let by = |name: &str| {
        scenes.iter().find(|scene| scene["scene"] == name).unwrap()["recovered_by"].clone()
    };
    assert_eq!(
        [by("unfit"), by("in-stream-error"), by("refusal")],
        ["adapt", "fallback", "nothing"],
        "{provider}"
    );
}

#[tokio::test]
async fn the_openai_wire_breaks_in_six_ways_and_every_scene_is_as_promised() {
    assert_every_scene_is_as_promised("openai").await;
}

#[tokio::test]
async fn the_responses_wire_breaks_in_six_ways_and_every_scene_is_as_promised() {
    assert_every_scene_is_as_promised("responses").await;
}

#[tokio::test]
async fn the_anthropic_wire_breaks_in_six_ways_and_every_scene_is_as_promised() {
    assert_every_scene_is_as_promised("anthropic").await;
}

#[tokio::test]
async fn the_gemini_wire_breaks_in_six_ways_and_every_scene_is_as_promised() {
    assert_every_scene_is_as_promised("gemini").await;
}

#[tokio::test]
async fn the_bedrock_wire_breaks_in_six_ways_and_every_scene_is_as_promised() {
    assert_every_scene_is_as_promised("bedrock").await;
}

#[tokio::test]
async fn people_see_what_was_changed_and_the_note_to_the_model() {
    let ran = run(&["demo", "--provider", "anthropic", "--fast"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    for promised in [
        "Anthropic fails in six ways and in its own words",
        "what was changed in the request  the output limit was lowered from 100000 to 8192 tokens",
        "the note that the model got  \"The previous model call failed",
        "Falling back from main to spare",
    ] {
        assert!(
            ran.out.contains(promised),
            "{promised} is not in\n{}",
            ran.out
        );
    }
    assert_eq!(
        ran.out
            .lines()
            .filter(|line| line.starts_with("   ✓ "))
            .count(),
        SCENES.len(),
        "{}",
        ran.out
    );
}
