//! Compiles the contract in `proto/` without a system `protoc`.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script where to write by the environment"
)]

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 12] = [
    "admin_service",
    "event",
    "failure",
    "injection",
    "invocation",
    "model",
    "recovery_service",
    "release",
    "stream",
    "target",
    "tool",
    "watch",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/relight");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let files = FILES.map(|name| format!("relight/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    fs::write(
        out.join("relight_descriptor.bin"),
        descriptors.encode_to_vec(),
    )?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
