//! The files, functions, settings and tests that the documentation names exist.

use std::fs;

use super::root;

/// The table of attacks: a bound in its second column is a setting, a promise in its third is a
/// test, by file and name.
#[test]
fn each_attack_of_the_security_document_names_settings_and_tests_that_exist() {
    let read = |path: &str| {
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let (document, settings) = (read("SECURITY.md"), read("tests/fixtures/settings.tsv"));
    let (_, table) = document.split_once("\n| Attack |").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|row| row.starts_with('|'))
        .map(|row| row.split('|').collect())
        .collect();
    assert!(rows.len() > 20, "{} attacks", rows.len());
    for row in rows {
        let quoted = |column: usize| {
            row[column]
                .split('`')
                .skip(1)
                .step_by(2)
                .collect::<Vec<_>>()
        };
        for setting in quoted(2) {
            let is_known = |line: &str| line.split('\t').next().is_some_and(|name| name == setting);
            assert!(
                settings.lines().any(is_known),
                "{}: there is no setting `{setting}`",
                row[1]
            );
        }
        let tests = quoted(3);
        assert!(!tests.is_empty(), "{}: no test", row[1]);
        for test in tests {
            let (file, name) = test
                .rsplit_once("::")
                .unwrap_or_else(|| panic!("{test} names no file"));
            let source = read(&format!("tests/it/{}.rs", file.replace("::", "/")));
            assert!(
                source.contains(&format!("fn {name}(")),
                "{}: there is no test `{test}`",
                row[1]
            );
        }
    }
}

#[test]
fn every_hop_of_the_life_of_an_invocation_is_where_the_page_names_it() {
    let page = std::fs::read_to_string(root().join("docs/life-of-an-invocation.md")).unwrap();
    let mut hops = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row
            .split(" | ")
            .map(|cell| cell.trim_matches(['|', ' ', '`']))
            .collect();
        let [_, _, file, function] = cells[..] else {
            continue;
        };
        if file == "File" {
            continue;
        }
        let code = std::fs::read_to_string(root().join("src").join(file))
            .unwrap_or_else(|_| panic!("no src/{file}"));
        let is_there = ["(", "<"]
            .iter()
            .any(|end| code.contains(&format!("fn {function}{end}")));
        assert!(is_there, "src/{file} has no function {function}: {row}");
        hops += 1;
    }
    assert!(hops > 30, "{hops} hops");
    for shape in [
        "InvocationRequest",
        "InvocationContext",
        "Attempt",
        "ProviderRequest",
    ] {
        assert!(
            page.contains(&format!("| `{shape}` |")),
            "{shape} is not among the shapes"
        );
    }
}

/// The paths that the pages for developers name, without placeholders.
#[test]
fn the_pages_for_developers_name_files_that_exist() {
    let mut named = 0;
    for page in [
        "architecture",
        "add-a-provider",
        "add-a-layer",
        "add-an-rpc",
        "add-a-failure-rule",
    ] {
        let text = fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        let paths = text
            .lines()
            .filter(|line| !line.starts_with("relight "))
            .flat_map(|line| line.split('`'));
        for path in paths.filter(|path| path.contains('/') && !path.contains([' ', '<', '{'])) {
            let folders = ["", "src/"];
            assert!(
                folders
                    .iter()
                    .any(|folder| root().join(folder).join(path).exists()),
                "docs/{page}.md names `{path}`"
            );
            named += 1;
        }
    }
    assert!(named > 40, "{named} paths");
}

/// The compiler names the places where each dialect has a line of its own, and the page lists all
/// of them.
#[test]
fn a_provider_touches_the_files_that_the_page_lists_and_no_more() {
    let page = fs::read_to_string(root().join("docs/add-a-provider.md")).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .collect();
    assert!((8..=12).contains(&rows.len()), "{} rows", rows.len());
    let listed = |path: &str, mark: &str| {
        rows.iter()
            .any(|row| row.contains(&format!("`{path}`")) && row.ends_with(mark))
    };
    let mut folders = vec![root().join("src")];
    let mut touched = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !name.contains("tests") && !name.starts_with("src/provider/bedrock") {
                let text = fs::read_to_string(&path).unwrap();
                if text.contains("Dialect::Bedrock =>")
                    || text.contains("Dialect::Bedrock | Dialect::Tool =>")
                {
                    assert!(listed(&name, "| ✓ |"), "{name} has a line for each dialect");
                    touched += 1;
                }
            }
        }
    }
    let marked = rows.iter().filter(|row| row.ends_with("| ✓ |")).count();
    assert_eq!(
        touched, marked,
        "the page marks files that the compiler does not name"
    );
}
