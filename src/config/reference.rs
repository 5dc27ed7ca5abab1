//! Writes the reference of the configuration, as Markdown, from the schema that also decodes the
//! file.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value};

const TITLE: &str = "\
# Configuration reference

Every setting of Relight's one file, as `relight config reference` prints it. `*` stands for a name of your choice, `[]` for an
element of a list; a name that is a link is a section. Any value may be written as `${VARIABLE}`, with a default as
`${VARIABLE:-value}`; durations carry their unit (`250ms`, `30s`, `5m`), sizes too (`64KiB`, `8MiB`). A changed file is in force
at once, but for what is marked *read at the start*.
";

/// The settings that most files have, and when to turn them.
const TOUCHED: [(&str, &str, &str); 12] = [
    (
        "providers.*",
        "api_key",
        "always: the key of each provider, best as `${VARIABLE}`",
    ),
    (
        "targets.*",
        "model",
        "always: the models that can be called",
    ),
    (
        "routes.*",
        "targets",
        "to name the models that a call may use, the preferred one first",
    ),
    (
        "routes.*",
        "deadline",
        "if callers name no deadline and wait for longer or shorter",
    ),
    (
        "policies.*.retry",
        "max_retries",
        "if calls may cost more or fewer attempts",
    ),
    (
        "timers",
        "first_token",
        "if a model reasons for longer than that before its first token",
    ),
    (
        "circuit",
        "slow_threshold",
        "if a model is called degraded although it is always that slow",
    ),
    (
        "concurrency",
        "max",
        "if a provider allows fewer calls at once than you send",
    ),
    (
        "admission",
        "max_in_flight",
        "if one replica is to take more or fewer calls at once",
    ),
    (
        "server.keys.[]",
        "sha256",
        "as soon as others than this host can reach the server",
    ),
    (
        "journal",
        "store",
        "if several replicas share threads and calls: a PostgreSQL database",
    ),
    ("telemetry", "otlp_endpoint", "to see traces in a collector"),
];

/// Type of the schema, with the places that use it in the file.
struct Section<'a> {
    paths: Vec<String>,
    node: &'a Map<String, Value>,
}

/// Returns the reference of everything that `schema` describes.
#[must_use]
pub fn reference(schema: &Value) -> String {
    let mut sections = Sections {
        types: schema.get("$defs"),
        order: Vec::new(),
        by_type: BTreeMap::new(),
    };
    if let Some(root) = schema.as_object() {
        sections.add("", String::new(), root);
    }
    let mut text = TITLE.to_owned();
    sections.write_touched(&mut text);
    for name in &sections.order {
        if let Some(section) = sections.by_type.get(name) {
            section.write(&sections, &mut text);
        }
    }
    text
}

/// The types of the schema in the order in which the file meets them, each once.
struct Sections<'a> {
    types: Option<&'a Value>,
    order: Vec<String>,
    by_type: BTreeMap<String, Section<'a>>,
}

// === impl Sections ===

impl<'a> Sections<'a> {
    fn add(&mut self, name: &str, path: String, node: &'a Map<String, Value>) {
        if let Some(known) = self.by_type.get_mut(name) {
            if !known.paths.contains(&path) {
                known.paths.push(path);
            }
            return;
        }
        self.order.push(name.to_owned());
        self.by_type.insert(
            name.to_owned(),
            Section {
                paths: vec![path.clone()],
                node,
            },
        );
        for (key, value) in properties(node) {
            let at = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            self.descend(at, value);
        }
    }

    /// Adds the types with settings of their own that occur in a value.
    fn descend(&mut self, path: String, value: &'a Value) {
        if let Some((name, node)) = self.referred(value) {
            if node.contains_key("properties") {
                self.add(name, path, node);
            } else {
                self.inner(&path, node);
            }
        } else if let Some(node) = value.as_object() {
            self.inner(&path, node);
        }
    }

    fn inner(&mut self, path: &str, node: &'a Map<String, Value>) {
        if let Some(items) = node.get("items") {
            self.descend(format!("{path}.[]"), items);
        }
        if let Some(values) = node
            .get("additionalProperties")
            .filter(|values| values.is_object())
        {
            self.descend(format!("{path}.*"), values);
        }
        for choice in choices(node) {
            self.descend(path.to_owned(), choice);
        }
    }

    /// Returns the type that a value refers to by `$ref`.
    fn referred(&self, value: &'a Value) -> Option<(&'a str, &'a Map<String, Value>)> {
        let name = value.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        Some((name, self.types?.get(name)?.as_object()?))
    }

    /// The settings that most files have, each with its default and a link to its section.
    fn write_touched(&self, text: &mut String) {
        text.push_str(
            "\n## What most files have\n\n| Setting | Default | Turn it |\n|---|---|---|\n",
        );
        for (path, name, when) in TOUCHED {
            let section = self
                .by_type
                .values()
                .find(|section| section.paths.iter().any(|known| known == path));
            let default = section
                .and_then(|section| section.node.get("properties")?.get(name)?.get("default"))
                .filter(|default| {
                    !default.is_null() && !matches!(plain(default).as_str(), "" | "[]")
                })
                .map_or_else(
                    || "none".to_owned(),
                    |default| format!("`{}`", plain(default)),
                );
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| `{path}.{name}` | {default} | {when} |");
        }
        text.push_str(
            "\nAll others have a default that was measured; each says when another is better.\n",
        );
    }

