//! What the contract and the metrics announce is really sent: a run full of faults over every front is looked through for
//! every instrument, every event and every value of every enum.
//!
//! `tests/fixtures/contract.tsv` names them all, and for each that is not sent in this run the test that sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use prost_reflect::{DescriptorPool, DynamicMessage, Kind, ReflectMessage as _, Value as Field};
use relight::internals::grpc::v1::{
    CircuitForce, ClassifyFailureRequest, DESCRIPTORS, ForceCircuitRequest, GetInvocationRequest, GetStatusRequest,
    GetThreadRequest, Header, InjectionMode, Invocation, InvokeWithRecoveryRequest, ListTargetsRequest, Overrides,
    ResetCircuitRequest, StreamWithRecoveryRequest, ToolDefinition, WatchRecoveryRequest, get_invocation_request,
    invocation::Call, stream_with_recovery_request, watch_recovery_request,
};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;

use crate::support::{
    front::question,
    http::metrics,
    relight::asking,
    reloaded::Reloaded,
    upstream::{Reply, chunk, usage_chunk},
};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/contract.tsv");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
const INSTRUMENTS: &str = include_str!("../../src/domain/semconv.rs");

/// Longest time that the run may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The classes that only a rule of the operator gives.
const BY_RULE: [&str; 7] =
    ["approval_rejected", "tool_failed", "outcome_unknown", "state", "checkpoint", "cache", "stream_interrupted"];

/// What was seen in messages of the server: enum values by name, members of a `body` as `Message.body.member`.
struct Seen {
    pool: DescriptorPool,
    names: BTreeSet<String>,
}

// === impl Seen ===

impl Seen {
    fn new() -> Self {
        Self { pool: DescriptorPool::decode(DESCRIPTORS).unwrap(), names: BTreeSet::new() }
    }

    /// Everything that a message could hold, by the contract.
    fn announced(&self) -> BTreeSet<String> {
        let values = self.pool.all_enums().filter(|one| one.package_name() == "relight.v1").flat_map(|one| {
            let named = |value: &String| !value.ends_with("_UNSPECIFIED");
            one.values().map(|value| value.name().to_owned()).filter(named).collect::<Vec<_>>()
        });
        let bodies = ["RecoveryEvent", "StreamEvent"].into_iter().flat_map(|name| {
            let message = self.pool.get_message_by_name(&format!("relight.v1.{name}")).unwrap();
            let body = message.oneofs().find(|oneof| oneof.name() == "body").unwrap();
            body.fields().map(|field| format!("{name}.{}", field.name())).collect::<Vec<_>>()
        });
        values.chain(bodies).collect()
    }

    fn add(&mut self, name: &str, message: &impl prost::Message) {
        let descriptor = self.pool.get_message_by_name(&format!("relight.v1.{name}")).unwrap();
        self.walk(&DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()).unwrap());
    }

    fn walk(&mut self, message: &DynamicMessage) {
        for (field, value) in message.fields() {
            if field.containing_oneof().is_some_and(|oneof| oneof.name() == "body") {
                self.names.insert(format!("{}.{}", message.descriptor().name(), field.name()));
            }
            self.look(&field.kind(), value);
        }
    }

    fn look(&mut self, kind: &Kind, value: &Field) {
        match (kind, value) {
            (Kind::Enum(one), Field::EnumNumber(number)) => {
                self.names.extend(one.get_value(*number).map(|value| value.name().to_owned()));
            }
            (_, Field::Message(message)) => self.walk(message),
            (_, Field::List(items)) => items.iter().for_each(|item| self.look(kind, item)),
            (_, Field::Map(members)) => members.values().for_each(|member| {
                if let Field::Message(message) = member {
                    self.walk(message);
                }
            }),
            _ => {}
        }
    }
}

/// Name of what is announced, and `sent`, or why it is not.
fn table() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(TABLE).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once('\t').unwrap_or_else(|| panic!("{line}")))
        .map(|(a, b)| (a.into(), b.into()))
        .collect()
}

/// Why a row of the table proves nothing: it names no test, or one that does not mention the value.
fn unproven(pool: &DescriptorPool, name: &str, reason: &str) -> Option<String> {
    let known = ["sent", "reserved", "in requests"].iter().any(|start| reason.starts_with(start));
    let Some(test) = reason.strip_prefix("seen by ") else {
        return (!known).then(|| format!("{name}: `{reason}` is neither `sent` nor `seen by <test>`"));
    };
    // What is not named by its own name there is named after the test.
    let (test, words) = match test.split_once(": ") {
        Some((test, words)) => (test, vec![words.to_owned()]),
        None => (test, in_rust(pool, name)),
    };
    let bodies = test_bodies(test);
    let mentioned = bodies.iter().any(|body| words.iter().any(|words| body.contains(words.as_str())));
    (!mentioned).then(|| format!("{name}: of {} tests `{test}` none mentions one of {words:?}", bodies.len()))
}

