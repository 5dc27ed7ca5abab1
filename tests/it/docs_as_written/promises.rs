//! Each promise of the pages that compare and promise leads to a test that exists.

use std::fs;

use super::root;

/// A page, how the head of its table of promises begins, and how many rows it has at least.
const TABLES: [(&str, &str, usize); 3] = [
    ("compatibility.md", "| | Within 0.x |", 10),
    ("comparison.md", "| | Relight |", 10),
    ("comparison.md", "| Wish | Relight |", 10),
];

/// A promise that is not made needs no test.
const NO: &str = " no ";

/// The cells of each row below this head.
fn rows<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    page.lines()
        .skip_while(|line| !line.starts_with(head))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').collect())
        .collect()
}

/// Where the links of a cell lead: a file from `docs/`, and what stands behind its `#`.
fn links(cell: &str) -> Vec<(&str, &str)> {
    cell.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')')?.0.split_once('#'))
        .collect()
}

/// Whether a file of tests has this function, in Rust, Python or the shell.
fn has_function(file: &str, source: &str, name: &str) -> bool {
    match file.rsplit_once('.') {
        Some((_, "rs")) => source.contains(&format!("fn {name}(")),
        Some((_, "py")) => source.contains(&format!("def {name}(")),
        _ => source.lines().any(|line| line == format!("{name}() {{")),
    }
}

#[test]
fn each_promise_leads_to_a_test_that_exists() {
    for (name, head, least) in TABLES {
        let page = fs::read_to_string(root().join("docs").join(name)).unwrap();
        let rows = rows(&page, head);
        assert!(rows.len() >= least, "{name}: {} promises", rows.len());
        for row in rows {
            let [promise, answer, held_by] = row[..] else {
                panic!("{name}: a row of other columns: {row:?}");
            };
            if answer == NO {
                continue;
            }
            let links = links(held_by);
            assert!(!links.is_empty(), "{name}:{promise}has no test");
            for (file, function) in links {
                let source = fs::read_to_string(root().join("docs").join(file))
                    .unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
                assert!(
                    has_function(file, &source, function),
                    "{name}:{promise}there is no test `{function}` in {file}"
                );
            }
        }
    }
}

#[test]
fn a_function_is_found_in_each_language_and_not_by_a_part_of_its_name() {
    assert!(has_function("a/b.rs", "async fn it_holds() {", "it_holds"));
    assert!(has_function("a/b.py", "def test_it(now):", "test_it"));
    assert!(has_function("../.ci/run", "contract() {\n}", "contract"));
    assert!(!has_function("a/b.rs", "fn it_holds_not() {", "it_holds"));
    assert!(!has_function("../.ci/run", "run contract", "contract"));
}
