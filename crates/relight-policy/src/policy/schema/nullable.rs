//! `nullable: true`, by which `OpenAPI` 3.0 says that a value may be null, in the terms of JSON
//! Schema.
//!
//! JSON Schema ignores the word, so that a null which its author allows would be a misfit. Only
//! places that hold schemas are read: a property of that name, or a value in an example, does not count.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

const NULLABLE: &str = "nullable";

/// Keywords that hold one schema, or a list of them.
const SCHEMAS: [&str; 17] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "contentSchema",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "extends",
];
/// Keywords that hold schemas by name.
const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords that a null has to satisfy as any other value has.
const BINDING: [&str; 8] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "const",
    "not",
    "if",
];

/// Returns the same schema without `nullable`.
pub(super) fn understood(schema: &Value) -> Cow<'_, Value> {
    if !says_so(schema) {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    rewrite(&mut schema);
    Cow::Owned(schema)
}

fn says_so(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.get(NULLABLE) == Some(&Value::Bool(true)) || members.values().any(says_so)
        }
        Value::Array(items) => items.iter().any(says_so),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn rewrite(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    for keyword in SCHEMAS {
        match members.get_mut(keyword) {
            Some(Value::Array(schemas)) => schemas.iter_mut().for_each(rewrite),
            Some(one) => rewrite(one),
            None => {}
        }
    }
    for keyword in NAMED {
        if let Some(Value::Object(named)) = members.get_mut(keyword) {
            named.values_mut().for_each(rewrite);
        }
    }
    if members.remove(NULLABLE) == Some(Value::Bool(true)) {
        allow_null(members);
    }
}

fn allow_null(members: &mut Map<String, Value>) {
    if BINDING.iter().any(|keyword| members.contains_key(*keyword)) {
        // What is referred to by its place keeps it.
        let kept: Vec<_> = ["$schema", "$id", "$defs", "definitions"]
            .into_iter()
            .filter_map(|keyword| members.remove_entry(keyword))
            .collect();
        let bound = Value::Object(std::mem::take(members));
        members.extend(kept);
        members.insert("anyOf".to_owned(), json!([{ "type": "null" }, bound]));
        return;
    }
    let null = Value::from("null");
    match members.get_mut("type") {
        Some(Value::Array(types)) if !types.contains(&null) => types.push(null),
        Some(one @ Value::String(_)) if *one != null => *one = Value::Array(vec![one.take(), null]),
        Some(_) | None => {}
    }
    if let Some(Value::Array(values)) = members.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::schema::check;

    #[test]
    fn a_null_fits_wherever_the_schema_says_nullable_and_nowhere_else() {
        for (schema, nullable) in [
            (json!({ "type": "string" }), false),
            (json!({ "type": "string", "nullable": false }), false),
            (json!({ "type": "string", "nullable": true }), true),
            (
                json!({ "type": ["string", "integer"], "nullable": true }),
                true,
            ),
            (
                json!({ "type": "string", "enum": ["a", "b"], "nullable": true }),
                true,
            ),
            (json!({ "enum": ["a", "b"], "nullable": true }), true),
            (
                json!({ "anyOf": [{ "type": "string" }], "nullable": true }),
                true,
            ),
            (
                json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }], "nullable": true }),
                true,
            ),
            (
                json!({ "allOf": [{ "type": "string" }], "nullable": true }),
                true,
            ),
            (json!({ "$ref": "#/$defs/name", "nullable": true }), true),
            (json!({ "const": "a", "nullable": true }), true),
            // A property of that name says nothing of the object.
            (
                json!({ "type": "object", "properties": { "nullable": { "type": "boolean" } } }),
                false,
            ),
            (
                json!({ "type": "string", "examples": [{ "nullable": true }] }),
                false,
            ),
        ] {
            let whole = json!({
                "type": "object",
                "properties": { "v": schema, "list": { "type": "array", "items": schema } },
                "$defs": { "name": { "type": "string" } },
            });
            for value in [json!({ "v": null }), json!({ "list": [null] })] {
                assert_eq!(check(&whole, &value).is_ok(), nullable, "{schema} {value}");
            }
            assert!(
                check(&whole, &json!({ "v": [] })).is_err(),
                "{schema}: another value"
            );
        }
    }

    #[test]
    fn a_schema_that_may_be_null_as_a_whole_keeps_what_it_refers_to() {
        let schema = json!({ "$ref": "#/definitions/one", "nullable": true, "definitions": { "one": { "type": "integer" } } });
        for (value, fits) in [(json!(null), true), (json!(1), true), (json!("a"), false)] {
            assert_eq!(check(&schema, &value).is_ok(), fits, "{value}");
        }
    }
}
