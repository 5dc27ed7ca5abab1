//! A tool that its operator declared equal to another one takes over when that is down, however it
//! is down, and the report names the calls that were made and no others.

use relight::internals::{
    grpc::v1::{
        InvokeWithRecoveryResponse, Overrides, RecoveryStrategy,
        invoke_with_recovery_response::Outcome,
    },
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::json;

use crate::support::{
    relight::Relight,
    tool_stage::{applied, calling, completed, echo, failed},
};

/// The ways in which a tool is down.
const DOWN: [&str; 7] = ["503", "500", "silent", "reset", "opaque", "busy", "said so"];

/// The servers `a`, `b` and `c` of a tool `look` that changes nothing, declared equal.
struct Equals {
    scripts: Vec<McpScript>,
    relight: Relight,
    _wires: Vec<WireServer>,
}

impl Equals {
    async fn start(tools: Vec<ScriptedTool>, settings: &str) -> Self {
        let (mut scripts, mut wires, mut servers) = (Vec::new(), Vec::new(), String::new());
        let mut group = Vec::new();
        for (name, tool) in ["a", "b", "c"].into_iter().zip(tools) {
            let (script, wire) = (
                McpScript::new(vec![tool]),
                WireServer::start().await.unwrap(),
            );
            script.play_on(&wire);
            servers.extend([format!(
                "    {name}: {{ url: \"http://{}/mcp\" }}\n",
                wire.address()
            )]);
            group.push(format!("{name}/look"));
            scripts.push(script);
            wires.push(wire);
        }
        let yaml = format!(
            "policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 50ms }} }} }} }}\n\
             circuit: {{ mode: \"off\" }}\n\
             tools:\n  servers:\n{servers}  \
               tools: {{ look: {{ read_only: true, timeout: 300ms }} }}\n  \
               groups: {{ looking: [{}] }}\n{settings}",
            group.join(", ")
        );
        Self {
            scripts,
            relight: Relight::start(&yaml).await,
            _wires: wires,
        }
    }

    /// Calls the first one with so many retries.
    async fn call(&self, max_retries: u32) -> InvokeWithRecoveryResponse {
        let mut invocation = calling("a/look", json!({"id": 7}));
        invocation.overrides = Some(Overrides {
            max_retries: Some(max_retries),
            ..Overrides::default()
        });
        self.relight.invoke(invocation).await
    }

    fn called(&self) -> Vec<usize> {
        self.scripts
            .iter()
            .map(|script| script.calls().len())
            .collect()
    }
}

fn down(how: &'static str) -> ScriptedTool {
    ScriptedTool::new("look", &json!({"type": "object"}), move |_| match how {
        "503" => Executed::Wire(Box::new(Reply::status(503))),
        "500" => Executed::Wire(Box::new(Reply::status(500))),
        "silent" => Executed::Wire(Box::new(Reply::silence())),
        "reset" => Executed::Wire(Box::new(Reply::reset())),
        "busy" => Executed::Wire(Box::new(Reply::status(429))),
        "opaque" => Executed::Error("Error executing tool look".to_owned()),
        _ => Executed::Result(json!({"success": false, "error": "Request timeout"})),
    })
}

#[tokio::test]
async fn an_equal_tool_takes_over_from_one_that_is_down_even_with_one_attempt_left() {
    for how in DOWN {
        let equals = Equals::start(vec![down(how), echo("look")], "").await;
        for max_retries in [1, 2] {
            let response = equals.call(max_retries).await;
            assert!(
                matches!(response.outcome, Some(Outcome::Completion(_))),
                "{how}, {max_retries}: {response:#?}"
            );
            assert_eq!(response.final_target, "b/look", "{how}");
            assert!(
                applied(&response).contains(&RecoveryStrategy::Fallback),
                "{how}"
            );
        }
        assert_eq!(equals.called()[1], 2, "{how}");
    }
}

#[tokio::test]
async fn an_equal_tool_takes_over_where_the_server_of_the_first_does_not_even_list_it() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let (script, wire) = (
        McpScript::new(vec![echo("look")]),
        WireServer::start().await.unwrap(),
    );
    script.play_on(&wire);
    let relight = Relight::start(&format!(
        "tools:\n  servers:\n    a: {{ url: \"http://127.0.0.1:{port}/mcp\" }}\n    b: {{ url: \"http://{}/mcp\" }}\n  \
           tools: {{ look: {{ read_only: true }} }}\n  groups: {{ looking: [a/look, b/look] }}\n",
        wire.address()
    ))
    .await;
    let response = relight.invoke(calling("a/look", json!({"id": 7}))).await;
    let output = completed(&response).tool_output.clone().unwrap();
    assert_eq!(response.final_target, "b/look");
    assert!(
        output
            .reasoning
            .contains("`b/look` was called in place of `a/look`"),
        "{}",
        output.reasoning
    );
    assert_eq!(applied(&response), [RecoveryStrategy::Fallback]);
    assert_eq!(script.calls().len(), 1);
}

#[tokio::test]
async fn a_report_names_the_calls_that_were_made_and_no_others() {
    for how in DOWN {
        for max_retries in 0..=2_u32 {
            let tools = vec![down(how), down(how), down(how)];
            let equals = Equals::start(tools, "").await;
            let response = equals.call(max_retries).await;
            let text = format!("{:?}", failed(&response).reasoning);
            let named = text.matches("is called in place of").count();
            let others = equals.called()[1..]
                .iter()
                .filter(|calls| **calls > 0)
                .count();
            assert_eq!(named, others, "{how}, {max_retries}: {text}");
            let made: usize = equals.called().iter().sum();
            assert_eq!(
                response.attempts.len(),
                made,
                "{how}, {max_retries}: {text}"
            );
            assert!(
                made <= 1 + max_retries as usize,
                "{how}, {max_retries}: {made}"
            );
        }
    }
}

#[tokio::test]
async fn a_tool_that_may_have_acted_is_given_to_no_other_one() {
    for how in ["503", "silent", "reset"] {
        let equals = Equals::start(
            vec![down(how), echo("look")],
            "  recovery: { max_retries: 2 }\n",
        )
        .await;
        let mut invocation = calling("a/look", json!({"id": 7}));
        if let Some(relight::internals::grpc::v1::invocation::Call::Tool(call)) =
            &mut invocation.call
        {
            call.side_effects = Some(relight::internals::grpc::v1::SideEffects {
                read_only: Some(false),
                idempotent: Some(false),
                ..Default::default()
            });
        }
        let response = equals.relight.invoke(invocation).await;
        failed(&response);
        assert_eq!(equals.called(), [1, 0], "{how}");
    }
}
