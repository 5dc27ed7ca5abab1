//! The classifier's guarantees, on fixtures written from documented shapes.

use std::{collections::HashSet, time::Duration};

use super::*;
use crate::{domain::failure::WaitSource, policy::corpus};

mod catch_all;
mod readings;
mod refusals;
mod rules;
mod samples;
mod server_failures;
mod tool_words;
mod unseen;
mod waits;

/// Shapes that providers, gateways, proxies, clients and tools document.
const DOCUMENTED: &str = include_str!("../../../tests/fixtures/classify/documented.jsonl");
/// The same meanings in the wording of clients and wrappers.
const WORDED: &str = include_str!("../../../tests/fixtures/classify/worded.jsonl");
/// Documented codes in bodies without other text.
const CODES: &str = include_str!("../../../tests/fixtures/classify/codes.jsonl");

fn http(status: u16, body: &str) -> ProviderError {
    ProviderError {
        status: Some(status),
        body: Some(body.to_owned()),
        ..ProviderError::default()
    }
}

fn error_text(surface: Surface, message: &str) -> ProviderError {
    ProviderError {
        surface,
        message: Some(message.to_owned()),
        ..ProviderError::default()
    }
}

fn judge(error: &ProviderError) -> Failure {
    Classifier::new().classify(error, Timestamp::UNIX_EPOCH)
}

#[test]
fn documented_shapes_are_read_as_documented() {
    let items = corpus::read(DOCUMENTED).unwrap();
    let score = corpus::score(&Classifier::new(), &items);
    assert!(
        score.strict.percent() >= 97.0 && score.retryable.percent() >= 98.0,
        "{score}\n{:#?}",
        score.misses
    );
    assert!(
        score.lenient.percent() >= 98.0 && score.fallback.percent() >= 98.0,
        "{score}\n{:#?}",
        score.misses
    );
    assert_eq!(score.waits.right, score.waits.total, "{:#?}", score.misses);
}

#[test]
fn each_fixture_is_decided_by_the_rule_that_it_names() {
    for fixtures in [DOCUMENTED, WORDED, CODES] {
        let score = corpus::score(&Classifier::new(), &corpus::read(fixtures).unwrap());
        assert_eq!(score.rules.total, score.items, "each names its rule");
        assert_eq!(score.rules.right, score.items, "{:#?}", score.misses);
    }
}

#[test]
fn the_words_of_clients_and_wrappers_are_understood() {
    let items = corpus::read(WORDED).unwrap();
    let score = corpus::score(&Classifier::new(), &items);
    assert!(
        score.strict.percent() >= 99.0 && score.lenient.percent() >= 99.0,
        "{score}\n{:#?}",
        score.misses
    );
    assert!(
        score.retryable.percent() >= 99.5 && score.fallback.percent() >= 99.5,
        "{score}\n{:#?}",
        score.misses
    );
    assert_eq!(score.waits.right, score.waits.total, "{:#?}", score.misses);
}

#[test]
fn a_documented_code_decides_in_a_body_without_other_text() {
    let items = corpus::read(CODES).unwrap();
    let score = corpus::score(&Classifier::new(), &items);
    assert!(
        score.misses.is_empty() && score.strict.total == items.len(),
        "{score}\n{:#?}",
        score.misses
    );
}

#[test]
fn every_code_from_400_to_599_has_a_verdict_without_any_text() {
    let classifier = Classifier::new();
    for status in 400..600 {
        let verdict = classifier.classify(&http(status, ""), Timestamp::UNIX_EPOCH);
        let (class, detail, _) =
            status::http(status).unwrap_or((FailureClass::Unknown, None, None));
        assert_eq!((verdict.class, verdict.detail), (class, detail), "{status}");
        assert!(
            !verdict.user_message.is_empty() && !verdict.recovery_hint.is_empty(),
            "{status}"
        );
    }
}

