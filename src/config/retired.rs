//! Settings of earlier versions: a renamed one is read under its old name, one without effect is
//! ignored, and both cause a warning that says what decides now. A file that worked keeps working.
//!
//! The table is `retired.yaml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{
    decode,
    fault::Fault,
    tree::{self, Node, Value, join},
};

const TABLE: &str = include_str!("retired.yaml");

/// Settings of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetiredSettings {
    /// The sections that they were in; `*` is any name, `[]` any element.
    at: Vec<String>,
    /// Their names.
    gone: Vec<String>,
    /// Their name now; `None` if they do nothing.
    #[serde(default)]
    renamed: Option<String>,
    /// Words for what decides in their place, if anything does.
    #[serde(default)]
    decides: String,
}

static RETIRED: LazyLock<Vec<RetiredSettings>> = LazyLock::new(|| read().unwrap_or_default());

fn read() -> Option<Vec<RetiredSettings>> {
    let mut faults = Vec::new();
    let mut table = tree::parse(TABLE, &mut faults)?;
    decode::decode(&mut table, &mut faults)
}

/// Returns the paths of all of them, for what checks files before they are read.
pub(super) fn paths() -> Vec<String> {
    let of_row = |row: &RetiredSettings| {
        let of_place = |place: &String| {
            let path = |name: &String| join(place, name);
            row.gone.iter().map(path).collect::<Vec<_>>()
        };
        row.at.iter().flat_map(of_place).collect::<Vec<_>>()
    };
    RETIRED.iter().flat_map(of_row).collect()
}

/// Renames or removes the retired settings of a file; returns a notice of each.
pub(super) fn replace(tree: &mut Node, faults: &mut Vec<Fault>) -> Vec<Fault> {
    let mut notices = Vec::new();
    for row in &*RETIRED {
        for place in &row.at {
            let sections: Vec<&str> = place.split('.').filter(|name| !name.is_empty()).collect();
            for old in &row.gone {
                replace_in(tree, &sections, (old, row), &mut notices, faults);
            }
        }
    }
    notices
}

fn replace_in(
    node: &mut Node,
    sections: &[&str],
    (old, row): (&str, &RetiredSettings),
    notices: &mut Vec<Fault>,
    faults: &mut Vec<Fault>,
) {
    if let Some((section, inner)) = sections.split_first() {
        let mut below = |member: &mut Node| replace_in(member, inner, (old, row), notices, faults);
        match &mut node.value {
            Value::Map(members) => members
                .iter_mut()
                .filter(|(name, _)| *section == "*" || name == section)
                .for_each(|(_, member)| below(member)),
            Value::List(elements) if *section == "[]" => elements.iter_mut().for_each(below),
            _ => {}
        }
        return;
    }
    let Some(written) = node.get(old) else { return };
    let at = written.key_at;
    let fault = |reason: String| Fault::new(join(&node.path, old), reason).at(at);
    let Some(new) = &row.renamed else {
        let decides = if row.decides.is_empty() {
            String::new()
        } else {
            format!(": {}", row.decides)
        };
        notices.push(fault(format!(
            "no longer has an effect{decides}; remove it"
        )));
        let path = join(&node.path, old);
        node.remove(&path);
        return;
    };
    if node.get(new).is_some() {
        faults.push(fault(format!(
            "is now called `{new}`, which is written, too; remove one of the two"
        )));
        return;
    }
    notices.push(fault(format!("is now called `{new}`")));
    let path = join(&node.path, new);
    if let Value::Map(members) = &mut node.value
        && let Some((name, member)) = members.iter_mut().find(|(name, _)| name == old)
    {
        new.clone_into(name);
        member.path = path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{reference, schema};

    /// Returns a file with this setting and nothing else.
    fn file(place: &str, name: &str) -> String {
        let inner = format!("{{ {name}: 1 }}");
        let sections = place.split('.').filter(|section| !section.is_empty());
        sections.rev().fold(inner, |inner, section| match section {
            "[]" => format!("[{inner}]"),
            "*" => format!("{{ mine: {inner} }}"),
            section => format!("{{ {section}: {inner} }}"),
        })
    }

    #[test]
    fn each_is_taken_out_of_a_file_that_names_it_and_reported_once() {
        let table = read().unwrap();
        assert!(table.len() > 40, "{table:?}");
        for row in &table {
            for (place, name) in row
                .at
                .iter()
                .flat_map(|place| row.gone.iter().map(move |name| (place, name)))
            {
                let mut faults = Vec::new();
                let mut read = tree::parse(&file(place, name), &mut faults).unwrap();
                let notices = replace(&mut read, &mut faults);
                assert!(faults.is_empty(), "{place}.{name}: {faults:?}");
                let [notice] = &notices[..] else {
                    panic!("{place}.{name}: {notices:?}")
                };
                let path = place.replace('*', "mine").replace(".[]", "[0]");
                assert_eq!(notice.path, join(&path, name));
                assert!(notice.reason.contains(&row.decides), "{}", notice.reason);
                let again = replace(&mut read, &mut faults);
                assert!(again.is_empty(), "{place}.{name}: {again:?}");
            }
        }
    }

    #[test]
    fn none_is_still_a_setting() {
        let text = reference(&schema());
        for path in paths() {
            let (place, name) = path.rsplit_once('.').unwrap_or(("", &path));
            let heading = if place.is_empty() {
                "The file".to_owned()
            } else {
                format!("`{place}`")
            };
            let section = text
                .split("\n## ")
                .find(|it| {
                    it.lines()
                        .next()
                        .is_some_and(|line| line.contains(&heading))
                })
                .unwrap_or_else(|| panic!("there is no section {place}"));
            let is_there = [format!("- **`{name}`**"), format!("- [`{name}`](")]
                .iter()
                .any(|start| section.contains(start));
            assert!(!is_there, "{path}");
        }
    }
}
