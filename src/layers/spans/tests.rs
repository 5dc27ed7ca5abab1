//! Tests of `spans`: its promises, each as one test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry::{
    Value,
    trace::{SpanId, SpanKind, Status, TracerProvider as _},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::time::Instant;

use super::{wire::redacted_url, *};
use crate::domain::{
    completion::{Break, Completion, Delta, FinishReason, Usage},
    failure::{TransportFault, Wait, WaitSource},
    ids::TargetId,
    invocation::{AttemptCause, AttemptRecord, Call, HistoryPatch, Invocation, Outcome},
    message::{Message, ModelCall, Role},
    target::{Capabilities, Dialect, Target},
};

const RPC: EntryPoint = EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");

#[derive(Debug, Clone, Default)]
struct Collected(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collected {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Collected {
    fn spans() -> (Spans, Self) {
        let collected = Self::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(collected.clone()).build();
        (Spans::new(provider.tracer("test")), collected)
    }

    fn named(&self, name: &str) -> SpanData {
        let spans = self.0.lock().unwrap();
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}")).clone()
    }

    fn parent_of(&self, span: &SpanData) -> String {
        let spans = self.0.lock().unwrap();
        let parent = spans.iter().find(|other| other.span_context.span_id() == span.parent_span_id);
        parent.map_or_else(String::new, |parent| parent.name.to_string())
    }
}

fn value(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes.iter().rfind(|pair| pair.key.as_str() == key).map(|pair| pair.value.clone())
}

fn text(span: &SpanData, key: &str) -> String {
    value(span, key).map(|value| value.to_string()).unwrap_or_default()
}

fn invocation(traceparent: Option<&str>) -> Invocation {
    let call =
        ModelCall { messages: vec![Message { role: Role::User, parts: vec![], name: None }], ..ModelCall::default() };
    Invocation {
        thread: Some("thread-1".into()),
        tenant: "acme".into(),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        trace: TraceContext {
            traceparent: traceparent.map(str::to_owned),
            tracestate: Some("vendor=1".to_owned()),
            baggage: None,
        },
        ..Invocation::new("inv-1".into(), "default".into(), Call::Model(Arc::new(call)), Instant::now())
    }
}

fn target() -> Target {
    Target {
        id: "main".into(),
        provider: "anthropic-eu".into(),
        family: "anthropic".into(),
        dialect: Dialect::Anthropic,
        model: "claude-x".into(),
        credential: "key-1".into(),
        endpoint: "https://api.example.com/v1".into(),
        capabilities: Capabilities::default(),
        system_prompt: None,
    }
}

fn record(number: u32, cause: AttemptCause, wait: Option<Wait>) -> AttemptRecord {
    AttemptRecord {
        number,
        cause,
        target: Some("main".into()),
        model: "claude-x".to_owned(),
        started_at: crate::domain::clock::wall_now(),
        wait,
        duration: Duration::ZERO,
        first_token: None,
        sent: true,
        failure: None,
        note: None,
        injection_skipped: None,
        note_refused: false,
        lost_with_replica: false,
        adaptation: None,
        unchecked: None,
        usage: Usage::default(),
        trace_id: String::new(),
        span_id: String::new(),
        upstream_request_id: String::new(),
        winner: false,
        tool: None,
    }
}

fn outcome(result: Result<Completion, Failure>, attempts: Vec<AttemptRecord>) -> Outcome {
    Outcome {
        invocation: "inv-1".into(),
        operation: None,
        result,
        attempts,
        recovery_applied: vec![],
        reasoning: String::new(),
        alternatives: vec![],
        usage: Usage::default(),
        history_patch: HistoryPatch::default(),
        stopped_by: None,
        target: Some("main".into()),
    }
}

fn answer() -> Completion {
    Completion {
        tool_output: None,
        message: Message { role: Role::Assistant, parts: vec![], name: None },
        finish: FinishReason::Stop,
        finish_raw: "end_turn".to_owned(),
        model: "claude-x-1".to_owned(),
        response_id: None,
        usage: Usage::default(),
    }
}

const WAIT: Wait = Wait { duration: Duration::from_millis(350), source: WaitSource::RetryAfter };
const RETRY: AttemptCause = AttemptCause::Retry(FailureClass::RateLimited);

fn begun(root: &InvocationSpan, number: u32, cause: AttemptCause) -> AttemptSpan {
    let span = root.trace().attempt();
    span.trace().begin(number, cause);
    span
}

/// An invocation that is rate limited once, waits, and is answered.
fn recover(spans: &Spans, traceparent: Option<&str>) {
    let root = spans.invocation(RPC, &invocation(traceparent));
    let mut limited = Failure::local(FailureClass::RateLimited, "rate_limit_error: tokens per minute");
    limited.status = Some(429);
    let call = ModelCall { max_output_tokens: Some(100), ..ModelCall::default() };
    let target = target();
    let start = |attempt| ChatStart { target: &target, call: &call, thread: None, attempt, stream: true };

    let first = begun(&root, 1, AttemptCause::Initial);
    let chat = first.trace().chat(start(1));
    chat.http("POST", "https://api.example.com/v1/messages", 0).finish_failed(&limited);
    chat.finish_failed(&limited);
    first.finish_failed(&limited, true);

    let second = root.trace().attempt();
    second.trace().backoff(WAIT).finish();
    second.trace().chose(TargetChoice {
        target: &TargetId::from("main"),
        circuit: "closed",
        budget_left: Some(9.0),
        reason: "first in route",
    });
    second.trace().injected(Some("tail_system"));
    second.trace().begin(2, RETRY);
    let chat = second.trace().chat(start(2));
    let http = chat.http("POST", "https://api.example.com/v1/messages?key=secret", 1);
    chat.read(&Delta::Start {
        model: Some("claude-x-1".to_owned()),
        response_id: Some("msg_1".to_owned()),
        headers: vec![],
    });
    chat.first_chunk(Duration::from_millis(1500));
    chat.read(&Delta::BlockDelta { block: 0, text: "the content".to_owned() });
    chat.read(&Delta::ReadOn(Break { fault: TransportFault::Cut, requests: 1 }));
    chat.read(&Delta::Usage(Usage { input_tokens: 412, output_tokens: 96, ..Usage::default() }));
    chat.read(&Delta::Finish { reason: FinishReason::Stop, raw: "end_turn".to_owned() });
    http.finish(200);
    chat.finish_ok();
    second.finish_ok(true);
    let attempts = vec![record(1, AttemptCause::Initial, None), record(2, RETRY, Some(WAIT))];
    root.finish(&outcome(Ok(answer()), attempts));
}

#[test]
fn the_tree_is_attempts_under_the_root_and_wait_and_call_inside_the_attempt() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().unwrap().clone();
    let tree: Vec<(String, String, SpanKind)> =
        spans.iter().map(|span| (collected.parent_of(span), span.name.to_string(), span.span_kind.clone())).collect();
    let root = "relight.v1.RecoveryService/InvokeWithRecovery";
    let expected = [
        ("chat claude-x", "POST", SpanKind::Client),
        ("attempt 1", "chat claude-x", SpanKind::Client),
        (root, "attempt 1", SpanKind::Internal),
        ("attempt 2", "backoff", SpanKind::Internal),
        ("chat claude-x", "POST", SpanKind::Client),
        ("attempt 2", "chat claude-x", SpanKind::Client),
        (root, "attempt 2", SpanKind::Internal),
        ("", root, SpanKind::Server),
    ];
    assert_eq!(tree, expected.map(|(parent, name, kind)| (parent.to_owned(), name.to_owned(), kind)));
    let trace = spans[0].span_context.trace_id();
    assert!(spans.iter().all(|span| span.span_context.trace_id() == trace));
}

