//! `relight classify` as a filter of lines, and with the rules of a configuration.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::binary::{relight, run, run_with};

/// Longest time that one line may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A failure by its name, as a line.
fn failure(id: &str) -> String {
    format!("{{\"id\": \"{id}\", \"status\": 401, \"message\": \"Incorrect API key provided\"}}\n")
}

#[tokio::test]
async fn each_line_is_judged_as_it_arrives_and_a_wrong_one_does_not_discard_the_others() {
    for arguments in [&["classify", "--jsonl"][..], &["classify"]] {
        let mut child = relight(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
        for id in ["a", "b", "c"] {
            input.write_all(failure(id).as_bytes()).await.unwrap();
            let line = tokio::time::timeout(PATIENCE, out.next_line())
                .await
                .expect("it waits for more lines");
            let verdict: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
            assert_eq!(
                (&verdict["id"], &verdict["class"]),
                (&id.into(), &"authentication".into())
            );
        }
        // An empty line is none.
        input
            .write_all(b"\nnot json\n{\"status\": 500}\n")
            .await
            .unwrap();
        for expected in [
            "relight: standard input: line 5: ",
            "relight: standard input: line 6: ",
        ] {
            let line = tokio::time::timeout(PATIENCE, err.next_line())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            assert!(line.starts_with(expected), "{line}");
        }
        input.write_all(failure("d").as_bytes()).await.unwrap();
        let line = tokio::time::timeout(PATIENCE, out.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(line.contains("\"id\":\"d\""), "{line}");
        drop(input);
        let ended = tokio::time::timeout(PATIENCE, child.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(ended.code(), Some(1), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_closed_output_ends_the_filter_while_its_input_is_open() {
    let mut child = relight(&["classify", "--jsonl"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    drop(child.stdout.take());
    input.write_all(failure("a").as_bytes()).await.unwrap();
    // Its input stays open.
    let ended = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .expect("it waits for more lines")
        .unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn a_rule_of_a_configuration_is_tried_before_those_that_are_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, rule: &str| {
        let file = folder.path().join(name);
        let stage = "providers: { stage: { dialect: scripted } }\ntargets: { one: { provider: stage, model: m } }\n";
        std::fs::write(&file, format!("{stage}classifier: {{ rules: [{rule}] }}\n")).unwrap();
        file.display().to_string()
    };
    let rule =
        "{ name: house, class: quota_exceeded, when: { message: house limit }, retry_after: 90s }";
    let config = written("relight.yaml", rule);
    let call = [
        "classify",
        "--status",
        "429",
        "--output",
        "json",
        "Rate limit: the house limit",
    ];
    let verdict = async |arguments: &[&str]| {
        let ran = run(arguments).await;
        serde_json::from_str::<Value>(&ran.out)
            .unwrap_or_else(|_| panic!("{arguments:?}: {}", ran.err))
    };
    assert_eq!(verdict(&call).await["class"], "rate_limited");
    let by_rule = verdict(&[&call[..], &["--config", &config]].concat()).await;
    assert_eq!(
        (&by_rule["class"], &by_rule["rule"]),
        (&"quota_exceeded".into(), &"user:house".into())
    );
    assert_eq!(by_rule["retry_after_ms"], 90_000);

    let line = "{\"id\": \"a\", \"status\": 429, \"message\": \"the house limit\"}\n";
    let ran = run_with(&["classify", "--jsonl", "--config", &config], line).await;
    assert!(
        ran.code == Some(0) && ran.out.contains("\"rule\":\"user:house\""),
        "{}{}",
        ran.out,
        ran.err
    );

    let wrong = written(
        "wrong.yaml",
        "{ name: house, class: quota_exceeded, when: { message: '(' } }",
    );
    let ran = run(&["classify", "--config", &wrong, "the house limit"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(
        ran.err.contains("classifier.rules[0].when.message"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn the_rules_that_would_hold_besides_the_deciding_one_are_listed_on_demand() {
    let text = "insufficient_quota: rate limit exceeded, the connection was closed";
    let ran = run(&["classify", "--explain", "--status", "500", text]).await;
    assert!(ran.out.contains("quota_exceeded"), "{}", ran.out);
    let others: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.contains("would hold too"))
        .collect();
    for class in ["rate_limited", "network"] {
        let named = others
            .iter()
            .any(|line| line.contains(&format!("({class})")));
        assert!(named, "{class}: {}", ran.out);
    }
    let ran = run(&[
        "classify",
        "--explain",
        "--output",
        "json",
        "--status",
        "500",
        text,
    ])
    .await;
    let verdict: Value = serde_json::from_str(&ran.out).unwrap();
    let rules = verdict["would_hold_too"].as_array().unwrap();
    assert_eq!(rules.len(), others.len());
    assert!(
        rules.iter().all(|one| one["rule"] != verdict["rule"]),
        "{verdict}"
    );
    let ran = run(&["classify", "--explain", "xyz"]).await;
    assert!(ran.out.contains("no other rule"), "{}", ran.out);
}

#[tokio::test]
async fn a_label_that_cannot_be_read_is_named_and_not_left_out_of_the_score() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("labelled.jsonl");
    let right = r#"{"id":"a","message":"rate limited","class":"rate_limited","also_ok":null,"retryable_same_target":true,"fallback_helps":true}"#;
    let misspelt = right.replace("\"rate_limited\"", "\"ratelimited\"");
    let without_retry = right.replace("\"retryable_same_target\":true,", "");
    for (second, reason) in [
        (misspelt, "line 2: unknown variant `ratelimited`"),
        (
            without_retry,
            "line 2: missing field `retryable_same_target`",
        ),
    ] {
        std::fs::write(&file, format!("{right}\n{second}\n")).unwrap();
        let ran = run(&["classify", "--score", file.to_str().unwrap()]).await;
        assert_ne!(ran.code, Some(0));
        assert!(ran.err.contains(reason), "{}", ran.err);
        // What is only judged may have a `class` of any meaning.
        let ran = run_with(&["classify", "--jsonl"], &format!("{second}\n")).await;
        assert!(ran.out.contains("rate_limited"), "{}{}", ran.out, ran.err);
    }
    std::fs::write(&file, right).unwrap();
    let ran = run(&["classify", "--score", file.to_str().unwrap()]).await;
    assert!(ran.out.contains("1 of    1"), "{}{}", ran.out, ran.err);
}
