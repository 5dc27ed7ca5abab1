//! What an agent meets beside its stories: a supervisor that goes on with what still works, and
//! servers and input that are wrong, each of which is one clear error and harms nobody else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use relight::internals::{
    grpc::v1::{
        FailureClass, GetThreadRequest, Invocation, InvokeWithRecoveryRequest, invocation::Call,
    },
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::{Value, json};

use crate::support::{
    relight::{Relight, asking},
    tool_stage::{Stage, calling, completed, failed},
    upstream::Upstream,
};

fn any() -> Value {
    json!({"type": "object"})
}

fn fine(name: &str) -> ScriptedTool {
    ScriptedTool::new(name, &any(), |_| Executed::Result(json!({"rides": 12})))
}

#[tokio::test]
async fn a_supervisor_goes_on_with_reduced_capability_and_knows_what_could_not_be_done_and_why() {
    let private = ScriptedTool::new("get_private", &any(), |_| {
        Executed::Error("403 Forbidden: private".to_owned())
    });
    let missing = ScriptedTool::new("get_weather", &any(), |_| {
        Executed::Error("503 Service Unavailable".to_owned())
    });
    let (script, wire) = (
        McpScript::new(vec![private, missing, fine("get_rides")]),
        WireServer::start().await.unwrap(),
    );
    script.play_on(&wire);
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(
        "You rode 12 times. What the others ride is private, and the weather is not known.",
    ));
    let relight = Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\n\
         routes: {{ r: {{ targets: [main] }} }}\n\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms }} }} }} }}\n\
         tools:\n  servers: {{ strava: {{ url: \"http://{}/mcp\" }} }}\n  \
           tools: {{ get_weather: {{ read_only: true }}, get_private: {{ read_only: true }} }}\n",
        upstream.base_url(),
        wire.address()
    ))
    .await;
    let on_thread = |invocation: Invocation| Invocation {
        thread_id: "t-1".to_owned(),
        ..invocation
    };
    for (tool, goal) in [
        ("get_private", "compare with the others"),
        ("get_weather", "plan for rain"),
    ] {
        let mut invocation = on_thread(calling(tool, json!({})));
        if let Some(Call::Tool(call)) = &mut invocation.call {
            call.goal = goal.to_owned();
        }
        failed(&relight.invoke(invocation).await);
    }
    completed(
        &relight
            .invoke(on_thread(calling("get_rides", json!({}))))
            .await,
    );
    let request = GetThreadRequest {
        thread_id: "t-1".to_owned(),
    };
    let thread = relight
        .recovery()
        .get_thread(request)
        .await
        .unwrap()
        .into_inner()
        .thread
        .unwrap();
    let [private, weather] = thread.errors.as_slice() else {
        panic!("{:#?}", thread.errors)
    };
    assert_eq!(private.failure_class(), FailureClass::PermissionDenied);
    assert!(
        private.reasoning.contains("compare with the others") && !private.alternatives.is_empty(),
        "{private:#?}"
    );
    assert_eq!(weather.target, "strava/get_weather");
    assert!(
        weather.reasoning.contains("plan for rain") && !weather.user_message.is_empty(),
        "{weather:#?}"
    );
    // The supervisor puts into its last question what could not be done, in the words that each
    // failure has for that.
    let reasons: Vec<&str> = thread
        .errors
        .iter()
        .map(|error| error.user_message.as_str())
        .collect();
    let text = format!("Sum up. Not available: {}", reasons.join(" "));
    let answer = relight.invoke(on_thread(asking(&text))).await;
    completed(&answer);
    let sent = upstream.requests().pop().unwrap().body["messages"].to_string();
    assert!(
        sent.contains("rides") && sent.contains("not allowed"),
        "the result and the reasons are there: {sent}"
    );
}

#[tokio::test]
async fn bad_input_and_broken_servers_are_one_clear_error_each_and_others_are_served() {
    let uncompilable = json!({"type": "object", "properties": {"id": {"$ref": "#/nowhere"}}});
    let mut tools: Vec<ScriptedTool> = (0..500)
        .map(|number| fine(&format!("tool_{number}")))
        .collect();
    tools.push(ScriptedTool::new("odd_schema", &uncompilable, |_| {
        Executed::Refused(-32602, "no `id`".to_owned())
    }));
    let wrong_id = json!({"jsonrpc": "2.0", "id": 999_999, "result": {"content": []}});
    tools.push(ScriptedTool::new("wrong_id", &any(), move |_| {
        Executed::Wire(Box::new(Reply::document(&wrong_id)))
    }));
    let settings = "    gone: { command: /no/such/program }\n    \
                    nowhere: { url: \"http://127.0.0.1:9/mcp\" }\n  \
                    tools: { wrong_id: { timeout: 1s } }\n";
    let stage = Stage::with(tools, settings).await;
    let healthy = || async {
        completed(&stage.call("strava/tool_499", json!({})).await)
            .tool_output
            .is_some()
    };
    assert!(healthy().await, "one of five hundred tools");
    let odd = stage.call("strava/odd_schema", json!({"id": "a"})).await;
    assert!(
        failed(&odd).reasoning.contains("schema"),
        "{:#?}",
        failed(&odd)
    );
    let long = stage
        .call("strava/tool_1", json!({"text": "x".repeat(4 << 20)}))
        .await;
    assert_eq!(
        (failed(&long).failure_class(), long.attempts.len()),
        (FailureClass::InvalidRequest, 1)
    );
    assert!(
        failed(&long).message.contains("at most 4MiB"),
        "{}",
        failed(&long).message
    );
    let other = stage.call("strava/wrong_id", json!({})).await;
    assert_eq!(
        (failed(&other).failure_class(), other.attempts.len()),
        (FailureClass::OutcomeUnknown, 1)
    );
    for (server, words) in [("gone", "/no/such/program"), ("nowhere", "nowhere")] {
        let invocation = Some(calling(&format!("{server}/anything"), json!({})));
        let mut client = stage.relight.recovery();
        let status = client
            .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
            .await
            .unwrap_err();
        assert!(status.message().contains(words), "{status:?}");
    }
    assert!(healthy().await, "nobody else is affected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_changes_while_a_tool_runs_changes_nothing_of_that_call() {
    let runs = Arc::new(AtomicBool::new(false));
    let slow = {
        let runs = Arc::clone(&runs);
        ScriptedTool::new("slow", &any(), move |_| {
            runs.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(400));
            Executed::Result(json!("done"))
        })
    };
    let stage = Stage::with(vec![slow], "").await;
    let change = async {
        while !runs.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stage.script.replace(vec![fine("other")]);
    };
    let (response, ()) = tokio::join!(stage.call("slow", json!({})), change);
    assert_eq!(
        (
            completed(&response).tool_output.is_some(),
            response.attempts.len()
        ),
        (true, 1)
    );
    let gone = stage.call("slow", json!({})).await;
    assert_eq!(
        failed(&gone).failure_class(),
        FailureClass::NotFound,
        "{:#?}",
        failed(&gone)
    );
}
