//! `Mcp-Param-*`: arguments that a tool's schema has repeated in headers (`x-mcp-header`), so that
//! what stands between need not read bodies. A request whose headers say something else than its
//! body is refused: it might be let through for the one and executed with the other.

use axum::http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::revision::{decoded, lone_header, mismatch};
use crate::call_error::CallError;

/// Member of a property's schema that names its header.
const ANNOTATION: &str = "x-mcp-header";
/// The names of headers with arguments begin so.
const PREFIX: &str = "Mcp-Param-";

/// A property whose value is in a header, too.
struct RepeatedProperty<'a> {
    /// Names of properties, from the arguments to its value.
    path: Vec<&'a str>,
    header: String,
    is_number: bool,
}

/// Compares the headers of a call with its arguments.
///
/// # Errors
/// A fault if a header is missing or there twice, says something else than the arguments, or stands for
/// an argument that is not there.
pub(super) fn check(
    headers: &HeaderMap,
    arguments: &Value,
    schema: &Value,
) -> Result<(), CallError> {
    let mut repeated = Vec::new();
    collect(schema, &mut Vec::new(), &mut repeated);
    for property in repeated {
        let name = &property.header;
        let found = lone_header(headers, name)?;
        let value = property
            .path
            .iter()
            .try_fold(arguments, |value, key| value.get(key));
        let expected = value.and_then(as_text);
        let matches = match (found.map(decoded), &expected) {
            (None, None) => true,
            (Some(Some(found)), Some(expected)) => {
                found == *expected || property.is_number && is_same_number(&found, expected)
            }
            (Some(_), None) | (None | Some(None), Some(_)) => false,
        };
        if !matches {
            let expected = expected.unwrap_or_default();
            return Err(mismatch(name, found, &expected));
        }
    }
    Ok(())
}

/// The properties that are reached through `properties` alone; an annotation elsewhere, and one
/// that is not the name of a header, means nothing.
fn collect<'a>(
    schema: &'a Value,
    path: &mut Vec<&'a str>,
    repeated: &mut Vec<RepeatedProperty<'a>>,
) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, property) in properties {
        path.push(name);
        let header = property[ANNOTATION].as_str();
        let header = header.filter(|header| !header.is_empty());
        let header = header.map(|header| format!("{PREFIX}{header}"));
        if let Some(header) = header.filter(|header| HeaderName::try_from(header).is_ok()) {
            repeated.push(RepeatedProperty {
                path: path.clone(),
                header,
                is_number: matches!(property["type"].as_str(), Some("integer" | "number")),
            });
        }
        collect(property, path, repeated);
        path.pop();
    }
}

/// A value as a header has it; `None` if it has none.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `42.0` is `42`.
fn is_same_number(one: &str, other: &str) -> bool {
    let number = |text: &str| {
        serde_json::from_str::<serde_json::Number>(text)
            .ok()?
            .as_f64()
    };
    number(one).is_some_and(|one| number(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(headers: &[(&'static str, &str)], arguments: &Value) -> Option<i64> {
        let schema = json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "limit": { "type": "integer", "x-mcp-header": "Limit" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "at": { "type": "object", "properties": {
                "zone": { "type": "string", "x-mcp-header": "Zone" },
            } },
            "list": { "type": "array", "items": { "type": "string", "x-mcp-header": "Item" } },
            "plain": { "type": "string", "x-mcp-header": "no name" },
        } });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        check(&map, arguments, &schema)
            .err()
            .map(|error| error.row().rpc)
    }

    #[test]
    fn headers_say_what_the_arguments_say() {
        let whole = json!({
            "region": "größe", "limit": 42, "dry": false, "at": { "zone": "b" }, "plain": "x",
            "list": ["a"],
        });
        let headers = [
            ("mcp-param-region", "=?base64?Z3LDtsOfZQ==?="),
            ("mcp-param-limit", "42.0"),
            ("mcp-param-dry", "false"),
            ("mcp-param-zone", "b"),
            ("mcp-param-unknown", "x"),
        ];
        assert_eq!(code(&headers, &whole), None);
        for missing in 0..4 {
            let mut some = headers.to_vec();
            some.remove(missing);
            assert_eq!(code(&some, &whole), Some(-32020), "{missing}");
        }
        for (at, wrong) in [
            (0, "grosse"),
            (0, "=?base64?*?="),
            (1, "43"),
            (1, "4.2e1x"),
            (2, "False"),
            (3, "B"),
        ] {
            let mut some = headers.to_vec();
            some[at].1 = wrong;
            assert_eq!(code(&some, &whole), Some(-32020), "{wrong}");
        }
        let twice = [headers.as_slice(), &[("mcp-param-zone", "b")]].concat();
        assert_eq!(code(&twice, &whole), Some(-32020));
    }

    #[test]
    fn an_argument_that_is_not_there_has_no_header() {
        for arguments in [json!({}), json!({ "region": null, "at": 7 }), Value::Null] {
            assert_eq!(code(&[], &arguments), None, "{arguments}");
            for name in ["mcp-param-region", "mcp-param-zone"] {
                assert_eq!(code(&[(name, "")], &arguments), Some(-32020), "{name}");
            }
        }
    }
}