/// How tests spell a value of an enum or a member of a `body`.
fn in_rust(pool: &DescriptorPool, name: &str) -> Vec<String> {
    if let Some((_, member)) = name.split_once('.') {
        return vec![format!("Body::{}", camel_case(member)), format!("\"{member}\"")];
    }
    let mut enums = pool.all_enums().filter(|one| one.values().any(|value| value.name() == name));
    let Some(one) = enums.next() else { return vec![name.to_owned()] };
    let unset = one.values().next().unwrap();
    let prefix = unset.name().trim_end_matches("UNSPECIFIED");
    vec![format!("{}::{}", one.name(), camel_case(name.trim_start_matches(prefix)))]
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| format!("{}{}", word[..1].to_uppercase(), word[1..].to_lowercase());
    name.split('_').map(capital).collect()
}

/// The text of the tests of that name in this binary.
fn test_bodies(name: &str) -> Vec<String> {
    let start = format!("fn {name}() {{\n");
    let body_in = |file: PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        let (before, after) = text.split_once(&start)?;
        let is_test =
            before.rsplit("\n\n").next().is_some_and(|above| above.contains("test]") || above.contains("test("));
        is_test.then(|| after.split("\n}\n").next().unwrap_or_default().to_owned())
    };
    files_below(Path::new(TESTS)).into_iter().filter_map(body_in).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The names of all instruments, as Prometheus spells them without units.
fn instruments() -> Vec<String> {
    let after = INSTRUMENTS.split_once("pub mod metric {").unwrap().1;
    let lines = after.split_once("\n}").unwrap().0.lines().filter_map(|line| line.split_once("&str = \""));
    lines.map(|(_, name)| name.trim_end_matches("\";").replace('.', "_")).collect()
}

fn settings() -> serde_json::Value {
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
            "default": { "targets": ["main"], "deadline": "1m", "allow_overrides": { "rewind_mode": true } },
            "pair": { "targets": ["main", "spare"], "deadline": "1m" },
            "hedged": { "targets": ["main", "spare"], "deadline": "1m", "timers": { "soft_first_token": "200ms" } },
            "away": { "targets": ["away"], "deadline": "2s" },
            "brief": { "targets": ["main"], "deadline": "4s", "policy": "slow" },
        },
        "default_route": "default",
        // Far above what an answer takes on a busy machine: only what is silent on purpose meets them.
        "timers": { "first_token": "4s", "first_token_alone": "4s", "soft_first_token": "20s", "idle": "2s" },
        "policies": { "slow": { "retry": { "min_attempt_time": "1m" } }, "standard": { "retry": { "backoff": { "base": "10ms", "cap": "40ms" } }, "injection": { "mode": "always" } } },
        "budget": { "capacity": 20, "cost": 5, "first_try_credit": 0, "refill_per_second": 0 },
        "gates": { "rate_wait": "50ms" },
        "admission": { "max_in_flight": 2 },
        "circuit": { "mode": "consecutive", "consecutive_failures": 9, "consecutive_open": "1s" },
        "classifier": { "rules": rules },
    })
}

fn on(route: &str, text: &str) -> Invocation {
    Invocation { route: route.to_owned(), ..asking(text) }
}

