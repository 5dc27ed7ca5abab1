//! A call that outlasts the drain is told what its caller can do: come back to it by its name, make
//! it again, or neither.

use std::time::Duration;

use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, ToolCall, invocation::Call,
};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Makes these calls of a server that ends while they run, and returns how each ends.
async fn cut_off(calls: Vec<Invocation>) -> Vec<Status> {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Never.").slow_head(Duration::from_mins(1)));
    let config = json!({
        "server": { "listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "drain_timeout": "1s" },
        "providers": { "p": { "dialect": "openai_chat", "base_url": upstream.base_url(), "api_key": "k" } },
        "targets": { "t": { "provider": "p", "model": "m" } },
        "routes": { "default": { "targets": ["t"] } },
        "journal": { "store": "memory" },
        "tools": { "servers": { "s": { "http": {
            "base_url": upstream.base_url(), "tools": { "pay": { "path": "/pay" } },
        } } } },
    });
    let relight = Relight::start_whole(&config.to_string()).await;
    let count = calls.len();
    let running = calls.into_iter().map(|invocation| {
        let mut client = relight.recovery();
        async move {
            let request = InvokeWithRecoveryRequest {
                invocation: Some(invocation),
            };
            client.invoke_with_recovery(request).await.unwrap_err()
        }
    });
    let running = futures_util::future::join_all(running);
    let ended = async {
        upstream.await_request(count).await;
        relight.running.shutdown().await;
    };
    tokio::join!(running, ended).0
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap().reason
}

#[tokio::test]
async fn a_call_that_outlasts_the_drain_is_told_to_resume_only_what_it_can() {
    let plain = asking("Hello");
    let named = Invocation {
        request_id: "r-1".to_owned(),
        ..asking("Hello")
    };
    let tool = Invocation {
        operation: "executor".to_owned(),
        call: Some(Call::Tool(ToolCall {
            name: "s/pay".to_owned(),
            arguments_json: "{}".to_owned(),
            ..ToolCall::default()
        })),
        ..Invocation::default()
    };
    let statuses = cut_off(vec![plain, named, tool]).await;
    let reasons: Vec<String> = statuses.iter().map(reason).collect();
    assert_eq!(reasons, ["DRAINING", "RESUME", "CUT_OFF"]);
    for status in &statuses {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    }
    let pushback = |status: &Status| {
        let value = status.metadata().get("grpc-retry-pushback-ms");
        value.map(|value| value.to_str().unwrap().starts_with('-'))
    };
    assert_eq!(pushback(&statuses[2]), Some(true), "it is not made again");
}
