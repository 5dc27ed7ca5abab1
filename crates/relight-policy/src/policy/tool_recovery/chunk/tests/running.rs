//! A split call from its first part to its one result.

use super::{super::*, dates, list, object, pages, reading};
use crate::domain::{
    failure::FailureClass,
    tool::{ToolContent, ToolOutput, ToolReply},
};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

fn half_year() -> ChunkRun {
    let arguments = object(json!({"after": "2024-01-01", "before": "2024-06-30"}));
    ChunkRun::new(dates().plan(&arguments, &reading()).unwrap())
}

fn reply(value: &Value) -> ToolReply {
    ToolReply {
        content: vec![ToolContent::Text(value.to_string())],
        structured: Some(value.to_string()),
        sent: None,
    }
}

fn failed(class: FailureClass, retryable: bool) -> Failure {
    Failure {
        retryable,
        never_sent: false,
        ..Failure::local(class, "")
    }
}

/// Runs it to its end; `answer` is what the tool does with the arguments of a part.
fn run(
    mut run: ChunkRun,
    mut answer: impl FnMut(&Arguments) -> Result<ToolReply, Failure>,
) -> Result<ToolOutput, Option<Failure>> {
    while !run.is_over() {
        let tasks = run.start_next();
        for task in tasks {
            match answer(&task.arguments) {
                Ok(reply) => run.succeed(&task.number, reply),
                Err(failure) => run.fail(&task.number, &failure),
            }
        }
    }
    run.finish("get_activities")
}

#[test]
fn six_months_are_called_three_at_a_time_and_merged_in_their_order() {
    let mut run = half_year();
    let first: Vec<ChunkTask> = run.start_next();
    assert_eq!(first.len(), 3);
    assert!(run.start_next().is_empty(), "no more at once");
    for task in first.iter().rev() {
        run.succeed(&task.number, reply(&json!({"result": [task.label]})));
    }
    let rest = run.start_next();
    assert_eq!(rest.len(), 3);
    for task in &rest {
        run.succeed(&task.number, reply(&json!({"result": [task.label]})));
    }
    assert!(run.is_over() && run.calls() == 6);
    let output = run.finish("get_activities").unwrap();
    let months = ["01-31", "02-29", "03-31", "04-30", "05-31", "06-30"];
    let labels: Vec<String> = months
        .iter()
        .map(|end| format!("2024-{}-01..2024-{end}", &end[..2]))
        .collect();
    assert_eq!(
        output.reply.structured,
        Some(json!({"result": labels}).to_string())
    );
    let coverage = output.coverage.unwrap();
    assert_eq!(
        (coverage.done, coverage.total, coverage.missing.len()),
        (6, 6, 0)
    );
    assert_eq!(
        output.reasoning,
        "the range from `after` to `before` was split into 6 parts; 6 of 6 were done"
    );
    let sent: Vec<Value> = serde_json::from_str(&output.arguments.unwrap()).unwrap();
    assert_eq!(
        sent[1],
        json!({"after": "2024-02-01", "before": "2024-02-29"})
    );
}

#[test]
fn a_part_that_stays_missing_is_named_and_the_result_is_not_complete() {
    let output = run(half_year(), |arguments| {
        let is_march = arguments["after"].as_str().unwrap().starts_with("2024-03");
        if is_march {
            Err(failed(FailureClass::ServerError, true))
        } else {
            Ok(reply(&json!([1])))
        }
    })
    .unwrap();
    let coverage = output.coverage.unwrap();
    assert_eq!((coverage.done, coverage.total), (5, 6));
    assert_eq!(coverage.missing, ["2024-03-01..2024-03-31"]);
    assert!(
        output
            .reasoning
            .contains("the result is incomplete, missing: 2024-03-01..2024-03-31")
    );
    assert_eq!(output.reply.structured.as_deref(), Some("[1,1,1,1,1]"));
}

#[test]
fn a_part_that_is_called_again_is_waited_for_as_its_failure_states() {
    use crate::domain::failure::WaitSource;

    let mut run = half_year();
    let failure = failed(FailureClass::RateLimited, true);
    let first = run.start_next();
    assert!(first.iter().all(|task| task.wait.is_zero()));
    let stated = |seconds| {
        failure
            .clone()
            .with_retry_after(Duration::from_secs(seconds), WaitSource::RetryAfter)
    };
    run.fail(&first[0].number, &failure);
    run.fail(&first[1].number, &stated(2));
    run.fail(&first[2].number, &stated(60));
    let waits: Vec<_> = run
        .start_next()
        .iter()
        .map(|task| task.wait.as_millis())
        .collect();
    assert_eq!(
        waits,
        [500, 2_000, 0],
        "the third one is missing, and the next one begins"
    );
}

#[test]
fn a_part_that_is_too_slow_is_halved_down_to_a_day() {
    let mut calls = 0;
    let output = run(half_year(), |arguments| {
        calls += 1;
        let from = arguments["after"].as_str().unwrap();
        let to = arguments["before"].as_str().unwrap();
        // One bad day, and nothing that spans it works.
        let holds_it = from <= "2024-03-10" && "2024-03-10" <= to;
        if holds_it {
            Err(failed(FailureClass::Timeout, true))
        } else {
            Ok(reply(&json!([from])))
        }
    })
    .unwrap();
    let coverage = output.coverage.unwrap();
    assert_eq!(coverage.missing, ["2024-03-10..2024-03-10"]);
    assert_eq!(coverage.done + 1, coverage.total);
    assert!(calls <= 32, "{calls}");
}

