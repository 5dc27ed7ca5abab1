//! A list that is split into shorter ones.

use serde_json::Value;

/// Parts of a list by default.
const PARTS: usize = 4;

/// Some items of a list, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListItems {
    values: Vec<Value>,
    /// How many items of the whole list are before them.
    before: usize,
    /// How many the whole list has.
    of: usize,
}

// === impl ListItems ===

impl ListItems {
    pub(super) fn of(value: &Value) -> Option<Self> {
        let items = value.as_array()?.clone();
        Some(Self {
            before: 0,
            of: items.len(),
            values: items,
        })
    }

    /// In parts of this size, but in no more than `max` parts.
    pub(super) fn split(&self, size: Option<usize>, max: usize) -> Vec<Self> {
        let count = self.values.len();
        let size = size
            .unwrap_or_else(|| count.div_ceil(PARTS))
            .max(count.div_ceil(max))
            .max(1);
        let parts = self.values.chunks(size).enumerate();
        parts
            .map(|(at, items)| Self {
                values: items.to_vec(),
                before: self.before + at * size,
                of: self.of,
            })
            .collect()
    }

    pub(super) fn halves(&self) -> Vec<Self> {
        if self.values.len() < 2 {
            Vec::new()
        } else {
            self.split(Some(self.values.len().div_ceil(2)), 2)
        }
    }

    pub(super) fn value(&self) -> Value {
        Value::Array(self.values.clone())
    }

    pub(super) fn label(&self) -> String {
        let (first, last) = (self.before + 1, self.before + self.values.len());
        if first == last {
            format!("item {first} of {}", self.of)
        } else {
            format!("items {first} to {last} of {}", self.of)
        }
    }
}
