//! Vectors of a response to a request for embeddings: whether every one that was requested is
//! there, in the encoding that was requested.
//!
//! A missing or empty vector would be stored and compared like any other, so it is a failure. Some
//! servers ignore `encoding_format`; the same numbers are then written in the other encoding.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

/// Requirements of a request for embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RequestedVectors {
    /// Number of embeddings; `None` if that cannot be told from the request.
    count: Option<usize>,
    /// If set, they are to be written as base64; `None` if the request does not say.
    is_base64: Option<bool>,
}

// === impl RequestedVectors ===

impl RequestedVectors {
    /// Returns what these fields of a request ask for.
    pub(super) fn of(request: &Map<String, Value>) -> Self {
        let count = match request.get("input") {
            // A list of numbers is one text as tokens.
            Some(Value::Array(items)) if items.first().is_some_and(Value::is_number) => Some(1),
            Some(Value::Array(items)) if !items.is_empty() => Some(items.len()),
            Some(Value::String(_)) => Some(1),
            Some(_) | None => None,
        };
        let format = request.get("encoding_format").and_then(Value::as_str);
        let is_base64 = match format {
            Some("base64") => Some(true),
            Some("float") => Some(false),
            Some(_) | None => None,
        };
        Self { count, is_base64 }
    }

    /// Checks the vectors of a response's `data`; returns them in the requested encoding if they
    /// came in another one.
    ///
    /// # Errors
    /// Returns words for what is missing or unreadable.
    pub(super) fn check(self, data: &[Value]) -> Result<Option<Vec<Value>>, String> {
        if let Some(count) = self.count.filter(|count| *count != data.len()) {
            return Err(format!("{} of {count} vectors came", data.len()));
        }
        check_places(data)?;
        let mut length = None;
        let mut is_changed = false;
        let mut items = Vec::with_capacity(data.len());
        for (place, item) in data.iter().enumerate() {
            let numbers = item
                .get("embedding")
                .and_then(numbers)
                .filter(|numbers| !numbers.is_empty())
                .ok_or_else(|| format!("vector {place} is missing, empty or no vector"))?;
            if *length.get_or_insert(numbers.len()) != numbers.len() {
                return Err(format!("vector {place} has another length than the first"));
            }
            let came_as_text = item.get("embedding").is_some_and(Value::is_string);
            let mut item = item.clone();
            match self.is_base64 {
                Some(true) if !came_as_text => {
                    item["embedding"] = json!(BASE64_STANDARD.encode(bytes(&numbers)));
                    is_changed = true;
                }
                Some(false) if came_as_text => {
                    item["embedding"] = json!(numbers);
                    is_changed = true;
                }
                Some(_) | None => {}
            }
            items.push(item);
        }
        Ok(is_changed.then_some(items))
    }
}

/// Checks that the vectors, in whatever order, belong to one text each. Some servers number none
/// of them, or all with the same number: then their order is all there is.
fn check_places(data: &[Value]) -> Result<(), String> {
    let places: Option<Vec<u64>> = data
        .iter()
        .map(|item| item.get("index")?.as_u64())
        .collect();
    let Some(mut places) = places else {
        return Ok(());
    };
    places.sort_unstable();
    if places.first() == places.last() {
        return Ok(());
    }
    match (0..)
        .zip(&places)
        .find(|(expected, place)| expected != *place)
    {
        None => Ok(()),
        Some((expected, place)) if *place < expected => {
            Err(format!("two vectors have the index {place}"))
        }
        Some((expected, _)) => Err(format!("no vector has the index {expected}")),
    }
}

/// Returns the numbers of a vector in either encoding; `None` if it is neither.
fn numbers(vector: &Value) -> Option<Vec<f32>> {
    match vector {
        Value::Array(numbers) => numbers.iter().map(number).collect(),
        Value::String(text) => {
            let bytes = BASE64_STANDARD.decode(text).ok()?;
            let (numbers, rest) = bytes.as_chunks::<4>();
            rest.is_empty()
                .then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)))
                .map(Iterator::collect)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors are compared with the precision of their base64 form"
)]
fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|number| number as f32)
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requested(input: &Value, format: Option<&str>) -> RequestedVectors {
        let mut request = json!({ "input": input });
        if let Some(format) = format {
            request["encoding_format"] = json!(format);
        }
        RequestedVectors::of(request.as_object().unwrap())
    }

    #[test]
    fn a_vector_that_is_missing_empty_or_null_is_no_vector() {
        let good = json!({ "index": 0, "embedding": [0.5, -1] });
        let two = requested(&json!(["a", "b"]), None);
        assert_eq!(two.check(&[good.clone(), good.clone()]), Ok(None));
        for bad in [
            json!({ "embedding": null }),
            json!({ "embedding": [] }),
            json!({ "embedding": "" }),
            json!({ "embedding": "AAA" }),
            json!({ "embedding": [0.5, null] }),
            json!({ "embedding": [0.5, "1"] }),
            json!({ "embedding": [0.5] }),
            json!({ "embedding": {} }),
            json!({}),
            json!(null),
        ] {
            assert!(two.check(&[good.clone(), bad.clone()]).is_err(), "{bad}");
        }
        for (input, count) in [
            (json!("a"), 1),
            (json!(["a"]), 1),
            (json!([1, 2, 3]), 1),
            (json!([[1], [2], [3]]), 3),
        ] {
            for came in 0..5 {
                let fits = requested(&input, None).check(&vec![good.clone(); came]);
                assert_eq!(fits.is_ok(), came == count, "{input}: {came}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_text_has_its_one_vector_in_any_order(
            places in Just((0_u64..6).collect::<Vec<_>>()).prop_shuffle(),
            changed in 0_usize..6,
            index in 0_u64..9,
        ) {
            let check = |places: &[u64]| {
                let vector = |index: &u64| json!({ "index": index, "embedding": [0.5] });
                let data: Vec<Value> = places.iter().map(vector).collect();
                requested(&json!(["a", "b", "c", "d", "e", "f"]), None).check(&data)
            };
            prop_assert_eq!(check(&places), Ok(None));
            let mut other = places.clone();
            other[changed] = index;
            prop_assert_eq!(check(&other).is_ok(), other == places);
        }
    }

    #[test]
    fn vectors_come_in_the_encoding_that_was_requested() {
        let as_floats = [json!({ "index": 0, "embedding": [0.25, -0.5, 1.0] })];
        let as_text = [json!({ "index": 0, "embedding": "AACAPgAAAL8AAIA/" })];
        let base64 = requested(&json!("a"), Some("base64"));
        let floats = requested(&json!("a"), Some("float"));
        assert_eq!(base64.check(&as_floats), Ok(Some(as_text.to_vec())));
        assert_eq!(floats.check(&as_text), Ok(Some(as_floats.to_vec())));
        assert_eq!(base64.check(&as_text), Ok(None));
        assert_eq!(floats.check(&as_floats), Ok(None));
        assert_eq!(requested(&json!("a"), None).check(&as_text), Ok(None));
    }
}
