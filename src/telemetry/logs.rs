//! Logs: one line per event, written by a reader of the bus.
//!
//! A line names the trace, the invocation with its thread, tenant and labels, the route, the
//! operation and the target, so that a log, a trace and a response can be compared; the line of a
//! failure or retry also says what an operator can do. Lines come from events, which hold no
//! content and no key; library logs are set up separately (`init_process_logs`), at their own
//! level.

mod process;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
    sync::Arc,
};

use arc_swap::ArcSwap;
use serde::Serialize;
use tracing_subscriber::{EnvFilter, util::SubscriberInitExt as _};

use super::{
    TelemetryError,
    reader::{Consume, ReaderTask},
};
use crate::{
    domain::{
        event::{Event, EventBody, Severity},
        ids::{RequestId, TargetId, ThreadId},
    },
    events::{BusItem, EventBus},
    policy::secrets::Secrets,
};

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Human {
        /// If set, severities are coloured.
        colour: bool,
    },
}

/// Starts writing a line for every event of at least this severity. Needs a Tokio runtime.
///
/// Lines are written outside the runtime's workers: if the output blocks, lines are lost, and
/// calls are not delayed.
#[must_use]
pub fn start_logs(
    bus: &EventBus,
    format: LineFormat,
    level: Severity,
    to: Box<dyn Write + Send>,
) -> ReaderTask {
    ReaderTask::start(
        bus.live(),
        LogLines {
            format,
            level,
            to: Some(to),
        },
    )
}

/// Sends what libraries log to standard error, without the configured secrets; `filter` is a level
/// or a list of `crate=level`.
///
/// # Errors
/// When the filter cannot be read, or another subscriber is in force in this process.
pub fn init_process_logs(
    format: LineFormat,
    filter: &str,
    secrets: Arc<ArcSwap<Secrets>>,
) -> Result<(), TelemetryError> {
    let wrong = |error: &dyn std::fmt::Display| TelemetryError::Logs(error.to_string());
    let filter = EnvFilter::try_new(filter).map_err(|error| wrong(&error))?;
    // The watcher of the configuration's directory logs each change there; a log file in it would
    // feed itself.
    let filter = filter.add_directive("notify=warn".parse().map_err(|error| wrong(&error))?);
    // The SDK of tool servers logs what servers say; what went wrong is logged here, in its place.
    let filter = filter.add_directive("rmcp=off".parse().map_err(|error| wrong(&error))?);
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || CleanedLines(Arc::clone(&secrets)));
    match format {
        LineFormat::Json => subscriber
            .event_format(process::JsonLines)
            .finish()
            .try_init(),
        LineFormat::Human { colour } => subscriber.with_ansi(colour).finish().try_init(),
    }
    .map_err(|error| TelemetryError::Logs(error.to_string()))
}

/// Standard error, to which lines go without the configured secrets, whoever wrote them.
struct CleanedLines(Arc<ArcSwap<Secrets>>);

// === impl CleanedLines ===

impl Write for CleanedLines {
    /// Writes a line, which comes as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().write_all(self.0.load().take_out(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes events as log lines.
struct LogLines {
    format: LineFormat,
    level: Severity,
    /// Away while a batch is being written.
    to: Option<Box<dyn Write + Send>>,
}

/// A log line as JSON; fields are in reading order.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    time: String,
    severity: Severity,
    event: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    trace_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    invocation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_hint: Option<String>,
    cursor: u64,
    detail: &'a EventBody,
}

impl Consume for LogLines {
    async fn consume(&mut self, batch: Vec<BusItem>) {
        let mut text = String::new();
        for reading in &batch {
            match reading {
                // A storm of refusals must not become one of lines: `CallsRefused` counts them.
                BusItem::Event(event) if event.body.is_refused_call() => {}
                BusItem::Event(event) if event.body.severity() >= self.level => {
                    self.write_event(event, &mut text);
                }
                BusItem::Event(_) => {}
                BusItem::Missed { count, .. } => self.write_missed(*count, &mut text),
            }
        }
        if text.is_empty() {
            return;
        }
        let Some(mut to) = self.to.take() else { return };
        let written = tokio::task::spawn_blocking(move || {
            // There is nowhere to report that a log cannot be written.
            let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
            to
        });
        self.to = written.await.ok();
    }
}

// === impl LogLines ===

