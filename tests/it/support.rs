//! The harness of the integration tests: fakes of the systems around Relight that can fail on
//! demand.

pub(crate) mod any_fields;
pub(crate) mod authority;
pub(crate) mod binary;
pub(crate) mod cluster;
pub(crate) mod connections;
pub(crate) mod dialect;
pub(crate) mod event_reader;
pub(crate) mod every_front;
pub(crate) mod fleet_server;
pub(crate) mod folding;
pub(crate) mod front;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod literal;
pub(crate) mod load;
pub(crate) mod otlp;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod relight;
pub(crate) mod reloaded;
pub(crate) mod room;
pub(crate) mod slow_link;
pub(crate) mod slow_upstream;
pub(crate) mod sources;
pub(crate) mod targets;
pub(crate) mod terminal;
pub(crate) mod told;
pub(crate) mod tool_stage;

pub(crate) mod upstream;
pub(crate) mod valkey;
pub(crate) mod wire;