#[test]
fn a_failed_attempt_is_an_error_and_the_recovered_root_is_not() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let message = "rate_limited: rate_limit_error: tokens per minute";
    assert_eq!(collected.named("attempt 1").status, Status::error(message));
    assert_eq!(text(&collected.named("attempt 1"), "error.type"), "rate_limited");
    assert_eq!(collected.named("attempt 2").status, Status::Unset);
    let root = collected.named("relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(root.status, Status::Unset);
    assert_eq!(text(&root, "error.type"), "");
    let told = ["relight.outcome", "relight.attempt.count", "relight.retry.count", "relight.fallback.count"];
    assert_eq!(told.map(|key| text(&root, key)), ["recovered", "2", "1", "0"]);
    assert_eq!(text(&root, "relight.backoff.total_s"), "0.35");
    assert_eq!(text(&root, "session.id"), "thread-1");
    assert_eq!(text(&root, "relight.label.team"), "red");
}

#[test]
fn an_attempt_tells_its_cause_its_target_and_its_note() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let attempt = collected.named("attempt 2");
    let keys = [
        "relight.attempt.cause",
        "relight.target",
        "relight.circuit.state",
        "relight.retry_budget.left",
        "relight.injected",
        "relight.target.reason",
        "relight.attempt.winner",
        "openinference.span.kind",
    ];
    let told = ["retry:rate_limited", "main", "closed", "9", "true", "first in route", "true", "CHAIN"];
    assert_eq!(keys.map(|key| text(&attempt, key)), told);
    let wait = collected.named("backoff");
    assert_eq!(
        (text(&wait, "relight.backoff.duration_s"), text(&wait, "relight.backoff.source")),
        ("0.35".to_owned(), "retry_after".to_owned())
    );
}

