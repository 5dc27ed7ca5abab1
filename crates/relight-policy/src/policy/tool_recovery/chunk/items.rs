//! A list that is split into shorter ones.

use serde_json::Value;

/// Parts of a list.
const PARTS: usize = 4;

/// Some items of a list, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListItems {
    values: Vec<Value>,
    /// Number of items of the whole list before them.
    before: usize,
    /// Number of items of the whole list.
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

    /// In quarters.
    pub(super) fn parts(&self) -> Vec<Self> {
        self.split(self.values.len().div_ceil(PARTS))
    }

    /// In parts of so many items, at least one.
    fn split(&self, size: usize) -> Vec<Self> {
        let size = size.max(1);
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
            self.split(self.values.len().div_ceil(2))
        }
    }

    pub(super) fn value(&self) -> Value {
        Value::Array(self.values.clone())
    }

    pub(super) fn label(&self) -> String {
        let first = self.before + 1;
        let last = self.before + self.values.len();
        if first == last {
            format!("item {first} of {}", self.of)
        } else {
            format!("items {first} to {last} of {}", self.of)
        }
    }
}
