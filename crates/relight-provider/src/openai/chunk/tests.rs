//! Tests of `chunk`: a chunk parsed in place has the same content as one that is parsed as a tree.

use serde_json::json;

use super::*;
use crate::openai::inband;

/// Chunks as servers write them, and as they should not.
fn chunks() -> Vec<Value> {
    let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"a\""}});
    let deltas = [
        json!({}),
        json!({"role": "assistant", "content": ""}),
        json!({"content": "plain"}),
        json!({"content": "a \"quoted\" line\nand \u{1F600}"}),
        json!({"content": null, "refusal": "no"}),
        json!({"content": 5}),
        json!({"content": [{"type": "text", "text": "a"}, {"thinking": [{"text": "b"}]}]}),
        json!({"reasoning_content": "hm", "reasoning": "hm"}),
        json!({"reasoning_content": null, "reasoning": "hm"}),
        json!({"reasoning_content": "", "reasoning": "hm"}),
        json!({"reasoning_content": {"deep": true}, "reasoning": "hm"}),
        json!({"tool_calls": [call]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}]}),
        json!({"tool_calls": [{"name": "f", "arguments": "{}"}]}),
        json!({"tool_calls": [{"id": "c", "custom": {"name": "f", "input": "x"}}]}),
        json!({"tool_calls": "none"}),
        json!({"tool_calls": null, "function_call": {"name": "f", "arguments": "{}"}}),
        json!("no object"),
        json!(null),
    ];
    let choices = deltas.iter().flat_map(|delta| {
        [
            json!({"index": 0, "delta": delta, "finish_reason": null}),
            json!({"message": delta, "finish_reason": "stop"}),
        ]
    });
    let mut choices: Vec<Value> = choices.map(|choice| json!([choice])).collect();
    choices.extend([
        json!([]),
        json!(null),
        json!({}),
        json!([{"index": 1, "delta": {"content": "second"}, "finish_reason": "length"}, {"index": "x", "delta": {}}]),
        json!([{"delta": {}, "finish_reason": "error"}]),
        json!([{"delta": {}, "error": {"code": 502}}]),
        json!([{"delta": {}, "error": null}]),
        json!([5]),
    ]);
    let frames = [
        json!({"id": "c-1", "object": "chat.completion.chunk", "model": "m", "created": 5, "system_fingerprint": null}),
        json!({"id": "", "model": null, "usage": null}),
        json!({"id": 7, "usage": {"prompt_tokens": 3}}),
        json!({"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details":
            {"cached_tokens": 1, "cache_write_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
        json!({"usage": {"prompt_tokens": 3, "prompt_cache_hit_tokens": 2, "prompt_tokens_details": null}}),
        json!({"usage": {"prompt_tokens": 3.5}, "x_groq": {"id": "r"}}),
        json!({"usage": {"total_tokens": 3}}),
        json!({"x_groq": {"usage": {"prompt_tokens": 1}}}),
        json!({"object": "error"}),
        json!({"type": "error"}),
        json!({"error": {"message": "m"}}),
        json!({"error": ""}),
    ];
    let with = |(frame, choices): (&Value, &Value)| {
        let mut chunk = frame.clone();
        chunk["choices"] = choices.clone();
        chunk
    };
    let all = frames
        .iter()
        .flat_map(|frame| choices.iter().map(move |choices| (frame, choices)));
    all.map(with)
        .chain(frames.iter().cloned())
        .chain([json!([]), json!("text"), json!(null)])
        .collect()
}

#[test]
fn a_chunk_that_is_read_where_it_lies_says_what_it_says_when_it_is_parsed_whole() {
    let mut usual = 0;
    let all = chunks();
    for value in &all {
        let text = value.to_string();
        let Some(chunk) = Chunk::usual(&text) else {
            continue;
        };
        usual += 1;
        assert!(!inband::is_error("", value), "{text}");
        assert_eq!(Some(chunk), Chunk::of(value), "{text}");
    }
    assert!(usual > 50, "{usual} of {}", all.len());
}

#[test]
fn the_usual_chunks_need_no_tree() {
    for text in [
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#,
    ] {
        assert!(Chunk::usual(text).is_some(), "{text}");
    }
    let twice = r#"{"choices":[],"id":"a","id":"b"}"#;
    assert_eq!(
        Chunk::usual(twice),
        None,
        "which of the two counts is the tree's to say"
    );
    let borrowed = r#"{"choices":[{"delta":{"content":"plain"}}]}"#;
    let chunk = Chunk::usual(borrowed).unwrap();
    assert!(
        matches!(
            &chunk.choices[0].piece,
            Some(Piece {
                content: Cow::Borrowed("plain"),
                ..
            })
        ),
        "{chunk:?}"
    );
}
