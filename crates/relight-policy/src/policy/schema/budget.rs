//! The cost of checking a value against a JSON schema, counted before the check.
//!
//! Two kilobytes of schema can require 2^34 steps: each definition names the one before it twice.
//! So the steps are counted first, with the same walk that a validator takes and without its work,
//! and the walk ends where the budget does.

use serde_json::{Map, Value};

/// Most nodes of a schema, each counted as often as it is referred to; this is what compiling
/// costs.
const MAX_NODES: usize = 5_000;
/// Most pairs of a schema's node and a value that it is applied to; this is what validating costs.
const MAX_VISITS: usize = 200_000;
/// Deepest nesting of schemas, references and values included; this is what the stack holds.
const MAX_DEPTH: usize = 192;
/// Cost of compiling a pattern, in nodes, and of matching it once, in visits.
const PATTERN: usize = 25;
/// Text that costs as much as one more visit, in bytes.
const TEXT_PER_VISIT: usize = 64;

/// Keywords whose value is a schema for the same value.
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas for the same value.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value maps names to schemas for the same value.
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose value is a schema (or a list of them) for the members of the value.
const FOR_MEMBERS: [&str; 8] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
];

/// The remaining budget of a walk.
struct Budget<'a> {
    root: &'a Value,
    left: usize,
}

/// The budget is exhausted, or the schema uses a feature whose cost cannot be counted.
struct BudgetExhausted;

/// Returns whether `value` can be checked against `schema` at a bounded cost.
pub(super) fn affords(schema: &Value, value: &Value) -> bool {
    let mut nodes = Budget {
        root: schema,
        left: MAX_NODES,
    };
    let mut visits = Budget {
        root: schema,
        left: MAX_VISITS,
    };
    nodes.compile(schema, &mut Vec::new()).is_ok() && visits.validate(schema, value, 0).is_ok()
}

// === impl Budget ===

impl<'a> Budget<'a> {
    fn spend(&mut self, cost: usize) -> Result<(), BudgetExhausted> {
        self.left = self.left.checked_sub(cost).ok_or(BudgetExhausted)?;
        Ok(())
    }

    /// Walks a schema as a compiler does: a reference within itself is followed once.
    fn compile(
        &mut self,
        schema: &'a Value,
        open: &mut Vec<*const Value>,
    ) -> Result<(), BudgetExhausted> {
        self.spend(1)?;
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        let this = std::ptr::from_ref(schema);
        if open.contains(&this) {
            return Ok(());
        }
        if open.len() >= MAX_DEPTH {
            return Err(BudgetExhausted);
        }
        open.push(this);
        if let Some(target) = self.reference(keywords, open.len() == 1)? {
            self.compile(target, open)?;
        }
        for (keyword, value) in keywords {
            match value {
                Value::Object(schemas) if holds_named_schemas(keyword) => {
                    for schema in schemas.values() {
                        self.spend(if keyword == "patternProperties" {
                            PATTERN
                        } else {
                            0
                        })?;
                        self.compile(schema, open)?;
                    }
                }
                Value::Array(schemas) if holds_schemas(keyword) => {
                    for schema in schemas {
                        self.compile(schema, open)?;
                    }
                }
                schema if holds_schemas(keyword) => self.compile(schema, open)?,
                other => {
                    self.spend(weight(other) + if keyword == "pattern" { PATTERN } else { 0 })?;
                }
            }
        }
        open.pop();
        Ok(())
    }

    /// Walks a schema and a value as a validator without early exits would.
    fn validate(
        &mut self,
        schema: &'a Value,
        value: &Value,
        depth: usize,
    ) -> Result<(), BudgetExhausted> {
        let Value::Object(keywords) = schema else {
            return self.spend(1);
        };
        if depth >= MAX_DEPTH {
            return Err(BudgetExhausted);
        }
        self.spend(
            1 + weight(value)
                + if keywords.contains_key("pattern") {
                    PATTERN
                } else {
                    0
                },
        )?;
        // What is left unevaluated is found by evaluating everything once more.
        let passes = if keywords
            .keys()
            .any(|keyword| keyword.starts_with("unevaluated"))
        {
            2
        } else {
            1
        };
        for _ in 0..passes {
            self.in_place(keywords, value, depth + 1)?;
            self.members(keywords, value, depth + 1)?;
        }
        Ok(())
    }

    fn in_place(
        &mut self,
        keywords: &'a Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<(), BudgetExhausted> {
        if let Some(target) = self.reference(keywords, depth == 1)? {
            self.validate(target, value, depth)?;
        }
        let lists = IN_PLACE_LISTS
            .iter()
            .filter_map(|keyword| keywords.get(*keyword)?.as_array())
            .flatten();
        let maps = IN_PLACE_MAPS
            .iter()
            .filter_map(|keyword| keywords.get(*keyword)?.as_object())
            .flat_map(Map::values);
        let alone = IN_PLACE.iter().filter_map(|keyword| keywords.get(*keyword));
        for schema in lists.chain(maps).chain(alone) {
            self.validate(schema, value, depth)?;
        }
        Ok(())
    }

