//! Stories of tools: the calls of an agent, the faults in them, and the result that it gets all the
//! same.
//!
//! Each promise is checked against what the caller and the tool really saw.

use relight_lab::wire_server::{
    Reply,
    mcp::{Executed, McpScript, ScriptedTool},
};
use serde_json::{Value, json};

use super::scene::ensure;
use crate::grpc::v1::{self, RecoveryStrategy, invoke_with_recovery_response::Outcome};

/// One story.
#[expect(clippy::struct_field_names, reason = "its story is what it tells")]
pub(super) struct Story {
    /// Fault of the story.
    pub(super) title: &'static str,
    /// Things that are going to be seen.
    pub(super) story: &'static str,
    /// Things that were seen, if it went as promised.
    pub(super) moral: &'static str,
    /// The name of its tool server, and what it is called in tables.
    pub(super) name: &'static str,
    /// The tools that its server has at first.
    pub(super) tools: fn() -> Vec<ScriptedTool>,
    /// The tools of a new version of its server, which is on trial with all of the calls; its
    /// server is called `-v2`.
    pub(super) new_version: Option<fn() -> Vec<ScriptedTool>>,
    /// Calls of the agent, in order.
    pub(super) calls: &'static [StoryCall],
    /// Says what was not as promised.
    pub(super) promise: fn(&StoryEnd<'_>) -> Result<(), String>,
}

/// A call of a story.
pub(super) struct StoryCall {
    /// The tool.
    pub(super) tool: &'static str,
    /// Its arguments, JSON text.
    pub(super) arguments: &'static str,
    /// Purpose of the call.
    pub(super) goal: &'static str,
    /// Event at the server before it.
    pub(super) before: fn(&McpScript),
}

/// Outcome of a story.
pub(super) struct StoryEnd<'a> {
    /// Responses that the agent got, in order.
    pub(super) responses: &'a [v1::InvokeWithRecoveryResponse],
    /// Calls of the tools, in order.
    pub(super) called: Vec<(String, Value)>,
    /// Calls of the tools of the new version, in order.
    pub(super) called_new: Vec<(String, Value)>,
}

/// The stories, in this order.
pub(super) const STORIES: [Story; 5] = [
    Story {
        title: "Six months of activities are too many",
        story: "The agent asks for six months at once, and the tool never returns. Relight splits the range by month, \
                fetches a few months at a time and merges them, and says how much of it there is.",
        moral: "All six months, in one result, with the coverage told: 6 of 6.",
        name: "training",
        tools: activities_by_month,
        new_version: None,
        calls: &[StoryCall {
            tool: "training/get_activities",
            arguments: r#"{"from":"2024-01-01","to":"2024-06-30"}"#,
            goal: "Summarize my training of half a year",
            before: |_| {},
        }],
        promise: six_months_are_merged,
    },
    Story {
        title: "Somebody else's data are private",
        story: "The tool refuses with 403. To call it again would change nothing, so Relight calls it once and explains: \
                what was tried, why it cannot work, what would make it work, and what else there is.",
        moral: "One attempt, and an explanation that the agent can act on.",
        name: "club",
        tools: private_data,
        new_version: None,
        calls: &[StoryCall {
            tool: "get_athlete_activities",
            arguments: r#"{"athlete":"competitor-x"}"#,
            goal: "Get competitor X's private training data",
            before: |_| {},
        }],
        promise: refusal_is_explained,
    },
    Story {
        title: "Two tools with nearly the same name",
        story: "The agent calls get_rides for one ride, which that tool does not find. Relight calls \
                get_ride, which the operator declared as equivalent. Once is chance: after two different calls it goes there at once.",
        moral: "Corrected twice, called at once the third time.",
        name: "lookup",
        tools: similar_names,
        new_version: None,
        calls: &[
            StoryCall {
                tool: "lookup/get_rides",
                arguments: r#"{"id":"a-17"}"#,
                goal: "Show one ride",
                before: |_| {},
            },
            StoryCall {
                tool: "lookup/get_rides",
                arguments: r#"{"id":"a-18"}"#,
                goal: "Show another ride",
                before: |_| {},
            },
            StoryCall {
                tool: "lookup/get_rides",
                arguments: r#"{"id":"a-19"}"#,
                goal: "Show a third ride",
                before: |_| {},
            },
        ],
        promise: mistake_is_learnt,
    },
    Story {
        title: "An argument was renamed overnight",
        story: "The tool's new version takes max_results where the old one took limit. Relight fetches the list of tools \
                anew, compares the schemas, renames the argument and calls again. The next call is adapted before it fails.",
        moral: "The agent never noticed; the second call needed one attempt.",
        name: "search",
        tools: search_with_limit,
        new_version: None,
        calls: &[
            StoryCall {
                tool: "search_routes",
                arguments: r#"{"query":"hills","limit":3}"#,
                goal: "Find a hilly route",
                before: |_| {},
            },
            StoryCall {
                tool: "search_routes",
                arguments: r#"{"query":"hills","limit":3}"#,
                goal: "Find a hilly route once more",
                before: rename_limit,
            },
            StoryCall {
                tool: "search_routes",
                arguments: r#"{"query":"lakes","limit":5}"#,
                goal: "Find a route along lakes",
                before: |_| {},
            },
        ],
        promise: argument_is_adapted,
    },
    Story {
        title: "A new version is broken for good",
        story: "The operator puts version 2 of a tool server on trial. Every call of it ends in a TypeError. Relight has the \
                old version serve each of these calls, and after the second failure rolls version 2 back.",
        moral: "Every call had its result; version 2 was rolled back after 2 to 3 failures, not 10.",
        name: "weather",
        tools: forecast,
        new_version: Some(broken_forecast),
        calls: &[FORECAST, FORECAST, FORECAST, FORECAST, FORECAST, FORECAST],
        promise: version_is_rolled_back,
    },
];

