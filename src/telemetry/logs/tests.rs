//! Tests of `logs`: its promises, each as one test.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::domain::{completion::Usage, event::EventScope, failure::FailureClass};

#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn scope() -> Arc<EventScope> {
    Arc::new(EventScope {
        invocation: "inv-1".into(),
        thread: Some("thread-1".into()),
        request_id: Some("order-17".into()),
        tenant: "acme".into(),
        route: "default".into(),
        operation: "executor".into(),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
    })
}

fn failed(message: &str) -> EventBody {
    EventBody::InvocationFailed {
        duration_ms: 30_000,
        attempts: 3,
        usage: Usage::default(),
        strategies: Vec::new(),
        class: FailureClass::Timeout,
        detail: None,
        message: message.to_owned(),
        user_message: String::new(),
        recovery_hint: String::new(),
        stopped_by: None,
    }
}

async fn lines(capacity: usize, format: LineFormat, happen: impl FnOnce(&EventBus)) -> Vec<String> {
    let bus = EventBus::new(capacity);
    let kept = Kept::default();
    let task = start_logs(&bus, format, Severity::Info, Box::new(kept.clone()));
    happen(&bus);
    assert!(task.finish(Duration::from_secs(5)).await);
    let bytes = kept.0.lock().clone();
    String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_line_is_json_that_names_trace_invocation_and_target() {
    let lines = lines(16, LineFormat::Json, |bus| {
        bus.publish(Some(scope()), 3, Some("main".into()), failed("no answer"));
    })
    .await;
    assert_eq!(lines.len(), 1);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    for (key, value) in [
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ("invocation", "inv-1"),
        ("request_id", "order-17"),
        ("thread", "thread-1"),
        ("route", "default"),
        ("operation", "executor"),
        ("target", "main"),
        ("severity", "error"),
        ("event", "invocation_failed"),
        (
            "message",
            "executor failed after 3 attempts: timeout: no answer",
        ),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert_eq!(line["detail"]["class"], "timeout");
    assert!(line["time"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn what_is_below_the_level_makes_no_line() {
    let lines = lines(16, LineFormat::Json, |bus| {
        bus.publish(
            Some(scope()),
            0,
            None,
            EventBody::InvocationStarted {
                deadline_ms: 1,
                max_retries: 2,
            },
        );
        bus.publish(
            None,
            0,
            None,
            EventBody::ConfigurationReloaded {
                generation: 2,
                changed: Vec::new(),
                needs_restart: Vec::new(),
            },
        );
    })
    .await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("configuration_reloaded"));
}

#[tokio::test]
async fn upstream_text_cannot_begin_a_line_or_colour_a_terminal() {
    let lines = lines(16, LineFormat::Human { colour: false }, |bus| {
        bus.publish(
            Some(scope()),
            1,
            None,
            failed("one\n00:00:00.000 INFO  all is well\u{1b}[31m"),
        );
    })
    .await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("ERROR executor failed after 3 attempts"));
    assert!(lines[0].ends_with("invocation=inv-1 trace=0af7651916cd43dd8448eb211c80319c"));
    assert!(!lines[0].contains('\u{1b}'));
}

#[tokio::test]
async fn a_log_that_could_not_keep_up_reports_the_missed_events() {
    let lines = lines(2, LineFormat::Json, |bus| {
        for _ in 0..5 {
            bus.publish(
                None,
                0,
                None,
                EventBody::ConfigurationReloaded {
                    generation: 2,
                    changed: Vec::new(),
                    needs_restart: Vec::new(),
                },
            );
        }
    })
    .await;
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        (&first["event"], &first["count"]),
        (&"events_missed".into(), &3.into())
    );
    assert_eq!(lines.len(), 3);
}
