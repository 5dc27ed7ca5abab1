//! The run full of faults: calls of every kind, over every front, with every fault that a provider
//! can have here.

use std::time::Duration;

use relight::internals::grpc::v1::{
    CircuitForce, ClassifyFailureRequest, ForceCircuitRequest, GetInvocationRequest,
    GetStatusRequest, Header, InjectionMode, Invocation, InvokeWithRecoveryRequest,
    ListTargetsRequest, Overrides, ResetCircuitRequest, StreamWithRecoveryRequest, ToolDefinition,
    get_invocation_request, invocation::Call, stream_with_recovery_request,
};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;

use super::{PATIENCE, Seen};
use crate::support::{
    front::question,
    relight::asking,
    reloaded::Reloaded,
    upstream::{Reply, chunk, usage_chunk},
};

/// The classes that only a rule of the operator gives.
/// Refusals in a row that chance does not explain, whatever was answered before.
const KEY_REFUSALS: usize = 6;

const BY_RULE: [&str; 7] = [
    "approval_rejected",
    "tool_failed",
    "outcome_unknown",
    "state",
    "checkpoint",
    "cache",
    "stream_interrupted",
];

pub(super) fn settings() -> serde_json::Value {
    // Failures of tools and stores are known to operators only.
    let rules =
        BY_RULE.map(|class| json!({ "name": class, "when": { "message": format!("ours: {class}") }, "class": class }));
    json!({
        "providers": { "q": { "dialect": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "api_key": "k" } },
        "targets": {
            "main": { "provider": "p", "model": "m-1", "price": { "input_per_million": 3.0, "output_per_million": 15.0 } }, "spare": { "provider": "p", "model": "m-2" },
            "away": { "provider": "q", "model": "m-3" },
        },
        "routes": {
            "default": { "targets": ["main"], "deadline": "1m" },
            "pair": { "targets": ["main", "spare"], "deadline": "1m" },
            "hedged": { "targets": ["main", "spare"], "deadline": "1m", "timers": { "soft_first_token": "200ms" } },
            "away": { "targets": ["away"], "deadline": "2s" },
            "brief": { "targets": ["main"], "deadline": "4s", "policy": "slow" },
        },
        "default_route": "default",
        // Far above what an answer takes on a busy machine: only what is silent on purpose meets
        // them.
        "timers": { "first_token": "4s", "first_token_alone": "4s", "soft_first_token": "20s", "idle": "2s" },
        "policies": { "slow": { "retry": { "backoff": { "base": "1m", "cap": "1m" } } }, "standard": { "retry": { "backoff": { "base": "10ms", "cap": "40ms" } }, "injection": { "mode": "always" } } },
        "budget": { "capacity": 20 },
        "admission": { "max_in_flight": 2 },
        "circuit": { "mode": "consecutive", "consecutive_failures": 9, "consecutive_open": "1s" },
        "classifier": { "rules": rules },
    })
}

fn on(route: &str, text: &str) -> Invocation {
    Invocation {
        route: route.to_owned(),
        ..asking(text)
    }
}

/// Calls of every kind, over every front, with every fault that a provider can be made to have
/// here.
pub(super) async fn faulty_run(server: &mut Reloaded, seen: &mut Seen) {
    faults_of_answers(server, seen).await;
    // No time is left for another attempt.
    server.upstream.push(Reply::status(500));
    unary(server, seen, on("brief", "hello")).await;
    faults_of_streams(server, seen).await;
    // Two targets: the soft timer starts a second attempt, and a refusal falls back.
    server
        .upstream
        .push(Reply::silence())
        .push(Reply::text("the spare answers"));
    unary(server, seen, on("hedged", "hello")).await;
    server
        .upstream
        .push(Reply::status(503))
        .push(Reply::status(503))
        .push(Reply::text("the spare answers"));
    unary(server, seen, on("pair", "hello")).await;
    unary(server, seen, on("away", "hello")).await;
    // The front, answered and refused.
    let front = server.running.openai_front_address.unwrap();
    for streamed in [false, true] {
        server.upstream.push(Reply::status(500));
        crate::support::front::post(
            front,
            "/v1/chat/completions",
            &question("default", streamed),
        )
        .await;
    }
    more_calls_than_are_let_in(server).await;
    outage(server, seen).await;
    // A key that is refused again and again, and one that works.
    for _ in 0..KEY_REFUSALS {
        server.upstream.push(Reply::status(401));
        unary(server, seen, on("default", "hello")).await;
    }
    seen.add(
        "ListTargetsResponse",
        &server
            .admin()
            .list_targets(ListTargetsRequest::default())
            .await
            .unwrap()
            .into_inner(),
    );
    seen.add(
        "GetStatusResponse",
        &server
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner(),
    );
    server.change(json!({ "providers": { "p": { "api_key": "k-2" } }, "admission": { "max_in_flight": 9 } })).await;
}