#[test]
fn a_typed_fault_decides_whatever_the_text() {
    use FailureClass as C;
    use TransportFault as F;
    for (fault, class, retry) in [
        (F::Dns, C::Network, true),
        (F::Refused, C::Network, true),
        (F::ConnectTimeout, C::Timeout, true),
        (F::Unreachable, C::Network, true),
        (F::Tls, C::Network, true),
        (F::Certificate, C::Network, false),
        (F::Reset, C::Network, true),
        (F::ClosedEarly, C::Network, true),
        (F::LocalExhaustion, C::Network, true),
        (F::FirstTokenTimeout, C::Timeout, true),
        (F::IdleTimeout, C::StreamInterrupted, true),
        (F::Cut, C::StreamInterrupted, true),
        (F::TooLarge, C::MalformedResponse, true),
        (F::Protocol, C::MalformedResponse, true),
        (F::ProcessExited, C::Crash, false),
        (F::NotStarted, C::Configuration, false),
        (F::NotReady, C::ServerError, true),
        (F::Deadline, C::Timeout, true),
        (F::Cancelled, C::Cancelled, false),
    ] {
        let verdict = judge(&ProviderError::transport(
            "openai",
            fault,
            "rate limit exceeded, quota, 429",
        ));
        assert_eq!(
            (verdict.class, verdict.retryable, &*verdict.rule),
            (class, retry, "fault"),
            "{fault:?}"
        );
    }
}

#[test]
fn a_cancellation_that_a_provider_reports_is_a_lost_connection() {
    use {FailureClass as C, TransportFault as F};
    for (class, fault, expected) in [
        (C::Cancelled, None, C::Network),
        (C::Cancelled, Some(F::Cut), C::Network),
        (C::Cancelled, Some(F::Cancelled), C::Cancelled),
        (C::Timeout, None, C::Timeout),
    ] {
        let failure = Failure {
            fault,
            retryable: false,
            ..Failure::local(class, "")
        }
        .reported_cancellation_as_network();
        assert_eq!(
            (failure.class, failure.retryable),
            (expected, expected == C::Network),
            "{class}, {fault:?}"
        );
    }
}

#[test]
fn the_innermost_cause_wins_however_deep_it_is_wrapped() {
    let mut body = r#"{"error":{"code":"insufficient_quota","message":"x"}}"#.to_owned();
    for _ in 0..4 {
        body = serde_json::json!({"error": {"message": body, "code": 502}}).to_string();
        assert_eq!(
            judge(&http(502, &body)).class,
            FailureClass::QuotaExceeded,
            "{body}"
        );
    }
}

#[test]
fn what_the_caller_sent_changes_no_verdict() {
    for (status, before, after, class) in [
        (
            422,
            r#"{"detail":[{"type":"missing","msg":"Field required","input":"#,
            "}]}",
            FailureClass::InvalidRequest,
        ),
        (
            422,
            r#"{"detail":[{"type":"missing","msg":"Field required", "input": "#,
            "}]}",
            FailureClass::InvalidRequest,
        ),
    ] {
        for sent in [
            "{}",
            r#""""#,
            r#"{"model":"context-length-exceeded","location":"insufficient_quota"}"#,
            r#"{"messages":[{"role":"user","content":"} my \"invalid api key\": insufficient_quota"}]}"#,
            r#""prompt is too long: your credit balance is too low""#,
        ] {
            let body = format!("{before}{sent}{after}");
            for body in [
                body.clone(),
                body.replace('"', "\\\""),
                body.replace("\":", "\" : ").replace('{', "{\n  "),
            ] {
                assert_eq!(judge(&http(status, &body)).class, class, "{body}");
            }
        }
    }
}

