//! Quotations of a server that failed decide nothing; its words of itself do.

use proptest::prelude::*;

use super::{
    refusals::{LOUD, json, samples},
    *,
};

/// Bodies of a failed server, with `QUOTED` in the place of the caller's words.
const FORMS: &[&str] = &[
    r#"{"error":{"message":"Failed to process the prompt \"QUOTED\"","type":"server_error"}}"#,
    r#"{"error":{"message":"The server had an error while processing 'QUOTED'. Sorry about that!","type":"server_error","param":null,"code":null}}"#,
    r#"{"error":{"message":"Internal server error","type":"server_error"},"input":"QUOTED"}"#,
    r#"{"error":{"message":"Internal server error","prompt":"QUOTED","code":"internal_error"}}"#,
    r#"{"detail":"Generation stopped for input: \"QUOTED\" (job 7)"}"#,
    r#"{"detail":"Internal Server Error","request":{"model":"m","messages":[{"role":"user","content":"QUOTED"}]}}"#,
    r#"{"error":"Internal Server Error","messages":[{"role":"user","content":"QUOTED"}],"trace":"7f"}"#,
    r#"{"error":{"code":500,"message":"An internal error has occurred on “QUOTED”.","status":"INTERNAL"}}"#,
    r#"{"message":"Request with query 'QUOTED' died in a worker of ours."}"#,
    "Internal Server Error (prompt: \"QUOTED\")",
    r#"{"message":"Failed to answer the question \"QUOTED"}"#,
    "<html><head><title>500 Internal Server Error</title></head><body><p>Your text \"QUOTED\" broke it.</p></body></html>",
];

/// Texts of clients that state the status themselves.
const TEXTS: &[&str] = &[
    r#"Error code: 500 - {'error': {'message': "The server failed on 'QUOTED', sorry", 'type': 'server_error'}}"#,
    r#"HTTP 503 Service Unavailable: no capacity for the prompt "QUOTED" now"#,
    r#"openai.InternalServerError: 500 {"error":{"message":"Internal server error","input":"QUOTED"}}"#,
];

/// Returns how a body of this form with these words is judged: its class, and whether a retry helps.
fn outcome(status: u16, form: &str, words: &str) -> (FailureClass, bool) {
    let body = if form.starts_with('{') {
        json(form, words)
    } else {
        form.replace("QUOTED", words)
    };
    let verdict = judge(&http(status, &body));
    (verdict.class, verdict.retryable)
}

/// Returns the same of a text of a client, which alone states the status.
fn told(text: &str, words: &str) -> (FailureClass, bool) {
    let verdict = judge(&error_text(Surface::Http, &text.replace("QUOTED", words)));
    (verdict.class, verdict.retryable)
}

#[test]
fn no_phrase_of_a_rule_that_a_failed_server_quotes_moves_a_verdict() {
    let mut moved = Vec::new();
    for (index, sample) in samples().iter().enumerate() {
        for (turn, status) in [500, 502, 503].into_iter().enumerate() {
            let form = FORMS[(index + turn * 5) % FORMS.len()];
            let found = [
                outcome(status, form, &sample.text),
                told(TEXTS[turn], &sample.text),
            ];
            let expected = [outcome(status, form, "foo"), told(TEXTS[turn], "foo")];
            if found != expected {
                moved.push(format!(
                    "{}: `{}`: {found:?}, not {expected:?}: {status} {form}\n{}",
                    sample.rule, sample.text, TEXTS[turn]
                ));
            }
        }
    }
    assert!(moved.is_empty(), "{}: {moved:#?}", moved.len());
}

#[test]
fn a_harmless_quotation_leaves_the_status_to_decide() {
    for form in FORMS {
        assert_eq!(
            outcome(500, form, "a small cat"),
            (FailureClass::ServerError, true),
            "{form}"
        );
    }
}

proptest! {
    #[test]
    fn no_text_that_a_failed_server_quotes_moves_a_verdict(
        form in prop::sample::select(FORMS),
        status in prop::sample::select(&[500_u16, 502, 503, 504, 520, 529][..]),
        loud in prop::sample::select(&LOUD[..]),
        before in "([a-zA-Z0-9 .,:;!?-]{0,30}|he said \"[a-z ]{1,9})",
        behind in "[a-zA-Z0-9 .,:;!?-]{0,30}",
    ) {
        let closing = if before.contains('"') { "\" he said" } else { "" };
        let words = format!("{before}{loud}{behind}{closing}");
        prop_assert_eq!(outcome(status, form, &words), outcome(status, form, "foo"), "{}", words);
    }
}

#[test]
fn what_a_failed_server_says_of_itself_decides_over_its_status() {
    for (status, body, class) in [
        (
            500,
            r#"{"error":{"message":"Too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            FailureClass::ContextLength,
        ),
        (
            503,
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            FailureClass::Overloaded,
        ),
        (
            500,
            r#"{"error":"llama runner process has terminated: exit status 2"}"#,
            FailureClass::Crash,
        ),
        (
            500,
            r#"{"error":{"message":"Error from upstream: 'insufficient_quota'"}}"#,
            FailureClass::QuotaExceeded,
        ),
        (
            502,
            r#"{"error":{"message":"Provider returned error: \"This model's maximum context length is 8192 tokens\""}}"#,
            FailureClass::ContextLength,
        ),
        (
            500,
            r#""model runner has unexpectedly stopped, this may be due to resource limitations""#,
            FailureClass::Crash,
        ),
        (
            500,
            r#"b'{\n  "error": {\n    "code": 400,\n    "message": "API key not valid"}}'"#,
            FailureClass::Authentication,
        ),
    ] {
        assert_eq!(judge(&http(status, body)).class, class, "{body}");
    }
}