#[test]
fn usage_is_told_on_the_call_alone_and_content_nowhere() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().unwrap().clone();
    let counted: Vec<&SpanData> =
        spans.iter().filter(|span| value(span, "gen_ai.usage.input_tokens").is_some()).collect();
    assert_eq!(counted.len(), 1);
    let keys = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.response.time_to_first_chunk"];
    assert_eq!(keys.map(|key| text(counted[0], key)), ["412", "96", "1.5"]);
    let keys =
        ["gen_ai.response.model", "gen_ai.response.id", "gen_ai.provider.name", "gen_ai.response.finish_reasons"];
    assert_eq!(keys.map(|key| text(counted[0], key)), ["claude-x-1", "msg_1", "anthropic", "[\"stop\"]"]);
    let told: Vec<&str> = counted[0].events.iter().map(|event| event.name.as_ref()).collect();
    assert_eq!(told, ["relight.read_on"]);
    assert!(!format!("{spans:?}").contains("the content"));
    assert!(!format!("{spans:?}").contains("secret"));
}

#[test]
fn resends_are_counted_from_the_second_sent_attempt_and_a_status_of_400_is_an_error() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().unwrap().clone();
    let posts: Vec<&SpanData> = spans.iter().filter(|span| span.name == "POST").collect();
    assert_eq!(value(posts[0], "http.request.resend_count"), None);
    assert_eq!(value(posts[1], "http.request.resend_count"), Some(Value::I64(1)));
    assert_eq!((text(posts[0], "http.response.status_code"), &posts[0].status), ("429".to_owned(), &Status::error("")));
    assert_eq!((text(posts[1], "http.response.status_code"), &posts[1].status), ("200".to_owned(), &Status::Unset));
    assert_eq!(
        (text(posts[0], "server.address"), text(posts[0], "server.port")),
        ("api.example.com".to_owned(), "443".to_owned())
    );
}

#[test]
fn the_root_hangs_under_the_callers_span() {
    let (spans, collected) = Collected::spans();
    recover(&spans, Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    let root = collected.named("relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(root.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(root.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(root.parent_span_is_remote);
}

#[test]
fn a_traceparent_that_cannot_be_read_begins_a_new_trace() {
    let (spans, collected) = Collected::spans();
    recover(&spans, Some("00-nonsense"));
    assert_eq!(collected.named("relight.v1.RecoveryService/InvokeWithRecovery").parent_span_id, SpanId::INVALID);
}

#[test]
fn the_provider_is_sent_the_span_that_asks_it_and_the_callers_tracestate() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
    let attempt = begun(&root, 1, AttemptCause::Initial);
    let chat = attempt.trace().chat(ChatStart {
        target: &target(),
        call: &ModelCall::default(),
        thread: None,
        attempt: 1,
        stream: false,
    });
    let sent = chat.outgoing();
    drop((chat, attempt, root));
    let id = collected.named("chat claude-x").span_context.span_id();
    assert_eq!(sent.traceparent, Some(format!("00-0af7651916cd43dd8448eb211c80319c-{id}-01")));
    assert_eq!(sent.tracestate.as_deref(), Some("vendor=1"));
    assert_eq!(sent.baggage, None);
}

#[test]
fn a_span_that_nobody_finished_ends_as_cancelled_and_is_no_error() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(None));
    let hedge = begun(&root, 2, AttemptCause::Hedge);
    hedge.finish_cancelled();
    drop(root);
    let told: Vec<(Status, String)> =
        collected.0.lock().unwrap().iter().map(|span| (span.status.clone(), text(span, "error.type"))).collect();
    assert_eq!(told, vec![(Status::Unset, "cancelled".to_owned()); 2]);
    assert_eq!(text(&collected.named("attempt 2"), "relight.attempt.cause"), "hedge");
}

