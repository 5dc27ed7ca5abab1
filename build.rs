//! Names the commit that is built.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script what it builds by the environment"
)]

use std::{env, error::Error, process::Command};

/// Sets the commit that is built, for `relight version`: `RELIGHT_REVISION` where it is set (an
/// image is built without the repository), else from git. A debug build is not rebuilt for each
/// commit, and is marked as such.
fn main() -> Result<(), Box<dyn Error>> {
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
