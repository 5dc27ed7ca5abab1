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

/// Returns the value that `id` has once it is sent as `ids` of a type; `None` if it is not.
fn sent_as(property: &Value, value: &Value) -> Option<Value> {
    let new = schema(json!({ "ids": property }), json!(["ids"]));
    let fit = fit(Comparison {
        old: None,
        new: &new,
        arguments: &object(json!({ "Ids": value })),
        error: "",
        all_listed: true,
        filled: None,
    });
    match fit {
        ArgumentFit::Adapted(mut adapted) => adapted.arguments.shift_remove("ids"),
        _ => None,
    }
}

proptest! {
    #[test]
    fn a_value_that_its_new_place_takes_stays_as_it_is(
        value in prop_oneof![
            Just(Value::Null),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(|number| json!(number.to_string())),
            proptest::sample::select(vec!["true", "null", "1.50", "007", "[1]", ""]).prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
        ],
        more in proptest::sample::subsequence(
            vec!["null", "boolean", "integer", "number", "string", "array", "object"], 0..7),
        is_choice in any::<bool>(),
    ) {
        let kind = match &value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            _ => "string",
        };
        let mut kinds = more;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        let property = if is_choice {
            // More choices than are named to a caller.
            let choices = (0..9).map(|_| json!({"type": kinds[0]}));
            let choices: Vec<Value> = choices.chain(kinds.iter().map(|kind| json!({"type": kind}))).collect();
            json!({ "anyOf": choices })
        } else {
            json!({ "type": kinds })
        };
        prop_assert_eq!(sent_as(&property, &value), Some(value), "{}", property);
    }

    #[test]
    fn a_number_of_more_digits_than_are_kept_is_never_sent_again(
        digits in "[1-9][0-9]{20,40}",
        is_within in any::<bool>(),
    ) {
        let value = if is_within { format!("{{\"n\":[{digits}]}}") } else { digits };
        let value: Value = serde_json::from_str(&value).unwrap();
        prop_assert_eq!(sent_as(&json!({}), &value), None);
    }

    #[test]
    fn a_number_within_a_text_or_a_text_for_a_number_keeps_every_digit(number in any::<i64>(), more in any::<u64>()) {
        for digits in [number.to_string(), more.to_string(), format!("{more}{more}")] {
            let number: Value = serde_json::from_str(&digits).unwrap();
            for (kind, value) in [("string", number), ("integer", json!(digits)), ("number", json!(digits))] {
                if let Some(sent) = sent_as(&json!({"type": kind}), &value) {
                    let sent = sent.as_str().map_or_else(|| sent.to_string(), str::to_owned);
                    prop_assert_eq!(sent, digits.clone());
                }
            }
        }
    }
}

#[test]
fn a_text_that_may_be_a_list_itself_is_not_put_into_one() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    for text in ["a,b", "a; b", "[\"a\",\"b\"]", "a\nb", "{}", "", " "] {
        assert_eq!(sent_as(&list, &json!(text)), None, "{text}");
    }
    assert_eq!(sent_as(&list, &json!("a b")), Some(json!(["a b"])));
}
