//! The examples of the source, from the tool's own words through the classifier to the step.

use serde_json::json;

use super::{
    super::*,
    rung,
    world::{World, learner, now, tool},
};
use crate::{
    domain::failure::{ProviderError, Surface},
    policy::classify::Classifier,
};

/// What a tool said, judged.
fn judged(words: &str) -> Failure {
    let error = ProviderError {
        surface: Surface::Tool,
        message: Some(words.to_owned()),
        ..ProviderError::default()
    };
    Classifier::new().classify(&error, now())
}

#[test]
fn the_errors_of_the_source_lead_to_its_strategies() {
    let mut plain = World::reading();
    let mut long = World::reading();
    long.split_by_dates();
    let mut renamed = World::reading();
    renamed.arguments = arguments::read(r#"{"limit": 10}"#).unwrap();
    renamed.current = Some(tool(
        "get_activities",
        json!({"max_results": {"type": "integer"}}),
        json!([]),
    ));
    plain.alternative("get_activity", None);
    for (world, words, expected) in [
        // transient
        (&plain, "Request timeout", "retry"),
        (&plain, "Connection refused", "retry"),
        (&plain, "Network error", "retry"),
        // parameter mismatch
        (
            &renamed,
            "TypeError(\"unexpected keyword argument 'limit'\")",
            "adapt",
        ),
        (
            &renamed,
            "TypeError: get_activities() got an unexpected keyword argument 'limit'",
            "adapt",
        ),
        // limits, and what takes too long
        (&long, "Rate limit exceeded", "chunk"),
        (&long, "429 Too Many Requests", "chunk"),
        (&long, "too many requests", "chunk"),
        (&long, "Request timeout", "chunk"),
        (&plain, "Rate limit exceeded", "retry"),
        // impossible
        (&plain, "403 Forbidden", "explain"),
        (&plain, "Access denied", "explain"),
        (&plain, "Unauthorized", "explain"),
        (
            &plain,
            "You do not have permission to view this athlete",
            "explain",
        ),
        // the wrong tool
        (&plain, "Activity not found", "offer"),
        (&plain, "'no such activity: 12345'", "offer"),
    ] {
        let failure = judged(words);
        let step = world.decide(&failure);
        assert_eq!(
            rung(&step),
            expected,
            "{words}: {} ({}) {step:?}",
            failure.class,
            failure.rule
        );
        let word = match expected {
            "retry" => "RETRY",
            "adapt" => "ADAPT",
            "chunk" => "CHUNK",
            _ => "IMPOSSIBLE",
        };
        assert_eq!(
            step.strategy()
                .map(crate::domain::invocation::RecoveryStrategy::as_str),
            Some(word),
            "{words}"
        );
    }
}

#[test]
fn the_words_of_the_official_servers_lead_to_the_same_steps() {
    let mut world = World::reading();
    world.arguments = arguments::read(r#"{"limit": 10}"#).unwrap();
    world.current = Some(tool(
        "get_activities",
        json!({"max_results": {"type": "integer"}}),
        json!(["max_results"]),
    ));
    for words in [
        "Error executing tool get_activities: 1 validation error for get_activitiesArguments\nmax_results\n  Field \
         required [type=missing, input_value={'limit': 10}, input_type=dict]\n    For further information visit \
         https://errors.pydantic.dev/2.14/v/missing",
        "Error executing tool get_activities: get_activities() got an unexpected keyword argument 'limit'",
        "MCP error -32602: Input validation error: Invalid arguments for tool get_activities: Invalid input: expected \
         number, received undefined at max_results",
        "MCP error -32602: Input validation error: Invalid arguments for tool get_activities: Unrecognized key: \
         \"limit\"",
        "Input validation error: 'max_results' is a required property",
    ] {
        let step = world.decide(&judged(words));
        let ToolStep::Adapt { adapted, .. } = step else {
            panic!("{words}: {step:?}")
        };
        assert_eq!(
            arguments::write(&adapted.arguments),
            r#"{"max_results":10}"#,
            "{words}"
        );
    }
    for words in [
        "MCP error -32602: Tool get_activities not found",
        "Unknown tool: get_activities",
    ] {
        world.is_fresh = false;
        assert_eq!(rung(&world.decide(&judged(words))), "refetch", "{words}");
        (world.is_fresh, world.current) = (true, None);
        assert_eq!(rung(&world.decide(&judged(words))), "explain", "{words}");
    }
}

#[test]
fn somebody_elses_private_data_is_explained_with_alternatives_after_one_attempt() {
    let mut world = World::reading();
    world.goal = "Get competitor X's private training data from Strava";
    world.alternative("get_my_activities", None);
    let ToolStep::Explain { explanation } = world.decide(&judged("403 Forbidden")) else {
        panic!()
    };
    let text = explanation.text();
    for part in [
        "competitor X",
        "not allowed",
        "What was tried",
        "`get_my_activities`",
        "its own or what is public",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_right_tool_is_called_where_it_is_declared_equal_and_else_offered_however_much_was_learnt() {
    let mut world = World::reading();
    world.arguments = arguments::read(r#"{"activity_id": 12345}"#).unwrap();
    world.alternative("get_activity", None);
    for case in ["one", "two", "three"] {
        world
            .learning
            .correct(&learner(), ("get_activities", "get_activity"), case, now());
    }
    let failure = judged("Activity not found");
    assert_eq!(rung(&world.decide(&failure)), "offer");
    world.others.clear();
    world.alternative("get_activity", Some(0));
    let ToolStep::Alternative { tool, reason } = world.decide(&failure) else {
        panic!()
    };
    assert_eq!(tool.name, "get_activity");
    assert!(
        reason.contains("`get_activity` is called in place of `get_activities`"),
        "{reason}"
    );
}
