//! A tool server that takes long to start: what there is is listed without it, it is named, and
//! clients of every revision are told when its tools come.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use relight::internals::grpc::v1::GetStatusRequest;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{
    event_reader::EventReader,
    front::{get, post},
    relight::Relight,
    tool_stage::{Stage, echo},
};

const PATIENCE: Duration = Duration::from_mins(1);

/// A server with one tool, which says nothing before a file is there.
const SERVER: &str = r#"
while [ ! -e "$0" ]; do sleep 0.05; done
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*)
      is='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},'
      is=$is'"serverInfo":{"name":"late","version":"1"}}' ;;
    *'"tools/list"'*)
      is='"result":{"tools":[{"name":"late_tool","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) is='"result":{"content":[{"type":"text","text":"at last"}]}' ;;
    *) is='"error":{"code":-32601,"message":"no"}' ;;
  esac
  if [ -n "$id" ]; then printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$is"; fi
done
"#;

/// The server in the configuration, and the file that it waits for.
struct Late {
    server: String,
    gate: PathBuf,
    _folder: tempfile::TempDir,
}

impl Late {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        let server = json!({ "command": "sh", "args": ["-c", SERVER, gate] });
        Self {
            server: format!("    late: {server}"),
            gate,
            _folder: folder,
        }
    }

    /// A stage on which another server has the tool `search`.
    async fn beside_search(&self) -> Stage {
        let settings = format!(
            "{}\n  mcp_front: {{ listen: \"127.0.0.1:0\" }}",
            self.server
        );
        Stage::with(vec![echo("search")], &settings).await
    }

    fn start(&self) {
        std::fs::write(&self.gate, "").unwrap();
    }
}

fn address(relight: &Relight) -> SocketAddr {
    relight.running.mcp_front_address.unwrap()
}

async fn list(relight: &Relight) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    post(address(relight), "/mcp", &request).await.json()
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{listed}")).iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn until_named_as_away(relight: &Relight) {
    let naming = async {
        loop {
            let status = relight
                .admin()
                .get_status(GetStatusRequest::default())
                .await
                .unwrap();
            let reasons = status.into_inner().reasons;
            if reasons
                .iter()
                .any(|reason| reason.component == "tools:late")
            {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, naming)
        .await
        .expect("the status names it");
}

#[tokio::test]
async fn what_there_is_is_listed_without_a_late_server_and_clients_are_told_when_it_comes() {
    let late = Late::new();
    let stage = late.beside_search().await;
    let relight = &stage.relight;
    let about = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let wanted = json!({"toolsListChanged": true});
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": about, "notifications": wanted}});
    let modern = EventReader::post(address(relight), &headers, &listen);
    let (mut modern, mut legacy) = tokio::join!(modern, EventReader::get(address(relight)));
    let acknowledged = modern.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let listed = list(relight).await;
    assert_eq!(names(&listed), ["search"]);
    let away = &listed["result"]["_meta"]["relight/unavailable"];
    assert_eq!(away[0]["server"], "late", "{listed}");
    until_named_as_away(relight).await;
    late.start();
    for events in [&mut modern, &mut legacy] {
        let told = async {
            loop {
                let changed = events.next().await;
                assert_eq!(changed["method"], "notifications/tools/list_changed");
                let listed = list(relight).await;
                if names(&listed) == ["late_tool", "search"] {
                    return listed;
                }
            }
        };
        let listed = timeout(PATIENCE, told).await.expect("it is told");
        assert!(listed["result"].get("_meta").is_none(), "{listed}");
    }
}

#[tokio::test]
async fn a_late_server_is_waited_for_where_no_other_has_a_tool() {
    let late = Late::new();
    let relight = Relight::start(&format!(
        "tools:\n  servers:\n{}\n  mcp_front: {{ listen: \"127.0.0.1:0\" }}\n",
        late.server
    ))
    .await;
    let start = async {
        until_named_as_away(&relight).await;
        late.start();
    };
    let (listed, ()) = tokio::join!(list(&relight), start);
    assert_eq!(names(&listed), ["late_tool"]);
}

#[tokio::test]
async fn calls_during_a_first_start_wait_for_it_whether_it_is_known_to_be_late_or_not() {
    let late = Late::new();
    let stage = late.beside_search().await;
    let relight = &stage.relight;
    let call = |name: &'static str| async move {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": {}}});
        post(address(relight), "/mcp", &request).await.json()
    };
    let second = async {
        until_named_as_away(relight).await;
        call("late_tool").await
    };
    let start = async {
        until_named_as_away(relight).await;
        let other = call("search").await;
        assert!(other["result"]["content"].is_array(), "{other}");
        // Longer than a call waits for the list of any other server.
        sleep(Duration::from_secs(6)).await;
        late.start();
    };
    let (first, second, ()) = tokio::join!(call("late/late_tool"), second, start);
    for called in [first, second] {
        assert_eq!(
            called["result"]["content"][0]["text"], "at last",
            "{called}"
        );
    }
}

#[tokio::test]
async fn clients_of_earlier_revisions_alone_get_a_stream_and_know_that_they_do() {
    let stage = Stage::with(
        vec![echo("search")],
        "  mcp_front: { listen: \"127.0.0.1:0\" }",
    )
    .await;
    let address = address(&stage.relight);
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    let begun = post(address, "/mcp", &begin).await.json();
    assert_eq!(
        begun["result"]["capabilities"]["tools"]["listChanged"],
        true
    );
    let refused = get(address, "/mcp").await;
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("POST"))
    );
}
