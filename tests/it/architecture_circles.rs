//! No circle between the files of a module: what a file uses does not use the file.
//!
//! A module and the files below it belong together (a child names its parent's types, a parent
//! calls its children); between all others an arrow has one direction.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::sources::{code_lines, module_path, sources};

/// The paths of a `use` tree, without what they are renamed to.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        return vec![
            tree.split(" as ")
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
        ];
    };
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    let inside = inside.trim_end().trim_end_matches('}');
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(
                    paths(&inside[begin..at])
                        .into_iter()
                        .map(|path| format!("{before}{path}")),
                );
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The modules (`a/b`) that a file uses by `use` or by a path in its code.
fn used(module: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let code: String = code_lines(text)
        .map(|(_, line)| line.split(" // ").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    let in_uses = code
        .split("use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .flat_map(paths);
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let in_code = ["crate::", "super::"]
        .into_iter()
        .flat_map(|begin| code.match_indices(begin))
        .map(|(at, _)| {
            let rest = &code[at..];
            rest[..rest.find(|letter| !is_path(letter)).unwrap_or(rest.len())].to_owned()
        });
    let resolved = in_uses.chain(in_code).filter_map(|path| {
        let mut at: Vec<&str> = module.split('/').collect();
        let mut steps = path.split("::").map(str::trim).peekable();
        match steps.peek().copied() {
            Some("crate") => {
                at.clear();
                steps.next();
            }
            Some("super") => {
                while steps.next_if_eq(&"super").is_some() {
                    at.pop();
                }
            }
            Some("self") => {
                steps.next();
            }
            _ => return None,
        }
        at.extend(steps);
        // The longest part of the path that is a file.
        (1..=at.len())
            .rev()
            .map(|length| at[..length].join("/"))
            .find(|module| modules.contains(module))
    });
    let is_family = |one: &str, other: &str| {
        one == other
            || one
                .strip_prefix(other)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    resolved
        .filter(|other| !is_family(module, other) && !is_family(other, module))
        .collect()
}

/// A way along the arrows from `at` back to `goal`.
fn way_back(
    arrows: &BTreeMap<String, BTreeSet<String>>,
    goal: &str,
    at: &str,
    seen: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    for next in arrows.get(at).into_iter().flatten() {
        if next == goal {
            return Some(vec![next.clone()]);
        }
        if seen.insert(next.clone())
            && let Some(mut way) = way_back(arrows, goal, next, seen)
        {
            way.insert(0, next.clone());
            return Some(way);
        }
    }
    None
}

#[test]
fn no_files_of_a_module_use_each_other_in_a_circle() {
    let files: BTreeMap<String, String> = sources("src")
        .iter()
        .map(|path| (module_path(path), std::fs::read_to_string(path).unwrap()))
        .filter(|(module, _)| {
            !module.contains("tests") && !["main", "lib", "internals"].contains(&module.as_str())
        })
        .map(|(module, text)| {
            (
                module,
                text.split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })
        .collect();
    let modules: BTreeSet<String> = files.keys().cloned().collect();
    let arrows: BTreeMap<String, BTreeSet<String>> = files
        .iter()
        .map(|(module, text)| (module.clone(), used(module, text, &modules)))
        .collect();
    let count: usize = arrows.values().map(BTreeSet::len).sum();
    assert!(count > 500, "only {count} arrows were found");
    let circles: Vec<String> = modules
        .iter()
        .filter_map(|module| {
            way_back(&arrows, module, module, &mut BTreeSet::new()).map(|way| (module, way))
        })
        .map(|(module, way)| format!("{module} -> {}", way.join(" -> ")))
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}
