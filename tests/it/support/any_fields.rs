//! Generated fields of JSON objects that no server knows.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Fields whose names no server uses.
pub(crate) fn fields() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        ".{1,12}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    // At the top, what says nothing is as good as nothing.
    let kept = value.prop_map(|value| json!([value]));
    prop::collection::btree_map("x_[a-z]{1,9}", kept, 1..4)
        .prop_map(|fields| fields.into_iter().collect())
}