const FORECAST: StoryCall = StoryCall {
    tool: "get_forecast",
    arguments: r#"{"place":"Bern"}"#,
    goal: "Plan the ride of tomorrow",
    before: |_| {},
};

/// Recovery settings for the stories, from below `tools.servers` on, which has their addresses.
pub(super) const SETTINGS: &str = "  tools:
    training/get_activities:
      read_only: true
      timeout: 800ms
      chunk: [{ from: from, to: to }]
    club/get_athlete_activities: { read_only: true }
    club/get_my_activities: { read_only: true }
    lookup/get_rides: { read_only: true }
    lookup/get_ride: { read_only: true }
    search_routes: { read_only: true }
    get_forecast: { read_only: true }
  groups:
    activity: [lookup/get_rides, lookup/get_ride]
releases: { subjects: { weather: { candidate: weather-v2, share: 1.0 } } }
";

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn activities_by_month() -> Vec<ScriptedTool> {
    let schema = schema(
        &json!({"from": {"type": "string"}, "to": {"type": "string"}}),
        &["from", "to"],
    );
    let activities = ScriptedTool::new("get_activities", &schema, |arguments| {
        let month = |name: &str| {
            arguments[name]
                .as_str()
                .and_then(|date| date.get(..7))
                .unwrap_or_default()
                .to_owned()
        };
        if month("from") == month("to") {
            Executed::Result(json!({"activities": [{"month": month("from"), "kilometres": 120}]}))
        } else {
            Executed::Wire(Box::new(Reply::silence()))
        }
    });
    vec![activities.with("description", json!("The activities between two dates."))]
}

fn private_data() -> Vec<ScriptedTool> {
    let of_athlete = schema(&json!({"athlete": {"type": "string"}}), &["athlete"]);
    let private = ScriptedTool::new("get_athlete_activities", &of_athlete, |_| {
        Executed::Error("403 Forbidden: the activities of this athlete are private".to_owned())
    });
    let own = ScriptedTool::new("get_my_activities", &schema(&json!({}), &[]), |_| {
        Executed::Result(json!({"n": 3}))
    });
    vec![
        private.with("description", json!("The activities of an athlete.")),
        own.with(
            "description",
            json!("The activities of the athlete who is signed in."),
        ),
    ]
}

fn similar_names() -> Vec<ScriptedTool> {
    let by_id = schema(&json!({"id": {"type": "string"}}), &["id"]);
    let many = ScriptedTool::new("get_rides", &by_id, |_| {
        Executed::Error("Activity not found".to_owned())
    });
    let one = ScriptedTool::new("get_ride", &by_id, |arguments| {
        Executed::Result(json!({"id": arguments["id"], "name": "Morning run"}))
    });
    vec![many, one]
}

fn search_with_limit() -> Vec<ScriptedTool> {
    vec![search("limit")]
}

fn rename_limit(script: &McpScript) {
    script.replace(vec![search("max_results")]);
}

