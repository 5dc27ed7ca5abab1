//! Adapted arguments fit and lose nothing, whatever the schemas and the arguments are.

use proptest::prelude::*;

use super::*;

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z0-9]{0,4}".prop_map(Value::from),
        proptest::collection::vec(any::<i8>(), 0..3).prop_map(Value::from),
        Just(json!({"id": 1})),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(vec![
        "string", "integer", "number", "boolean", "array", "object",
    ]);
    let name = proptest::sample::select(vec![
        "id",
        "ids",
        "limit",
        "max_results",
        "query",
        "q",
        "from",
        "params",
    ]);
    let property = (name, kind, any::<bool>(), any::<bool>());
    (proptest::collection::vec(property, 0..5), any::<bool>()).prop_map(|(properties, closed)| {
        let mut schema = json!({"type": "object", "properties": {}, "required": []});
        for (name, kind, required, has_default) in properties {
            schema["properties"][name] = json!({"type": kind});
            if has_default && kind == "string" {
                schema["properties"][name]["default"] = json!("x");
            }
            if required
                && let Some(list) = schema["required"]
                    .as_array_mut()
                    .filter(|list| !list.contains(&json!(name)))
            {
                list.push(json!(name));
            }
        }
        if closed {
            schema["additionalProperties"] = json!(false);
        }
        schema
    })
}

proptest! {
    #[test]
    fn adapted_arguments_always_fit_and_lose_no_value(
        old in any_schema(),
        new in any_schema(),
        is_known in any::<bool>(),
        arguments in proptest::collection::btree_map(
            proptest::sample::select(vec!["id", "ids", "limit", "max_results", "query", "q", "params"]),
            any_value(),
            0..4,
        ),
    ) {
        let arguments: Arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let old = is_known.then_some(&old);
        let comparison = Comparison { old, new: &new, arguments: &arguments, error: "", all_listed: false, filled: None };
        if let ArgumentFit::Adapted(adapted) = fit(comparison) {
            prop_assert_eq!(validate(&new, &adapted.arguments), Ok(None));
            prop_assert!(!adapted.changes.is_empty() && !adapted.words.is_empty());
            let sent = Value::Object(adapted.arguments).to_string();
            for value in arguments.values() {
                // Texts and numbers are each other's spelling, and objects may be taken apart.
                let kept = match value {
                    Value::Object(_) | Value::Array(_) => continue,
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                prop_assert!(sent.contains(&kept), "{} lost {}", sent, kept);
            }
        }
    }
}
