//! MCP servers that say more, less or other things than they should: as child processes that a
//! shell script plays, and over HTTP on this host.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the servers and calls of tests"
)]

mod children;
mod http;
mod http_server;

use std::{sync::Arc, time::Duration};

use relight_policy::domain::{
    failure::ProviderError,
    tool::{ToolReply, ToolRequest},
};
use relight_tool::{ToolServerPlace, ToolServerSpec, ToolServers};
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns the servers with one alone.
fn server(place: ToolServerPlace) -> ToolServers {
    ToolServers::build(&[ToolServerSpec::new("one", place)]).unwrap()
}

fn request(tool: &str) -> ToolRequest {
    ToolRequest {
        tool: tool.to_owned(),
        arguments: "{}".to_owned(),
        meta: None,
    }
}

/// Calls a tool; the numbers that it reports as its progress are returned, too.
async fn call_with_progress(
    servers: &ToolServers,
    tool: &str,
) -> (Result<ToolReply, ProviderError>, Vec<f64>) {
    let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
    let reports = Arc::clone(&reported);
    let on_progress: relight_tool::OnProgress =
        Arc::new(move |progress| reports.lock().unwrap().push(progress.progress));
    let calling = servers.call_with_progress("one", request(tool), Some(on_progress));
    let called = timeout(PATIENCE, calling).await;
    let called = called.unwrap_or_else(|_| panic!("{tool} hangs"));
    let reported = reported.lock().unwrap().clone();
    (called, reported)
}

async fn call(servers: &ToolServers, tool: &str) -> Result<ToolReply, ProviderError> {
    call_with_progress(servers, tool).await.0
}

/// Returns the text of a call that succeeds.
async fn text(servers: &ToolServers, tool: &str) -> String {
    let called = call(servers, tool).await;
    called
        .unwrap_or_else(|error| panic!("{tool}: {error}"))
        .text()
}
