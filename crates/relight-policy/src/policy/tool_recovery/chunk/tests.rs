//! How calls are split, run in parts and merged.

mod running;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: Value) -> Arguments {
    let Value::Object(arguments) = value else {
        panic!("{value} is no object")
    };
    arguments
}

fn reading() -> Effects {
    Effects {
        read_only: true,
        destructive: false,
        open_world: true,
        repeatable: true,
        key_argument: None,
        reason: "it changes nothing",
    }
}

fn dates() -> ChunkRule {
    ChunkRule::new(ChunkBy::Dates {
        from: "after".to_owned(),
        to: "before".to_owned(),
        end_included: None,
    })
}

fn pages(offset: Option<&str>, page: Option<&str>) -> ChunkRule {
    let name = |name: Option<&str>| name.map(str::to_owned);
    let offset = name(offset);
    let page = name(page);
    ChunkRule::new(ChunkBy::Pages {
        limit: "limit".to_owned(),
        offset,
        page,
        first_page: 1,
    })
}

fn list() -> ChunkRule {
    ChunkRule::new(ChunkBy::List {
        argument: "/filter/ids".to_owned(),
    })
}

/// Returns the arguments of all parts.
fn split(rule: &ChunkRule, arguments: Value) -> Vec<Value> {
    let plan = rule.plan(&object(arguments), &reading());
    plan.map_or_else(Vec::new, |plan| {
        plan.parts
            .iter()
            .map(|part| Value::Object(plan.arguments_of(part)))
            .collect()
    })
}

fn ranges(rule: &ChunkRule, from: &str, to: &str) -> Vec<String> {
    let parts = split(rule, json!({"after": from, "before": to}));
    let text = |part: &Value, name: &str| part[name].as_str().unwrap().to_owned();
    parts
        .iter()
        .map(|part| format!("{}..{}", text(part, "after"), text(part, "before")))
        .collect()
}

#[test]
fn six_months_become_six_calendar_months() {
    assert_eq!(
        ranges(&dates(), "2024-01-01", "2024-06-30"),
        [
            "2024-01-01..2024-01-31",
            "2024-02-01..2024-02-29",
            "2024-03-01..2024-03-31",
            "2024-04-01..2024-04-30",
            "2024-05-01..2024-05-31",
            "2024-06-01..2024-06-30",
        ]
    );
    let times = ranges(&dates(), "2024-01-01T00:00:00Z", "2024-07-01T00:00:00Z");
    assert_eq!(times.len(), 6);
    assert_eq!(times[0], "2024-01-01T00:00:00Z..2024-02-01T00:00:00Z");
    assert_eq!(times[5], "2024-06-01T00:00:00Z..2024-07-01T00:00:00Z");
}

#[test]
fn shorter_ranges_become_weeks_or_days_and_longer_ones_several_months_a_part() {
    assert_eq!(ranges(&dates(), "2024-03-01", "2024-03-21").len(), 3);
    assert_eq!(
        ranges(&dates(), "2024-02-28", "2024-03-01").join(" "),
        "2024-02-28..2024-02-28 2024-02-29..2024-02-29 2024-03-01..2024-03-01"
    );
    let years = ranges(&dates(), "2020-01-15", "2024-12-31");
    assert_eq!(years.len(), 12);
    assert_eq!(years[0], "2020-01-15..2020-05-31");
}

#[test]
fn times_keep_their_form_and_an_end_that_belongs_to_them_is_not_called_twice() {
    let included = ChunkRule::new(ChunkBy::Dates {
        from: "after".to_owned(),
        to: "before".to_owned(),
        end_included: Some(true),
    });
    assert_eq!(
        ranges(
            &included,
            "2024-01-01 00:00:00+02:00",
            "2024-01-02 23:59:59+02:00"
        ),
        [
            "2024-01-01 00:00:00+02:00..2024-01-01 23:59:59+02:00",
            "2024-01-02 00:00:00+02:00..2024-01-02 23:59:59+02:00",
        ]
    );
    assert_eq!(
        ranges(
            &included,
            "2024-01-01T00:00:00.000Z",
            "2024-01-02T23:59:59.999Z"
        )[0],
        "2024-01-01T00:00:00.000Z..2024-01-01T23:59:59.999Z"
    );
}

