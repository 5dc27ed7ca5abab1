//! Tool servers that are written with the official SDKs of MCP, in Python and in TypeScript, over
//! standard input and output and over streamable HTTP. `tests/tools/run.sh` installs them; without
//! that these tests are left out.

#![expect(
    clippy::needless_pass_by_value,
    clippy::duration_suboptimal_units,
    reason = "written as the tests read best"
)]

use std::{path::Path, process::Stdio, time::Duration};

use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        failure::{ProviderError, Surface, TransportFault},
        tool::{ToolReply, ToolRequest},
    },
    tool::{ListFreshness, ToolServers, configured},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The program and its arguments.
fn programs() -> [(&'static str, [String; 2]); 2] {
    let root = env!("CARGO_MANIFEST_DIR");
    let python = [
        format!("{root}/target/tools/venv/bin/python"),
        format!("{root}/tests/tools/server.py"),
    ];
    let node = ["node".to_owned(), format!("{root}/target/tools/server.mjs")];
    [("python", python), ("typescript", node)]
}

/// One server, however it is reached.
struct Server {
    name: String,
    servers: ToolServers,
    folder: tempfile::TempDir,
    /// The process of a server behind a URL.
    _http: Option<Child>,
}

impl Server {
    async fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (language, program) in programs() {
            assert!(
                Path::new(&program[1]).exists(),
                "run tests/tools/run.sh first"
            );
            all.push(Self::over_stdio(language, &program));
            all.push(Self::over_http(language, &program).await);
        }
        all
    }

    fn over_stdio(language: &str, program: &[String; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = json!({
            "command": program[0],
            "args": [program[1]],
            "env": { "NOTES": folder.path().join("notes") },
            "restart": { "initial": "100ms" },
        });
        Self::new(&format!("{language} over stdio"), server, folder, None)
    }

    async fn over_http(language: &str, program: &[String; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(&program[0])
            .args([&program[1], "--http"])
            .env("NOTES", folder.path().join("notes"))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let port = line
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line}"));
        let url = json!({ "url": format!("http://127.0.0.1:{port}/mcp") });
        Self::new(&format!("{language} over HTTP"), url, folder, Some(process))
    }

    fn new(name: &str, server: Value, folder: tempfile::TempDir, http: Option<Child>) -> Self {
        let text =
            json!({ "tools": { "servers": { "s": server }, "limits": { "max_reply_bytes": "1MiB" } } }).to_string();
        #[expect(clippy::disallowed_methods, reason = "node is found by it")]
        let path = std::env::var("PATH").unwrap();
        let environment = GivenEnvironment::from([("PATH".to_owned(), path)]);
        let config = load_text(&text, None, &environment)
            .unwrap_or_else(|faults| panic!("{faults}"))
            .config;
        let servers = ToolServers::build(&configured(&config.tools)).unwrap();
        Self {
            name: name.to_owned(),
            servers,
            folder,
            _http: http,
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<ToolReply, ProviderError> {
        let request = ToolRequest {
            tool: tool.to_owned(),
            arguments: arguments.to_string(),
            meta: None,
        };
        timeout(PATIENCE, self.servers.call("s", request))
            .await
            .unwrap_or_else(|_| panic!("{}: {tool}", self.name))
    }

    async fn structured(&self, tool: &str, arguments: Value) -> Value {
        let reply = self
            .call(tool, arguments)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        serde_json::from_str(reply.structured.as_deref().unwrap()).unwrap()
    }

    async fn parameters_of(&self, tool: &str) -> Vec<String> {
        let list = self.servers.list("s", ListFreshness::Cached).await.unwrap();
        let properties = &list.find(tool).unwrap().input_schema["properties"];
        properties.as_object().unwrap().keys().cloned().collect()
    }
}

#[tokio::test]
#[ignore = "needs the SDKs that tests/tools/run.sh installs"]
async fn a_server_of_each_sdk_lists_and_executes_its_tools() {
    for server in Server::all().await {
        let list = server
            .servers
            .list("s", ListFreshness::Cached)
            .await
            .unwrap();
        assert_eq!(list.tools.len(), 9, "{}", server.name);
        assert_eq!(
            list.find("get_activities").unwrap().annotations.read_only,
            Some(true),
            "{}",
            server.name
        );
        let found = server
            .structured(
                "get_activities",
                json!({ "after": "2024-01-03", "before": "2024-01-31" }),
            )
            .await;
        assert_eq!(found["total"], 4, "{}", server.name);
        let forbidden = server
            .call("get_private_activities", json!({ "athlete": "bo" }))
            .await
            .unwrap_err();
        assert_eq!(forbidden.surface, Surface::Tool);
        assert!(
            forbidden.text().unwrap().contains("403 Forbidden"),
            "{}: {forbidden}",
            server.name
        );
        let added = server
            .structured("add_comment", json!({ "text": "hi", "key": "k" }))
            .await;
        assert_eq!(added["added"], "hi");
        let notes = std::fs::read_to_string(server.folder.path().join("notes")).unwrap();
        assert_eq!(notes, "comment hi\n", "{}", server.name);
    }
}

#[tokio::test]
#[ignore = "needs the SDKs that tests/tools/run.sh installs"]
async fn a_parameter_that_a_server_renames_is_seen_in_the_next_list() {
    for server in Server::all().await {
        assert_eq!(
            server.parameters_of("search").await,
            ["query", "limit"],
            "{}",
            server.name
        );
        server
            .structured("control", json!({ "action": "rename" }))
            .await;
        let renaming = async {
            while server.parameters_of("search").await != ["query", "max_results"] {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, renaming)
            .await
            .unwrap_or_else(|_| panic!("{}", server.name));
        let old = server
            .call("search", json!({ "query": "x", "limit": 2 }))
            .await
            .unwrap_err();
        assert_eq!(
            (old.surface, old.fault),
            (Surface::Tool, None),
            "{}",
            server.name
        );
        assert!(
            old.text().unwrap().contains("limit"),
            "{}: {old}",
            server.name
        );
        let new = server
            .structured("search", json!({ "query": "x", "max_results": 2 }))
            .await;
        assert_eq!(new["activities"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
#[ignore = "needs the SDKs that tests/tools/run.sh installs"]
async fn a_range_that_is_too_large_hangs_until_its_caller_gives_up_and_others_are_served() {
    for server in Server::all().await {
        let half_a_year = json!({ "after": "2024-01-01", "before": "2024-06-30" });
        let given_up = timeout(
            Duration::from_millis(500),
            server.call("get_activities", half_a_year),
        )
        .await;
        assert!(given_up.is_err(), "{}", server.name);
        server
            .structured("get_activity", json!({ "id": "a-7" }))
            .await;
    }
}

#[tokio::test]
#[ignore = "needs the SDKs that tests/tools/run.sh installs"]
async fn a_server_that_misbehaves_on_its_output_is_one_fault_and_starts_again() {
    for (language, program) in programs() {
        let server = Server::over_stdio(language, &program);
        for (how, fault) in [
            ("crash", TransportFault::ProcessExited),
            ("endless_line", TransportFault::TooLarge),
            ("flood", TransportFault::TooLarge),
        ] {
            let error = server
                .call("misbehave", json!({ "how": how }))
                .await
                .unwrap_err();
            assert_eq!(error.fault, Some(fault), "{language}, {how}: {error}");
            let restarting = async {
                while let Err(error) = server.call("get_activity", json!({ "id": "a-7" })).await {
                    assert_eq!(
                        error.fault,
                        Some(TransportFault::NotReady),
                        "{language}, {how}: {error}"
                    );
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(PATIENCE, restarting).await.unwrap();
        }
    }
}

#[tokio::test]
#[ignore = "needs the SDKs that tests/tools/run.sh installs"]
async fn a_comment_whose_server_dies_after_it_was_added_is_never_called_unsent_and_never_repeated()
{
    for server in Server::all().await {
        let error = server
            .call("add_comment", json!({ "text": "once", "then": "crash" }))
            .await
            .unwrap_err();
        assert!(
            error.fault.is_some_and(|fault| !fault.never_sent()),
            "{}: {error}",
            server.name
        );
        let notes = std::fs::read_to_string(server.folder.path().join("notes")).unwrap();
        assert_eq!(notes, "comment once\n", "{}", server.name);
    }
}