/// Each fault of an answer, until an answer without one.
async fn faults_of_answers(server: &Reloaded, seen: &mut Seen) {
    let length = [
        chunk(&json!({ "content": "cut short" }), None),
        chunk(&json!({}), Some("length")),
        usage_chunk(3, 4),
        "[DONE]".to_owned(),
    ];
    let faults: [Vec<Reply>; 10] = [
        vec![Reply::status(500), Reply::text("fine")],
        vec![Reply::status(503), Reply::text("fine")],
        vec![Reply::status(429), Reply::text("fine")],
        vec![Reply::body(418, &[], b"I am a teapot")],
        vec![Reply::status(400)],
        vec![
            Reply::text("a long answer that is cut").cut_in_the_middle(),
            Reply::text("a long answer that is cut"),
        ],
        vec![Reply::reset(), Reply::text("fine")],
        vec![Reply::html(), Reply::text("fine")],
        vec![Reply::events(&length)],
        vec![
            Reply::text("a stalling answer").stall_after(160),
            Reply::text("a stalling answer"),
        ],
    ];
    for (number, replies) in faults.into_iter().enumerate() {
        for reply in replies {
            server.upstream.push(reply);
        }
        let mut invocation = on("default", "hello");
        invocation.thread_id = if number == 0 {
            "talk".to_owned()
        } else {
            String::new()
        };
        unary(server, seen, invocation).await;
        while server.upstream.unplayed() > 0 {
            unary(server, seen, on("default", "hello")).await;
        }
    }
}

/// A tool call that cannot be read, and a stream that is cut.
async fn faults_of_streams(server: &Reloaded, seen: &mut Seen) {
    // A tool call that cannot be read, then one that can.
    let malformed = Reply::tool_call("get_weather", "{\"city\": ");
    server
        .upstream
        .push(malformed)
        .push(Reply::tool_call("get_weather", "{\"city\": \"Oslo\"}"));
    let mut with_tool = asking("weather?");
    if let Some(Call::Model(call)) = &mut with_tool.call {
        let input_schema_json = "{\"type\":\"object\"}".to_owned();
        call.tools = vec![ToolDefinition {
            name: "get_weather".to_owned(),
            input_schema_json,
            ..ToolDefinition::default()
        }];
    }
    stream(server, seen, with_tool).await;
    // A stream that is cut and begins anew with other text.
    server
        .upstream
        .push(Reply::text("one two three four five").cut_in_the_middle())
        .push(Reply::text("other words"));
    stream(server, seen, on("default", "again")).await;
}

async fn more_calls_than_are_let_in(server: &Reloaded) {
    server
        .upstream
        .push(Reply::silence())
        .push(Reply::silence());
    let mut hanging = JoinSet::new();
    for _ in 0..2 {
        let (mut client, invocation) = (server.recovery(), Some(on("default", "hang")));
        hanging.spawn(async move {
            client
                .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
                .await
        });
    }
    until(|| server.upstream.unplayed() == 0).await;
    let one_more = InvokeWithRecoveryRequest {
        invocation: Some(asking("hello")),
    };
    let refused = server
        .recovery()
        .invoke_with_recovery(one_more)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(hanging);
    until(|| server.running.engine().in_flight() == 0).await;
}

