//! Tests of the usability of completions.

use proptest::prelude::*;

use super::*;
use crate::domain::message::ToolDefinition;

fn call() -> ModelCall {
    let tool = ToolDefinition {
        name: "search".into(),
        description: String::new(),
        parameters:
            r#"{"type":"object","required":["date"],"properties":{"date":{"type":"string"}}}"#
                .into(),
        ..ToolDefinition::default()
    };
    ModelCall {
        tools: vec![tool],
        ..ModelCall::default()
    }
}

fn verdict(
    call: &ModelCall,
    kind: BlockKind,
    text: &str,
    reason: FinishReason,
) -> Result<(), Finding> {
    let mut check = AnswerCheck::new(Arc::new(call.clone()));
    check.see(&Delta::BlockStart { block: 0, kind });
    check.see(&Delta::BlockDelta {
        block: 0,
        text: text.to_owned(),
    });
    check.see(&Delta::Finish {
        reason,
        raw: String::new(),
    });
    check
        .verdict()
        .map(|_| ())
        .map_err(|unusable| unusable.finding)
}

fn tool(name: &str) -> BlockKind {
    BlockKind::ToolCall {
        id: "c1".into(),
        name: name.into(),
    }
}

#[test]
fn an_answer_with_text_is_usable_and_an_empty_one_is_not() {
    let call = ModelCall::default();
    assert_eq!(
        verdict(&call, BlockKind::Text, "hello", FinishReason::Stop),
        Ok(())
    );
    assert_eq!(
        verdict(&call, BlockKind::Text, " \n", FinishReason::Stop),
        Err(Finding::Empty)
    );
    assert_eq!(
        verdict(&call, BlockKind::Text, "", FinishReason::Length),
        Err(Finding::OutputLimit)
    );
    assert_eq!(
        verdict(&call, BlockKind::Text, "", FinishReason::ContentFilter),
        Ok(())
    );
}

#[test]
fn an_answer_that_a_stop_sequence_ended_at_once_may_be_empty() {
    for (stops, raw, is_usable) in [
        (&["END"][..], "stop", true),
        (&["END"], "stop_sequence", true),
        (&["END"], "STOP", true),
        (&["END"], "end_turn", false),
        (&[], "stop", false),
    ] {
        let stop = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut check = AnswerCheck::new(Arc::new(ModelCall {
            stop,
            ..ModelCall::default()
        }));
        check.see(&Delta::Finish {
            reason: FinishReason::Stop,
            raw: raw.to_owned(),
        });
        assert_eq!(check.verdict().is_ok(), is_usable, "{stops:?} {raw}");
    }
}

