//! An invocation that is retried once, with its attempts and its completion, and a collector of its
//! spans.

use std::{collections::BTreeMap, sync::Arc};

use opentelemetry::{Value, trace::TracerProvider as _};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::domain::{
    completion::{Break, Completion, Delta, FinishReason, Usage},
    failure::{TransportFault, Wait, WaitSource},
    ids::TargetId,
    invocation::{AttemptRecord, Call, HistoryPatch, Invocation, Outcome},
    message::{Message, Role},
    target::{Capabilities, Dialect, Target},
};

pub(super) const RPC: EntryPoint =
    EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");

#[derive(Debug, Clone, Default)]
pub(super) struct Collected(pub(super) Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collected {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

impl Collected {
    pub(super) fn spans() -> (Spans, Self) {
        let collected = Self::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(collected.clone())
            .build();
        (Spans::new(provider.tracer("test")), collected)
    }

    pub(super) fn named(&self, name: &str) -> SpanData {
        let spans = self.0.lock();
        spans
            .iter()
            .find(|span| span.name == name)
            .unwrap_or_else(|| panic!("no span {name}"))
            .clone()
    }

    pub(super) fn parent_of(&self, span: &SpanData) -> String {
        let spans = self.0.lock();
        let parent = spans
            .iter()
            .find(|other| other.span_context.span_id() == span.parent_span_id);
        parent.map_or_else(String::new, |parent| parent.name.to_string())
    }
}

pub(super) fn value(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes
        .iter()
        .rfind(|pair| pair.key.as_str() == key)
        .map(|pair| pair.value.clone())
}

pub(super) fn text(span: &SpanData, key: &str) -> String {
    value(span, key)
        .map(|value| value.to_string())
        .unwrap_or_default()
}

pub(super) fn invocation(traceparent: Option<&str>) -> Invocation {
    let call = ModelCall {
        messages: vec![Message::new(Role::User, vec![])],
        ..ModelCall::default()
    };
    Invocation {
        thread: Some("thread-1".into()),
        tenant: "acme".into(),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        trace: TraceContext {
            traceparent: traceparent.map(str::to_owned),
            tracestate: Some("vendor=1".to_owned()),
            baggage: None,
        },
        ..Invocation::new(
            "inv-1".into(),
            "default".into(),
            Call::Model(Arc::new(call)),
            Instant::now(),
        )
    }
}

pub(super) fn target() -> Target {
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

pub(super) fn record(number: u32, cause: AttemptCause, wait: Option<Wait>) -> AttemptRecord {
    AttemptRecord {
        wait,
        sent: true,
        ..AttemptRecord::begun(
            number,
            cause,
            "main".into(),
            "claude-x".to_owned(),
            crate::domain::clock::wall_now(),
        )
    }
}

pub(super) fn outcome(
    result: Result<Completion, Failure>,
    attempts: Vec<AttemptRecord>,
) -> Outcome {
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

pub(super) fn answer() -> Completion {
    Completion {
        around: None,
        tool_output: None,
        message: Message::new(Role::Assistant, vec![]),
        finish: FinishReason::Stop,
        finish_raw: "end_turn".to_owned(),
        model: "claude-x-1".to_owned(),
        response_id: None,
        usage: Usage::default(),
    }
}

pub(super) const WAIT: Wait = Wait {
    duration: Duration::from_millis(350),
    source: WaitSource::RetryAfter,
};
pub(super) const RETRY: AttemptCause = AttemptCause::Retry(FailureClass::RateLimited);

pub(super) fn begun(root: &InvocationSpan, number: u32, cause: AttemptCause) -> AttemptSpan {
    let span = root.trace().attempt();
    span.trace().begin(number, cause);
    span
}

/// An invocation that is rate limited once, waits, and is answered.
pub(super) fn recover(spans: &Spans, traceparent: Option<&str>) {
    let root = spans.invocation(RPC, &invocation(traceparent));
    let mut limited = Failure::local(
        FailureClass::RateLimited,
        "rate_limit_error: tokens per minute",
    );
    limited.status = Some(429);
    let call = ModelCall {
        max_output_tokens: Some(100),
        ..ModelCall::default()
    };
    let target = target();
    let start = |attempt| ChatStart {
        target: &target,
        call: &call,
        thread: None,
        attempt,
        stream: true,
    };

    let first = begun(&root, 1, AttemptCause::Initial);
    let chat = first.trace().chat(start(1));
    chat.http("POST", "https://api.example.com/v1/messages", 0)
        .finish_failed(&limited);
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
    second.trace().injected("tail_system");
    second.trace().begin(2, RETRY);
    let chat = second.trace().chat(start(2));
    let http = chat.http("POST", "https://api.example.com/v1/messages?key=secret", 1);
    chat.read(&Delta::Start {
        model: Some("claude-x-1".to_owned()),
        response_id: Some("msg_1".to_owned()),
        headers: vec![],
    });
    chat.first_chunk(Duration::from_millis(1500));
    chat.read(&Delta::BlockDelta {
        block: 0,
        text: "the content".to_owned(),
    });
    chat.read(&Delta::ReadOn(Break {
        fault: TransportFault::Cut,
        requests: 1,
    }));
    chat.read(&Delta::Usage(Usage {
        input_tokens: 412,
        output_tokens: 96,
        ..Usage::default()
    }));
    chat.read(&Delta::Finish {
        reason: FinishReason::Stop,
        raw: "end_turn".to_owned(),
    });
    http.finish(200);
    chat.finish_ok();
    second.finish_ok(true);
    let attempts = vec![
        record(1, AttemptCause::Initial, None),
        record(2, RETRY, Some(WAIT)),
    ];
    root.finish(&outcome(Ok(answer()), attempts));
}
