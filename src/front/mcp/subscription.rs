//! Streams that tell a client when the tools changed: `subscriptions/listen` of 2026-07-28, and
//! what a client of an earlier revision gets with `GET`.

use std::time::Duration;

use async_stream::stream;
use axum::{body::Bytes, response::Response};
use futures_util::{Stream, StreamExt as _, stream::iter};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    listing,
    reply::{COMMENT, event, of_events},
    revision::Revision,
};
use crate::front::Front;

/// Interval at which it is looked for a change.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Responds with the changes of the tools until the client leaves or `is_over` says so, which is
/// asked again and again.
pub(super) fn listen(
    front: &Front,
    id: &Value,
    parameters: &Value,
    is_over: impl Fn() -> bool + Send + 'static,
) -> Response {
    let wants_tools = parameters["notifications"]["toolsListChanged"] == true;
    let about = json!({ "io.modelcontextprotocol/subscriptionId": id });
    let accepted = if wants_tools {
        json!({ "toolsListChanged": true })
    } else {
        json!({})
    };
    let acknowledged = event(&json!({
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": { "_meta": about, "notifications": accepted },
    }));
    let changed = event(&json!({
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": { "_meta": about },
    }));
    let end = listing::as_of(Revision::Modern, json!({ "_meta": about }));
    let end = event(&json!({ "jsonrpc": "2.0", "id": id, "result": end }));
    let changes = changes(front, wants_tools.then_some(changed), is_over);
    of_events(iter([acknowledged]).chain(changes).chain(iter([end])))
}

/// Returns the same for a client of an earlier revision, which asks for nothing in particular.
pub(super) fn listen_legacy(
    front: &Front,
    is_over: impl Fn() -> bool + Send + 'static,
) -> Response {
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    of_events(iter([COMMENT]).chain(changes(front, Some(event(&changed)), is_over)))
}

/// `changed` at each change of the tools, and comments that keep the connection alive.
fn changes(
    front: &Front,
    changed: Option<Bytes>,
    is_over: impl Fn() -> bool + Send + 'static,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let engine = front.engine.clone();
    let keepalive = front.settings().keepalive;
    stream! {
        let mut seen = engine.tools_listed().await;
        let mut spoke = Instant::now();
        while !is_over() {
            sleep(LOOK_EVERY).await;
            let listed = engine.tools_listed().await;
            if let Some(changed) = changed.as_ref().filter(|_| listed != seen) {
                spoke = Instant::now();
                yield changed.clone();
            } else if spoke.elapsed() >= keepalive {
                spoke = Instant::now();
                yield COMMENT;
            }
            seen = listed;
        }
    }
}