/// Calls of every kind, over every front, with every fault that a provider can be made to have here.
async fn faulty_run(server: &mut Reloaded, seen: &mut Seen) {
    let upstream_text = |text: &str| Reply::text(text);
    let malformed = Reply::tool_call("get_weather", "{\"city\": ");
    let length = [
        chunk(&json!({ "content": "cut short" }), None),
        chunk(&json!({}), Some("length")),
        usage_chunk(3, 4),
        "[DONE]".to_owned(),
    ];
    let faults: [Vec<Reply>; 10] = [
        vec![Reply::status(500), upstream_text("fine")],
        vec![Reply::status(503), upstream_text("fine")],
        vec![Reply::status(429), upstream_text("fine")],
        vec![Reply::body(418, &[], b"I am a teapot")],
        vec![Reply::status(400)],
        vec![
            upstream_text("a long answer that is cut").cut_in_the_middle(),
            upstream_text("a long answer that is cut"),
        ],
        vec![Reply::reset(), upstream_text("fine")],
        vec![Reply::html(), upstream_text("fine")],
        vec![Reply::events(&length)],
        vec![upstream_text("a stalling answer").stall_after(160), upstream_text("a stalling answer")],
    ];
    for (number, replies) in faults.into_iter().enumerate() {
        for reply in replies {
            server.upstream.push(reply);
        }
        let mut invocation = on("default", "hello");
        invocation.thread_id = if number == 0 { "talk".to_owned() } else { String::new() };
        unary(server, seen, invocation).await;
        while server.upstream.unplayed() > 0 {
            unary(server, seen, on("default", "hello")).await;
        }
    }
    // No time is left for another attempt.
    server.upstream.push(Reply::status(500));
    unary(server, seen, on("brief", "hello")).await;
    // A tool call that cannot be read, then one that can.
    server.upstream.push(malformed).push(Reply::tool_call("get_weather", "{\"city\": \"Oslo\"}"));
    let mut with_tool = asking("weather?");
    if let Some(Call::Model(call)) = &mut with_tool.call {
        let input_schema_json = "{\"type\":\"object\"}".to_owned();
        call.tools =
            vec![ToolDefinition { name: "get_weather".to_owned(), input_schema_json, ..ToolDefinition::default() }];
    }
    stream(server, seen, with_tool).await;
    // A stream that is cut and begins anew with other text.
    server
        .upstream
        .push(upstream_text("one two three four five").cut_in_the_middle())
        .push(upstream_text("other words"));
    stream(server, seen, on("default", "again")).await;
    // Two targets: the soft timer starts a second attempt, and a refusal falls back.
    server.upstream.push(Reply::silence()).push(upstream_text("the spare answers"));
    unary(server, seen, on("hedged", "hello")).await;
    server.upstream.push(Reply::status(503)).push(Reply::status(503)).push(upstream_text("the spare answers"));
    unary(server, seen, on("pair", "hello")).await;
    unary(server, seen, on("away", "hello")).await;
    // The front, answered and refused.
    let front = server.running.openai_front_address.unwrap();
    for streamed in [false, true] {
        server.upstream.push(Reply::status(500));
        crate::support::front::post(front, "/v1/chat/completions", &question("default", streamed)).await;
    }
    // More calls than are let in.
    server.upstream.push(Reply::silence()).push(Reply::silence());
    let mut hanging = JoinSet::new();
    for _ in 0..2 {
        let (mut client, invocation) = (server.recovery(), Some(on("default", "hang")));
        hanging.spawn(async move { client.invoke_with_recovery(InvokeWithRecoveryRequest { invocation }).await });
    }
    until(|| server.upstream.unplayed() == 0).await;
    let one_more = InvokeWithRecoveryRequest { invocation: Some(asking("hello")) };
    let refused = server.recovery().invoke_with_recovery(one_more).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(hanging);
    until(|| server.running.engine().in_flight() == 0).await;
    // An outage opens the circuit and empties the budget; then all is well again.
    server.upstream.otherwise(Reply::status(500));
    for _ in 0..6 {
        unary(server, seen, on("default", "hello")).await;
    }
    server.upstream.otherwise(Reply::text("well again"));
    for _ in 0..8 {
        unary(server, seen, on("default", "hello")).await;
    }
    for force in [CircuitForce::Open, CircuitForce::Closed, CircuitForce::Auto] {
        let request = ForceCircuitRequest { target: "main".to_owned(), force: force.into(), reason: String::new() };
        let forced = server.admin().force_circuit(request).await.unwrap().into_inner();
        seen.add("ForceCircuitResponse", &forced);
    }
    let reset = ResetCircuitRequest { target: "main".to_owned() };
    seen.add("ResetCircuitResponse", &server.admin().reset_circuit(reset).await.unwrap().into_inner());
    // A key that is refused, and one that works.
    server.upstream.push(Reply::status(401));
    unary(server, seen, on("default", "hello")).await;
    seen.add(
        "ListTargetsResponse",
        &server.admin().list_targets(ListTargetsRequest::default()).await.unwrap().into_inner(),
    );
    seen.add("GetStatusResponse", &server.admin().get_status(GetStatusRequest {}).await.unwrap().into_inner());
    server.change(json!({ "providers": { "p": { "api_key": "k-2" } }, "admission": { "max_in_flight": 9 } })).await;
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the condition in time");
}

async fn unary(server: &Reloaded, seen: &mut Seen, mut invocation: Invocation) {
    invocation.overrides = Some(Overrides { injection_mode: InjectionMode::Always.into(), ..Overrides::default() });
    let request = InvokeWithRecoveryRequest { invocation: Some(invocation) };
    let response = server.recovery().invoke_with_recovery(request).await.unwrap().into_inner();
    let invocation = Some(get_invocation_request::Invocation::InvocationId(response.invocation_id.clone()));
    let record = server.recovery().get_invocation(GetInvocationRequest { invocation }).await.unwrap().into_inner();
    seen.add("InvokeWithRecoveryResponse", &response);
    seen.add("GetInvocationResponse", &record);
}

