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
pub mod recovery;
mod releases;
pub mod resume_token;
pub mod status;
mod stream;
mod watch;

/// The generated contract, package `relight.v1`.
#[expect(
    clippy::all,
    clippy::allow_attributes,
    clippy::pedantic,
    reason = "generated from proto/, where everything is documented"
)]
pub mod v1 {
    tonic::include_proto!("relight.v1");

    /// The contract's descriptors, for server reflection.
    pub const DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/relight_descriptor.bin"));
}
