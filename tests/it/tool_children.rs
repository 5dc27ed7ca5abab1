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

use proptest::strategy::{Strategy as _, ValueTree as _};
use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        failure::{ProviderError, Surface, TransportFault},
        message::{Media, MediaSource},
        tool::{ToolContent, ToolReply, ToolRequest},
    },
    tool::{ToolServerPlace, ToolServerSpec, ToolServers, configured},
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
        Self::with(start, settings, limits, |_| ())
    }

    /// The same with what no setting changes.
    fn with(
        start: &str,
        settings: Value,
        limits: Value,
        change: impl FnMut(&mut ToolServerSpec),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut specs = specs(&folder, start, settings, limits);
        specs.iter_mut().for_each(change);
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
            meta: None,
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
        "start_timeout": "1m",
    });
    merge(&mut child, settings);
    let text = json!({ "tools": { "servers": { "child": child }, "limits": limits } }).to_string();
    let environment =
        GivenEnvironment::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    let config = load_text(&text, None, &environment)
        .unwrap_or_else(|faults| panic!("{faults}"))
        .config;
    let mut specs = configured(&config.tools);
    for spec in &mut specs {
        if let ToolServerPlace::McpChild(child) = &mut spec.place {
            child.restart_initial = Duration::from_millis(300);
            child.restart_max = Duration::from_secs(2);
        }
    }
    specs
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
    let child = Child::with("", json!({}), json!({}), |spec| {
        if let ToolServerPlace::McpChild(child) = &mut spec.place {
            child.restart_initial = Duration::from_secs(3600);
            child.restart_max = Duration::from_secs(3600);
        }
    });
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
async fn a_child_that_served_a_call_before_it_ended_is_not_waited_for_longer_each_time() {
    let child = Child::with("", json!({}), json!({}), |spec| {
        if let ToolServerPlace::McpChild(child) = &mut spec.place {
            child.restart_initial = Duration::from_secs(2);
            child.restart_max = Duration::from_secs(3600);
        }
    });
    for _ in 0..4 {
        child.until_restarted().await;
        let crashed = child.fault("crash").await;
        let wait = crashed.header("retry-after-ms").unwrap_or("0");
        assert!(wait.parse::<u64>().unwrap() <= 2000, "{wait}");
    }
}

#[tokio::test]
async fn a_flood_without_end_ends_the_child_with_one_fault_and_the_next_call_works() {
    let limits = json!({ "max_reply_bytes": "64KiB" });
    for tool in ["endless_line", "endless_messages"] {
        let child = Child::new("", json!({}), limits.clone());
        let error = child.fault(tool).await;
        assert_eq!(
            (error.fault, error.surface),
            (Some(TransportFault::TooLarge), Surface::Transport),
            "{tool}: {error}"
        );
        child.until_restarted().await;
        assert_eq!(child.count(&format!("call {tool}")), 1);
    }
}

#[tokio::test]
async fn a_response_that_cannot_be_read_fails_its_own_call_at_once_and_the_child_lives() {
    let child = Child::usual();
    let error = child.fault("broken").await;
    assert_eq!(error.surface, Surface::Transport, "{error}");
    assert!(error.fault.is_none_or(|fault| !fault.never_sent()));
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
}

#[tokio::test]
async fn a_child_lives_through_any_bytes_on_both_pipes_and_its_calls_are_answered() {
    let child = Child::usual();
    let mut noises: Vec<(u8, usize, Vec<u8>)> = vec![
        (0, 0, b"Traceback (most recent call last):\n".to_vec()),
        (0, 0, b"\xff\xfe\n".to_vec()),
        (0, 0, b"no end of its own: ".to_vec()),
        (0, 0, b"{\"level\": \"info\"}\n[1]\n\"x\"\n\r\n\n".to_vec()),
        (b'L', 1500, b"\nnext\n".to_vec()),
        (b'L', 3 << 20, b"\n".to_vec()),
        (0xfe, 12 << 20, b"\n".to_vec()),
        (b'\n', 3 << 20, Vec::new()),
    ];
    let mut runner = proptest::test_runner::TestRunner::default();
    let bytes = proptest::prop_oneof![
        3 => proptest::num::u8::ANY,
        1 => proptest::strategy::Just(b'\n'),
        1 => proptest::strategy::Just(b'{'),
    ];
    for _ in 0..20 {
        let mut noise = proptest::collection::vec(bytes.clone(), 0..3000)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        noise.push(b'\n');
        noises.push((0, 0, noise));
    }
    for (fill, size, bytes) in noises {
        let shown = format!("{size} times {fill}, {:?}", String::from_utf8_lossy(&bytes));
        let said = json!({ "fill": fill, "size": size, "bytes": bytes });
        let reply = child.call("noisy", said).await;
        let reply = reply.unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(text_of(&reply), "done", "{shown}");
    }
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1, "it is one process all along");
}

#[tokio::test]
async fn a_second_response_to_one_request_harms_nobody() {
    let child = Child::usual();
    assert_eq!(
        text_of(&child.call("twice", json!({})).await.unwrap()),
        "once"
    );
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
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
    assert!(error.text().unwrap().contains("64KiB"), "{error}");
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
}

#[tokio::test]
async fn arguments_beyond_their_bound_or_of_another_kind_are_not_sent() {
    let child = Child::with("", json!({}), json!({}), |spec| {
        spec.limits.max_arguments_bytes = 1024;
    });
    let long = child
        .call("echo", json!({ "text": "x".repeat(1024) }))
        .await
        .unwrap_err();
    let words = long.text().unwrap();
    assert!(words.contains("at most 1KiB"), "{words}");
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
async fn a_child_that_does_not_read_its_input_is_ended_and_the_next_gets_what_it_did_not() {
    let child = Child::usual();
    let deaf = child.call("deaf", json!({}));
    let large = async {
        child.until_noted("call deaf").await;
        child
            .call("echo", json!({ "text": "x".repeat(1 << 20) }))
            .await
    };
    let (deaf, large) = tokio::join!(deaf, large);
    let error = deaf.unwrap_err();
    assert_eq!(
        error.fault,
        Some(TransportFault::FirstTokenTimeout),
        "{error}"
    );
    large.unwrap();
    assert_eq!(child.count("call echo"), 1);
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
async fn a_child_that_says_nothing_to_a_discovery_is_spoken_to_in_the_older_way() {
    let child = Child::new("mute", json!({}), json!({}));
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
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
