//! What is learnt of tools: from more than one case, for its tenant alone, only among tools that are
//! declared equal, and until the tool that was named succeeds once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        GetToolLearningRequest, GetToolLearningResponse, InvokeWithRecoveryRequest,
        InvokeWithRecoveryResponse, ResetToolLearningRequest, invocation::Call,
    },
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::{Value, json};

use crate::support::{
    process::with_key,
    relight::Relight,
    tool_stage::{Stage, calling, completed, echo, object},
};

/// Callers of two tenants and an administrator, and a server with two similar tools.
struct Shared {
    script: McpScript,
    relight: Relight,
    /// Whether `get_activities` does what it is called for.
    is_well: Arc<AtomicBool>,
    /// Whether `get_activity` is down.
    is_down: Arc<AtomicBool>,
    _wire: WireServer,
}

impl Shared {
    async fn start(groups: Value) -> Self {
        let (is_well, is_down) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let schema = object(json!({"id": {"type": "string"}}), &["id"]);
        let (well, lost) = (Arc::clone(&is_well), Arc::clone(&is_down));
        let many = ScriptedTool::new("get_activities", &schema, move |arguments| {
            if well.load(Ordering::SeqCst) {
                Executed::Result(arguments.clone())
            } else {
                Executed::Error("Activity not found".to_owned())
            }
        });
        let one = ScriptedTool::new("get_activity", &schema, move |arguments| {
            if lost.load(Ordering::SeqCst) {
                Executed::Wire(Box::new(Reply::status(503)))
            } else {
                Executed::Result(arguments.clone())
            }
        });
        let (script, wire) = (
            McpScript::new(vec![many, one]),
            WireServer::start().await.unwrap(),
        );
        script.play_on(&wire);
        let key = |tenant: &str, admin: bool| json!({"tenant": tenant, "sha256": hash_text(tenant), "admin": admin});
        let config = json!({
            "server": {
                "listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0",
                "keys": [key("acme", false), key("other", false), key("operators", true)],
            },
            "policies": { "standard": { "retry": { "backoff": { "base": "1ms", "cap": "1ms" } } } },
            "circuit": { "mode": "off" },
            "journal": { "store": "memory" },
            "tools": {
                "servers": { "strava": { "url": format!("http://{}/mcp", wire.address()) } },
                "tools": { "get_activities": { "read_only": true }, "get_activity": { "read_only": true } },
                "groups": groups,
            },
        });
        Self {
            script,
            relight: Relight::start_whole(&config.to_string()).await,
            is_well,
            is_down,
            _wire: wire,
        }
    }

    async fn declared() -> Self {
        Self::start(json!({"activity": ["strava/get_activities", "strava/get_activity"]})).await
    }

    /// The tools that a call of `tool` for this id makes, and its response.
    async fn call(
        &self,
        key: &str,
        tool: &str,
        id: &str,
    ) -> (Vec<String>, InvokeWithRecoveryResponse) {
        let before = self.script.calls().len();
        let mut invocation = calling(tool, json!({ "id": id }));
        if let Some(Call::Tool(call)) = &mut invocation.call {
            "look at my activities".clone_into(&mut call.goal);
        }
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        let mut client = self.relight.recovery();
        let response = client
            .invoke_with_recovery(with_key(key, request))
            .await
            .unwrap()
            .into_inner();
        let calls = self.script.calls().into_iter().skip(before);
        (calls.map(|(tool, _)| tool).collect(), response)
    }

    async fn learnt(&self) -> GetToolLearningResponse {
        let request = with_key("operators", GetToolLearningRequest {});
        let learnt = self.relight.admin().get_tool_learning(request).await;
        learnt.unwrap().into_inner()
    }
}

#[tokio::test]
async fn the_right_one_of_two_equal_tools_is_called_at_once_after_two_cases_of_one_tenant() {
    let shared = Shared::declared().await;
    let both = ["get_activities", "get_activity"];
    for _ in 0..4 {
        let (called, _) = shared.call("acme", "get_activities", "a1").await;
        assert_eq!(called, both, "the same case again is no other one");
    }
    assert_eq!(shared.call("acme", "get_activities", "a2").await.0, both);
    let (called, response) = shared.call("acme", "get_activities", "a3").await;
    assert_eq!(called, ["get_activity"]);
    let output = completed(&response).tool_output.clone().unwrap();
    assert!(
        output.reasoning.contains("in place of"),
        "{}",
        output.reasoning
    );
    assert_eq!(
        shared.call("other", "get_activities", "a3").await.0,
        both,
        "another tenant's calls are as before"
    );
    for number in 4..20 {
        shared
            .call("acme", "get_activities", &format!("a{number}"))
            .await;
    }
    let learnt = shared.learnt().await;
    let own = learnt.confusions.iter().find(|pair| pair.tenant == "acme");
    assert!(
        own.is_some_and(|pair| pair.weight <= 2.0),
        "its own calls are no evidence: {learnt:#?}"
    );
}

