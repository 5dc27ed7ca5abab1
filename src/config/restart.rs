//! The settings that are read at the start only, so that changing them requires a restart.

use serde_json::Value;

use super::{Config, Secret, changes::changed_paths};

/// Settings that are read at the start only, each with everything below it. All others are in force
/// as soon as a changed file is accepted.
pub const READ_AT_START: &[&str] = &[
    "events.capacity",
    "fleet",
    "journal",
    "server.admin_listen",
    "server.console",
    "server.admin_service.listen",
    "server.cors",
    "server.jwt",
    "server.limits.bytes_in_flight",
    "server.limits.connections",
    "server.limits.requests",
    "server.listen",
    "server.max_connection_age",
    "server.max_message_bytes",
    "server.openai_front.listen",
    "server.reflection",
    "server.timeouts",
    "telemetry",
    "tools.mcp_front",
];

/// The existence of TLS is decided at the start; its files are followed.
const TLS: &str = "server.tls";

/// Returns the settings that are read at the start only and differ from what was in force then,
/// secrets included: what runs is that, whatever the files between said.
pub(super) fn needs_restart(at_start: &Config, new: &Config) -> Vec<String> {
    let mut paths = changed_paths(at_start, new);
    paths.retain(|path| is_read_at_start(path));
    let exchanged = secrets(at_start)
        .into_iter()
        .zip(secrets(new))
        .filter(|(old, new)| old != new);
    paths.extend(exchanged.map(|((path, _), _)| path.to_owned()));
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns whether a setting is read at the start only. A section that came or went counts if
/// something in it does.
fn is_read_at_start(path: &str) -> bool {
    let below = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    path == TLS
        || READ_AT_START
            .iter()
            .any(|at| path == *at || below(path, at) || below(at, path))
}

/// Secrets that are read at the start only: comparing printed settings does not detect them.
fn secrets(config: &Config) -> [(&'static str, Vec<String>); 5] {
    let exposed = |secret: &Secret| secret.expose().to_owned();
    let store = match &config.journal.store {
        crate::journal::JournalStore::Postgres(url) => vec![exposed(url)],
        _ => Vec::new(),
    };
    let fleet = config.fleet.store.url().map(exposed);
    [
        ("fleet.store", fleet.into_iter().collect()),
        ("fleet.key", config.fleet.key.iter().map(exposed).collect()),
        ("journal.store", store),
        (
            "journal.encryption_keys",
            config.journal.encryption_keys.iter().map(exposed).collect(),
        ),
        (
            "telemetry.otlp_headers",
            config
                .telemetry
                .otlp_headers
                .values()
                .map(exposed)
                .collect(),
        ),
    ]
}

/// Marks the settings that are read at the start only in the schema, by `x-needs-restart: true`.
pub(super) fn mark(schema: &mut Value) {
    for path in READ_AT_START {
        let mut place = String::new();
        for name in path.split('.') {
            if let Some(section) = schema.pointer(&place).and_then(reference) {
                section.trim_start_matches('#').clone_into(&mut place);
            }
            place = format!("{place}/properties/{name}");
        }
        if let Some(Value::Object(setting)) = schema.pointer_mut(&place) {
            setting.insert("x-needs-restart".to_owned(), Value::Bool(true));
        }
    }
}

/// Returns the definition that a property refers to, also if it may be left out.
fn reference(property: &Value) -> Option<String> {
    let direct = property.get("$ref").and_then(Value::as_str);
    let choices = property
        .get("anyOf")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    direct
        .or_else(|| {
            choices
                .iter()
                .find_map(|choice| choice.get("$ref")?.as_str())
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_is_read_at_the_start_is_marked_in_the_schema_and_no_other() {
        let schema = super::super::schema().to_string();
        assert_eq!(
            schema.matches("x-needs-restart").count(),
            READ_AT_START.len()
        );
    }

    #[test]
    fn a_section_that_comes_or_goes_needs_a_restart_when_a_setting_in_it_does() {
        for (path, expected) in [
            ("server.openai_front", true),
            ("server.openai_front.hold_back", false),
            ("server.tls", true),
            ("server.tls.cert_file", false),
            ("journal.retention", true),
            ("telemetry.log.level", true),
            ("server.drain_timeout", false),
            ("routes.default.deadline", false),
        ] {
            assert_eq!(is_read_at_start(path), expected, "{path}");
        }
    }
}
