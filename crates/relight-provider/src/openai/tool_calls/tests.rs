//! Tests of `tool_calls`, one for each guarantee.

use serde_json::{Value, json};

use super::*;

/// Returns the calls that fragments make: id, name, arguments.
fn calls_of(fragments: &[Value]) -> Result<Vec<(String, String, String)>, BadCall> {
    let mut calls = ToolCalls::default();
    let mut next_block = 0;
    let mut out = Vec::new();
    for fragment in fragments {
        calls.fragment(Fragment::of(fragment), &mut next_block, &mut out)?;
    }
    calls.seal(false, &mut next_block, &mut out)?;
    let mut made: Vec<(String, String, String)> = Vec::new();
    let mut stopped = 0;
    for delta in out {
        match delta {
            Delta::BlockStart {
                block,
                kind: BlockKind::ToolCall { id, name },
            } => {
                assert_eq!(block as usize, made.len());
                made.push((id, name, String::new()));
            }
            Delta::BlockDelta { block, text } => made[block as usize].2.push_str(&text),
            Delta::BlockStop { .. } => stopped += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stopped, made.len());
    Ok(made)
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

fn begin(index: u64, id: &str, name: &str) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

fn more(index: u64, arguments: &str) -> Value {
    json!({"index": index, "function": {"arguments": arguments}})
}

#[test]
fn parallel_calls_whose_fragments_interleave_are_told_apart_by_index() {
    let fragments = [
        begin(0, "a", "f"),
        begin(1, "b", "g"),
        more(1, "[1"),
        more(0, "{}"),
        more(1, ",2]"),
    ];
    assert_eq!(
        calls_of(&fragments).unwrap(),
        [call("a", "f", "{}"), call("b", "g", "[1,2]")]
    );
}

#[test]
fn a_new_id_at_the_same_index_begins_a_new_call() {
    let fragments = [
        begin(0, "a", "f"),
        more(0, "{\"x\":1}"),
        begin(0, "b", "f"),
        more(0, "{\"x\":2}"),
    ];
    assert_eq!(
        calls_of(&fragments).unwrap(),
        [call("a", "f", "{\"x\":1}"), call("b", "f", "{\"x\":2}")]
    );
}

#[test]
fn an_id_that_is_repeated_in_every_fragment_begins_nothing() {
    let again = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}});
    assert_eq!(
        calls_of(&[begin(0, "a", "f"), more(0, "{\"x\":"), again]).unwrap(),
        [call("a", "f", "{\"x\":1}")]
    );
}

#[test]
fn whole_calls_without_index_and_id_each_become_a_call() {
    let whole = |name: &str| json!({"function": {"name": name, "arguments": "{\"x\":1}"}});
    let made = calls_of(&[whole("f"), whole("g"), whole("f")]).unwrap();
    assert_eq!(
        made,
        [
            call("", "f", "{\"x\":1}"),
            call("", "g", "{\"x\":1}"),
            call("", "f", "{\"x\":1}")
        ]
    );
}

#[test]
fn fragments_without_index_go_on_with_the_last_call() {
    let first = json!({"id": "a", "function": {"name": "f", "arguments": "{\"x\""}});
    let rest = json!({"function": {"arguments": ":1}"}});
    let second = json!({"id": "b", "function": {"name": "g", "arguments": "{}"}});
    assert_eq!(
        calls_of(&[first, rest, second]).unwrap(),
        [call("a", "f", "{\"x\":1}"), call("b", "g", "{}")]
    );
}

#[test]
fn whole_calls_that_all_claim_index_0_with_empty_ids_are_told_apart() {
    let whole =
        |name: &str| json!({"index": 0, "id": "", "function": {"name": name, "arguments": "{}"}});
    assert_eq!(
        calls_of(&[whole("f"), whole("g")]).unwrap(),
        [call("", "f", "{}"), call("", "g", "{}")]
    );
}

#[test]
fn arguments_given_as_an_object_become_its_json() {
    let fragment =
        json!({"id": "a", "function": {"name": "f", "arguments": {"b": 1, "a": [true]}}});
    assert_eq!(
        calls_of(&[fragment]).unwrap(),
        [call("a", "f", "{\"b\":1,\"a\":[true]}")]
    );
}

#[test]
fn no_arguments_at_all_are_an_empty_object() {
    assert_eq!(
        calls_of(&[begin(0, "a", "f")]).unwrap(),
        [call("a", "f", "{}")]
    );
}

#[test]
fn arguments_that_come_before_the_name_are_not_lost() {
    let early = json!({"index": 0, "id": "a", "function": {"arguments": "{\"x\""}});
    let name = json!({"index": 0, "function": {"name": "f", "arguments": ":1}"}});
    assert_eq!(
        calls_of(&[early, name]).unwrap(),
        [call("a", "f", "{\"x\":1}")]
    );
}

#[test]
fn a_name_may_come_in_pieces_or_again_and_again_until_the_arguments_begin() {
    let piece = |name: &str| json!({"index": 0, "function": {"name": name, "arguments": ""}});
    for names in [
        &["get_", "weather"][..],
        &["g", "et", "_wea", "ther"],
        &["get_weather", "get_weather"],
        &["get_", "get_weather"],
        &["get_weather", ""],
    ] {
        let mut fragments = vec![begin(0, "a", names[0])];
        fragments.extend(names[1..].iter().map(|name| piece(name)));
        fragments.extend([more(0, "{\"x\":"), more(0, "1}"), begin(1, "b", "f")]);
        let expected = [call("a", "get_weather", "{\"x\":1}"), call("b", "f", "{}")];
        assert_eq!(calls_of(&fragments).unwrap(), expected, "{names:?}");
    }
}

#[test]
fn broken_arguments_name_the_tool_and_the_place() {
    let BadCall(words) = calls_of(&[begin(0, "a", "f"), more(0, "{\"x\":1,}")]).unwrap_err();
    assert_eq!(
        words,
        "tool call `f`: arguments are not JSON: key must be a string at line 1 column 8"
    );
}

#[test]
fn an_answer_cut_at_its_limit_leaves_a_broken_call_open_and_stops_the_whole_ones() {
    let mut calls = ToolCalls::default();
    let mut next_block = 0;
    let mut out = Vec::new();
    for fragment in [
        begin(0, "a", "f"),
        more(0, "{}"),
        begin(1, "b", "g"),
        more(1, "{\"x\""),
    ] {
        calls
            .fragment(Fragment::of(&fragment), &mut next_block, &mut out)
            .unwrap();
    }
    let before = out.len();
    calls.seal(true, &mut next_block, &mut out).unwrap();
    assert_eq!(
        out[before..],
        [Delta::BlockStop {
            block: 0,
            opaque: None
        }]
    );
}

#[test]
fn a_flood_of_calls_is_refused() {
    let flood: Vec<Value> = (0..200)
        .map(|index| begin(index, &format!("id{index}"), "f"))
        .collect();
    assert!(calls_of(&flood).is_err());
}