#[tokio::test]
async fn one_success_of_the_tool_that_was_named_undoes_what_was_learnt() {
    let shared = Shared::declared().await;
    for id in ["a1", "a2"] {
        shared.call("acme", "get_activities", id).await;
    }
    shared.is_well.store(true, Ordering::SeqCst);
    assert_eq!(
        shared.call("acme", "get_activities", "a3").await.0,
        ["get_activity"]
    );
    shared.is_down.store(true, Ordering::SeqCst);
    let (called, response) = shared.call("acme", "get_activities", "a4").await;
    completed(&response);
    assert_eq!(called.last().map(String::as_str), Some("get_activities"));
    shared.is_down.store(false, Ordering::SeqCst);
    assert_eq!(
        shared.call("acme", "get_activities", "a5").await.0,
        ["get_activities"]
    );
}

#[tokio::test]
async fn a_tool_that_nobody_declared_equal_is_never_called_in_place_of_the_one_that_was_named() {
    let shared = Shared::start(json!({})).await;
    for round in 0..5 {
        for key in ["acme", "other"] {
            let id = format!("a{round}");
            let (called, _) = shared.call(key, "get_activities", &id).await;
            assert_eq!(called, ["get_activities"], "round {round} of {key}");
            // The caller corrects itself.
            let (called, _) = shared.call(key, "get_activity", &id).await;
            assert_eq!(called, ["get_activity"], "round {round} of {key}");
        }
    }
    assert!(
        !shared.learnt().await.confusions.is_empty(),
        "it is known, and ranks what is offered"
    );
}

#[tokio::test]
async fn what_is_learnt_of_a_server_changes_no_call_of_another_server_with_tools_of_the_same_names()
{
    let schema = object(json!({"id": {"type": "string"}}), &["id"]);
    let found = |name| {
        ScriptedTool::new(name, &schema, |arguments| {
            Executed::Result(arguments.clone())
        })
    };
    let wrong = ScriptedTool::new("get_activities", &schema, |_| {
        Executed::Error("Activity not found".to_owned())
    });
    let (other, wire) = (
        McpScript::new(vec![found("get_activities"), found("get_activity")]),
        WireServer::start().await,
    );
    let wire = wire.unwrap();
    other.play_on(&wire);
    let settings = format!(
        "    garmin: {{ url: \"http://{}/mcp\" }}\n  \
         tools: {{ get_activities: {{ read_only: true }}, get_activity: {{ read_only: true }} }}\n  \
         groups: {{ activity: [strava/get_activities, strava/get_activity] }}",
        wire.address()
    );
    let stage = Stage::with(vec![wrong, found("get_activity")], &settings).await;
    for id in ["a1", "a2", "a3"] {
        stage
            .call("strava/get_activities", json!({ "id": id }))
            .await;
    }
    assert_eq!(
        stage.script.calls().len(),
        5,
        "the third call goes to the right tool at once"
    );
    completed(
        &stage
            .call("garmin/get_activities", json!({"id": "a1"}))
            .await,
    );
    assert_eq!(
        other.calls(),
        [("get_activities".to_owned(), json!({"id": "a1"}))]
    );
}

#[tokio::test]
async fn what_was_learnt_is_shown_to_operators_and_forgotten_when_they_say_so() {
    let stage = Stage::with(vec![echo("get_activity")], "").await;
    stage.call("get_activity", json!({})).await;
    let mut admin = stage.relight.admin();
    let learnt = admin
        .get_tool_learning(GetToolLearningRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(learnt.records[0].tool, "strava/get_activity");
    assert_eq!(learnt.records[0].tenant, "default");
    assert!(learnt.records[0].succeeded > 0.9 && learnt.records[0].failed < 0.1);
    let forget = |tenant: &str| ResetToolLearningRequest {
        tenant: tenant.to_owned(),
        ..ResetToolLearningRequest::default()
    };
    for (tenant, forgotten) in [("other", 0), ("default", 1)] {
        let response = admin.reset_tool_learning(forget(tenant)).await.unwrap();
        assert_eq!(response.into_inner().forgotten, forgotten, "{tenant}");
    }
    let learnt = admin
        .get_tool_learning(GetToolLearningRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(learnt.records.is_empty());
}
