//! The page of the conventions lists every name of them that is used, and no other.

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The words of a text between these marks that are names of the `GenAI` conventions.
fn names(text: &str, mark: char) -> BTreeSet<&str> {
    let words = text.split(mark).skip(1).step_by(2);
    words.filter(|word| word.starts_with("gen_ai.")).collect()
}

#[test]
fn the_page_lists_the_names_and_the_version_that_are_sent() {
    let (source, page) = (
        read("crates/relight-policy/src/domain/semconv.rs"),
        read("docs/conventions.md"),
    );
    // Without comments, in which an apostrophe or a quote may stand alone.
    let code: Vec<&str> = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let used = names(&code, '"');
    assert!(used.len() > 15, "{used:?}");
    // Fenced blocks hold no names.
    let listed = page.split("```").step_by(2).collect::<String>();
    assert_eq!(names(&listed, '`'), used);
    let url = code
        .split('"')
        .find(|word| word.contains("opentelemetry.io/schemas/"));
    assert!(page.contains(url.unwrap()), "{url:?}");
}