#[test]
fn it_ends_within_its_calls_and_says_so() {
    let arguments = object(json!({"filter": {"ids": (0..400).collect::<Vec<_>>()}}));
    let mut calls = 0;
    let output = run(
        ChunkRun::new(list().plan(&arguments, &reading()).unwrap()),
        |_| {
            calls += 1;
            if calls == 1 {
                Ok(reply(&json!([1])))
            } else {
                Err(failed(FailureClass::ContextLength, false))
            }
        },
    )
    .unwrap();
    assert_eq!(calls, 32);
    let coverage = output.coverage.unwrap();
    assert!(
        coverage.done == 1 && coverage.missing.len() == (coverage.total - 1) as usize,
        "{coverage:?}"
    );
    assert!(
        output.reasoning.contains("no more calls are allowed"),
        "{}",
        output.reasoning
    );
}

#[test]
fn a_refusal_of_one_part_ends_all_and_without_any_result_it_is_the_failure() {
    let mut calls = 0;
    let failure = run(half_year(), |_| {
        calls += 1;
        Err(failed(FailureClass::PermissionDenied, false))
    })
    .unwrap_err();
    assert_eq!(failure.unwrap().class, FailureClass::PermissionDenied);
    assert_eq!(calls, 3, "those that were in flight");
}

#[test]
fn it_is_stopped_when_its_time_is_up_and_keeps_what_was_done() {
    let mut run = half_year();
    let tasks = run.start_next();
    run.succeed(&tasks[0].number, reply(&json!([1])));
    run.stop("the time is up");
    assert!(run.start_next().is_empty() && !run.is_over());
    run.succeed(&tasks[1].number, reply(&json!([2])));
    run.fail(&tasks[2].number, &failed(FailureClass::Timeout, true));
    assert!(run.is_over());
    run.succeed(&tasks[2].number, reply(&json!(["late"])));
    let output = run.finish("t").unwrap();
    assert_eq!(output.reply.structured.as_deref(), Some("[1,2]"));
    assert!(
        output.reasoning.ends_with("the time is up"),
        "{}",
        output.reasoning
    );
}

#[test]
fn texts_and_other_content_keep_their_order() {
    let text = |text: &str| ToolReply {
        content: vec![ToolContent::Text(text.to_owned())],
        structured: None,
        sent: None,
    };
    let answers = [text("a"), text("b"), text("c")];
    let arguments = object(json!({"limit": 3}));
    let plan = || {
        pages(Some("offset"), None)
            .plan(&arguments, &reading())
            .unwrap()
    };
    let mut left = answers.iter();
    let output = run(ChunkRun::new(plan()), |_| Ok(left.next().unwrap().clone())).unwrap();
    assert_eq!(
        output.reply.content,
        [ToolContent::Text("a\nb\nc".to_owned())]
    );
    let lists = [text("[1]"), text("[2,3]"), text("[]")];
    let mut left = lists.iter();
    let output = run(ChunkRun::new(plan()), |_| Ok(left.next().unwrap().clone())).unwrap();
    assert_eq!(
        output.reply.content,
        [ToolContent::Text("[1,2,3]".to_owned())]
    );
    // One text for each item, as servers send lists.
    let several = |texts: &[&str]| ToolReply {
        content: texts
            .iter()
            .map(|text| ToolContent::Text((*text).to_owned()))
            .collect(),
        structured: None,
        sent: None,
    };
    let items = [
        several(&["{\"id\":1}", "{\"id\":2}"]),
        several(&[]),
        several(&["{\"id\":3}"]),
    ];
    let mut left = items.iter();
    let output = run(ChunkRun::new(plan()), |_| Ok(left.next().unwrap().clone())).unwrap();
    assert_eq!(
        output.reply,
        several(&["{\"id\":1}", "{\"id\":2}", "{\"id\":3}"])
    );
}

proptest! {
    #[test]
    fn whatever_fails_each_part_is_done_or_missing_and_no_item_is_there_twice(
        count in 2_usize..200, outcomes in proptest::collection::vec(0_u8..6, 1..60)
    ) {
        let items: Vec<usize> = (0..count).collect();
        let arguments = object(json!({"filter": {"ids": items}}));
        let Some(plan) = list().plan(&arguments, &reading()) else { return Ok(()) };
        let mut outcomes = outcomes.iter().cycle();
        let mut calls = 0;
        let end = run(ChunkRun::new(plan), |arguments| {
            calls += 1;
            match outcomes.next() {
                Some(0) => Err(failed(FailureClass::Timeout, true)),
                Some(1) => Err(failed(FailureClass::ServerError, true)),
                Some(2) => Err(failed(FailureClass::ServerError, false)),
                _ => Ok(reply(&arguments["filter"]["ids"])),
            }
        });
        prop_assert!(calls <= 32);
        if let Ok(output) = end {
            let coverage = output.coverage.unwrap();
            prop_assert_eq!(coverage.total as usize, coverage.done as usize + coverage.missing.len());
            let merged: Vec<usize> = serde_json::from_str(&output.reply.structured.unwrap()).unwrap();
            prop_assert!(merged.is_sorted_by(|left, right| left < right), "{:?}", merged);
            prop_assert_eq!(merged.len() == count, coverage.missing.is_empty());
            prop_assert_eq!(output.reasoning.contains("incomplete"), !coverage.missing.is_empty());
        }
    }
}
