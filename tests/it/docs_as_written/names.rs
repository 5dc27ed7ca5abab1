//! The files, functions, settings and tests that the documentation names exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use relight::internals::domain::failure::FailureClass;

use super::root;
use crate::support::sources::ROOTS;

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
        let code = ROOTS
            .iter()
            .chain(&["."])
            .find_map(|source| fs::read_to_string(root().join(source).join(file)).ok())
            .unwrap_or_else(|| panic!("no source {file}"));
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
            let folders = ["", "src/", "crates/relight-policy/src/"];
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
    assert!((8..=13).contains(&rows.len()), "{} rows", rows.len());
    let listed = |path: &str, mark: &str| {
        rows.iter()
            .any(|row| row.contains(&format!("`{path}`")) && row.ends_with(mark))
    };
    let mut folders: Vec<_> = ROOTS.iter().map(|source| root().join(source)).collect();
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
            } else if !name.contains("tests")
                && !name.starts_with("crates/relight-provider/src/bedrock")
            {
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

/// The sources below a folder of each crate, by path from the root.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let below = ROOTS.iter().map(|source| root().join(source).join(folder));
    let mut folders: Vec<_> = below.filter(|folder| folder.exists()).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path
                    .strip_prefix(root())
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                all.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

/// The paths between backquotes in a text.
fn quoted(text: &str) -> Vec<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    pieces.map(str::to_owned).collect()
}

#[test]
fn what_a_new_class_of_failure_needs_is_where_the_page_names_it() {
    let page = fs::read_to_string(root().join("docs/add-a-failure-rule.md")).unwrap();
    let (_, paragraph) = page.split_once("A new *class* is").unwrap();
    let named = quoted(paragraph);
    let classes: Vec<String> = FailureClass::ALL
        .iter()
        .map(|class| format!("{class:?}"))
        .collect();
    let decides_by_class = |source: &str| {
        let words: BTreeSet<&str> = source
            .split(|letter: char| !letter.is_alphanumeric())
            .collect();
        classes.iter().all(|class| words.contains(class.as_str()))
    };
    let found: Vec<String> = sources("")
        .into_iter()
        .filter(|(_, source)| decides_by_class(source))
        .map(|(path, _)| path)
        .collect();
    for path in &found {
        assert!(
            named.contains(path),
            "{path} names every class, and the page does not name it"
        );
    }
    let sources_named = named
        .iter()
        .filter(|path| path.starts_with("src/") || path.starts_with("crates/"));
    for path in sources_named {
        assert!(found.contains(path), "{path} does not name every class");
    }
}

#[test]
fn the_layers_that_change_what_passes_are_those_that_the_page_names() {
    let page = fs::read_to_string(root().join("docs/add-a-layer.md")).unwrap();
    let (_, rest) = page
        .split_once("a layer that changes what passes (")
        .unwrap();
    let named = quoted(rest.split_once(')').unwrap().0);
    let implementing = sources("layers").into_iter().filter(|(_, source)| {
        let mut lines = source.lines();
        lines.any(|line| {
            line.starts_with("impl") && line.contains(" NextLayer<") && line.contains(" for ")
        })
    });
    let names = implementing.map(|(path, _)| {
        let file = path.rsplit('/').next().unwrap();
        file.trim_end_matches(".rs").to_owned()
    });
    // It makes a `NextLayer` of what only lets in.
    let found: Vec<String> = names.filter(|name| name != "guarded").collect();
    assert_eq!(found, named);
}

#[test]
fn the_glossary_counts_the_classes_of_failures() {
    let page = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let stated = format!("one of {} kinds of failure", FailureClass::ALL.len());
    assert!(page.contains(&stated), "{stated}");
}

/// What pages say of a setting in brackets behind its name is its default.
#[test]
fn defaults_that_pages_state_are_those_of_the_settings() {
    let reference = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut section = String::new();
    let mut defaults = BTreeMap::new();
    for line in reference.lines() {
        if let Some(name) = line
            .strip_prefix("## `")
            .and_then(|rest| rest.strip_suffix('`'))
        {
            name.clone_into(&mut section);
        }
        let setting = line
            .strip_prefix("- **`")
            .and_then(|rest| rest.split_once("`**"));
        let stated = setting.and_then(|(name, rest)| {
            let (_, default) = rest.split_once("default `")?;
            Some((
                format!("{section}.{name}"),
                default.split_once('`')?.0.to_owned(),
            ))
        });
        defaults.extend(stated);
    }
    assert!(defaults.len() > 100, "{} defaults", defaults.len());
    let mut checked = 0;
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "md") || path.ends_with("configuration.md") {
            continue;
        }
        let page = fs::read_to_string(&path).unwrap();
        let pieces: Vec<&str> = page.split('`').collect();
        for pair in pieces.windows(2).skip(1).step_by(2) {
            let Some(default) = defaults.get(pair[0]) else {
                continue;
            };
            let stated = pair[1]
                .strip_prefix(" (")
                .and_then(|rest| rest.split_once(')'));
            let stated = stated.map(|(value, _)| value.replace(' ', ""));
            let is_number =
                |value: &String| value.starts_with(|first: char| first.is_ascii_digit());
            if let Some(stated) = stated.filter(is_number) {
                assert_eq!(&stated, default, "{}: `{}`", path.display(), pair[0]);
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "no page states a default");
}