#[test]
fn a_tool_call_must_name_a_tool_and_fit_its_schema() {
    let call = call();
    let stop = FinishReason::ToolCalls;
    assert_eq!(
        verdict(&call, tool("search"), r#"{"date":"2026-01-01"}"#, stop),
        Ok(())
    );
    let unknown = Finding::UnknownTool {
        tool: "find".into(),
    };
    assert_eq!(verdict(&call, tool("find"), "{}", stop), Err(unknown));
    let broken = Finding::ToolArgumentsNotJson {
        tool: "search".into(),
        line: 1,
        column: 8,
    };
    assert_eq!(
        verdict(&call, tool("search"), r#"{"date":"#, stop),
        Err(broken)
    );
    assert!(matches!(
        verdict(&call, tool("search"), r#"{"date":5}"#, stop),
        Err(Finding::ToolArguments { mismatch: Mismatch { path, keyword, .. }, .. })
            if path == "/date" && keyword == "type"
    ));
}

#[test]
fn a_structured_answer_must_be_json_of_the_requested_shape() {
    let schema = r#"{"type":"object","required":["name"]}"#.to_owned();
    let format = ResponseFormat::JsonSchema {
        name: "n".into(),
        description: None,
        schema,
        strict: true,
    };
    let call = ModelCall {
        response_format: format,
        ..ModelCall::default()
    };
    assert_eq!(
        verdict(
            &call,
            BlockKind::Text,
            r#"{"name":"x"}"#,
            FinishReason::Stop
        ),
        Ok(())
    );
    assert!(matches!(
        verdict(&call, BlockKind::Text, "{}", FinishReason::Stop),
        Err(Finding::Schema(_))
    ));
    assert!(matches!(
        verdict(&call, BlockKind::Text, "name: x", FinishReason::Stop),
        Err(Finding::NotJson { .. })
    ));
    let cut = verdict(&call, BlockKind::Text, r#"{"name":"#, FinishReason::Length);
    assert_eq!(cut, Err(Finding::OutputLimit));
}

#[test]
fn an_answer_that_the_callers_own_limit_cut_is_usable() {
    let limited = |format| ModelCall {
        max_output_tokens: Some(16),
        response_format: format,
        ..ModelCall::default()
    };
    let text = limited(ResponseFormat::Text);
    assert_eq!(
        verdict(&text, BlockKind::Reasoning, "hm", FinishReason::Length),
        Ok(())
    );
    assert_eq!(
        verdict(&text, BlockKind::Text, "", FinishReason::Stop),
        Err(Finding::Empty)
    );
    let json = limited(ResponseFormat::JsonObject);
    assert_eq!(
        verdict(&json, BlockKind::Text, r#"{"name":"#, FinishReason::Length),
        Ok(())
    );
    let cut = r#"{"date":"#;
    assert_eq!(
        verdict(&call(), tool("search"), cut, FinishReason::Length),
        Err(Finding::OutputLimit)
    );
    let tools = ModelCall {
        max_output_tokens: Some(16),
        ..call()
    };
    assert_eq!(
        verdict(&tools, tool("search"), cut, FinishReason::Length),
        Ok(())
    );
}

#[test]
fn only_text_for_the_reader_makes_an_answer_that_is_not_empty() {
    let call = ModelCall::default();
    assert_eq!(
        verdict(&call, BlockKind::Reasoning, "hm", FinishReason::Stop),
        Err(Finding::Empty)
    );
    assert_eq!(
        verdict(&call, BlockKind::Refusal, "no", FinishReason::Stop),
        Ok(())
    );
}

#[test]
fn text_that_is_not_read_is_not_kept() {
    let kept = |format: ResponseFormat, kind: BlockKind| {
        let call = ModelCall {
            response_format: format,
            ..ModelCall::default()
        };
        let mut check = AnswerCheck::new(Arc::new(call));
        check.see(&Delta::BlockStart { block: 0, kind });
        check.see(&Delta::BlockDelta {
            block: 0,
            text: "word".to_owned(),
        });
        check
            .blocks
            .values()
            .map(|block| block.text.len())
            .sum::<usize>()
    };
    assert_eq!(kept(ResponseFormat::Text, BlockKind::Text), 0);
    assert_eq!(kept(ResponseFormat::JsonObject, BlockKind::Text), 4);
    assert_eq!(kept(ResponseFormat::JsonObject, BlockKind::Reasoning), 0);
    assert_eq!(kept(ResponseFormat::Text, tool("search")), 4);
}

proptest! {
    /// In whichever pieces a plain text comes, and in however many blocks: it is empty where all of
    /// it is blank.
    #[test]
    fn a_plain_answer_is_empty_where_all_its_pieces_are_blank(
        blocks in prop::collection::vec(prop::collection::vec("[ \n\u{a0}\u{200b}a]{0,3}", 0..4), 0..4),
    ) {
        let mut check = AnswerCheck::new(Arc::new(ModelCall::default()));
        for (block, pieces) in (0..).zip(&blocks) {
            check.see(&Delta::BlockStart { block, kind: BlockKind::Text });
            for text in pieces.clone() {
                check.see(&Delta::BlockDelta { block, text });
            }
        }
        check.see(&Delta::Finish { reason: FinishReason::Stop, raw: String::new() });
        let text = blocks.concat().concat();
        prop_assert_eq!(check.verdict().is_err(), text.trim().is_empty());
    }
}