#[test]
fn what_code_a_failure_came_through_changes_no_verdict() {
    let frames = "Traceback (most recent call last):\n  File \"/app/rate_limit.py\", line 7, in connection_refused\n    \
                  raise QuotaExceeded('insufficient_quota', 401)\n";
    let calls = "\n    at ConnectionRefused.rateLimit (/app/invalid_api_key.js:7:11)\n    at timeout (node:internal:1:2)";
    for (error_text, class) in [
        (
            "openai.InternalServerError: Error code: 529 - Overloaded",
            FailureClass::Overloaded,
        ),
        (
            "anthropic.BadRequestError: prompt is too long: 7 tokens > 5 maximum",
            FailureClass::ContextLength,
        ),
    ] {
        for text in [
            format!("{frames}{error_text}"),
            format!("{error_text}{calls}"),
        ] {
            for body in [
                text.clone(),
                serde_json::json!({"error": {"message": text}}).to_string(),
            ] {
                let verdict = judge(&http(500, &body));
                assert_eq!(verdict.class, class, "{body}");
                assert!(
                    verdict.message.contains(error_text) && !verdict.message.contains("/app"),
                    "{}",
                    verdict.message
                );
            }
        }
    }
}

#[test]
fn a_wrapper_s_text_around_a_cause_changes_no_verdict() {
    const WRAPPERS: [(&str, &str); 10] = [
        ("API Error: ", ""),
        ("An error occurred while processing your request: ", ""),
        ("Failed after 3 attempts. Last error: ", ""),
        ("[agent] Unexpected error during generation: ", ""),
        ("2031-05-06 10:11:12,345 chat.py:77 - stream error: ", ""),
        ("Something went wrong. ", ""),
        (
            "",
            " Please check your API key, model name and network connection.",
        ),
        ("", " If the problem persists, contact support."),
        ("", " (attempt 2/10)"),
        (
            "",
            "\n    at async Client.request (/app/node_modules/sdk/client.js:402:12)",
        ),
    ];
    let mut kept = 0_u32;
    let mut asked = 0_u32;
    let mut lost = Vec::new();
    for item in corpus::read(WORDED).unwrap() {
        let Some(text) = item
            .message
            .clone()
            .filter(|_| item.surface == Surface::Http)
        else {
            continue;
        };
        let bare = item.judge(&Classifier::new()).class;
        if matches!(bare, FailureClass::Unknown | FailureClass::ServerError) {
            continue;
        }
        for (before, behind) in WRAPPERS {
            let wrapped = ProviderError {
                status: item.status,
                ..error_text(Surface::Http, &format!("{before}{text}{behind}"))
            };
            asked += 1;
            match judge(&wrapped).class {
                class if class == bare => kept += 1,
                class => lost.push(format!("{before}{text}{behind}: {bare:?} -> {class:?}")),
            }
        }
    }
    assert!(kept * 100 >= asked * 98, "{kept} of {asked}: {lost:#?}");
}

#[test]
fn a_sidecar_that_was_not_started_is_never_retried() {
    for text in [
        "Sidecar not started",
        "the sidecar has not been started",
        "Error: sidecar is not running",
    ] {
        for status in [None, Some(200), Some(500), Some(502), Some(503)] {
            for body in [
                text.to_owned(),
                serde_json::json!({"error": {"message": text}}).to_string(),
            ] {
                let verdict = judge(&ProviderError {
                    status,
                    body: Some(body),
                    ..ProviderError::default()
                });
                assert_eq!(
                    (verdict.class, verdict.retryable),
                    (FailureClass::Configuration, false),
                    "{text} {status:?}"
                );
            }
        }
    }
}

#[test]
fn a_failure_that_no_rule_knows_is_retryable() {
    let verdict = judge(&error_text(Surface::Http, "an odd thing happened xyz"));
    assert_eq!(
        (verdict.class, verdict.retryable, verdict.fallback_helps),
        (FailureClass::Unknown, true, true)
    );
}

#[test]
fn a_bare_crash_is_a_crash() {
    for text in [
        "crashed",
        "worker crashed",
        "Segmentation fault (core dumped)",
        "it crashed",
    ] {
        let verdict = judge(&error_text(Surface::Http, text));
        assert_eq!(
            (verdict.class, verdict.retryable),
            (FailureClass::Crash, false),
            "{text}"
        );
    }
}

