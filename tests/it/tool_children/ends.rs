//! When a child ends, and all that it started with it: with its servers, at the shutdown, at a
//! reload that changes it.

use std::time::Duration;

use relight::internals::{domain::failure::TransportFault, grpc::v1::InvokeWithRecoveryRequest};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{Child, PATIENCE, specs, text_of};
use crate::support::{process::Process, tool_stage::calling};

fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default().chars().next();
    state.is_some_and(|state| state != 'Z')
}

async fn until_gone(process: &str) {
    let ending = async {
        while is_alive(process) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ending)
        .await
        .unwrap_or_else(|_| panic!("process {process} is still there"));
}

#[tokio::test]
async fn a_child_ends_with_all_that_it_started_when_nobody_holds_its_servers_any_more() {
    let child = Child::usual();
    let spawned = text_of(&child.call("spawn", json!({})).await.unwrap()).to_owned();
    assert!(is_alive(&spawned));
    drop(child);
    until_gone(&spawned).await;
}

#[tokio::test]
async fn closing_ends_every_child_and_its_calls_and_a_later_call_starts_anew() {
    let child = Child::usual();
    let spawned = text_of(&child.call("spawn", json!({})).await.unwrap()).to_owned();
    let hanging = child.call("hang", json!({}));
    let closing = async {
        child.until_noted("call hang").await;
        timeout(PATIENCE, child.servers.close()).await.unwrap();
    };
    let (hanging, ()) = tokio::join!(hanging, closing);
    assert_eq!(
        hanging.unwrap_err().fault,
        Some(TransportFault::ProcessExited)
    );
    until_gone(&spawned).await;
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 2);
}

#[tokio::test]
async fn a_reload_keeps_a_child_whose_settings_stay_and_ends_one_whose_settings_change() {
    let mut child = Child::usual();
    let spawned = text_of(&child.call("spawn", json!({})).await.unwrap()).to_owned();
    child.servers = child
        .servers
        .rebuild(&specs(&child.folder, "", json!({}), json!({})))
        .unwrap();
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 1);
    assert!(is_alive(&spawned));
    let changed = specs(
        &child.folder,
        "",
        json!({ "env": { "EXTRA": "x" } }),
        json!({}),
    );
    child.servers = child.servers.rebuild(&changed).unwrap();
    until_gone(&spawned).await;
    child.call("echo", json!({})).await.unwrap();
    assert_eq!(child.count("initialize"), 2);
    child.servers = child.servers.rebuild(&[]).unwrap();
    assert_eq!(
        child.fault("echo").await.fault,
        Some(TransportFault::NotStarted)
    );
}

#[tokio::test]
async fn a_killed_server_leaves_nothing_of_what_its_tool_servers_started() {
    let folder = tempfile::tempdir().unwrap();
    let noted = folder.path().join("noted");
    // It outlives its input, and what it started is no child of the server. A first line has come
    // once the server has begun to use it.
    let script =
        "trap '' TERM HUP; read -r _; sleep 1000 & echo $! >\"$0.new\"; mv \"$0.new\" \"$0\"; wait";
    let child = json!({ "command": "sh", "args": ["-c", script, noted] });
    let config = json!({ "tools": { "servers": { "s": child } } });
    let mut server = Process::start(&config.to_string()).await;
    let started = async {
        loop {
            if let Ok(started) = std::fs::read_to_string(&noted) {
                return started.trim().to_owned();
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let mut recovery = server.recovery();
    let calling = async {
        let request = InvokeWithRecoveryRequest {
            invocation: Some(calling("s/any", json!({}))),
        };
        let _ = recovery.invoke_with_recovery(request).await;
        std::future::pending::<()>().await;
    };
    let started = tokio::select! {
        started = timeout(PATIENCE, started) => started.unwrap(),
        () = calling => unreachable!(),
    };
    assert!(is_alive(&started));
    server.kill().await;
    until_gone(&started).await;
}
