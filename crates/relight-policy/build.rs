//! Puts the failure rules of `rules/` into one file.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script where to write by the environment"
)]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    embed_rules(Path::new("rules"), &out.join("rules.json"))
}

/// Writes all rules below a folder into one file of JSON, which a start reads in a millisecond; the
/// order of the files' names is the precedence of their rules.
fn embed_rules(folder: &Path, into: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
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
