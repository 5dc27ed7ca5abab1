//! How texts are read: whatever their encoding, spelling and length, and without a panic at any
//! bytes.

use proptest::prelude::*;

use super::*;

#[test]
fn a_message_is_decoded_once_and_at_every_depth() {
    for text in [
        "He error_text \"no\" — naïve",
        "モデルが見つかりません",
        "Ошибка сервера",
        "C:\\temp 😀",
    ] {
        let ascii = |text: &str| {
            let escaped = serde_json::json!({"error": {"message": text}}).to_string();
            let units = |c: char| {
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect()
            };
            escaped
                .chars()
                .map(|c| {
                    if c.is_ascii() {
                        c.to_string()
                    } else {
                        units(c)
                    }
                })
                .collect::<String>()
        };
        for body in [
            ascii(text),
            ascii(&ascii(text)),
            serde_json::json!({"detail": text}).to_string(),
        ] {
            assert_eq!(judge(&http(500, &body)).message, text, "{body}");
        }
    }
    // Of what was cut off, what there is; what is no escape stays.
    assert_eq!(
        judge(&http(500, r#"{"message":"half a \"wo"#)).message,
        "half a \"wo"
    );
    assert_eq!(
        judge(&http(500, r"path C:\new, \ud800, \u2014 \")).message,
        r"path C:\new, \ud800, — \"
    );
}

#[test]
fn letters_and_digits_inside_other_words_decide_nothing() {
    for text in [
        "generate moderate operation",
        "port 8429 line 503 id 401a",
        "https://host/rate-limit/quota/404",
    ] {
        assert_eq!(
            judge(&error_text(Surface::Http, text)).class,
            FailureClass::Unknown,
            "{text}"
        );
    }
}

#[test]
fn a_code_reads_the_same_in_every_spelling() {
    for text in [
        "RateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "rate-limit-exceeded",
        "Rate limit exceeded",
        "\\\"rate_limit_exceeded\\\"",
    ] {
        assert_eq!(
            judge(&error_text(Surface::Http, text)).class,
            FailureClass::RateLimited,
            "{text}"
        );
    }
}

#[test]
fn an_apostrophe_joins_only_the_one_letter_that_ends_a_word() {
    for (text, read) in [
        ("it can't", " it cant "),
        ("it can\u{2019}t", " it cant "),
        ("l'h\u{f4}te d'acc\u{e8}s", " l h\u{f4}te d acc\u{e8}s "),
        (
            "l\u{2019}h\u{f4}te d\u{2019}acc\u{e8}s",
            " l h\u{f4}te d acc\u{e8}s ",
        ),
        (
            "'quoted' and \u{2018}quoted\u{2019} too",
            " quoted and quoted too ",
        ),
    ] {
        let mut reading = NormalizedText::default();
        reading.add(text);
        assert_eq!(reading.text, read, "{text}");
    }
}

#[test]
fn of_a_page_the_text_counts_and_its_title_is_the_message() {
    let page = |body: &str| {
        format!(
            "<!DOCTYPE html>\n<html lang='en'><head><title> 502 Bad Gateway </title>\n<meta name=\"timeout\" content=\"insufficient_quota\"></head><body class=\"rate-limit-exceeded\">{body}</body></html>"
        )
    };
    let verdict = judge(&http(
        502,
        &page("<h1>502 Bad Gateway</h1><a href='/invalid_api_key'>nginx</a>"),
    ));
    assert_eq!(
        (verdict.class, &*verdict.message),
        (FailureClass::Overloaded, "502 Bad Gateway")
    );
    // What is no whole tag is text, and so is a sign outside a page.
    assert_eq!(
        judge(&http(502, &page("x <y insufficient_quota <br>"))).class,
        FailureClass::QuotaExceeded
    );
    assert_eq!(
        judge(&http(502, "<insufficient_quota>")).class,
        FailureClass::QuotaExceeded
    );
}

#[test]
fn scripts_styles_and_what_stands_for_a_secret_hold_no_words() {
    let page = |head: &str| {
        format!("<!DOCTYPE html><html><head>{head}</head><body><h1>Oops</h1></body></html>")
    };
    for body in [
        page("<script>window.e = {\"error\": \"rate limit exceeded\"}</script>"),
        page("<SCRIPT type='text/javascript'>if (a < b) { invalid_api_key() }</SCRIPT>"),
        page("<style>.quota-exceeded { color: red }</style>"),
        "<script>insufficient_quota</script>".to_owned(),
    ] {
        for (status, class) in [
            (500, FailureClass::ServerError),
            (503, FailureClass::Overloaded),
            (403, FailureClass::PermissionDenied),
        ] {
            let verdict = judge(&http(status, &body));
            assert_eq!(
                (verdict.class, &*verdict.rule),
                (class, "status.http"),
                "{body}"
            );
        }
    }
    for gone in [
        "[redacted]",
        "[Filtered]",
        "<removed>",
        "[REDACTED_API_KEY]",
        "***",
    ] {
        let verdict = judge(&http(400, &format!("Invalid {gone} API key")));
        assert_eq!(verdict.class, FailureClass::Authentication, "{gone}");
    }
    let verdict = judge(&error_text(Surface::Tool, "Tool call failed [redacted]"));
    assert_eq!(verdict.class, FailureClass::Unknown);
}

#[test]
fn a_huge_text_is_read_at_its_ends_only() {
    let text = format!("{}insufficient_quota", "x ".repeat(2_000_000));
    assert_eq!(judge(&http(500, &text)).class, FailureClass::QuotaExceeded);
    let hidden = format!(
        "{}insufficient_quota{}",
        "x ".repeat(500_000),
        "y ".repeat(500_000)
    );
    assert_eq!(judge(&http(500, &hidden)).class, FailureClass::ServerError);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_panic_and_no_verdict_is_unbounded(bytes in prop::collection::vec(any::<u8>(), 0..3000), status in prop::option::of(0_u16..=999)) {
        static CLASSIFIER: std::sync::LazyLock<Classifier> = std::sync::LazyLock::new(Classifier::new);
        let error = ProviderError { status, body: Some(String::from_utf8_lossy(&bytes).into_owned()), ..ProviderError::default() };
        let verdict = CLASSIFIER.classify(&error, Timestamp::UNIX_EPOCH);
        prop_assert!(verdict.message.len() <= 410 && verdict.fact.len() <= 130);
    }

    #[test]
    fn pieces_of_real_shapes_in_any_order_do_not_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{\"error\":", "\\\"code\\\":", "429", "'", "\"", "\\", "\\u5f53", "rate limit", "retry after ", "-1", "1e999", "9999999999999999999",
            "https://", "://", "}", "Retry-After: ", "try again in ", "7m12s", " 秒后", "余额不足", "\u{2019}", "code: ", "input\":\"", "\n",
            "\"input\":", "{", "[", "]", "\\\"input\\\": ", "\\n", "  File \"a.py\", line 7", "\n    at f (a.js:7:1)", "\n\tat a.b(c)",
        ]), 0..200)
    ) {
        static CLASSIFIER: std::sync::LazyLock<Classifier> = std::sync::LazyLock::new(Classifier::new);
        let verdict = CLASSIFIER.classify(&error_text(Surface::Http, &pieces.concat()), Timestamp::UNIX_EPOCH);
        prop_assert!(verdict.retry_after.is_none_or(|wait| wait.duration <= Duration::from_hours(31 * 24)));
    }
}

#[test]
fn a_status_in_brackets_before_a_body_is_the_status_and_a_telling_type_says_more() {
    for (text, class) in [
        (
            r#"groq [503]: {"error": {"message": "x"}}"#,
            FailureClass::Overloaded,
        ),
        (
            r#"mistral (429) {"message": "x"}"#,
            FailureClass::RateLimited,
        ),
        (
            r#"[400]: {"error": {"type": "server_error"}}"#,
            FailureClass::ServerError,
        ),
        (
            r#"gateway [400]: {"error": {"type": "server_error"}}"#,
            FailureClass::ServerError,
        ),
        ("a list of [503] things", FailureClass::Unknown),
        ("sizes[503]", FailureClass::Unknown),
    ] {
        let verdict = judge(&error_text(Surface::Http, text));
        assert_eq!(verdict.class, class, "{text}");
    }
}
