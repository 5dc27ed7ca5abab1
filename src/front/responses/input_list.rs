//! The items of a response's input, page by page.

use serde_json::{Value, json};

use crate::front::error::CallError;

/// Items of a page if the query names no number, and the most that it may name.
const USUAL: usize = 20;
const MOST: usize = 100;

/// Items that a query asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageQuery {
    limit: usize,
    newest_first: bool,
    /// Item behind which the page starts.
    after: Option<String>,
}

// === impl PageQuery ===

impl PageQuery {
    /// Reads a query.
    pub(super) fn read(query: &str) -> Result<Self, CallError> {
        let mut page = Self {
            limit: USUAL,
            newest_first: true,
            after: None,
        };
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        for (name, value) in pairs {
            match (name, value) {
                ("limit", value) => {
                    let limit = value
                        .parse()
                        .ok()
                        .filter(|limit| (1..=MOST).contains(limit));
                    let refused = || CallError::invalid("limit", "`limit` must be from 1 to 100");
                    page.limit = limit.ok_or_else(refused)?;
                }
                ("order", "asc") => page.newest_first = false,
                ("order", "desc") => page.newest_first = true,
                ("order", _) => {
                    return Err(CallError::invalid(
                        "order",
                        "`order` must be `asc` or `desc`",
                    ));
                }
                ("after", item) => page.after = Some(item.to_owned()),
                _ => {}
            }
        }
        Ok(page)
    }

    /// Returns this page of all items, the oldest of which is the first.
    pub(super) fn of(&self, mut items: Vec<Value>) -> Value {
        if self.newest_first {
            items.reverse();
        }
        let is_after = |item: &Value| item["id"].as_str() == self.after.as_deref();
        let from = self.after.as_ref().map_or(0, |_| {
            items
                .iter()
                .position(is_after)
                .map_or(items.len(), |place| place + 1)
        });
        let rest = items.split_off(from);
        let has_more = rest.len() > self.limit;
        let data: Vec<Value> = rest.into_iter().take(self.limit).collect();
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        json!({
            "object": "list",
            "first_id": id(data.first()),
            "last_id": id(data.last()),
            "has_more": has_more,
            "data": data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_on_one_page_whatever_their_size_and_order() {
        let items: Vec<Value> = (0..7)
            .map(|number| json!({"id": format!("i{number}")}))
            .collect();
        for order in ["asc", "desc"] {
            for limit in 1..9 {
                let mut seen = Vec::new();
                let mut after = String::new();
                loop {
                    let query = format!("order={order}&limit={limit}{after}");
                    let page = PageQuery::read(&query).unwrap().of(items.clone());
                    seen.extend(page["data"].as_array().unwrap().clone());
                    after = format!("&after={}", page["last_id"].as_str().unwrap());
                    if page["has_more"] == false {
                        break;
                    }
                }
                if order == "desc" {
                    seen.reverse();
                }
                assert_eq!(seen, items, "{order} {limit}");
            }
        }
        assert!(PageQuery::read("limit=0").is_err() && PageQuery::read("order=up").is_err());
    }
}
