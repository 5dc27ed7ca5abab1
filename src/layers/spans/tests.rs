//! Tests of `spans`: its promises, each as one test.

mod samples;

use std::time::Duration;

use opentelemetry::{
    Value,
    trace::{SpanId, SpanKind, Status},
};
use opentelemetry_sdk::trace::SpanData;

use self::samples::{
    Collected, RPC, WAIT, begun, invocation, outcome, record, recover, target, text, value,
};
use super::{wire::redacted_url, *};
use crate::domain::{invocation::AttemptCause, message::ModelCall};

#[test]
fn the_tree_is_attempts_under_the_root_and_wait_and_call_inside_the_attempt() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().clone();
    let tree: Vec<(String, String, SpanKind)> = spans
        .iter()
        .map(|span| {
            (
                collected.parent_of(span),
                span.name.to_string(),
                span.span_kind.clone(),
            )
        })
        .collect();
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
    assert_eq!(
        tree,
        expected.map(|(parent, name, kind)| (parent.to_owned(), name.to_owned(), kind))
    );
    let trace = spans[0].span_context.trace_id();
    assert!(
        spans
            .iter()
            .all(|span| span.span_context.trace_id() == trace)
    );
}

#[test]
fn a_failed_attempt_is_an_error_and_the_recovered_root_is_not() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let message = "rate_limited: rate_limit_error: tokens per minute";
    assert_eq!(collected.named("attempt 1").status, Status::error(message));
    assert_eq!(
        text(&collected.named("attempt 1"), "error.type"),
        "rate_limited"
    );
    assert_eq!(collected.named("attempt 2").status, Status::Unset);
    let root = collected.named("relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(root.status, Status::Unset);
    assert_eq!(text(&root, "error.type"), "");
    let shown = [
        "relight.outcome",
        "relight.attempt.count",
        "relight.retry.count",
        "relight.fallback.count",
    ];
    assert_eq!(
        shown.map(|key| text(&root, key)),
        ["recovered", "2", "1", "0"]
    );
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
    let shown = [
        "retry:rate_limited",
        "main",
        "closed",
        "9",
        "true",
        "first in route",
        "true",
        "CHAIN",
    ];
    assert_eq!(keys.map(|key| text(&attempt, key)), shown);
    let wait = collected.named("backoff");
    assert_eq!(
        (
            text(&wait, "relight.backoff.duration_s"),
            text(&wait, "relight.backoff.source")
        ),
        ("0.35".to_owned(), "retry_after".to_owned())
    );
}

#[test]
fn usage_is_told_on_the_call_alone_and_content_nowhere() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().clone();
    let counted: Vec<&SpanData> = spans
        .iter()
        .filter(|span| value(span, "gen_ai.usage.input_tokens").is_some())
        .collect();
    assert_eq!(counted.len(), 1);
    let keys = [
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.response.time_to_first_chunk",
    ];
    assert_eq!(keys.map(|key| text(counted[0], key)), ["412", "96", "1.5"]);
    let keys = [
        "gen_ai.response.model",
        "gen_ai.response.id",
        "gen_ai.provider.name",
        "gen_ai.response.finish_reasons",
    ];
    assert_eq!(
        keys.map(|key| text(counted[0], key)),
        ["claude-x-1", "msg_1", "anthropic", "[\"stop\"]"]
    );
    let shown: Vec<&str> = counted[0]
        .events
        .iter()
        .map(|event| event.name.as_ref())
        .collect();
    assert_eq!(shown, ["relight.read_on"]);
    assert!(!format!("{spans:?}").contains("the content"));
    assert!(!format!("{spans:?}").contains("secret"));
}

#[test]
fn resends_are_counted_from_the_second_sent_attempt_and_a_status_of_400_is_an_error() {
    let (spans, collected) = Collected::spans();
    recover(&spans, None);
    let spans = collected.0.lock().clone();
    let posts: Vec<&SpanData> = spans.iter().filter(|span| span.name == "POST").collect();
    assert_eq!(value(posts[0], "http.request.resend_count"), None);
    assert_eq!(
        value(posts[1], "http.request.resend_count"),
        Some(Value::I64(1))
    );
    assert_eq!(
        (
            text(posts[0], "http.response.status_code"),
            &posts[0].status
        ),
        ("429".to_owned(), &Status::error(""))
    );
    assert_eq!(
        (
            text(posts[1], "http.response.status_code"),
            &posts[1].status
        ),
        ("200".to_owned(), &Status::Unset)
    );
    assert_eq!(
        (
            text(posts[0], "server.address"),
            text(posts[0], "server.port")
        ),
        ("api.example.com".to_owned(), "443".to_owned())
    );
}

