//! The gRPC contract of Relight, as generated from its `.proto` files: messages, clients, server
//! traits and descriptors. Each field is documented with its unit and range.
//!
//! A caller from Rust wants the crate `relight-client`, which reconnects and resumes.

/// Package `relight.v1`.
#[expect(
    clippy::all,
    clippy::allow_attributes,
    clippy::pedantic,
    reason = "generated from proto/, which documents everything"
)]
pub mod v1 {
    tonic::include_proto!("relight.v1");

    /// Descriptors of all files of the package, as an encoded `FileDescriptorSet`: for server
    /// reflection, and for tools that read messages by field.
    pub const DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/relight_descriptor.bin"));
}
