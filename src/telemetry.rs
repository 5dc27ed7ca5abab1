//! Telemetry: traces, metrics and logs.
//!
//! Metrics and logs are readers of the event bus, one owned task each, so that no layer knows of
//! them; spans are opened by the layers with the tracer that is built here. Nothing here blocks a
//! call, and no content passes through.

pub mod endpoint;
mod export;
pub mod logs;
pub mod metrics;
pub mod settings;
pub mod traces;

mod reader;

pub use self::{
    logs::{LineFormat, init_process_logs, start_logs},
    metrics::{GaugeLevels, JournalLevels, Metrics, MetricsTask, TargetNames},
    reader::ReaderTask,
    settings::{TelemetryError, TelemetrySettings},
    traces::{TracerGuard, build_tracer},
};
