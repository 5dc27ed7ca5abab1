//! Writes the reference of the configuration, as Markdown, from the schema that also decodes the
//! file.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value};

const TITLE: &str = "\
# Configuration reference

Every setting of Relight's one file, as `relight config reference` prints it. `*` stands for a name of your choice, `[]` for an
element of a list. Any value may be written as `${VARIABLE}`, with a default as `${VARIABLE:-value}`; durations carry their unit
(`250ms`, `30s`, `5m`), sizes too (`64KiB`, `8MiB`). A changed file is in force at once, but for what is marked *read at the start*.
";

/// A type of the schema, and where it is used in the file.
struct Section<'a> {
    paths: Vec<String>,
    node: &'a Map<String, Value>,
}

/// The reference of everything that `schema` describes.
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

    /// The type that a value refers to by `$ref`.
    fn referred(&self, value: &'a Value) -> Option<(&'a str, &'a Map<String, Value>)> {
        let name = value.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        Some((name, self.types?.get(name)?.as_object()?))
    }

    /// The permitted values, in words.
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

    /// The meanings of the values to choose from, one line for each.
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
    fn write(&self, sections: &Sections<'_>, text: &mut String) {
        let paths: Vec<String> = self
            .paths
            .iter()
            .filter(|path| !path.is_empty())
            .map(|path| format!("`{path}`"))
            .collect();
        let heading = if paths.is_empty() {
            "The file".to_owned()
        } else {
            paths.join(", ")
        };
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
            let _ = writeln!(text, "- **`{key}`** ({}): {words}", facts.join("; "));
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

/// Whether a default is described by the settings below it.
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
