//! The source files, and what is code in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders of sources, of the service and of the crates below it.
pub(crate) const ROOTS: [&str; 8] = [
    "src",
    "crates/relight-fleet/src",
    "crates/relight-journal/src",
    "crates/relight-lab/src",
    "crates/relight-outbound/src",
    "crates/relight-policy/src",
    "crates/relight-provider/src",
    "crates/relight-tool/src",
];

/// The files of Rust in a folder and below it; `src` is that of each crate.
pub(crate) fn sources(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = match folder.strip_prefix("src") {
        Some(below) => ROOTS
            .map(|source| root.join(format!("{source}{below}")))
            .to_vec(),
        None => vec![root.join(folder)],
    };
    files_below(folders)
}

/// The files of Rust of the service itself, whose levels and homes Cargo does not keep.
pub(crate) fn sources_of_the_service() -> Vec<PathBuf> {
    files_below(vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")])
}

fn files_below(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The path below the sources of its crate, without its ending.
pub(crate) fn module_path(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = |source: &&str| path.strip_prefix(root.join(source)).ok();
    ROOTS
        .iter()
        .find_map(below)
        .unwrap()
        .with_extension("")
        .to_string_lossy()
        .into_owned()
}

/// Lines that are code: comments and doc comments may name whatever they explain.
pub(crate) fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line))
}
