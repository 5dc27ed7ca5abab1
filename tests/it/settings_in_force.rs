//! Every setting that is changed on a running server is in force, or is reported to need a restart.
//!
//! `tests/fixtures/settings.tsv` names every setting of the schema: which test sees from outside
//! that a change of it is in force, or that it needs a restart. The settings of one section take
//! effect together, as one value: the test shows that the section is replaced, and the policies'
//! own tests show what each setting of it does.

mod connections;
mod policies;
mod prices;
mod probes;
mod providers;
mod releases;
mod routes;
mod targets;
mod tools;

use std::collections::{BTreeMap, BTreeSet};

use relight::internals::{
    config::{GivenEnvironment, load_text, schema},
    domain::units,
};
use serde_json::{Value, json};

use crate::support::reloaded::{Reloaded, merge};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/settings.tsv");

/// What is written in place of a name that the operator chooses.
const NAMES: &[(&str, &str)] = &[
    ("providers", "p"),
    ("targets", "main"),
    ("routes", "default"),
    ("weights", "main"),
    ("operations", "executor"),
    ("policies", "standard"),
    ("headers", "x-extra"),
    ("credentials", "other"),
    ("templates", "server_error"),
    ("otlp_headers", "x-extra"),
    ("resource", "team"),
    ("texts", "server_error"),
    ("languages", "de"),
    ("subjects", "main"),
    ("tenants", "default"),
];

/// One setting.
#[derive(Debug)]
struct Row {
    /// Its path in the schema.
    setting: String,
    /// The test that sees it in force, or `restart`.
    seen_by: String,
    /// Another value of it; none where one can be made from the default, `null` where it fits no
    /// other one.
    other: Option<Value>,
}

// === impl Row ===

impl Row {
    /// The path of the setting in a file.
    fn path(&self) -> Vec<&str> {
        let mut path: Vec<&str> = Vec::new();
        for name in self.setting.split('.') {
            let chosen = match (name, path.last()) {
                ("*", Some(holder)) => NAMES
                    .iter()
                    .find(|(known, _)| known == holder)
                    .map(|(_, chosen)| *chosen),
                _ => None,
            };
            path.push(chosen.unwrap_or(name));
        }
        path
    }

    /// The path as a change is reported: lists as a whole.
    fn reported(&self) -> String {
        let path = self.path();
        let end = path
            .iter()
            .position(|name| *name == "[]")
            .unwrap_or(path.len());
        path[..end].join(".")
    }
}

fn rows() -> Vec<Row> {
    let table = std::fs::read_to_string(TABLE).unwrap();
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let (setting, seen_by) = (
            fields.next().unwrap(),
            fields.next().unwrap_or_else(|| panic!("no test: {line}")),
        );
        let other = fields.next().map(|text| {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{line}: {error}"))
        });
        Row {
            setting: setting.to_owned(),
            seen_by: seen_by.to_owned(),
            other,
        }
    };
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(row)
        .collect()
}

/// Every leaf of a schema, by its path.
fn leaves(schema: &Value, node: &Value, path: &str, found: &mut BTreeSet<String>) {
    let join = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let choices = node.get("anyOf").and_then(Value::as_array);
    let chosen = choices.and_then(|choices| {
        choices
            .iter()
            .find(|choice| choice.get("type") != Some(&json!("null")))
    });
    let is = |kind: &str| match node.get("type") {
        Some(Value::Array(kinds)) => kinds.contains(&json!(kind)),
        given => given == Some(&json!(kind)),
    };
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        leaves(
            schema,
            schema.pointer(reference.trim_start_matches('#')).unwrap(),
            path,
            found,
        );
    } else if let Some(chosen) = chosen {
        leaves(schema, chosen, path, found);
    } else if let Some(Value::Object(properties)) = node.get("properties") {
        for (name, property) in properties {
            leaves(schema, property, &join(name), found);
        }
    } else if let Some(members @ Value::Object(_)) =
        node.get("additionalProperties").filter(|_| is("object"))
    {
        leaves(schema, members, &join("*"), found);
    } else if let Some(items) = node
        .get("items")
        .filter(|items| is("array") && items.get("$ref").is_some())
    {
        leaves(schema, items, &join("[]"), found);
    } else {
        found.insert(path.to_owned());
    }
}

/// Another value of the same kind.
fn another(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(bool) => Some(json!(!bool)),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => Some(json!(whole + 1)),
            None => number
                .as_f64()
                .map(|ratio| json!((ratio * 0.9 * 1000.0).round() / 1000.0)),
        },
        Value::String(text) => {
            let duration = units::parse_duration(text)
                .ok()
                .filter(|duration| !duration.is_zero());
            let longer = duration.map(|duration| units::format_duration(duration + duration / 10));
            let more = || {
                units::parse_bytes(text)
                    .ok()
                    .map(|bytes| units::format_bytes(bytes + bytes / 8))
            };
            longer.or_else(more).map(Value::String)
        }
        _ => None,
    }
}

/// A map with this value at this path.
fn at(path: &[&str], value: Value) -> Value {
    path.iter().rev().fold(value, |value, name| {
        if *name == "[]" {
            json!([value])
        } else {
            json!({ *name: value })
        }
    })
}

