//! Tools of a script, calls of them, and what comes back.

#![expect(
    clippy::needless_pass_by_value,
    reason = "arguments are written where they are passed"
)]

use relight::internals::{
    grpc::v1::{
        Completion, ExecutionState, Failure, Invocation, InvokeWithRecoveryResponse,
        ListExecutionsRequest, RecoveryStrategy, ToolCall, ToolExecution, invocation::Call,
        invoke_with_recovery_response::Outcome,
    },
    wire_server::{
        WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::{Value, json};

use crate::support::relight::Relight;

/// A scripted MCP server and a Relight that has it.
pub(crate) struct Stage {
    pub(crate) script: McpScript,
    pub(crate) wire: WireServer,
    pub(crate) relight: Relight,
}

impl Stage {
    pub(crate) async fn with(tools: Vec<ScriptedTool>, settings: &str) -> Self {
        Self::with_server(tools, "", settings).await
    }

    /// With something else that is set for the server.
    pub(crate) async fn with_server(
        tools: Vec<ScriptedTool>,
        server: &str,
        settings: &str,
    ) -> Self {
        let (script, wire) = (McpScript::new(tools), WireServer::start().await.unwrap());
        script.play_on(&wire);
        let yaml = format!(
            "policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms }} }} }} }}\n\
             tools:\n  servers:\n    strava: {{ url: \"http://{}/mcp\", {server} }}\n{settings}",
            wire.address()
        );
        Self {
            script,
            relight: Relight::start(&yaml).await,
            wire,
        }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> InvokeWithRecoveryResponse {
        self.relight.invoke(calling(tool, arguments)).await
    }

    /// The states of all executions that the journal knows, the newest first.
    pub(crate) async fn execution_states(&self) -> Vec<ExecutionState> {
        let request = ListExecutionsRequest::default();
        let listed = self
            .relight
            .recovery()
            .list_executions(request)
            .await
            .unwrap()
            .into_inner();
        listed.executions.iter().map(ToolExecution::state).collect()
    }
}

/// A call of a tool.
pub(crate) fn calling(tool: &str, arguments: Value) -> Invocation {
    let call = ToolCall {
        name: tool.to_owned(),
        arguments_json: arguments.to_string(),
        ..ToolCall::default()
    };
    Invocation {
        call: Some(Call::Tool(call)),
        ..Invocation::default()
    }
}

pub(crate) fn completed(response: &InvokeWithRecoveryResponse) -> &Completion {
    match response.outcome.as_ref().unwrap() {
        Outcome::Completion(completion) => completion,
        Outcome::Failure(failure) => panic!("{failure:#?}"),
    }
}

pub(crate) fn failed(response: &InvokeWithRecoveryResponse) -> &Failure {
    match response.outcome.as_ref().unwrap() {
        Outcome::Failure(failure) => failure,
        Outcome::Completion(completion) => panic!("{completion:#?}"),
    }
}

pub(crate) fn applied(response: &InvokeWithRecoveryResponse) -> Vec<RecoveryStrategy> {
    response.recovery_applied().collect()
}

pub(crate) fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A tool that echoes its arguments.
pub(crate) fn echo(name: &str) -> ScriptedTool {
    ScriptedTool::new(name, &json!({"type": "object"}), |arguments| {
        Executed::Result(arguments.clone())
    })
}
