//! Which renames are adapted, and which never are, whatever else speaks for them.

use proptest::prelude::*;

use super::*;

/// Names that mean something else, unit or secret than the other one.
const NEVER: [(&str, &str); 25] = [
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
    ("source_path", "target_path"),
    ("user_id", "user_name"),
    ("max_price", "price"),
    ("exclude_tags", "tags"),
    ("from", "to"),
    ("old_name", "name"),
    ("include_details", "details"),
    ("start_date", "date"),
    ("in", "out"),
];

/// Words of which names are put together.
const WORDS: [&str; 12] = [
    "user", "id", "name", "team", "path", "limit", "query", "result", "page", "color", "file",
    "group",
];

/// Names of one argument.
const RENAMES: [(&str, &str); 8] = [
    ("limit", "max_results"),
    ("perPage", "limit"),
    ("page_size", "per_page"),
    ("userId", "user_id"),
    ("filepath", "file_path"),
    ("URL", "url"),
    ("q", "query"),
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
    fn a_word_more_or_less_is_another_name_whatever_else_speaks_for_it(
        from in proptest::sample::subsequence(WORDS.to_vec(), 1..4).prop_shuffle(),
        to in proptest::sample::subsequence(WORDS.to_vec(), 1..4).prop_shuffle(),
        (property, value) in any_property(),
        is_known in any::<bool>(),
        is_required in any::<bool>(),
        is_named in any::<bool>(),
    ) {
        let from = from.join("_");
        let to = to.join("_");
        let is_usual = [(&from, &to), (&to, &from)].iter().any(|(one, other)| {
            let pairs = [("file_path", "path")];
            RENAMES.iter().chain(&pairs).any(|(known, known_too)| *one == known && *other == known_too)
        });
        prop_assume!(from != to && !is_usual);
        let old = one(&from, &property, is_required);
        let new = one(&to, &property, is_required);
        let error = if is_named { format!("unexpected keyword argument '{from}', missing '{to}'") } else { String::new() };
        let fit = fit(Comparison {
            old: is_known.then_some(&old),
            new: &new,
            arguments: &object(json!({ (from): value })),
            error: &error,
            all_listed: true,
            filled: None,
        });
        prop_assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{:?}", fit);
    }
}

/// Returns the name by which the text `x` is sent that was sent as `from`, after this error.
fn told(from: &str, listed: &[&str], error: &str) -> Option<String> {
    let properties = listed
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})));
    let new = schema(properties.collect(), json!([]));
    match fitted(None, &new, json!({ (from): "x" }), error) {
        ArgumentFit::Adapted(adapted) => adapted.arguments.keys().next().cloned(),
        _ => None,
    }
}

#[test]
fn a_name_that_the_tool_itself_states_is_taken() {
    for error in [
        "unknown argument `filename`, did you mean `document`?",
        "TypeError: open() got an unexpected keyword argument 'filename'. Did you mean 'document'?",
        "`filename` was renamed to `document`",
        "`filename` is deprecated; use document instead.",
    ] {
        assert_eq!(
            told("filename", &["document", "mode"], error).as_deref(),
            Some("document"),
            "{error}"
        );
    }
    for error in [
        "unknown argument `filename`, expected `document`",
        "unknown argument `filename`: do not use `document`",
        "unknown argument `filename`, did you mean `document` or `mode`?",
        "unknown argument `filename`, did you mean `document`, `mode`?",
        "unknown argument `filename`, did you mean `document-path`?",
        "unknown argument `filename`, did you mean `document.path`?",
        "unknown argument `filename_old`, did you mean `document`?",
        "did you mean `document`?",
    ] {
        assert_eq!(
            told("filename", &["document", "mode"], error),
            None,
            "{error}"
        );
    }
}

#[test]
fn an_error_about_another_argument_states_nothing_of_this_one() {
    let new = schema(
        json!({"hue": {"type": "string"}, "tone": {"type": "string"}}),
        json!([]),
    );
    let error = "unknown `colour`. unknown `shade`, did you mean `tone`?";
    let fit = fitted(None, &new, json!({"colour": "red", "shade": "dark"}), error);
    assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{fit:?}");
}

#[test]
fn the_plural_is_the_same_argument_only_where_one_of_them_is_a_list() {
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "items": text});
    let to = |name: &str, property: &Value, value: Value| {
        let fit = fit(Comparison {
            old: None,
            new: &one(name, property, true),
            arguments: &object(value),
            error: "",
            all_listed: true,
            filled: None,
        });
        match fit {
            ArgumentFit::Adapted(adapted) => Some(Value::Object(adapted.arguments)),
            _ => None,
        }
    };
    assert_eq!(
        to("ids", &list, json!({"id": "5"})),
        Some(json!({"ids": ["5"]}))
    );
    assert_eq!(
        to("id", &text, json!({"ids": ["5"]})),
        Some(json!({"id": "5"}))
    );
    assert_eq!(to("id", &text, json!({"ids": "5"})), None);
    assert_eq!(to("news", &text, json!({"new": "x"})), None);
}

#[test]
fn what_holds_arguments_and_has_a_meaning_of_its_own_is_no_level_of_nesting() {
    let tags = json!({"tags": {"type": "array"}});
    let flat = schema(tags.clone(), json!([]));
    for holder in ["exclude", "filter", "changes"] {
        let nested = schema(
            json!({ (holder): schema(tags.clone(), json!([])) }),
            json!([holder]),
        );
        for (old, new, arguments) in [
            (&flat, &nested, json!({"tags": ["a"]})),
            (&nested, &flat, json!({ (holder): {"tags": ["a"]} })),
        ] {
            for old in [Some(old), None] {
                let fit = fitted(old, new, arguments.clone(), "tags missing");
                assert!(!matches!(fit, ArgumentFit::Adapted(_)), "{fit:?}");
            }
        }
    }
}

#[test]
fn an_unlike_name_is_no_rename_though_its_description_and_its_values_stayed() {
    let property =
        json!({"enum": ["red", "blue"], "description": "Colour of the roof in the plan"});
    let old = one("colour", &property, true);
    let new = one("hue", &property, true);
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
