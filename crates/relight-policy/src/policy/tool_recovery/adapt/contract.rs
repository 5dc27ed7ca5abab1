//! Whether a new version of a tool server still takes the calls that were written for the old one.

use serde_json::{Map, Value, json};

use super::{
    super::arguments::{Arguments, quoted},
    ArgumentFit, Comparison, fit,
    shape::{Property, SchemaKind, Shape},
    validate,
};
use crate::domain::tool::ToolSpec;

/// Most calls that are compared for one tool.
const MAX_SAMPLES: usize = 32;

/// Returns the calls that the old tools take and the new ones do not, not even with adapted
/// arguments, in words; `None` if they take all that were compared: with the required arguments
/// only, with every argument, and with each listed value.
#[must_use]
pub fn broken_contract(old: &[ToolSpec], new: &[ToolSpec]) -> Option<String> {
    old.iter().find_map(|tool| {
        let name = quoted(&tool.name);
        let Some(now) = new.iter().find(|now| now.name == tool.name) else {
            return Some(format!("{name} is gone"));
        };
        refused(&tool.input_schema, &now.input_schema).map(|words| format!("{name}: {words}"))
    })
}

/// Returns the reason for which a call that fits the old schema does not fit the new one; `None` if
/// none was found.
fn refused(old: &Value, new: &Value) -> Option<String> {
    if old == new {
        return None;
    }
    samples(&Shape::of(old))
        .iter()
        .filter(|sample| validate(old, sample) == Ok(None))
        .find_map(|arguments| {
            let comparison = Comparison {
                old: Some(old),
                new,
                arguments,
                error: "",
                all_listed: false,
                filled: None,
            };
            match fit(comparison) {
                ArgumentFit::Fits { .. } | ArgumentFit::Adapted(_) => None,
                ArgumentFit::Ambiguous { differences } => Some(differences),
                ArgumentFit::Mistake { mismatch } => Some(format!(
                    "{} at {}",
                    mismatch.keyword,
                    quoted(&mismatch.path)
                )),
                ArgumentFit::Unusable { reason } => Some(reason),
            }
        })
}

/// Calls that a schema may take.
fn samples(shape: &Shape<'_>) -> Vec<Arguments> {
    let with = |is_given: &dyn Fn(&Property<'_>) -> bool| -> Arguments {
        let given = shape
            .properties
            .iter()
            .filter(|property| is_given(property));
        given
            .map(|property| (property.name.to_owned(), sample(property)))
            .collect()
    };
    let all = with(&|_| true);
    let mut samples = vec![with(&|property| property.required), all.clone()];
    for property in &shape.properties {
        for value in property
            .schema
            .get("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let mut one = all.clone();
            one.insert(property.name.to_owned(), value.clone());
            samples.push(one);
        }
    }
    samples.truncate(MAX_SAMPLES);
    samples
}

/// Returns a value that an argument may have.
fn sample(property: &Property<'_>) -> Value {
    let listed = property.schema.get("enum").and_then(|list| list.get(0));
    if let Some(value) = property.given().or(listed) {
        return value.clone();
    }
    let limit = |name: &str| property.schema.get(name).and_then(Value::as_u64);
    match property
        .kinds
        .iter()
        .find(|kind| **kind != SchemaKind::Null)
    {
        Some(SchemaKind::Boolean) => json!(true),
        Some(SchemaKind::Integer | SchemaKind::Number) => {
            json!(limit("minimum").or(limit("maximum")).unwrap_or(1))
        }
        Some(SchemaKind::Array) => json!([]),
        Some(SchemaKind::Object) => Value::Object(Map::new()),
        Some(SchemaKind::String | SchemaKind::Null) | None => {
            let length = limit("minLength")
                .and_then(|length| usize::try_from(length).ok())
                .unwrap_or(1);
            json!("a".repeat(length.clamp(1, 1024)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::invocation::SideEffects;

    fn tool(name: &str, properties: Value, required: Value) -> ToolSpec {
        let schema = [
            ("type", "object".into()),
            ("properties", properties),
            ("required", required),
            ("additionalProperties", false.into()),
        ];
        ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input_schema: Value::from_iter(schema).into(),
            output_schema: None,
            annotations: SideEffects::default(),
            sent: None,
        }
    }

    fn search(properties: Value, required: Value) -> Option<String> {
        let before = json!({"query": {"type": "string", "minLength": 2}, "limit": {"type": "integer"}, "sort": {"enum": ["up", "down"]}});
        broken_contract(
            &[tool("search", before, json!(["query"]))],
            &[tool("search", properties, required)],
        )
    }

    #[test]
    fn what_adapts_is_no_breach() {
        let sort = json!({"enum": ["up", "down"]});
        let text = json!({"type": "string"});
        let number = json!({"type": "integer"});
        let same = json!({"query": text, "limit": number, "sort": sort, "page": number});
        assert_eq!(
            search(same, json!(["query"])),
            None,
            "a new optional argument"
        );
        let renamed = json!({"query": text, "max_results": number, "sort": sort});
        assert_eq!(
            search(renamed, json!(["query"])),
            None,
            "a renamed argument"
        );
        let filled = json!({"query": text, "limit": number, "sort": sort, "page": {"type": "integer", "default": 1}});
        assert_eq!(
            search(filled, json!(["query", "page"])),
            None,
            "a new required argument with a default"
        );
    }

    #[test]
    fn what_does_not_adapt_is_named() {
        let sort = json!({"enum": ["up", "down"]});
        let text = json!({"type": "string"});
        let number = json!({"type": "integer"});
        let account = json!({"query": text, "limit": number, "sort": sort, "account": text});
        let words = search(account, json!(["query", "account"])).unwrap();
        assert!(
            words.starts_with("`search`") && words.contains("account"),
            "{words}"
        );
        let removed = search(json!({"query": text, "sort": sort}), json!(["query"])).unwrap();
        assert!(removed.contains("limit"), "{removed}");
        let narrowed = json!({"query": text, "limit": number, "sort": {"enum": ["up"]}});
        assert!(
            search(narrowed, json!(["query"])).is_some(),
            "a value that is listed no more"
        );
        let gone = broken_contract(&[tool("search", json!({}), json!([]))], &[]).unwrap();
        assert_eq!(gone, "`search` is gone");
    }
}