/// An outage opens the circuit and empties the budget; then all is well again, and an operator
/// forces the circuit.
async fn outage(server: &Reloaded, seen: &mut Seen) {
    server.upstream.otherwise(Reply::status(500));
    for _ in 0..6 {
        unary(server, seen, on("default", "hello")).await;
    }
    server.upstream.otherwise(Reply::text("well again"));
    for _ in 0..8 {
        unary(server, seen, on("default", "hello")).await;
    }
    for force in [CircuitForce::Open, CircuitForce::Closed, CircuitForce::Auto] {
        let request = ForceCircuitRequest {
            target: "main".to_owned(),
            force: force.into(),
            reason: String::new(),
        };
        let forced = server
            .admin()
            .force_circuit(request)
            .await
            .unwrap()
            .into_inner();
        seen.add("ForceCircuitResponse", &forced);
    }
    let reset = ResetCircuitRequest {
        target: "main".to_owned(),
    };
    seen.add(
        "ResetCircuitResponse",
        &server
            .admin()
            .reset_circuit(reset)
            .await
            .unwrap()
            .into_inner(),
    );
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the condition in time");
}

async fn unary(server: &Reloaded, seen: &mut Seen, mut invocation: Invocation) {
    invocation.overrides = Some(Overrides {
        injection_mode: InjectionMode::Always.into(),
        ..Overrides::default()
    });
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let response = server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap()
        .into_inner();
    let invocation = Some(get_invocation_request::Invocation::InvocationId(
        response.invocation_id.clone(),
    ));
    let record = server
        .recovery()
        .get_invocation(GetInvocationRequest { invocation })
        .await
        .unwrap()
        .into_inner();
    seen.add("InvokeWithRecoveryResponse", &response);
    seen.add("GetInvocationResponse", &record);
}

async fn stream(server: &Reloaded, seen: &mut Seen, invocation: Invocation) {
    let request = StreamWithRecoveryRequest {
        start: Some(stream_with_recovery_request::Start::Invocation(invocation)),
    };
    let mut events = server
        .recovery()
        .stream_with_recovery(request)
        .await
        .unwrap()
        .into_inner();
    while let Some(event) = events.message().await.unwrap() {
        seen.add("StreamWithRecoveryResponse", &event);
    }
}

/// Failures that no provider here can be made to have, as `ClassifyFailure` judges them.
pub(super) async fn verdicts(server: &Reloaded, seen: &mut Seen) {
    let answers = [
        (429, "Rate limit reached"),
        (429, "Rate limit reached. Please try again in 7s"),
        (
            429,
            r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}"#,
        ),
        (429, "You exceeded your current quota, insufficient_quota"),
        (401, "Incorrect API key provided"),
        (403, "Permission denied: you do not have access"),
        (404, "The model `x` does not exist"),
        (400, "This model's maximum context length is 8192 tokens"),
        (400, "content_filter: the prompt was flagged"),
        (400, "Unsupported parameter: 'temperature' is not supported"),
        (
            400,
            "messages: roles must alternate between user and assistant",
        ),
        (400, "Invalid schema for function 'get_weather'"),
        (400, "missing required argument: 'city'"),
        (529, "Overloaded"),
        (503, r#"{"error":"Model is loading","estimated_time":20.0}"#),
        (500, "Internal server error"),
        (504, "Gateway timeout"),
        (418, "teapot"),
    ];
    for (status, text) in answers {
        judge(server, seen, Some(status), text, &[]).await;
    }
    judge(server, seen, Some(429), "", &[("retry-after", "7")]).await;
    let used_up = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "7s"),
    ];
    judge(server, seen, Some(429), "", &used_up).await;
    for text in ["Segmentation fault", "Sidecar not started"] {
        judge(server, seen, None, text, &[]).await;
    }
    for class in BY_RULE {
        judge(server, seen, None, &format!("ours: {class}"), &[]).await;
    }
}

async fn judge(
    server: &Reloaded,
    seen: &mut Seen,
    status: Option<u32>,
    text: &str,
    headers: &[(&str, &str)],
) {
    let headers = headers.iter().map(|(name, value)| Header {
        name: (*name).into(),
        value: (*value).into(),
    });
    let request = ClassifyFailureRequest {
        status,
        body: Some(text.to_owned()),
        headers: headers.collect(),
        ..ClassifyFailureRequest::default()
    };
    let verdict = server
        .recovery()
        .classify_failure(request)
        .await
        .unwrap()
        .into_inner();
    seen.add("ClassifyFailureResponse", &verdict);
}