    /// Returns the section that a value consists of, by itself, in a list or by name; `None` if it
    /// is a setting.
    fn section_of(&self, value: &'a Value) -> Option<&Section<'a>> {
        if let Some((name, _)) = self.referred(value) {
            return self.by_type.get(name);
        }
        let node = value.as_object()?;
        let inner = node
            .get("items")
            .or_else(|| node.get("additionalProperties"));
        if let Some(inner) = inner {
            return self.section_of(inner);
        }
        let mut sections = choices(node)
            .filter(|choice| choice.get("type").and_then(Value::as_str) != Some("null"))
            .map(|choice| self.section_of(choice));
        let section = sections.next()?;
        section.filter(|_| sections.next().is_none())
    }

    /// Returns the permitted values, in words.
    fn kind(&self, value: &'a Value) -> String {
        if let Some((_, node)) = self.referred(value) {
            if node.contains_key("properties") {
                return "section".to_owned();
            }
            return self.kind_of(node);
        }
        value
            .as_object()
            .map(|node| self.kind_of(node))
            .unwrap_or_default()
    }

    fn kind_of(&self, node: &'a Map<String, Value>) -> String {
        let words: Vec<String> = choices(node)
            .filter(|choice| choice.get("type").and_then(Value::as_str) != Some("null"))
            .map(|choice| {
                choice
                    .get("const")
                    .map_or_else(|| self.kind(choice), |word| format!("`{}`", plain(word)))
            })
            .collect();
        if !words.is_empty() {
            return words.join(" or ");
        }
        if let Some(words) = node.get("enum").and_then(Value::as_array) {
            let words: Vec<String> = words
                .iter()
                .filter(|word| !word.is_null())
                .map(|w| format!("`{}`", plain(w)))
                .collect();
            return words.join(" or ");
        }
        if let Some(items) = node.get("items") {
            return format!("list of: {}", self.kind(items));
        }
        if let Some(values) = node
            .get("additionalProperties")
            .filter(|values| values.is_object())
        {
            return format!("map by name of: {}", self.kind(values));
        }
        match node.get("type") {
            Some(Value::Array(kinds)) => {
                let kinds: Vec<&str> = kinds
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|kind| *kind != "null")
                    .collect();
                kinds.join(" or ")
            }
            Some(kind) => plain(kind),
            None => "any value".to_owned(),
        }
    }

    /// Returns the meanings of the values to choose from, one line for each.
    fn meanings(&self, value: &'a Value) -> Vec<String> {
        let node = self
            .referred(value)
            .map(|(_, node)| node)
            .or_else(|| value.as_object());
        let Some(node) = node else { return Vec::new() };
        choices(node)
            .flat_map(|choice| {
                match (
                    choice.get("const"),
                    choice.get("description").and_then(Value::as_str),
                ) {
                    (Some(word), Some(words)) => {
                        vec![format!("  - `{}`: {}", plain(word), one_line(words))]
                    }
                    _ if choice.get("$ref").is_some() => self.meanings(choice),
                    _ => Vec::new(),
                }
            })
            .collect()
    }
}

// === impl Section ===

impl Section<'_> {
    fn heading(&self) -> String {
        let paths: Vec<String> = self
            .paths
            .iter()
            .filter(|path| !path.is_empty())
            .map(|path| format!("`{path}`"))
            .collect();
        if paths.is_empty() {
            "The file".to_owned()
        } else {
            paths.join(", ")
        }
    }

    /// Returns the anchor that a page gives to the heading.
    fn anchor(&self) -> String {
        let heading = self.heading().to_lowercase();
        heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect()
    }

    fn write(&self, sections: &Sections<'_>, text: &mut String) {
        let heading = self.heading();
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {heading}\n\n");
        if let Some(words) = self.node.get("description").and_then(Value::as_str) {
            let _ = write!(text, "{}\n\n", one_line(words));
        }
        for (key, value) in properties(self.node) {
            let mut facts = vec![sections.kind(value)];
            let default = value
                .get("default")
                .filter(|default| !default.is_null() && !is_section(default));
            facts.extend(default.map(|default| format!("default `{}`", plain(default))));
            let restarts = value.get("x-needs-restart").and_then(Value::as_bool) == Some(true);
            facts.extend(restarts.then(|| "*read at the start*".to_owned()));
            let words = value
                .get("description")
                .and_then(Value::as_str)
                .map(one_line)
                .unwrap_or_default();
            let name = match sections.section_of(value) {
                Some(section) => format!("[`{key}`](#{})", section.anchor()),
                None => format!("**`{key}`**"),
            };
            let _ = writeln!(text, "- {name} ({}): {words}", facts.join("; "));
            for meaning in sections.meanings(value) {
                let _ = writeln!(text, "{meaning}");
            }
        }
    }
}

fn properties(node: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    node.get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn choices(node: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    ["oneOf", "anyOf"]
        .into_iter()
        .filter_map(|key| node.get(key).and_then(Value::as_array))
        .flatten()
}

/// Returns whether a default is described by the settings below it.
fn is_section(default: &Value) -> bool {
    default.as_object().is_some_and(|map| !map.is_empty())
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_files_have_are_settings_of_the_schema_and_come_first() {
        let text = reference(&super::super::schema());
        for (path, name, _) in TOUCHED {
            let heading = format!("`{path}`");
            let section = text.split("\n## ").find(|section| {
                section
                    .lines()
                    .next()
                    .is_some_and(|line| line.contains(&heading))
            });
            let is_listed =
                section.is_some_and(|section| section.contains(&format!("- **`{name}`**")));
            assert!(is_listed, "{path}.{name}");
        }
        assert!(text.find("## What most files have") < text.find("## The file"));
    }
}