#[test]
fn the_root_hangs_under_the_callers_span() {
    let (spans, collected) = Collected::spans();
    recover(
        &spans,
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    );
    let root = collected.named("relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(
        root.span_context.trace_id().to_string(),
        "0af7651916cd43dd8448eb211c80319c"
    );
    assert_eq!(root.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(root.parent_span_is_remote);
}

#[test]
fn a_traceparent_that_cannot_be_read_begins_a_new_trace() {
    let (spans, collected) = Collected::spans();
    recover(&spans, Some("00-nonsense"));
    assert_eq!(
        collected
            .named("relight.v1.RecoveryService/InvokeWithRecovery")
            .parent_span_id,
        SpanId::INVALID
    );
}

#[test]
fn the_provider_is_sent_the_span_that_asks_it_and_the_callers_tracestate() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(
        RPC,
        &invocation(Some(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )),
    );
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
    assert_eq!(
        sent.traceparent,
        Some(format!("00-0af7651916cd43dd8448eb211c80319c-{id}-01"))
    );
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
    let shown: Vec<(Status, String)> = collected
        .0
        .lock()
        .iter()
        .map(|span| (span.status.clone(), text(span, "error.type")))
        .collect();
    assert_eq!(shown, vec![(Status::Unset, "cancelled".to_owned()); 2]);
    assert_eq!(
        text(&collected.named("attempt 2"), "relight.attempt.cause"),
        "hedge"
    );
}

#[test]
fn an_attempt_that_never_began_has_no_span_and_neither_has_its_wait() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(None));
    let refused = root.trace().attempt();
    refused.trace().backoff(WAIT).finish();
    refused.trace().injected("tail_system");
    refused.finish_failed(
        &Failure::local(FailureClass::Shed, "all slots are taken"),
        false,
    );
    assert!(collected.0.lock().is_empty());
}

#[test]
fn only_an_invocation_that_failed_for_good_is_an_error() {
    for (class, status) in [
        (FailureClass::Cancelled, Status::Unset),
        (FailureClass::Timeout, Status::error("timeout: no answer")),
    ] {
        let (spans, collected) = Collected::spans();
        let root = spans.invocation(RPC, &invocation(None));
        let attempts = vec![record(1, AttemptCause::Initial, None)];
        root.finish(&outcome(Err(Failure::local(class, "no answer")), attempts));
        assert_eq!(
            collected
                .named("relight.v1.RecoveryService/InvokeWithRecovery")
                .status,
            status
        );
    }
}

#[test]
fn a_call_that_comes_back_is_linked_to_the_invocation() {
    let (spans, collected) = Collected::spans();
    let root = spans.invocation(RPC, &invocation(None));
    let origin = root.trace().outgoing();
    let watch = EntryPoint::Grpc("relight.v1.RecoveryService/WatchRecovery");
    spans
        .returning(watch, &TraceContext::default(), &origin)
        .finish("NOT_FOUND");
    let span = collected.named("relight.v1.RecoveryService/WatchRecovery");
    assert_eq!(
        span.links.links[0].span_context.trace_id().to_string(),
        root.trace_id()
    );
    assert_ne!(span.span_context.trace_id().to_string(), root.trace_id());
    assert_eq!(
        span.status,
        Status::Unset,
        "not found is the caller's fault"
    );
}

#[test]
fn disabled_spans_have_no_trace_and_send_none() {
    let root = Spans::disabled().invocation(RPC, &invocation(None));
    assert_eq!(root.trace_id(), "");
    let attempt = begun(&root, 1, AttemptCause::Initial);
    let start = ToolStart {
        server: &target(),
        tool: "search",
        attempt: 1,
    };
    assert_eq!(
        attempt.trace().tool(start).outgoing(),
        TraceContext::default()
    );
}

#[test]
fn where_nobody_takes_spans_there_are_ids_and_the_decision_of_the_caller_s_trace_is_passed_on() {
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let root = Spans::ids_alone().invocation(RPC, &invocation(Some(caller)));
    assert_eq!(root.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    let attempt = begun(&root, 1, AttemptCause::Initial);
    let start = ToolStart {
        server: &target(),
        tool: "search",
        attempt: 1,
    };
    let sent = attempt.trace().tool(start).outgoing().traceparent.unwrap();
    assert!(
        sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"),
        "{sent}"
    );
    assert!(
        !sent.contains("b7ad6b7169203331") && !sent.contains(&attempt.trace().span_id()),
        "an id of its own: {sent}"
    );
    let own = Spans::ids_alone().invocation(RPC, &invocation(None));
    assert!(
        own.trace_id().len() == 32 && own.trace().outgoing().traceparent.unwrap().ends_with("-00")
    );
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
    let shown = redacted_url("https://user:pass@host.example:8443/v1/models?key=abc&alt=sse");
    assert_eq!(
        shown,
        "https://host.example:8443/v1/models?key=REDACTED&alt=REDACTED"
    );
    assert_eq!(redacted_url("not a url"), "REDACTED");
}
