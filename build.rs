//! Compiles the contract in `proto/` without a system `protoc`.
#![expect(clippy::disallowed_methods, reason = "cargo tells a build script where to write by the environment")]

use std::{env, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["admin_service", "event", "failure", "injection", "invocation", "model", "recovery_service"]
        .into_iter()
        .chain(["release", "stream", "target", "tool", "watch"])
        .map(|name| format!("relight/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("relight_descriptor.bin");
    std::fs::write(&out, prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