#[test]
fn an_attempt_that_never_began_has_no_span_and_neither_has_its_wait() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(None));
    let refused = root.trace().attempt();
    refused.trace().backoff(WAIT).finish();
    refused.trace().injected(None);
    refused.finish_failed(&Failure::local(FailureClass::Shed, "all slots are taken"), false);
    assert!(collected.0.lock().unwrap().is_empty());
}

#[test]
fn only_an_invocation_that_failed_for_good_is_an_error() {
    for (class, status) in
        [(FailureClass::Cancelled, Status::Unset), (FailureClass::Timeout, Status::error("timeout: no answer"))]
    {
        let (spans, collected) = Collected::spans();
        let root = spans.invocation(RPC, &invocation(None));
        let attempts = vec![record(1, AttemptCause::Initial, None)];
        root.finish(&outcome(Err(Failure::local(class, "no answer")), attempts));
        assert_eq!(collected.named("relight.v1.RecoveryService/InvokeWithRecovery").status, status);
    }
}

#[test]
fn a_call_that_comes_back_is_linked_to_the_invocation() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(None));
    let origin = root.trace().outgoing();
    let watch = EntryPoint::Grpc("relight.v1.RecoveryService/WatchRecovery");
    spans.returning(watch, &TraceContext::default(), &origin).finish("NOT_FOUND");
    let span = collected.named("relight.v1.RecoveryService/WatchRecovery");
    assert_eq!(span.links.links[0].span_context.trace_id().to_string(), root.trace_id());
    assert_ne!(span.span_context.trace_id().to_string(), root.trace_id());
    assert_eq!(span.status, Status::Unset, "not found is the caller's fault");
}

#[test]
fn disabled_spans_have_no_trace_and_send_none() {
    let root = Spans::disabled().invocation(RPC, &invocation(None));
    assert_eq!(root.trace_id(), "");
    let attempt = begun(&root, 1, AttemptCause::Initial);
    let start = ToolStart { server: &target(), tool: "search", attempt: 1 };
    assert_eq!(attempt.trace().tool(start).outgoing(), TraceContext::default());
}

#[test]
fn where_nobody_takes_spans_there_are_ids_and_the_decision_of_the_caller_s_trace_is_passed_on() {
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let root = Spans::ids_alone().invocation(RPC, &invocation(Some(caller)));
    assert_eq!(root.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    let attempt = begun(&root, 1, AttemptCause::Initial);
    let start = ToolStart { server: &target(), tool: "search", attempt: 1 };
    let sent = attempt.trace().tool(start).outgoing().traceparent.unwrap();
    assert!(sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"), "{sent}");
    assert!(
        !sent.contains("b7ad6b7169203331") && !sent.contains(&attempt.trace().span_id()),
        "an id of its own: {sent}"
    );
    let own = Spans::ids_alone().invocation(RPC, &invocation(None));
    assert!(own.trace_id().len() == 32 && own.trace().outgoing().traceparent.unwrap().ends_with("-00"));
}

#[test]
fn a_status_message_is_one_short_line_cut_between_characters() {
    assert_eq!(shortened("first\nsecond"), "first");
    let long = "ü".repeat(100);
    assert_eq!(shortened(&long).len(), 120);
    assert!(shortened(&format!("x{long}")).len() < 120);
}

#[test]
fn keys_leave_a_url_wherever_they_travel() {
    let told = redacted_url("https://user:pass@host.example:8443/v1/models?key=abc&alt=sse");
    assert_eq!(told, "https://host.example:8443/v1/models?key=REDACTED&alt=REDACTED");
    assert_eq!(redacted_url("not a url"), "REDACTED");
}
