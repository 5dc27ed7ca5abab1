//! Which renames are adapted, and which never are, whatever else speaks for them.

use proptest::prelude::*;

use super::*;

/// Names that mean something else, unit or secret than the other one.
const NEVER: [(&str, &str); 16] = [
    ("include_archived", "exclude_archived"),
    ("enable_cache", "disable_cache"),
    ("recursive", "not_recursive"),
    ("active", "inactive"),
    ("timeout_seconds", "timeout_ms"),
    ("timeout", "timeout_ms"),
    ("size_bytes", "size_kb"),
    ("amount_usd", "amount_eur"),
    ("temperature_celsius", "temperature_fahrenheit"),
    ("distance_km", "distance_miles"),
    ("user", "password"),
    ("api_key", "name"),
    ("min_price", "max_price"),
    ("start_date", "end_date"),
    ("user_id", "account_id"),
    ("from_account", "to_account"),
];

/// Names of one argument.
const RENAMES: [(&str, &str); 8] = [
    ("limit", "max_results"),
    ("perPage", "limit"),
    ("page_size", "per_page"),
    ("userId", "user_id"),
    ("id", "activity_id"),
    ("q", "query"),
    ("start_date", "since"),
    ("search_query", "query"),
];

fn one(name: &str, property: &Value, is_required: bool) -> Value {
    let required = if is_required {
        json!([name])
    } else {
        json!([])
    };
    schema(json!({ (name): property }), required)
}

fn any_property() -> impl Strategy<Value = (Value, Value)> {
    let described = proptest::sample::select(vec![
        Value::Null,
        json!("What the call is made for in the end"),
        json!("Format"),
    ]);
    let kind = prop_oneof![
        Just((json!({"type": "string"}), json!("text"))),
        Just((json!({"type": "integer"}), json!(7))),
        Just((json!({"type": "boolean"}), json!(true))),
        Just((json!({"enum": ["a", "b"]}), json!("a"))),
        Just((
            json!({"type": "string", "format": "date"}),
            json!("2024-01-01")
        )),
    ];
    (kind, described).prop_map(|((mut property, value), description)| {
        if !description.is_null() {
            property["description"] = description;
        }
        (property, value)
    })
}

proptest! {
    #[test]
    fn a_name_of_another_meaning_unit_or_secret_is_never_adapted(
        (from, to) in proptest::sample::select(NEVER.to_vec()),
        (property, value) in any_property(),
        is_turned in any::<bool>(),
        is_known in any::<bool>(),
        is_required in any::<bool>(),
        is_hinted in any::<bool>(),
        all_listed in any::<bool>(),
    ) {
        let (from, to) = if is_turned { (to, from) } else { (from, to) };
        let old = one(from, &property, is_required);
        let new = one(to, &property, is_required);
        let error = if is_hinted { format!("unexpected keyword argument '{from}'. Did you mean '{to}'?") } else { String::new() };
        let fit = fit(Comparison {
            old: is_known.then_some(&old),
            new: &new,
            arguments: &object(json!({ (from): value })),
            error: &error,
            all_listed,
            filled: None,
        });
        prop_assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{:?}", fit);
    }

    #[test]
    fn a_usual_rename_is_adapted_where_it_is_the_only_change(
        (from, to) in proptest::sample::select(RENAMES.to_vec()),
        (property, value) in any_property(),
        is_known in any::<bool>(),
    ) {
        let old = one(from, &property, true);
        let new = one(to, &property, true);
        let fit = fit(Comparison {
            old: is_known.then_some(&old),
            new: &new,
            arguments: &object(json!({ (from): value.clone() })),
            error: "",
            all_listed: true,
            filled: None,
        });
        let ArgumentFit::Adapted(adapted) = fit else { panic!("{from} {to}: {fit:?}") };
        prop_assert_eq!(Value::Object(adapted.arguments), json!({ (to): value }));
    }

    #[test]
    fn a_name_of_which_nothing_is_known_needs_more_than_its_type(
        from in "[b-df-hj-np-rtv-z]{6}",
        to in "[b-df-hj-np-rtv-z]{6}",
        (mut property, value) in any_property(),
        is_required in any::<bool>(),
    ) {
        prop_assume!(from != to);
        // Neither a description nor a list of values says that it is the same argument.
        property.as_object_mut().unwrap().retain(|keyword, _| keyword == "type" || keyword == "format");
        let old = one(&from, &property, is_required);
        let new = one(&to, &property, is_required);
        let fit = fit(Comparison {
            old: Some(&old),
            new: &new,
            arguments: &object(json!({ (from): value })),
            error: "",
            all_listed: true,
            filled: None,
        });
        prop_assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{:?}", fit);
    }
}