#[test]
fn the_table_names_every_setting_of_the_schema_once_and_every_test_that_sees_one() {
    let schema = schema();
    let mut expected = BTreeSet::new();
    leaves(&schema, &schema, "", &mut expected);
    let rows = rows();
    let named: BTreeSet<String> = rows.iter().map(|row| row.setting.clone()).collect();
    assert_eq!(named.len(), rows.len(), "a setting is named twice");
    let missing: Vec<_> = expected.difference(&named).collect();
    let gone: Vec<_> = named.difference(&expected).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "without a row: {missing:#?}\nno settings: {gone:#?}"
    );
    let sources = [
        include_str!("settings_in_force/circuits.rs"),
        include_str!("settings_in_force/connections.rs"),
        include_str!("settings_in_force/loads.rs"),
        include_str!("settings_in_force/policies.rs"),
        include_str!("settings_in_force/prices.rs"),
        include_str!("settings_in_force/probes.rs"),
        include_str!("settings_in_force/providers.rs"),
        include_str!("settings_in_force/releases.rs"),
        include_str!("settings_in_force/routes.rs"),
        include_str!("settings_in_force/targets.rs"),
        include_str!("settings_in_force/tools.rs"),
        include_str!("certificates_renewed.rs"),
        include_str!("settings_act.rs"),
    ]
    .concat();
    let mut unseen = Vec::new();
    for row in rows
        .iter()
        .filter(|row| !matches!(row.seen_by.as_str(), "restart" | "tools"))
    {
        let test = format!("fn {}() {{\n", row.seen_by);
        let (_, after) = sources
            .split_once(&test)
            .unwrap_or_else(|| panic!("{}: there is no test `{}`", row.setting, row.seen_by));
        let name = row
            .path()
            .into_iter()
            .rfind(|name| *name != "[]" && *name != "x-extra")
            .unwrap()
            .to_owned();
        let body = after.split("\n}\n").next().unwrap();
        if !body.contains(&name) && !body.contains("rows()") {
            unseen.push(format!(
                "{}: `{}` does not mention `{name}`",
                row.setting, row.seen_by
            ));
        }
    }
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
}

#[tokio::test]
async fn every_setting_that_is_changed_on_a_running_server_is_reported_as_in_force_or_as_waiting_for_a_restart()
 {
    // What some settings need beside them.
    let mut server = Reloaded::start(json!({
        "providers": { "p": { "credentials": { "other": { "api_key": "k2" } } }, "q": { "dialect": "openai_chat", "api_key": "k3" } },
        "targets": { "spare": { "provider": "q", "model": "m-2" } },
        "policies": { "careful": {} },
        "routes": { "second": { "targets": ["spare"] } },
    }))
    .await;
    let mut sections: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows() {
        // Certificates need files: see `certificates_renewed`. A key in a file is one in place of
        // that in the configuration.
        let is_a_file =
            row.setting.starts_with("server.tls.") || row.setting.contains("api_key_file");
        if is_a_file || row.other == Some(Value::Null) {
            continue;
        }
        let second = row
            .setting
            .match_indices('.')
            .nth(if row.setting.contains(".*.") { 2 } else { 0 });
        let section = second
            .map_or(row.setting.as_str(), |(end, _)| &row.setting[..end])
            .to_owned();
        sections.entry(section).or_default().push(row);
    }
    let mut faults = Vec::new();
    for (section, rows) in sections {
        let loaded = load_text(&server.config.to_string(), None, &GivenEnvironment::new()).unwrap();
        let effective = serde_json::to_value(&loaded.config).unwrap();
        let mut change = json!({});
        for row in &rows {
            let path = row.path();
            let now = effective.pointer(&format!("/{}", path.join("/")));
            let other = row.other.clone().or_else(|| now.and_then(another));
            let other = other
                .unwrap_or_else(|| panic!("{}: write another value than {now:?}", row.setting));
            match path.iter().position(|name| *name == "[]") {
                // The members of a list's items are written together, by the first of them.
                Some(list)
                    if change
                        .pointer(&format!("/{}", path[..list].join("/")))
                        .is_some() =>
                {
                    let items = change
                        .pointer_mut(&format!("/{}/0", path[..list].join("/")))
                        .unwrap();
                    merge(items, at(&path[list + 1..], other));
                }
                _ => merge(&mut change, at(&path, other)),
            }
        }
        let (event, words) = server.change(change).await;
        for row in &rows {
            let path = row.reported();
            // A section that was not written before is reported as a whole.
            let names = |paths: &[String]| {
                paths
                    .iter()
                    .any(|reported| path == *reported || path.starts_with(&format!("{reported}.")))
            };
            let needs_restart = row.seen_by == "restart";
            let is_secret = path == "providers.p.api_key" || path.ends_with(".api_key");
            if !names(&event.changed_paths) && !is_secret {
                faults.push(format!(
                    "{section}: a change of {} is not reported: {:?}",
                    row.setting, event.changed_paths
                ));
            }
            if names(&event.needs_restart_paths) != needs_restart {
                faults.push(format!(
                    "{}: needs a restart: {:?}",
                    row.setting, event.needs_restart_paths
                ));
            }
        }
        if event.needs_restart_paths.is_empty() == words.contains("restart") {
            faults.push(format!("{section}: the log line says: {words}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn what_needs_a_restart_is_named_by_the_commands_that_show_the_configuration() {
    let shown = crate::support::binary::run(&["config", "show"]).await.out;
    let first = shown.lines().next().unwrap();
    let schema: Value =
        serde_json::from_str(&crate::support::binary::run(&["config", "schema"]).await.out)
            .unwrap();
    assert_eq!(schema["properties"]["journal"]["x-needs-restart"], true);
    assert_eq!(
        schema["$defs"]["ServerConfig"]["properties"]["reflection"]["x-needs-restart"],
        true
    );
    for row in rows().iter().filter(|row| row.seen_by == "restart") {
        let named = first
            .trim_end_matches('.')
            .split([' ', ','])
            .filter(|word| !word.is_empty());
        let mut above = named
            .filter(|word| row.setting == **word || row.setting.starts_with(&format!("{word}.")));
        assert!(above.next().is_some(), "{} is not in: {first}", row.setting);
    }
}