async fn stream(server: &Reloaded, seen: &mut Seen, invocation: Invocation) {
    let request =
        StreamWithRecoveryRequest { start: Some(stream_with_recovery_request::Start::Invocation(invocation)) };
    let mut events = server.recovery().stream_with_recovery(request).await.unwrap().into_inner();
    while let Some(event) = events.message().await.unwrap() {
        seen.add("StreamWithRecoveryResponse", &event);
    }
}

/// Failures that no provider here can be made to have, as `ClassifyFailure` judges them.
async fn verdicts(server: &Reloaded, seen: &mut Seen) {
    let answers = [
        (429, "Rate limit reached"),
        (429, "Rate limit reached. Please try again in 7s"),
        (429, r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}"#),
        (429, "You exceeded your current quota, insufficient_quota"),
        (401, "Incorrect API key provided"),
        (403, "Permission denied: you do not have access"),
        (404, "The model `x` does not exist"),
        (400, "This model's maximum context length is 8192 tokens"),
        (400, "content_filter: the prompt was flagged"),
        (400, "Unsupported parameter: 'temperature' is not supported"),
        (400, "messages: roles must alternate between user and assistant"),
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
    let used_up = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "7s")];
    judge(server, seen, Some(429), "", &used_up).await;
    for text in ["Segmentation fault", "Sidecar not started"] {
        judge(server, seen, None, text, &[]).await;
    }
    for class in BY_RULE {
        judge(server, seen, None, &format!("ours: {class}"), &[]).await;
    }
}

async fn judge(server: &Reloaded, seen: &mut Seen, status: Option<u32>, text: &str, headers: &[(&str, &str)]) {
    let headers = headers.iter().map(|(name, value)| Header { name: (*name).into(), value: (*value).into() });
    let request = ClassifyFailureRequest {
        status,
        body: Some(text.to_owned()),
        headers: headers.collect(),
        ..ClassifyFailureRequest::default()
    };
    let verdict = server.recovery().classify_failure(request).await.unwrap().into_inner();
    seen.add("ClassifyFailureResponse", &verdict);
}

#[tokio::test]
async fn a_faulty_run_gives_every_instrument_a_value_and_sends_what_the_contract_announces() {
    let mut server = Reloaded::start(settings()).await;
    let mut seen = Seen::new();
    let watch = WatchRecoveryRequest { filter: None, start: Some(watch_recovery_request::Start::Live(true)) };
    let mut watch = server.recovery().watch_recovery(watch).await.unwrap().into_inner();
    faulty_run(&mut server, &mut seen).await;
    verdicts(&server, &mut seen).await;
    let thread = GetThreadRequest { thread_id: "talk".to_owned() };
    seen.add("GetThreadResponse", &server.recovery().get_thread(thread).await.unwrap().into_inner());
    // What was published before the change of the configuration is read before what the change leads to.
    let last = ["RecoveryEvent.configuration_reloaded", "RecoveryEvent.gate_opened"];
    let reading = async {
        while !last.iter().all(|name| seen.names.contains(*name)) {
            seen.add("WatchRecoveryResponse", &watch.message().await.unwrap().unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the last events in time");
    let table = table();
    let mut faults = Vec::new();
    let announced = seen.announced();
    let instruments = instruments();
    let scraped = metrics(server.running.admin_address).await;
    let has_value = |name: &String| {
        scraped
            .lines()
            .any(|line| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['_', '{', ' '])))
    };
    seen.names.extend(instruments.iter().filter(|name| has_value(name)).cloned());
    for name in announced.iter().chain(&instruments) {
        match table.get(name).map(String::as_str) {
            None => {
                let found = if seen.names.contains(name) { "sent" } else { "no row, not seen" };
                faults.push(format!("{name}\t{found}"));
            }
            Some("sent") if !seen.names.contains(name) => faults.push(format!("{name} is not sent")),
            Some(reason) if reason.starts_with("reserved") && seen.names.contains(name) => {
                faults.push(format!("{name} is sent, although the table says: {reason}"));
            }
            Some(_) => {}
        }
    }
    faults.extend(table.iter().filter_map(|(name, reason)| unproven(&seen.pool, name, reason)));
    let known = |name: &&String| !announced.contains(*name) && !instruments.contains(name);
    faults.extend(table.keys().filter(known).map(|name| format!("{name} is not announced any more")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