#[test]
fn what_cannot_be_split_has_no_plan() {
    for (from, to) in [
        ("2024-01-01", "2024-01-01"),
        ("2024-02-01", "2024-01-01"),
        ("2024-01-01", "2024-06-30T00:00:00Z"),
        ("2024-01-01T00:00:00Z", "2024-06-30T00:00:00+02:00"),
        ("last January", "today"),
        ("", ""),
        ("2024-13-01", "2024-14-01"),
        ("2024-01-01Tnoon", "2024-06-30Tnoon"),
        ("2024-01-0é", "2024-06-30"),
    ] {
        assert!(ranges(&dates(), from, to).is_empty(), "{from} {to}");
    }
    assert!(
        split(&dates(), json!({"after": "2024-01-01"})).is_empty(),
        "an open end"
    );
    assert!(split(&list(), json!({"filter": {"ids": [1]}})).is_empty());
    assert!(split(&list(), json!({"filter": {"ids": "1,2"}})).is_empty());
    assert!(
        split(&pages(None, Some("page")), json!({"limit": 101, "page": 2})).is_empty(),
        "a prime"
    );
    assert!(
        split(&pages(Some("offset"), None), json!({"offset": 5})).is_empty(),
        "no limit"
    );
    assert!(split(&pages(Some("offset"), None), json!({"limit": "many"})).is_empty());
    assert!(
        split(
            &pages(Some("offset"), None),
            json!({"limit": u64::MAX, "offset": 1})
        )
        .is_empty()
    );
    let writing = Effects {
        read_only: false,
        repeatable: false,
        ..reading()
    };
    let overwriting = Effects {
        read_only: false,
        destructive: true,
        ..reading()
    };
    let adding = Effects {
        read_only: false,
        ..reading()
    };
    let half_year = object(json!({"after": "2024-01-01", "before": "2024-06-30"}));
    assert!(dates().plan(&half_year, &writing).is_none());
    assert!(dates().plan(&half_year, &overwriting).is_none());
    assert!(dates().plan(&half_year, &adding).is_some());
}

#[test]
fn lists_and_pages_are_split_in_place() {
    let parts = split(
        &list(),
        json!({"filter": {"ids": [1, 2, 3, 4, 5], "kind": "run"}}),
    );
    let ids = [json!([1, 2]), json!([3, 4]), json!([5])];
    assert_eq!(
        parts,
        ids.map(|ids| json!({"filter": {"ids": ids, "kind": "run"}}))
    );
    let parts = split(
        &pages(Some("offset"), None),
        json!({"limit": 250, "offset": 50}),
    );
    assert_eq!(
        parts,
        [(63, 50), (63, 113), (63, 176), (61, 239)]
            .map(|(limit, offset)| json!({"limit": limit, "offset": offset}))
    );
}

#[test]
fn numbered_pages_are_split_into_equal_ones_that_cover_the_same_results() {
    let parts = split(&pages(None, Some("page")), json!({"limit": 300, "page": 2}));
    assert_eq!(
        parts,
        [5, 6, 7, 8].map(|page| json!({"limit": 75, "page": page}))
    );
    let first = split(&pages(None, Some("page")), json!({"limit": 100}));
    assert_eq!(
        first,
        [1, 2, 3, 4].map(|page| json!({"limit": 25, "page": page}))
    );
}

#[test]
fn a_rule_out_of_its_bounds_is_reported_by_field() {
    assert!(dates().validate().is_empty());
    for (offset, page) in [(None, None), (Some("offset"), Some("page"))] {
        let odd = pages(offset, page);
        let fields: Vec<_> = odd.validate().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["offset"]);
    }
}