fn search(limit: &'static str) -> ScriptedTool {
    let schema = schema(
        &json!({"query": {"type": "string"}, (limit): {"type": "integer"}}),
        &["query"],
    );
    ScriptedTool::new("search_routes", &schema, move |arguments| {
        match arguments[limit].as_u64() {
            Some(count) => Executed::Result(json!({"query": arguments["query"], "routes": count})),
            None => Executed::Refused(
                -32602,
                format!("Invalid arguments: unexpected argument, expected `{limit}`"),
            ),
        }
    })
}

fn forecast() -> Vec<ScriptedTool> {
    vec![ScriptedTool::new(
        "get_forecast",
        &schema(&json!({"place": {"type": "string"}}), &["place"]),
        |arguments| Executed::Result(json!({"place": arguments["place"], "sky": "clear"})),
    )]
}

fn broken_forecast() -> Vec<ScriptedTool> {
    vec![ScriptedTool::new(
        "get_forecast",
        &schema(&json!({"place": {"type": "string"}}), &["place"]),
        |_| {
            Executed::Error(
                "TypeError: forecast() got an unexpected keyword argument 'place'".to_owned(),
            )
        },
    )]
}

fn six_months_are_merged(end: &StoryEnd<'_>) -> Result<(), String> {
    let output = output(end, 0)?;
    let coverage = output.coverage.as_ref().ok_or("no coverage was told")?;
    ensure(
        coverage.done == 6 && coverage.total == 6,
        "not all of the six months are there",
    )?;
    ensure(
        end.called.len() == 7,
        "the tool was not called once and then once a month",
    )?;
    ensure(
        applied(end, 0) == [RecoveryStrategy::Chunk],
        "the call was not split",
    )
}

fn refusal_is_explained(end: &StoryEnd<'_>) -> Result<(), String> {
    ensure(end.called.len() == 1, "the tool was called more than once")?;
    let Some(Outcome::Failure(failure)) = end
        .responses
        .first()
        .and_then(|response| response.outcome.as_ref())
    else {
        return Err("the call did not fail".to_owned());
    };
    ensure(
        applied(end, 0) == [RecoveryStrategy::Impossible],
        "it was not found to be impossible",
    )?;
    ensure(
        failure.reasoning.contains("competitor X"),
        "the explanation does not say what was wanted",
    )?;
    ensure(
        !failure.alternatives.is_empty(),
        "nothing else was proposed",
    )
}

fn mistake_is_learnt(end: &StoryEnd<'_>) -> Result<(), String> {
    let called: Vec<&str> = end.called.iter().map(|(tool, _)| tool.as_str()).collect();
    ensure(
        called == ["get_rides", "get_ride", "get_rides", "get_ride", "get_ride"],
        "the tools were not called as promised",
    )?;
    ensure(
        output(end, 2)?.tool == "get_ride",
        "the third call was not answered by the right tool",
    )
}

fn argument_is_adapted(end: &StoryEnd<'_>) -> Result<(), String> {
    let sent = output(end, 1)?.arguments_json.clone().unwrap_or_default();
    ensure(sent.contains("max_results"), "the argument was not renamed")?;
    ensure(
        applied(end, 1) == [RecoveryStrategy::Adapt],
        "the call was not adapted",
    )?;
    ensure(
        end.responses
            .get(2)
            .is_some_and(|last| last.attempts.len() == 1),
        "the last call took several attempts",
    )
}

fn version_is_rolled_back(end: &StoryEnd<'_>) -> Result<(), String> {
    for call in 0..end.responses.len() {
        output(end, call)?;
    }
    let failures = end.called_new.len();
    ensure(
        (2..=3).contains(&failures),
        &format!("the new version was called {failures} times"),
    )?;
    ensure(
        end.responses
            .last()
            .is_some_and(|last| last.attempts.len() == 1),
        "the last call took several attempts",
    )
}

fn output<'a>(end: &'a StoryEnd<'_>, call: usize) -> Result<&'a v1::ToolOutput, String> {
    match end
        .responses
        .get(call)
        .and_then(|response| response.outcome.as_ref())
    {
        Some(Outcome::Completion(completion)) => completion
            .tool_output
            .as_ref()
            .ok_or("there is no result".to_owned()),
        Some(Outcome::Failure(failure)) => Err(format!("a call failed: {}", failure.message)),
        None => Err("a call has no outcome".to_owned()),
    }
}

fn applied(end: &StoryEnd<'_>, call: usize) -> Vec<RecoveryStrategy> {
    end.responses
        .get(call)
        .map(|response| response.recovery_applied().collect())
        .unwrap_or_default()
}
