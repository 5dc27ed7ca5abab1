//! A new version of a tool server is tried with a share of its calls, and rolled back when it
//! breaks.

use std::time::Duration;

use relight::internals::{
    grpc::v1::{
        ListReleasesRequest, Overrides, RecoveryStrategy, Release, ReleaseChannel, ReleaseLane,
        ReleaseState, invoke_with_recovery_response::Outcome,
    },
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::{Value, json};

use crate::support::{
    postgres::Database,
    relight::Relight,
    tool_stage::{applied, calling, completed},
};

/// Longest time until something is seen that happens in the background.
const PATIENCE: Duration = Duration::from_secs(20);

/// A tool server `routes`, its candidate `routes-v2`, and a Relight that has both.
struct Trial {
    stable: McpScript,
    candidate: McpScript,
    relight: Relight,
    yaml: String,
    _wires: [WireServer; 2],
}

impl Trial {
    async fn start(candidate: ScriptedTool, settings: &str) -> Self {
        let (stable, candidate) = (
            McpScript::new(vec![search("limit")]),
            McpScript::new(vec![candidate]),
        );
        let wires = [
            WireServer::start().await.unwrap(),
            WireServer::start().await.unwrap(),
        ];
        stable.play_on(&wires[0]);
        candidate.play_on(&wires[1]);
        let [one, two] = [wires[0].address(), wires[1].address()];
        let yaml = format!(
            "policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms }} }} }} }}\n\
             tools:\n  \
               servers: {{ routes: {{ url: \"http://{one}/mcp\" }}, routes-v2: {{ url: \"http://{two}/mcp\", refresh: 1s }} }}\n  \
               tools: {{ search_routes: {{ read_only: true }} }}\n\
             circuit: {{ mode: \"off\" }}\n\
             releases: {{ subjects: {{ routes: {{ candidate: routes-v2, share: 1.0 }} }} }}\n{settings}"
        );
        let trial = Self {
            stable,
            candidate,
            relight: Relight::start(&yaml).await,
            yaml,
            _wires: wires,
        };
        trial
            .until("there are two releases", |releases| releases.len() == 2)
            .await;
        trial
    }

    async fn call(&self) -> relight::internals::grpc::v1::InvokeWithRecoveryResponse {
        self.relight
            .invoke(calling(
                "search_routes",
                json!({"query": "hills", "limit": 3}),
            ))
            .await
    }

    async fn until(&self, what: &str, holds: impl Fn(&[Release]) -> bool) -> Vec<Release> {
        until(&self.relight, what, holds).await
    }
}

async fn until(relight: &Relight, what: &str, holds: impl Fn(&[Release]) -> bool) -> Vec<Release> {
    let releases = || async {
        relight
            .admin()
            .list_releases(ListReleasesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .releases
    };
    let seen = async {
        loop {
            let now = releases().await;
            if holds(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, seen).await {
        Ok(seen) => seen,
        Err(tokio::time::error::Elapsed { .. }) => panic!("{what}: {:#?}", releases().await),
    }
}

/// A search whose argument for how many results is called so.
fn search(limit: &'static str) -> ScriptedTool {
    ScriptedTool::new(
        "search_routes",
        &schema(limit),
        move |arguments| match arguments[limit].as_u64() {
            Some(count) => Executed::Result(json!({"routes": count})),
            None => Executed::Refused(-32602, format!("Invalid arguments: `{limit}` is missing")),
        },
    )
}

/// The new version of it, as it fails in its own code.
fn broken() -> ScriptedTool {
    ScriptedTool::new("search_routes", &schema("max_results"), |_| {
        Executed::Error(
            "TypeError: search() got an unexpected keyword argument 'max_results'".to_owned(),
        )
    })
}

fn schema(limit: &str) -> Value {
    json!({
        "type": "object",
        "properties": {"query": {"type": "string"}, (limit): {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": false,
    })
}

fn candidate(releases: &[Release]) -> &Release {
    releases
        .iter()
        .find(|release| release.channel() == ReleaseChannel::Candidate)
        .unwrap()
}

fn is_rolled_back(releases: &[Release]) -> bool {
    candidate(releases).state() == ReleaseState::RolledBack
}

#[tokio::test]
async fn a_new_version_with_a_renamed_argument_is_called_with_that_name_and_without_a_failure() {
    let trial = Trial::start(search("max_results"), "").await;
    let response = trial.call().await;
    let output = completed(&response).tool_output.clone().unwrap();
    assert_eq!(output.structured_json.as_deref(), Some(r#"{"routes":3}"#));
    assert_eq!(
        (response.attempts.len(), applied(&response)),
        (1, vec![RecoveryStrategy::Adapt])
    );
    assert_eq!(
        trial.candidate.calls(),
        [(
            "search_routes".to_owned(),
            json!({"query": "hills", "max_results": 3})
        )]
    );
    assert!(trial.stable.calls().is_empty());
}

#[tokio::test]
async fn a_new_version_that_breaks_is_rolled_back_after_two_calls_and_no_caller_notices() {
    let trial = Trial::start(search("max_results"), "").await;
    completed(&trial.call().await);
    trial.candidate.replace(vec![broken()]);
    let mut calls = 0;
    while !is_rolled_back(&trial.until("", |_| true).await) {
        let response = trial.call().await;
        assert!(
            matches!(response.outcome, Some(Outcome::Completion(_))),
            "the old version takes over: {response:#?}"
        );
        calls += 1;
        assert!(calls <= 5, "{:#?}", trial.until("", |_| true).await);
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    // Of each call the first attempt alone is evidence.
    let failures = trial.candidate.calls().len() - 1;
    assert!(
        (2..=3).contains(&calls),
        "rolled back after {failures} failures in {calls} calls"
    );
    let seen = trial.until("", |_| true).await;
    let decision = candidate(&seen).decisions.last().unwrap();
    assert_eq!(decision.lane(), ReleaseLane::Immediate, "{decision:?}");
    let response = trial.call().await;
    assert_eq!(
        (
            completed(&response).tool_output.is_some(),
            response.attempts.len()
        ),
        (true, 1)
    );
    assert_eq!(
        trial.candidate.calls().len(),
        failures + 1,
        "nothing is sent to it any more"
    );
    assert_eq!(
        trial.stable.calls().last().unwrap().1,
        json!({"query": "hills", "limit": 3})
    );
}

#[tokio::test]
async fn a_caller_reads_that_the_stable_release_took_over_from_its_candidate() {
    let trial = Trial::start(search("max_results"), "").await;
    completed(&trial.call().await);
    trial.candidate.replace(vec![broken()]);
    let response = trial.call().await;
    completed(&response);
    let words = "`routes/search_routes` is called in place of `routes-v2/search_routes`, because it is the stable release \
                 and the other one is its candidate";
    assert!(response.reasoning.contains(words), "{}", response.reasoning);
}

#[tokio::test]
async fn every_call_is_served_by_the_stable_release_while_its_candidate_is_down_however_it_is_down()
{
    type Down = fn() -> Executed;
    let ways: [(&str, Down); 5] = [
        ("503", || Executed::Wire(Box::new(Reply::status(503)))),
        ("500", || Executed::Wire(Box::new(Reply::status(500)))),
        ("reset", || Executed::Wire(Box::new(Reply::reset()))),
        ("opaque", || {
            Executed::Error("Error executing tool search_routes".to_owned())
        }),
        ("said so", || {
            Executed::Result(json!({"success": false, "error": "out of order"}))
        }),
    ];
    for (how, down) in ways {
        let candidate = ScriptedTool::new("search_routes", &schema("limit"), move |_| down());
        let trial = Trial::start(candidate, "").await;
        for max_retries in [1, 2] {
            let mut invocation = calling("search_routes", json!({"query": "hills", "limit": 3}));
            invocation.overrides = Some(Overrides {
                max_retries: Some(max_retries),
                ..Overrides::default()
            });
            let response = trial.relight.invoke(invocation).await;
            assert!(
                matches!(response.outcome, Some(Outcome::Completion(_))),
                "{how}, {max_retries}: {response:#?}"
            );
            assert_eq!(response.final_target, "routes/search_routes", "{how}");
        }
    }
}

#[tokio::test]
async fn a_new_version_that_says_in_its_results_that_it_failed_is_rolled_back() {
    let declared = json!({"type": "object", "properties": {"routes": {"type": "integer"}}, "required": ["routes"]});
    for result in [
        json!({"success": false, "result": null, "error": "TypeError: 'int' object is not iterable"}),
        json!("TypeError: 'int' object is not iterable"),
        json!({"routes": "three"}),
        json!(""),
    ] {
        let candidate = ScriptedTool::new("search_routes", &schema("limit"), {
            let result = result.clone();
            move |_| Executed::Result(result.clone())
        });
        let trial = Trial::start(candidate.with("outputSchema", declared.clone()), "").await;
        let mut calls = 0;
        while !is_rolled_back(&trial.until("", |_| true).await) {
            completed(&trial.call().await);
            calls += 1;
            assert!(
                calls <= 12,
                "{result}: {:#?}",
                trial.until("", |_| true).await
            );
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
    }
}

#[tokio::test]
async fn a_new_version_that_breaks_its_contract_is_rolled_back_before_its_first_call() {
    let needs_account = json!({
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "account": {"type": "string"}},
        "required": ["query", "account"],
    });
    let tool = ScriptedTool::new("search_routes", &needs_account, |_| {
        Executed::Result(json!({}))
    });
    let trial = Trial::start(tool, "").await;
    let seen = trial.until("it is rolled back", is_rolled_back).await;
    let decision = candidate(&seen).decisions.last().unwrap();
    assert_eq!(decision.lane(), ReleaseLane::Contract);
    assert!(decision.reason.contains("account"), "{}", decision.reason);
    completed(&trial.call().await);
    assert!(trial.candidate.calls().is_empty());
}

#[tokio::test]
async fn a_mended_version_is_another_release_and_gets_its_share() {
    let trial = Trial::start(
        ScriptedTool::new("other", &schema("limit"), |_| Executed::Result(json!({}))),
        "",
    )
    .await;
    trial.until("it is rolled back", is_rolled_back).await;
    trial.candidate.replace(vec![search("max_results")]);
    trial
        .until("the mended version is on trial", |releases| {
            candidate(releases).state() == ReleaseState::Active
        })
        .await;
    assert_eq!(
        completed(&trial.call().await)
            .tool_output
            .as_ref()
            .unwrap()
            .tool,
        "search_routes"
    );
    assert_eq!(trial.candidate.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_see_a_new_version_at_different_times_agree_on_it_once() {
    let Some(database) = Database::create().await else {
        return;
    };
    let journal = format!("journal: {{ store: \"{}\" }}\n", database.url());
    let trial = Trial::start(search("limit"), &journal).await;
    let other = Relight::start(&trial.yaml).await;
    let before =
        candidate(&until(&other, "it is known there", |releases| releases.len() == 2).await)
            .id
            .clone();
    trial.candidate.replace(vec![search("max_results")]);
    let is_new = |releases: &[Release]| candidate(releases).id != before;
    let seen = trial.until("it is another release", is_new).await;
    let id = candidate(&seen).id.clone();
    until(&other, "it is another release there", is_new).await;
    // Long enough for each of them to undo it, if it would.
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for replica in [&trial.relight, &other] {
            let seen = until(replica, "", |_| true).await;
            assert_eq!(
                (candidate(&seen).id.as_str(), seen.len()),
                (&*id, 3),
                "{seen:#?}"
            );
        }
    }
}
