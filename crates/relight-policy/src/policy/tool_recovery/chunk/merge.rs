//! Merges what the parts of a split call returned into one result of the same form.
//!
//! Lists are joined in order, objects with one list, or one text that differs, are merged around it,
//! texts are joined. A number is added up only where that is declared; another value that differs
//! between the parts is left out and named. What has no such form is returned part by part.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use crate::domain::tool::{ToolContent, ToolReply};

/// A result that was merged, and what had to be left out of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Merged {
    pub(super) reply: ToolReply,
    /// Remarks about it, in words; empty if there are none.
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
        let structured = value.to_string();
        let plain: Option<Vec<&str>> = replies.iter().map(plain_text).collect();
        let text = plain.map_or_else(|| structured.clone(), |texts| texts.join("\n"));
        let media = replies
            .into_iter()
            .flat_map(|reply| reply.content)
            .filter(|it| !matches!(it, ToolContent::Text(_)));
        let content = std::iter::once(ToolContent::Text(text))
            .chain(media)
            .collect();
        return Merged {
            reply: ToolReply {
                content,
                structured: Some(structured),
                sent: None,
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
            sent: None,
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

/// Returns the one text of a reply, if that is not its data once more.
fn plain_text(reply: &ToolReply) -> Option<&str> {
    only_text(reply).filter(|text| document(text).is_none())
}

/// Returns a text that is a list or an object.
fn document(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| value.is_array() || value.is_object())
}

fn merge_values(values: Vec<Value>, sum: &[String]) -> (Value, Vec<String>) {
    let is_mergeable = values.iter().all(Value::is_array) || values.iter().all(Value::is_object);
    for joins_texts in [false, true] {
        let mut merging = Merging {
            sum,
            joins_texts,
            joined: 0,
            has_total: false,
            left_out: BTreeSet::new(),
        };
        let merged = if is_mergeable {
            merging.merge("", &values)
        } else {
            merging.scalar("", &values)
        };
        let Some(merged) = merged.filter(|_| merging.joined <= 1) else {
            continue;
        };
        if merging.left_out.is_empty() {
            return (merged, Vec::new());
        }
        // Where nothing was put together, what differs is the result itself.
        if merging.joined == 1 || merging.has_total {
            let names = merging.left_out.into_iter().collect::<Vec<_>>().join(", ");
            let remark = format!("left out because they differ between the parts: {names}");
            return (merged, vec![remark]);
        }
    }
    let remark = "the results of the parts are listed one after the other".to_owned();
    (Value::Array(values), vec![remark])
}

/// Merges values of one place after the other.
struct Merging<'a> {
    sum: &'a [String],
    /// Whether texts that differ are joined.
    joins_texts: bool,
    /// Lists and texts that were joined.
    joined: usize,
    /// Whether numbers were added up.
    has_total: bool,
    left_out: BTreeSet<String>,
}

// === impl Merging ===

impl Merging<'_> {
    /// Returns the values at one place as one; `None` if they have no common form.
    fn merge(&mut self, place: &str, values: &[Value]) -> Option<Value> {
        if values.iter().all(Value::is_array) {
            self.joined += 1;
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

    fn scalar(&mut self, place: &str, values: &[Value]) -> Option<Value> {
        if self.sum.iter().any(|pointer| pointer == place) {
            let total = total(values)?;
            self.has_total = true;
            return Some(total);
        }
        let first = values.first()?;
        if values.iter().all(|value| value == first) {
            return Some(first.clone());
        }
        let texts: Vec<&str> = values.iter().map(Value::as_str).collect::<Option<_>>()?;
        self.joins_texts.then(|| {
            self.joined += 1;
            Value::from(texts.join("\n"))
        })
    }
}

/// Returns the sum of numbers: exact if all are whole and it fits.
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
