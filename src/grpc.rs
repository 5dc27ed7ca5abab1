//! The gRPC interface: services, conversion between the contract and the domain, and statuses. Wire
//! types end here.

pub mod admin;
pub mod auth;
pub mod convert;
pub mod drain;
mod dry_run;
pub mod entries;
mod executions;
pub mod folder;
mod listing;
mod lookup;
mod methods;
pub mod peers;
pub mod recovery;
mod releases;
pub mod resume_token;
mod status;
mod stream;
mod watch;

pub use relight_proto::v1;