    fn members(
        &mut self,
        keywords: &'a Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<(), BudgetExhausted> {
        let for_all = || {
            FOR_MEMBERS
                .iter()
                .filter_map(|keyword| keywords.get(*keyword))
        };
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    for schema in for_all() {
                        self.each(schema, member, depth)?;
                    }
                    let properties = keywords.get("properties").and_then(Value::as_object);
                    if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                        self.each(schema, member, depth)?;
                    }
                    // Which patterns fit is for the validator to find out.
                    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
                    for schema in patterns.into_iter().flat_map(Map::values) {
                        self.spend(PATTERN)?;
                        self.each(schema, member, depth)?;
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    for schema in for_all() {
                        self.each(schema, item, depth)?;
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    /// Applies a schema, or each of a list of them, to a member.
    fn each(
        &mut self,
        schema: &'a Value,
        member: &Value,
        depth: usize,
    ) -> Result<(), BudgetExhausted> {
        match schema {
            Value::Array(schemas) => schemas
                .iter()
                .try_for_each(|schema| self.validate(schema, member, depth)),
            schema => self.validate(schema, member, depth),
        }
    }

    /// Returns the target of the schema's reference; a reference that leads out of the document or
    /// moves its base cannot be counted.
    fn reference(
        &self,
        keywords: &Map<String, Value>,
        is_root: bool,
    ) -> Result<Option<&'a Value>, BudgetExhausted> {
        let moves = |keyword: &str| keywords.get(keyword).is_some_and(Value::is_string);
        if moves("$dynamicRef") || moves("$recursiveRef") || (!is_root && moves("$id")) {
            return Err(BudgetExhausted);
        }
        let Some(reference) = keywords.get("$ref").and_then(Value::as_str) else {
            return Ok(None);
        };
        let pointer = reference
            .strip_prefix('#')
            .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer
            .filter(|pointer| !pointer.contains('%'))
            .ok_or(BudgetExhausted)?;
        self.root.pointer(pointer).map(Some).ok_or(BudgetExhausted)
    }
}

fn holds_named_schemas(keyword: &str) -> bool {
    matches!(
        keyword,
        "properties" | "patternProperties" | "$defs" | "definitions"
    ) || IN_PLACE_MAPS.contains(&keyword)
}

fn holds_schemas(keyword: &str) -> bool {
    IN_PLACE.contains(&keyword)
        || IN_PLACE_LISTS.contains(&keyword)
        || FOR_MEMBERS.contains(&keyword)
}

/// Returns the cost of a value if it is looked at as a whole, such as in `enum` or under `pattern`.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / TEXT_PER_VISIT,
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doubled(times: usize) -> Value {
        let mut definitions = Map::new();
        definitions.insert("d0".to_owned(), json!({"type": "object"}));
        for level in 1..=times {
            let reference = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            definitions.insert(
                format!("d{level}"),
                json!({"allOf": [reference, reference]}),
            );
        }
        json!({"$ref": format!("#/$defs/d{times}"), "$defs": definitions})
    }

    #[test]
    fn a_schema_that_doubles_itself_is_not_affordable_and_ordinary_ones_are() {
        assert!(affords(&doubled(3), &json!({})));
        assert!(!affords(&doubled(12), &json!({})));
        assert!(!affords(&doubled(34), &json!({})));
        let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}});
        assert!(affords(&tree, &json!({"children": [{"children": []}, {}]})));
        let rows: Vec<Value> = (0..5_000)
            .map(|n| json!({"id": n, "name": "n", "tags": ["a", "b"]}))
            .collect();
        let table = json!({"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"}, "name": {"type": "string"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}}});
        assert!(affords(&table, &Value::Array(rows)));
    }

    #[test]
    fn recursion_that_consumes_no_value_or_doubles_with_its_depth_is_not_affordable() {
        assert!(!affords(&json!({"$ref": "#"}), &json!({})), "endless");
        assert!(
            !affords(&json!({"allOf": [{"$ref": "#/allOf/0"}]}), &json!({})),
            "endless"
        );
        let twice = json!({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {
            "allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]}}}}});
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({"a": deep});
        }
        assert!(!affords(&twice, &deep));
        let chain: Map<String, Value> = (1..4_000)
            .map(|n| {
                (
                    format!("c{n}"),
                    json!({"$ref": format!("#/$defs/c{}", n - 1)}),
                )
            })
            .collect();
        assert!(
            !affords(
                &json!({"$ref": "#/$defs/c3999", "$defs": chain}),
                &json!({})
            ),
            "deeper than the stack"
        );
    }

    #[test]
    fn what_leads_elsewhere_cannot_be_counted() {
        for reference in [
            "https://example.com/s",
            "#name",
            "other.json#/a",
            "#/missing",
        ] {
            assert!(
                !affords(&json!({"items": {"$ref": reference}}), &json!([1])),
                "{reference}"
            );
        }
    }
}