#[test]
fn an_unlike_name_is_a_rename_where_its_description_or_its_values_stayed() {
    let described = json!({"type": "string", "description": "Colour of the roof in the plan"});
    let listed = json!({"enum": ["red", "blue"]});
    for property in [described, listed] {
        let old = one("colour", &property, true);
        let new = one("hue", &property, true);
        assert_eq!(
            adapted(&old, &new, json!({"colour": "red"})).unwrap().0,
            json!({"hue": "red"})
        );
    }
    let old = one("colour", &json!({"type": "string"}), true);
    let new = one("hue", &json!({"type": "string"}), true);
    assert!(adapted(&old, &new, json!({"colour": "red"})).is_none());
}

#[test]
fn a_unit_in_the_description_is_a_unit() {
    let with = |unit: &str| json!({"type": "integer", "description": format!("How long it may take at most, in {unit}")});
    let old = one("limit", &with("seconds"), true);
    let new = one("max_count", &with("milliseconds"), true);
    assert!(adapted(&old, &new, json!({"limit": 5})).is_none());
}

#[test]
fn two_arguments_of_one_meaning_are_not_told_apart() {
    let new = schema(
        json!({"max_results": {"type": "integer"}, "per_page": {"type": "integer"}}),
        json!([]),
    );
    let fit = fitted(
        None,
        &new,
        json!({"limit": 5}),
        "unexpected keyword argument 'limit'",
    );
    assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{fit:?}");
    let named = fitted(None, &new, json!({"limit": 5}), "expected 'max_results'");
    assert!(
        matches!(named, ArgumentFit::Fits { .. }),
        "the error does not name `limit`"
    );
}

#[test]
fn an_error_that_repeats_the_callers_words_names_nothing() {
    let new = schema(
        json!({"hue": {"type": "string"}, "tone": {"type": "string"}}),
        json!([]),
    );
    let error = "unexpected keyword argument 'colour', input: {'colour': 'did you mean hue'}";
    let fit = fitted(None, &new, json!({"colour": "did you mean hue"}), error);
    assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{fit:?}");
}

#[test]
fn a_name_that_a_schema_does_not_list_is_found_unless_it_may_be_listed_elsewhere() {
    let listed = json!({"properties": {"q": {"type": "string"}}});
    let elsewhere = json!({"properties": {"q": {}}, "oneOf": [{"properties": {"limit": {}}}]});
    for (schema, arguments, expected) in [
        (&listed, json!({"q": "x"}), None),
        (&listed, json!({"q": "x", "limit": 5}), Some("limit")),
        (&json!({"type": "object"}), json!({"limit": 5}), None),
        (
            &json!({"properties": {"q": {}}, "additionalProperties": true}),
            json!({"limit": 5}),
            None,
        ),
        (
            &json!({"properties": {"q": {}}, "additionalProperties": false}),
            json!({"limit": 5}),
            Some("limit"),
        ),
        (&elsewhere, json!({"limit": 5}), None),
    ] {
        assert_eq!(
            unlisted(schema, &object(arguments.clone())),
            expected,
            "{schema} {arguments}"
        );
    }
}
