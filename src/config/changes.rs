//! Settings that differ between two configurations, by path.
//!
//! Both are compared in their printed form, so that no secret is read: a secret that was replaced
//! is not a difference here. Values are not reported.

use serde_json::Value;

use super::Config;

/// Returns the paths of the settings that differ (`routes.default.targets`), in the order of their
/// names. An added or removed section is reported as a whole.
pub(super) fn changed_paths(old: &Config, new: &Config) -> Vec<String> {
    let shown = |config: &Config| serde_json::to_value(config).unwrap_or_default();
    let mut paths = Vec::new();
    compare("", &shown(old), &shown(new), &mut paths);
    paths
}

fn compare(path: &str, old: &Value, new: &Value, paths: &mut Vec<String>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(old), Value::Object(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                let nothing = Value::Null;
                compare(
                    &path,
                    old.get(name).unwrap_or(&nothing),
                    new.get(name).unwrap_or(&nothing),
                    paths,
                );
            }
        }
        (_, _) => paths.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{environment::GivenEnvironment, load::load_text};

    fn config(routes: &str, key: &str) -> Config {
        let text = format!(
            "providers:\n  p: {{ dialect: openai_chat, base_url: \"http://127.0.0.1:1\", api_key: {key} }}\n\
             targets:\n  a: {{ provider: p, model: m }}\n  b: {{ provider: p, model: m }}\nroutes:\n{routes}"
        );
        load_text(&text, None, &GivenEnvironment::new())
            .unwrap()
            .config
    }

    #[test]
    fn what_differs_is_named_by_its_path_and_what_came_or_went_as_a_whole() {
        let old = config(
            "  default: { targets: [a] }\n  gone: { targets: [a] }\n",
            "k",
        );
        let new = config(
            "  default: { targets: [a, b], deadline: 7s }\n  came: { targets: [b] }\n",
            "k",
        );
        assert_eq!(
            changed_paths(&old, &new),
            [
                "routes.came",
                "routes.default.deadline",
                "routes.default.targets",
                "routes.gone"
            ]
        );
        assert!(changed_paths(&old, &old.clone()).is_empty());
    }

    #[test]
    fn a_secret_is_neither_compared_nor_reported() {
        let old = config("  r: { targets: [a] }\n", "one");
        let new = config("  r: { targets: [a] }\n", "two");
        assert!(changed_paths(&old, &new).is_empty());
    }
}
