//! Merges what the parts of a split call returned into one result of the same form.
//!
//! Lists are joined in order, objects with one list are merged around it, texts are joined. A
//! number is added up only where that is declared; a value that differs between the parts is left
//! out and named. What has no such form is returned part by part.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use crate::domain::tool::{ToolContent, ToolReply};

/// A result that was merged, and what had to be left out of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Merged {
    pub(super) reply: ToolReply,
    /// What is to be known about it, in words; empty where nothing is.
    pub(super) remarks: Vec<String>,
}

/// Merges results in their order; `sum` are JSON pointers to the numbers that are added up.
pub(super) fn merge(replies: Vec<ToolReply>, sum: &[String]) -> Merged {
    let structured: Option<Vec<Value>> = replies
        .iter()
        .map(|reply| serde_json::from_str(reply.structured.as_deref()?).ok())
        .collect();
    if let Some(values) = structured.filter(|values| !values.is_empty()) {
        let (value, remarks) = merge_values(values, sum);
        let text = value.to_string();
        let media = replies
            .into_iter()
            .flat_map(|reply| reply.content)
            .filter(|it| !matches!(it, ToolContent::Text(_)));
        let content = std::iter::once(ToolContent::Text(text.clone()))
            .chain(media)
            .collect();
        return Merged {
            reply: ToolReply {
                content,
                structured: Some(text),
            },
            remarks,
        };
    }
    let texts: Option<Vec<&str>> = replies.iter().map(only_text).collect();
    let documents: Option<Vec<Value>> = texts
        .as_ref()
        .and_then(|texts| texts.iter().map(|text| document(text)).collect());
    let (content, remarks) = match (documents, texts) {
        (Some(values), _) => {
            let (value, remarks) = merge_values(values, sum);
            (vec![ToolContent::Text(value.to_string())], remarks)
        }
        (None, Some(texts)) => (vec![ToolContent::Text(texts.join("\n"))], Vec::new()),
        (None, None) => (
            replies
                .into_iter()
                .flat_map(|reply| reply.content)
                .collect(),
            Vec::new(),
        ),
    };
    Merged {
        reply: ToolReply {
            content,
            structured: None,
        },
        remarks,
    }
}

fn only_text(reply: &ToolReply) -> Option<&str> {
    match reply.content.as_slice() {
        [ToolContent::Text(text)] => Some(text),
        _ => None,
    }
}

/// A text that is a list or an object.
fn document(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| value.is_array() || value.is_object())
}

fn merge_values(values: Vec<Value>, sum: &[String]) -> (Value, Vec<String>) {
    let mut merging = Merging {
        sum,
        lists: 0,
        left_out: BTreeSet::new(),
    };
    let is_mergeable = values.iter().all(Value::is_array) || values.iter().all(Value::is_object);
    let merged = if is_mergeable {
        merging.merge("", &values)
    } else {
        merging.scalar("", &values)
    };
    match merged.filter(|_| merging.lists <= 1) {
        Some(merged) if merging.left_out.is_empty() => (merged, Vec::new()),
        Some(merged) => {
            let names = merging.left_out.into_iter().collect::<Vec<_>>().join(", ");
            (
                merged,
                vec![format!(
                    "left out because they differ between the parts: {names}"
                )],
            )
        }
        None => (
            Value::Array(values),
            vec!["the results of the parts are listed one after the other".to_owned()],
        ),
    }
}

/// Merges values of one place after the other.
struct Merging<'a> {
    sum: &'a [String],
    /// Lists that were joined.
    lists: usize,
    left_out: BTreeSet<String>,
}

// === impl Merging ===

impl Merging<'_> {
    /// The values at one place as one; `None` where they have no common form.
    fn merge(&mut self, place: &str, values: &[Value]) -> Option<Value> {
        if values.iter().all(Value::is_array) {
            self.lists += 1;
            return Some(Value::Array(
                values
                    .iter()
                    .filter_map(Value::as_array)
                    .flatten()
                    .cloned()
                    .collect(),
            ));
        }
        if values.iter().all(Value::is_object) {
            let mut names: Vec<&String> = Vec::new();
            for name in values
                .iter()
                .filter_map(Value::as_object)
                .flat_map(Map::keys)
            {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            let mut merged = Map::new();
            for name in names {
                let inner = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
                let members: Option<Vec<Value>> = values
                    .iter()
                    .map(|value| value.get(name).cloned())
                    .collect();
                match members.and_then(|members| self.merge(&inner, &members)) {
                    Some(value) => {
                        merged.insert(name.clone(), value);
                    }
                    None => {
                        self.left_out
                            .insert(super::super::arguments::quoted(&inner));
                    }
                }
            }
            return Some(Value::Object(merged));
        }
        self.scalar(place, values)
    }

    fn scalar(&self, place: &str, values: &[Value]) -> Option<Value> {
        if self.sum.iter().any(|pointer| pointer == place) {
            return total(values);
        }
        let first = values.first()?;
        values
            .iter()
            .all(|value| value == first)
            .then(|| first.clone())
    }
}

/// The sum of numbers: exact where all are whole and it fits.
fn total(values: &[Value]) -> Option<Value> {
    let whole = values
        .iter()
        .try_fold(0_i64, |sum, value| sum.checked_add(value.as_i64()?));
    if let Some(whole) = whole {
        return Some(Value::from(whole));
    }
    let sum = values.iter().map(Value::as_f64).sum::<Option<f64>>()?;
    Number::from_f64(sum).map(Value::Number)
}