fn merged(replies: &[&str], sum: &[&str]) -> (Value, Vec<String>) {
    let reply = |text: &&str| crate::domain::tool::ToolReply {
        content: vec![crate::domain::tool::ToolContent::Text((*text).to_owned())],
        structured: Some((*text).to_owned()),
        sent: None,
    };
    let sum: Vec<String> = sum.iter().map(|it| (*it).to_owned()).collect();
    let merged = merge::merge(replies.iter().map(reply).collect(), &sum);
    (
        serde_json::from_str(merged.reply.structured.as_deref().unwrap()).unwrap(),
        merged.remarks,
    )
}

#[test]
fn results_are_merged_by_their_form() {
    let none: [String; 0] = [];
    assert_eq!(
        merged(&["[1,2]", "[]", "[3]"], &[]),
        (json!([1, 2, 3]), none.to_vec())
    );
    assert_eq!(
        merged(&[r#"{"result":[1]}"#, r#"{"result":[2]}"#], &[]).0,
        json!({"result": [1, 2]})
    );
    let parts = [
        r#"{"items":[1],"total":1,"unit":"km","page":1}"#,
        r#"{"items":[2],"total":1.5,"unit":"km","page":2}"#,
    ];
    let (value, remarks) = merged(&parts, &["/total"]);
    assert_eq!(value, json!({"items": [1, 2], "total": 2.5, "unit": "km"}));
    assert_eq!(
        remarks,
        ["left out because they differ between the parts: `/page`"]
    );
    assert_eq!(
        merged(&parts, &[]).0,
        json!({"items": [1, 2], "unit": "km"}),
        "no sum unless it is declared"
    );
    assert_eq!(
        merged(&[r#"{"result":4}"#, r#"{"result":5}"#], &["/result"]).0,
        json!({"result": 9})
    );
    let (value, remarks) = merged(&["1", "2"], &[]);
    assert_eq!(value, json!([1, 2]));
    assert_eq!(
        remarks,
        ["the results of the parts are listed one after the other"]
    );
    let texts = [r#"{"content":"a"}"#, r#"{"content":"b"}"#];
    assert_eq!(
        merged(&texts, &[]),
        (json!({"content": "a\nb"}), none.to_vec()),
        "a text that is the result is not left out"
    );
    let listed = [r#"{"items":[1],"next":"a"}"#, r#"{"items":[2],"next":"b"}"#];
    assert_eq!(merged(&listed, &[]).0, json!({"items": [1, 2]}));
    let apart = [r#"{"mean":1}"#, r#"{"mean":2}"#];
    assert_eq!(
        merged(&apart, &[]).0,
        json!([{"mean": 1}, {"mean": 2}]),
        "what cannot be put together is returned part by part"
    );
    let two = r#"{"a":[1],"b":[2]}"#;
    assert_eq!(
        merged(&[two, two], &[]).0,
        json!([{"a": [1], "b": [2]}, {"a": [1], "b": [2]}])
    );
}

#[test]
fn texts_that_are_not_the_data_once_more_are_joined() {
    let reply = |text: &str| crate::domain::tool::ToolReply {
        content: vec![crate::domain::tool::ToolContent::Text(text.to_owned())],
        structured: Some(json!({ "content": text }).to_string()),
        sent: None,
    };
    let merged = merge::merge(vec![reply("one"), reply("two")], &[]).reply;
    let text = crate::domain::tool::ToolContent::Text("one\ntwo".to_owned());
    assert_eq!(merged.content, [text]);
    assert_eq!(
        merged.structured.as_deref(),
        Some(r#"{"content":"one\ntwo"}"#)
    );
}

fn day(text: &str) -> jiff::civil::Date {
    text[..10].parse().unwrap()
}

proptest! {
    #[test]
    fn parts_of_dates_cover_every_day_once_and_so_do_their_halves(
        begin in 0_i64..20_000, days in 1_i64..2_000, halvings in 0_usize..8
    ) {
        use jiff::ToSpan;
        let from = jiff::civil::date(1980, 1, 1).checked_add(begin.days()).unwrap();
        let to = from.checked_add(days.days()).unwrap();
        let arguments = object(json!({"after": from.to_string(), "before": to.to_string()}));
        if let Some(plan) = dates().plan(&arguments, &reading()) {
            prop_assert!((2..=MAX_PARTS).contains(&plan.parts()));
            let mut parts = plan.parts;
            for at in 0..halvings {
                let at = (at * 7) % parts.len();
                let halves = parts[at].halves();
                if !halves.is_empty() {
                    parts.splice(at..=at, halves);
                }
            }
            let mut next = from;
            for part in &parts {
                let ChunkPart::Dates(range) = part else { panic!() };
                prop_assert_eq!(day(&range.first()), next);
                prop_assert!(day(&range.last()) >= next);
                next = day(&range.last()).tomorrow().unwrap();
            }
            prop_assert_eq!(next, to.tomorrow().unwrap());
        }
    }

    #[test]
    fn parts_of_times_meet_each_other_down_to_an_hour(begin in 0_i64..1_000_000_000, seconds in 2_i64..10_000_000) {
        use jiff::ToSpan;
        let from = jiff::civil::datetime(1990, 1, 1, 0, 0, 0, 0).checked_add(begin.seconds()).unwrap();
        let to = from.checked_add(seconds.seconds()).unwrap();
        let text = |at: jiff::civil::DateTime| format!("{at}Z");
        let range = DateRange::read(&text(from), &text(to), None).unwrap();
        let mut parts = vec![range];
        for _ in 0..6 {
            parts = parts.iter().flat_map(|part| {
                let halves = part.halves();
                if halves.is_empty() { vec![part.clone()] } else { halves }
            }).collect();
        }
        prop_assert_eq!(parts[0].first(), text(from));
        prop_assert_eq!(parts[parts.len() - 1].last(), text(to));
        for pair in parts.windows(2) {
            prop_assert_eq!(pair[0].last(), pair[1].first());
            prop_assert!(pair[0].first() < pair[0].last());
        }
    }

    #[test]
    fn parts_of_pages_cover_every_result_once_and_so_do_their_halves(
        page in 0_u64..50, limit in 1_u64..2_000, size in 1_u64..300, max in 2_usize..64,
        numbered in any::<bool>()
    ) {
        let whole = if numbered { Pages::from_page(page, limit) } else { Pages::from_offset(page, limit) }.unwrap();
        let parts: Vec<Pages> = whole.split(size, max).iter().flat_map(|part| {
            let halves = part.halves();
            if halves.is_empty() { vec![part.clone()] } else { halves }
        }).collect();
        prop_assert!(whole.split(size, max).len() <= max);
        let mut next = whole.start();
        for part in &parts {
            prop_assert_eq!(part.start(), next);
            prop_assert!(part.len() > 0 && (!numbered || part.start() % part.len() == 0));
            next += part.len();
        }
        prop_assert_eq!(next, whole.start() + limit);
    }

    #[test]
    fn parts_of_lists_hold_every_item_once_in_order(
        items in proptest::collection::vec(any::<i16>(), 2..300),
    ) {
        let parts = split(&list(), json!({"filter": {"ids": items}}));
        prop_assert!(parts.len() <= 4);
        let ids = |part: &Value| part["filter"]["ids"].as_array().unwrap().clone();
        let joined: Vec<Value> = parts.iter().flat_map(ids).collect();
        if !parts.is_empty() {
            prop_assert_eq!(Value::Array(joined), json!(items));
        }
    }

    #[test]
    fn no_text_as_a_date_panics(from in ".{0,30}", to in ".{0,30}") {
        let _ = DateRange::read(&from, &to, Some(true));
        let _ = DateRange::read(&format!("2024-01-01{from}"), &format!("2024-06-01{from}"), None);
    }
}