#[test]
fn what_a_person_reads_holds_no_secret() {
    let verdict = judge(&http(
        401,
        r#"{"error":{"message":"Incorrect API key provided: sk-proj-abcdefgh12345678"}}"#,
    ));
    assert_eq!(verdict.class, FailureClass::Authentication);
    let shown = format!("{verdict:?}");
    assert!(!shown.contains("abcdefgh12345678"), "{shown}");
    assert!(
        verdict.message.starts_with("Incorrect API key provided"),
        "{}",
        verdict.message
    );
}

#[test]
fn every_rule_can_be_read_and_is_in_the_spelling_of_a_reading() {
    let mut names = HashSet::new();
    let mut strange = Vec::new();
    let rules = rule::embedded();
    assert!(rules.len() > 100, "{}", rules.len());
    for rule in &rules {
        assert!(names.insert(&rule.name), "{} is written twice", rule.name);
        assert_eq!(
            rule.detail.is_some(),
            rule.class == FailureClass::InvalidRequest,
            "{}",
            rule.name
        );
        assert!(!rule.any.is_empty(), "{}", rule.name);
        for phrase in rule.any.iter().flat_map(|phrase| phrase::read(phrase)) {
            assert!(
                !phrase.chain.is_empty() || phrase.number.is_some(),
                "{}: {phrase:?}",
                rule.name
            );
            let chained = phrase.chain.iter().flat_map(|link| &link.spellings);
            for words in chained
                .chain(phrase.with.iter().flatten())
                .chain(phrase.without.iter().flatten())
            {
                let plain = words.trim_end_matches('*');
                let mut reading = NormalizedText::default();
                reading.add(plain);
                let read = reading.text.trim();
                if read != plain && !plain.contains(['#', '0']) && !ends_numbered(plain) {
                    strange.push(format!("{}: `{words}` reads `{read}`", rule.name));
                }
            }
        }
    }
    assert!(strange.is_empty(), "{strange:#?}");
}

/// Phrases such as `errno #` name the number itself.
fn ends_numbered(words: &str) -> bool {
    words.ends_with(|c: char| c.is_ascii_digit())
}

#[test]
fn a_stated_wait_reaches_the_words_for_people() {
    let verdict = judge(&http(
        429,
        r#"{"error":{"message":"Rate limit reached. Please try again in 20s."}}"#,
    ));
    assert_eq!(
        verdict.retry_after.map(|wait| wait.source),
        Some(WaitSource::Text)
    );
    assert!(
        verdict.user_message.contains("20 s") && verdict.recovery_hint.contains("20 s"),
        "{verdict:?}"
    );
}

#[test]
fn a_verdict_says_what_kind_of_fact_it_rests_on() {
    let message = |text: &str| format!(r#"{{"error":{{"message":"{text}"}}}}"#);
    let code = |code: &str| format!(r#"{{"error":{{"code":{code},"message":"It failed."}}}}"#);
    for (status, body, expected) in [
        (401, message("invalid api key"), VerdictBasis::Status),
        (429, message("Rate limit reached"), VerdictBasis::Status),
        (429, message("insufficient_quota"), VerdictBasis::Words),
        (400, message("invalid api key"), VerdictBasis::Words),
        (400, code(r#""invalid_api_key""#), VerdictBasis::Code),
        (400, code(r#""an invalid_api_key""#), VerdictBasis::Words),
        (200, code("1113"), VerdictBasis::Code),
        (400, message("code 1113"), VerdictBasis::Words),
    ] {
        let error = ProviderError {
            provider: "zhipu".into(),
            ..http(status, &body)
        };
        let verdict = judge(&error);
        assert_eq!(verdict.evidence, expected, "{status} {body}: {verdict:?}");
    }
    let fault = ProviderError::transport("openai", TransportFault::Reset, "reset");
    assert_eq!(judge(&fault).evidence, VerdictBasis::Own);
}
