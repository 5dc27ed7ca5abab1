//! What a provider's words mean decides over its status, and people read them decoded; the
//! classifier stays small.

use std::{fs, path::Path};

use relight::internals::grpc::v1::{
    ClassifyFailureRequest, FailureClass, invoke_with_recovery_response::Outcome,
};

use crate::support::{
    binary::run,
    relight::Relight,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Most lines of the classifier without its tests.
const MAX_LINES: usize = 2500;

fn failing(status: u16, message: &str) -> Reply {
    let body = serde_json::json!({ "error": { "message": message } }).to_string();
    // As Python writes it: nothing but ASCII.
    let units = |c: char| {
        c.encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect()
    };
    let body: String = body
        .chars()
        .map(|c| {
            if c.is_ascii() {
                c.to_string()
            } else {
                units(c)
            }
        })
        .collect();
    Reply::body(
        status,
        &[("content-type", "application/json")],
        body.as_bytes(),
    )
}

#[tokio::test]
async fn a_sidecar_that_was_not_started_is_not_retried_whatever_the_status() {
    for status in [500, 502, 503] {
        let upstream = Upstream::start().await;
        upstream.otherwise(failing(status, "Sidecar not started"));
        let relight = Relight::start(&one_target(&upstream)).await;
        let response = relight.ask("Hello").await;
        let Some(Outcome::Failure(failure)) = response.outcome else {
            panic!("{response:?}")
        };
        assert_eq!(
            (failure.failure_class(), failure.retryable),
            (FailureClass::Configuration, false),
            "{status}"
        );
        assert_eq!(upstream.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_unknown_failure_is_retryable_and_a_bare_crash_is_a_crash() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    for (message, class, retryable) in [
        ("an odd thing happened xyz", FailureClass::Unknown, true),
        ("crashed", FailureClass::Crash, false),
        ("worker crashed", FailureClass::Crash, false),
    ] {
        let request = ClassifyFailureRequest {
            message: Some(message.to_owned()),
            ..ClassifyFailureRequest::default()
        };
        let verdict = relight
            .recovery()
            .classify_failure(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (verdict.failure_class(), verdict.retryable_same_target),
            (class, retryable),
            "{message}"
        );
    }
}

#[tokio::test]
async fn the_message_of_a_provider_is_shown_without_escapes() {
    for text in [
        "He said \"no\" — naïve",
        "モデルが見つかりません",
        "Ошибка сервера",
        "done 😀",
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(failing(400, text));
        let relight = Relight::start(&one_target(&upstream)).await;
        let response = relight.ask("Hello").await;
        let Some(Outcome::Failure(failure)) = response.outcome else {
            panic!("{response:?}")
        };
        assert_eq!(failure.message, text);
        assert_eq!(response.attempts[0].message, text);
        let address = format!("http://{}", relight.running.address);
        let ran = run(&["invoke", "--address", &address, "Hello"]).await;
        assert!(
            ran.code != Some(0) && ran.err.contains(text),
            "{text}: {} {}",
            ran.out,
            ran.err
        );
    }
}

#[test]
fn the_classifier_is_no_longer_than_it_may_be() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/relight-policy/src/policy");
    let (mut lines, mut folders, mut files) = (
        0,
        vec![root.join("classify")],
        vec![root.join("classify.rs")],
    );
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_stem().and_then(|name| name.to_str()) {
                Some("tests") => {}
                _ if path.is_dir() => folders.push(path),
                _ => files.push(path),
            }
        }
    }
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        lines += text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
            .lines()
            .count();
    }
    println!("policy/classify: {lines} lines without tests");
    assert!(lines <= MAX_LINES, "{lines} lines");
}
