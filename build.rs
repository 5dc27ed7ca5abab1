//! Compiles the contract in `proto/` without a system `protoc`, and puts the failure rules of
//! `rules/` into one file.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script where to write by the environment"
)]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> Result<(), Box<dyn Error>> {
    name_commit()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    compile_contract(&out)?;
    embed_rules(Path::new("rules"), &out.join("rules.json"))
}

/// Sets the commit that is built, for `relight version`: `RELIGHT_REVISION` where it is set (an
/// image is built without the repository), else from git. A debug build is not rebuilt for each
/// commit, and is marked as such.
fn name_commit() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=RELIGHT_REVISION");
    let is_release = env::var("PROFILE")? == "release";
    let git = |arguments: &[&str]| {
        let ran = Command::new("git")
            .args(arguments)
            .output()
            .ok()
            .filter(|ran| ran.status.success())?;
        Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned()).filter(|text| !text.is_empty())
    };
    if is_release && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = env::var("RELIGHT_REVISION")
        .ok()
        .filter(|text| !text.is_empty());
    let commit = given
        .or_else(|| git(&["log", "-1", "--format=%h, %cs"]))
        .unwrap_or_else(|| "unknown commit".to_owned());
    let debug = if is_release {
        ""
    } else {
        "debug build of or after "
    };
    println!("cargo:rustc-env=RELIGHT_COMMIT={debug}{commit}");
    Ok(())
}

fn compile_contract(out: &Path) -> Result<(), Box<dyn Error>> {
    let files = [
        "admin_service",
        "event",
        "failure",
        "injection",
        "invocation",
        "model",
        "recovery_service",
    ]
    .into_iter()
    .chain(["release", "stream", "target", "tool", "watch"])
    .map(|name| format!("relight/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    fs::write(
        out.join("relight_descriptor.bin"),
        prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

/// Writes all rules below a folder into one file of JSON, which a start reads in a millisecond; the
/// order of the files' names is the precedence of their rules.
fn embed_rules(folder: &Path, into: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut rules: Vec<serde_json::Value> = Vec::new();
    for file in files {
        let read: Result<Vec<serde_json::Value>, _> =
            serde_saphyr::from_str(&fs::read_to_string(&file)?);
        rules.extend(read.map_err(|error| format!("{}: {error}", file.display()))?);
    }
    Ok(fs::write(into, serde_json::to_string(&rules)?)?)
}
