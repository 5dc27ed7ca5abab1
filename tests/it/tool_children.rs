//! A tool server that is a child process: whatever it does, its caller gets one fact, in bounded
//! memory and time, and the next caller a child that works.

#![expect(
    clippy::needless_pass_by_value,
    clippy::duration_suboptimal_units,
    reason = "written as the tests read best"
)]

mod ends;
mod lists;
mod process;

use std::time::Duration;

use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        failure::{ProviderError, Surface, TransportFault},
        message::{Media, MediaSource},
        tool::{ToolContent, ToolReply, ToolRequest},
    },
    tool::{ToolServerSpec, ToolServers, configured},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::reloaded::merge;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Child {
    servers: ToolServers,
    folder: tempfile::TempDir,
}

impl Child {
    /// A server that does this at its start, with other settings laid over the usual ones.
    fn new(start: &str, settings: Value, limits: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let specs = specs(&folder, start, settings, limits);
        Self {
            servers: ToolServers::build(&specs).unwrap(),
            folder,
        }
    }

    fn usual() -> Self {
        Self::new("", json!({}), json!({}))
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<ToolReply, ProviderError> {
        let request = ToolRequest {
            tool: tool.to_owned(),
            arguments: arguments.to_string(),
        };
        timeout(PATIENCE, self.servers.call("child", request))
            .await
            .unwrap_or_else(|_| panic!("{tool} hangs"))
    }

    async fn fault(&self, tool: &str) -> ProviderError {
        self.call(tool, json!({})).await.unwrap_err()
    }

    /// What the child noted, line by line.
    fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.folder.path().join("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    fn count(&self, note: &str) -> usize {
        self.notes().iter().filter(|line| *line == note).count()
    }

    async fn until_noted(&self, note: &str) {
        let noting = async {
            while !self.notes().iter().any(|line| line.starts_with(note)) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, noting)
            .await
            .unwrap_or_else(|_| panic!("{note} is not in {:?}", self.notes()));
    }

    /// Calls until a restart is allowed.
    async fn until_restarted(&self) -> ToolReply {
        let restarting = async {
            loop {
                match self.call("echo", json!({})).await {
                    Ok(reply) => return reply,
                    Err(error) => {
                        assert_eq!(error.fault, Some(TransportFault::NotReady), "{error}");
                    }
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, restarting).await.unwrap()
    }
}

fn specs(
    folder: &tempfile::TempDir,
    start: &str,
    settings: Value,
    limits: Value,
) -> Vec<ToolServerSpec> {
    let binary = std::env::current_exe().unwrap();
    let mut child = json!({
        "command": "sh",
        "args": ["-c", process::SHELL, binary],
        "env": { "START": start, "NOTES": folder.path().join("notes") },
        "restart": { "initial": "300ms", "max": "2s" },
        "start_timeout": "1m",
    });
    merge(&mut child, settings);
    let text = json!({ "tools": { "servers": { "child": child }, "limits": limits } }).to_string();
    let environment =
        GivenEnvironment::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    configured(
        &load_text(&text, None, &environment)
            .unwrap_or_else(|faults| panic!("{faults}"))
            .config
            .tools,
    )
}

fn text_of(reply: &ToolReply) -> &str {
    match &reply.content[..] {
        [ToolContent::Text(text)] => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_is_started_before_its_first_use_and_one_child_serves_all_calls() {
    let child = Child::usual();
    assert_eq!(child.servers.known("child"), None);
    assert!(child.notes().is_empty());
    let call = |n: u32| child.call("echo", json!({ "n": n }));
    let replies = futures_util::future::join_all((0..20).map(call)).await;
    for (n, reply) in replies.into_iter().enumerate() {
        let reply = reply.unwrap();
        assert_eq!(
            reply.structured.as_deref(),
            Some(format!("{{\"n\":{n}}}").as_str())
        );
        assert_eq!(text_of(&reply), format!("{{\"n\":{n}}}"));
    }
    assert_eq!(child.count("initialize"), 1);
    assert_eq!(child.count("call echo"), 20);
}

#[tokio::test]
async fn pictures_and_files_come_as_their_bytes() {
    let reply = Child::usual().call("picture", json!({})).await.unwrap();
    let media = |mime: &str, bytes: &[u8], name: Option<&str>| Media {
        mime_type: mime.to_owned(),
        source: MediaSource::Bytes(bytes.to_vec()),
        name: name.map(str::to_owned),
        detail: None,
    };
    let picture = ToolContent::Image(media("image/png", b"\x89PNG", None));
    let file = ToolContent::File(media(
        "application/octet-stream",
        &[0, 1],
        Some("file:///a.bin"),
    ));
    assert_eq!(reply.content, [picture, file]);
}

#[tokio::test]
async fn what_a_tool_calls_an_error_and_what_the_protocol_does_are_facts_of_the_tool() {
    let child = Child::usual();
    let forbidden = child.fault("forbidden").await;
    assert_eq!((forbidden.surface, forbidden.fault), (Surface::Tool, None));
    assert_eq!(
        forbidden.text(),
        Some("403 Forbidden: these activities belong to somebody else")
    );
    let invalid = child.fault("invalid").await;
    assert_eq!((invalid.surface, invalid.fault), (Surface::Tool, None));
    let body: Value = serde_json::from_str(invalid.body.as_deref().unwrap()).unwrap();
    assert_eq!(body["error"]["code"], -32602);
    assert_eq!(
        body["error"]["message"],
        "Invalid params: missing field `path`"
    );
    assert_eq!(child.count("initialize"), 1, "neither ends the child");
}

#[tokio::test]
async fn a_child_that_exits_during_a_call_is_a_crash_and_starts_again_after_its_wait() {
    let child = Child::usual();
    let crashed = child.fault("crash").await;
    assert_eq!(crashed.fault, Some(TransportFault::ProcessExited));
    let words = crashed.text().unwrap();
    assert!(
        words.contains("exit status: 7") && words.contains("boom") && !words.contains('\u{1b}'),
        "{words}"
    );
    assert_eq!(
        child.until_restarted().await.structured.as_deref(),
        Some("{}")
    );
    assert_eq!(child.count("call crash"), 1, "it is never repeated");
}

#[tokio::test]
async fn calls_before_a_restart_fail_at_once_unsent_and_say_when_to_come_back() {
    let child = Child::new(
        "",
        json!({ "restart": { "initial": "1h", "max": "1h" } }),
        json!({}),
    );
    let crashed = child.fault("crash").await;
    let wait: u64 = crashed.header("retry-after-ms").unwrap().parse().unwrap();
    assert!(wait > 3_000_000, "{wait}");
    let early = child.fault("echo").await;
    assert_eq!(early.fault, Some(TransportFault::NotReady));
    assert!(early.fault.unwrap().never_sent());
    assert!(early.header("retry-after-ms").is_some());
    assert_eq!(child.count("call echo"), 0);
}

#[tokio::test]
async fn whatever_a_child_does_to_its_output_is_one_fault_and_the_next_call_works() {
    let limits = json!({ "max_reply_bytes": "64KiB" });
    for (tool, fault) in [
        ("not_json", TransportFault::Protocol),
        ("not_text", TransportFault::Protocol),
        ("wrong_id", TransportFault::Protocol),
        ("endless_line", TransportFault::TooLarge),
        ("endless_messages", TransportFault::TooLarge),
    ] {
        let child = Child::new("", json!({}), limits.clone());
        let error = child.fault(tool).await;
        assert_eq!(
            (error.fault, error.surface),
            (Some(fault), Surface::Transport),
            "{tool}: {error}"
        );
        assert!(!fault.never_sent(), "{tool} was sent");
        child.until_restarted().await;
        assert_eq!(child.count(&format!("call {tool}")), 1);
    }
}

#[tokio::test]
async fn a_second_response_to_one_request_ends_the_child_and_not_the_call() {
    let child = Child::usual();
    assert_eq!(
        text_of(&child.call("twice", json!({})).await.unwrap()),
        "once"
    );
    // A call that was made meanwhile may have been executed.
    if let Err(error) = child.call("echo", json!({})).await {
        assert!(
            matches!(
                error.fault,
                Some(TransportFault::Protocol | TransportFault::NotReady)
            ),
            "{error}"
        );
    }
    child.until_restarted().await;
    assert_eq!(child.count("initialize"), 2);
}

#[tokio::test]
async fn a_reply_may_be_as_long_as_its_bound_and_no_longer() {
    let child = Child::new("", json!({}), json!({ "max_reply_bytes": "64KiB" }));
    let fits = child
        .call("size", json!({ "bytes": 65_000 }))
        .await
        .unwrap();
    assert_eq!(text_of(&fits).len(), 65_000);
    let error = child
        .call("size", json!({ "bytes": 66_000 }))
        .await
        .unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::TooLarge));
}

#[tokio::test]
async fn arguments_beyond_their_bound_or_of_another_kind_are_not_sent() {
    let child = Child::new("", json!({}), json!({ "max_arguments_bytes": "1KiB" }));
    let long = child
        .call("echo", json!({ "text": "x".repeat(1024) }))
        .await
        .unwrap_err();
    let words = long.text().unwrap();
    assert!(
        words.contains("1KiB") && words.contains("max_arguments_bytes"),
        "{words}"
    );
    let list = child.call("echo", json!([1])).await.unwrap_err();
    assert!(
        list.text()
            .unwrap()
            .starts_with("Invalid arguments for tool `echo`"),
        "{list}"
    );
    assert!(child.notes().is_empty());
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_and_its_late_response_harms_nobody() {
    let child = Child::usual();
    child.call("echo", json!({})).await.unwrap();
    let dropped = timeout(Duration::from_millis(50), child.call("late", json!({}))).await;
    assert!(dropped.is_err());
    child.until_noted("cancelled").await;
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
}

#[tokio::test]
async fn a_child_that_does_not_read_its_input_is_ended() {
    let child = Child::usual();
    let deaf = child.call("deaf", json!({}));
    let large = async {
        child.until_noted("call deaf").await;
        child
            .call("echo", json!({ "text": "x".repeat(1 << 20) }))
            .await
    };
    let (deaf, large) = tokio::join!(deaf, large);
    for error in [deaf.unwrap_err(), large.unwrap_err()] {
        assert_eq!(
            error.fault,
            Some(TransportFault::FirstTokenTimeout),
            "{error}"
        );
    }
    child.until_restarted().await;
}

#[tokio::test]
async fn a_child_that_cannot_start_or_never_gets_ready_gets_no_request() {
    for (settings, start, fault, words) in [
        (
            json!({ "command": "/no/such/program" }),
            "",
            TransportFault::NotStarted,
            "/no/such/program",
        ),
        (
            json!({ "cwd": "/no/such/folder" }),
            "",
            TransportFault::NotStarted,
            "/no/such/folder",
        ),
        (
            json!({}),
            "exit",
            TransportFault::NotReady,
            "no module named strava",
        ),
        (
            json!({ "start_timeout": "300ms" }),
            "silent",
            TransportFault::ConnectTimeout,
            "300 ms",
        ),
    ] {
        let child = Child::new(start, settings, json!({}));
        let error = child.fault("echo").await;
        assert_eq!(error.fault, Some(fault), "{error}");
        assert!(
            fault.never_sent() && error.text().unwrap().contains(words),
            "{error}"
        );
        assert_eq!(child.count("call echo"), 0);
    }
}

#[tokio::test]
async fn a_banner_before_the_first_message_is_passed_over() {
    let child = Child::new("banner", json!({}), json!({}));
    child.call("echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_child_has_the_environment_and_folder_that_are_configured_and_no_other() {
    let settings = json!({ "cwd": "/tmp", "env": { "EXTRA": "x" } });
    let reply = Child::new("", settings, json!({}))
        .call("place", json!({}))
        .await
        .unwrap();
    let place: Value = serde_json::from_str(reply.structured.as_deref().unwrap()).unwrap();
    let mut names: Vec<&str> = place["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    // The shell that exchanges the descriptors sets some by itself.
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["EXTRA", "NOTES", "PATH", "START"]);
    assert_eq!(place["cwd"], "/tmp");
}