impl LogLines {
    fn write_event(&self, event: &Event, text: &mut String) {
        match self.format {
            LineFormat::Json => {
                let scope = event.scope.as_deref();
                let line = LogLine {
                    time: event.at.to_string(),
                    severity: event.body.severity(),
                    event: event.body.kind(),
                    message: event.display(),
                    trace_id: scope.map_or("", |scope| &scope.trace_id),
                    invocation: scope.map(|scope| scope.invocation.as_str()),
                    thread: scope
                        .and_then(|scope| scope.thread.as_ref())
                        .map(ThreadId::as_str),
                    tenant: scope
                        .map(|scope| scope.tenant.as_str())
                        .filter(|tenant| !tenant.is_empty()),
                    request_id: scope
                        .and_then(|scope| scope.request_id.as_ref())
                        .map(RequestId::as_str),
                    labels: scope
                        .map(|scope| &scope.labels)
                        .filter(|labels| !labels.is_empty()),
                    route: scope.map(|scope| scope.route.as_str()),
                    operation: scope.map(|scope| scope.operation.as_str()),
                    target: event.target.as_ref().map(TargetId::as_str),
                    attempt: event.attempt,
                    remaining: remaining(&event.body),
                    recovery_hint: hint(&event.body),
                    cursor: event.cursor.0,
                    detail: &event.body,
                };
                if let Ok(json) = serde_json::to_string(&line) {
                    text.push_str(&json);
                    text.push('\n');
                }
            }
            LineFormat::Human { colour } => {
                let time = event.at.strftime("%H:%M:%S%.3f");
                let severity = human_severity(event.body.severity(), colour);
                let message = one_line(&event.display());
                // Writing to a string cannot fail.
                let _ = write!(text, "{time} {severity} {message}");
                if let Some(hint) = hint(&event.body) {
                    let _ = write!(text, "  hint={:?}", one_line(&hint));
                }
                if let Some(scope) = &event.scope {
                    let failed = matches!(event.body, EventBody::InvocationFailed { .. });
                    let thread = scope.thread.as_ref().map(ThreadId::as_str);
                    let request = scope.request_id.as_ref().map(RequestId::as_str);
                    let known = [
                        ("thread", thread),
                        ("tenant", Some(scope.tenant.as_str())),
                        ("request_id", request),
                    ];
                    for (key, value) in known {
                        if let Some(value) = value.filter(|value| failed && !value.is_empty()) {
                            let _ = write!(text, "  {key}={}", one_line(value));
                        }
                    }
                    for (key, value) in scope.labels.iter().filter(|_| failed) {
                        let _ = write!(text, "  {}={}", one_line(key), one_line(value));
                    }
                    let _ = write!(text, "  invocation={}", one_line(scope.invocation.as_str()));
                    if !scope.trace_id.is_empty() {
                        let _ = write!(text, " trace={}", scope.trace_id);
                    }
                }
                text.push('\n');
            }
        }
    }

    fn write_missed(&self, count: u64, text: &mut String) {
        let time = crate::domain::clock::wall_now();
        let message = format!("{count} events were not logged: the log could not keep up");
        let _ = match self.format {
            LineFormat::Json => {
                let line = serde_json::json!({
                    "time": time.to_string(), "severity": Severity::Warning, "event": "events_missed",
                    "message": message, "count": count,
                });
                writeln!(text, "{line}")
            }
            LineFormat::Human { colour } => {
                writeln!(
                    text,
                    "{} {} {message}",
                    time.strftime("%H:%M:%S%.3f"),
                    human_severity(Severity::Warning, colour)
                )
            }
        };
    }
}

/// Returns the number of retries that are left after the one that starts.
fn remaining(body: &EventBody) -> Option<u32> {
    match body {
        EventBody::RecoveryAttempted {
            retry, max_retries, ..
        } => Some(max_retries.saturating_sub(*retry)),
        _ => None,
    }
}

/// Returns a hint to what an operator or developer can do about a failure.
fn hint(body: &EventBody) -> Option<String> {
    match body {
        EventBody::AttemptFailed { recovery_hint, .. }
        | EventBody::RecoveryAttempted { recovery_hint, .. }
        | EventBody::InvocationFailed { recovery_hint, .. } => {
            Some(recovery_hint.clone()).filter(|hint| !hint.is_empty())
        }
        _ => None,
    }
}

fn human_severity(severity: Severity, colour: bool) -> String {
    let (word, code) = match severity {
        Severity::Debug => ("DEBUG", 2),
        Severity::Info => ("INFO ", 32),
        Severity::Warning => ("WARN ", 33),
        Severity::Error => ("ERROR", 31),
    };
    if colour {
        format!("\u{1b}[{code}m{word}\u{1b}[0m")
    } else {
        word.to_owned()
    }
}

/// Returns the text without control characters: upstream text must not start a new line or colour a
/// terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(attempt: &u32) -> bool {
    *attempt == 0
}

#[cfg(test)]
mod tests;
