//! A stream of chat completions that ends with `[DONE]` and without a `finish_reason` is cut, unless
//! its model was never seen to end otherwise.

use serde_json::{Value, json};

use crate::support::{
    every_front::{FRONTS, asked, held},
    front::{Front, over},
    upstream::{Reply, Upstream},
};

/// A text, and the end of the stream.
fn stream(text: &str, finish: &Value) -> Reply {
    let chunk = |delta: Value, finish: &Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
    };
    Reply::events(&[
        chunk(json!({"role": "assistant", "content": "A "}), &Value::Null),
        chunk(json!({"content": text}), finish),
        "[DONE]".to_owned(),
    ])
}

/// A front before one target, with no attempt but the first.
async fn front(upstream: &Upstream) -> Front {
    let config = over("chat", &[(upstream, "openai_chat")]);
    Front::start(&format!(
        "{config}\npolicies: {{ standard: {{ retry: {{ max_retries: 0 }} }} }}\n"
    ))
    .await
}

#[tokio::test]
async fn the_third_text_in_a_row_of_a_model_that_never_sends_a_reason_is_whole() {
    for way in FRONTS {
        let upstream = Upstream::start().await;
        let front = front(&upstream).await;
        for number in 1..=4 {
            let text = format!("call {number}.");
            upstream.otherwise(stream(&text, &Value::Null));
            let answer = asked(&front, way, "Say something.", &[]).await;
            let text = held(way, &answer).map(|held| held.text);
            let expected = (number >= 3).then(|| format!("A call {number}."));
            assert_eq!(text, expected, "{way:?}, call {number}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn one_reason_shows_that_a_text_without_is_cut() {
    for way in FRONTS {
        let upstream = Upstream::start().await;
        let front = front(&upstream).await;
        upstream.push(stream("whole answer.", &json!("stop")));
        upstream.otherwise(stream("whole answer.", &Value::Null));
        for number in 1..=5 {
            let answer = asked(&front, way, "Say something.", &[]).await;
            let is_whole = held(way, &answer).is_some();
            assert_eq!(is_whole, number == 1, "{way:?}, call {number}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_text_that_the_next_attempt_repeats_word_for_word_is_whole() {
    for way in FRONTS {
        let upstream = Upstream::start().await;
        let config = over("chat", &[(&upstream, "openai_chat")]);
        let front = Front::start(&config).await;
        upstream.otherwise(stream("whole answer.", &Value::Null));
        let answer = asked(&front, way, "Say something.", &[]).await;
        let text = held(way, &answer).map(|held| held.text);
        assert_eq!(
            text.as_deref(),
            Some("A whole answer."),
            "{way:?}: {answer:?}"
        );
        assert_eq!(upstream.requests().len(), 2, "{way:?}");
    }
}
