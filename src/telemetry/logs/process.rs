//! Lines of this process and its libraries, in the form that lines about events have.
//!
//! One stream of lines has one schema: `time`, `severity`, `event`, `message`. What a library adds
//! to its line is in `fields`.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::domain::{clock, event::Severity};

/// The event's name in lines that come from no event.
const EVENT: &str = "process";

/// Formats such lines as JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct JsonLines;

/// The message and fields of one line.
#[derive(Default)]
struct LogFields {
    message: String,
    others: Map<String, Value>,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let severity = match *event.metadata().level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            Level::INFO => Severity::Info,
            Level::DEBUG | Level::TRACE => Severity::Debug,
        };
        let mut line = serde_json::json!({
            "time": clock::wall_now().to_string(),
            "severity": severity,
            "event": EVENT,
            "message": fields.message,
            "source": event.metadata().target(),
        });
        if !fields.others.is_empty() {
            line["fields"] = Value::Object(fields.others);
        }
        writeln!(writer, "{line}")
    }
}

// === impl LogFields ===

impl LogFields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl tracing::field::Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}
