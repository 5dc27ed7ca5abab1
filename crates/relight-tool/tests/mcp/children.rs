//! MCP servers that are child processes.

use std::{sync::Arc, time::Duration};

use relight_policy::domain::failure::TransportFault;
use relight_tool::{ChildSpec, ToolServerPlace, ToolServers};

use super::{call, call_with_progress, request, server, text};

/// A server whose calls are played by a piece of a script: `$id` is the number of the request,
/// `answer` responds with a member, `done` with a text.
fn child(on_call: &str) -> ToolServers {
    let script = r#"
        answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
        done_with() { answer '"result":{"content":[{"type":"text","text":"'"$1"'"}]}'; }
        tell() { printf '{"jsonrpc":"2.0","method":"%s","params":%s}\n' "$1" "$2"; }
        while IFS= read -r line; do
            id=${line#*'"id":'}; id=${id%%[,\}]*}
            token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
            case $line in
            *'"method":"server/discover"'*) answer '"error":{"code":-32601,"message":"Method not found"}';;
            *'"method":"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"scripted","version":"1"}}';;
            *'"method":"tools/call"'*) ON_CALL;;
            esac
        done
    "#;
    let mut spec = ChildSpec::new("/bin/sh");
    spec.restart_initial = Duration::ZERO;
    spec.args = vec!["-c".to_owned(), script.replace("ON_CALL", on_call)];
    server(ToolServerPlace::McpChild(spec))
}

#[tokio::test]
async fn a_flood_of_notifications_ends_no_call_and_the_last_progress_comes() {
    let servers = child(
        r#"
        i=1
        while [ $i -le 5000 ]; do
            tell notifications/message '{"level":"info","data":"'$i'"}'
            tell notifications/tools/list_changed '{}'
            tell notifications/progress '{"progressToken":'$token',"progress":'$i'}'
            i=$((i+1))
        done
        done_with through"#,
    );
    for _ in 0..2 {
        let (called, reported) = call_with_progress(&servers, "floods").await;
        assert_eq!(called.unwrap().text(), "through");
        assert_eq!(reported.last(), Some(&5000.0));
    }
}

#[tokio::test]
async fn a_flood_without_end_ends_the_child() {
    let servers = child(
        r#"
        data=0123456789abcdef
        for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do data=$data$data; done
        while :; do tell notifications/message '{"data":"'$data'"}'; done"#,
    );
    let error = call(&servers, "floods").await.unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::TooLarge), "{error}");
}

#[tokio::test]
async fn a_response_that_names_no_open_request_ends_no_call() {
    let servers = child(
        r#"
        own=$id
        for id in 99999 '"x-7"' 0 -3 null; do done_with stray; answer '"error":{"code":-32603,"message":"stray"}'; done
        id=$own; done_with own; done_with again"#,
    );
    for _ in 0..3 {
        assert_eq!(text(&servers, "strays").await, "own");
    }
}

#[tokio::test]
async fn a_number_that_comes_back_as_a_text_or_a_fraction_is_the_same() {
    for form in [r#"id='"'$id'"'"#, "id=$id.0"] {
        let servers = child(&format!("{form}; done_with own"));
        assert_eq!(text(&servers, "echoes").await, "own", "{form}");
    }
}

#[tokio::test]
async fn an_error_that_names_no_request_ends_only_one_that_stays_without_its_response() {
    let unread = r#"own=$id; id=null; answer '"error":{"code":-32700,"message":"Parse error"}'"#;
    let servers = child(&format!("{unread}; id=$own; sleep 1; done_with own"));
    assert_eq!(text(&servers, "responds").await, "own");
    let error = call(&child(unread), "is_unread").await.unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::Protocol), "{error}");
    assert!(error.text().unwrap().contains("Parse error"), "{error}");
}

#[tokio::test]
async fn a_notification_that_is_too_long_ends_no_call() {
    let servers = child(
        r#"
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"id":%s,"data":"' $id
        head -c 9000000 /dev/zero | tr '\0' x
        printf '"}}\n'
        done_with own"#,
    );
    assert_eq!(text(&servers, "logs").await, "own");
}

#[tokio::test]
async fn a_server_that_reads_no_more_is_started_anew_for_the_call_that_it_did_not_get() {
    let servers = child(
        "exec 0<&-; tell notifications/progress '{\"progressToken\":'$token',\"progress\":1}'; sleep 2; done_with $$; sleep 600",
    );
    let is_closed = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&is_closed);
    let on_progress: relight_tool::OnProgress = Arc::new(move |_| told.notify_one());
    let first = servers.call_with_progress("one", request("closes_its_input"), Some(on_progress));
    let later = async {
        is_closed.notified().await;
        text(&servers, "comes_later").await
    };
    let (first, later) = tokio::join!(first, later);
    assert_ne!(first.unwrap().text(), later);
}

#[tokio::test]
async fn what_a_server_requests_of_its_client_is_answered_at_once() {
    let servers = child(
        r#"
        own=$id
        heard=
        for method in ping elicitation/create sampling/createMessage roots/list tasks/later; do
            printf '{"jsonrpc":"2.0","id":"s-1","method":"%s","params":{"message":"m"}}\n' $method
            IFS= read -r line
            case $line in
            *'"error":{"code":-32601,'*"$method"*) heard="$heard refused";;
            *'"result":{}'*) heard="$heard done";;
            *) heard="$heard other";;
            esac
        done
        id=$own; done_with "$heard""#,
    );
    assert_eq!(
        text(&servers, "asks").await,
        " done refused refused refused refused"
    );
}
