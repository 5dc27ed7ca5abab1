//! A continued answer holds every word once: an echo of the begun text is removed, a text that
//! begins anew is not appended. Where nothing can be revoked, the target that wrote the text is
//! called first to repeat it.

use relight::internals::grpc::v1::invoke_with_recovery_response::Outcome;
use serde_json::json;

use crate::support::{
    front::{Answer, Front},
    relight::Relight,
    upstream::{Upstream, pieces},
};

/// The first words of an answer, long enough to be continued; a target writes them and then breaks
/// off.
const BEGUN: &str = "The harbour opens at six in the morning, when the night watch hands over to the day watch, and the \
                     first boats leave as soon as the light on the northern pier is out. Until noon no boat may enter, \
                     because the channel is narrow, the current is strong, and the pilots of the town are all at sea";
const REST: &str = ", so that everybody waits.";
const OTHER: &str = "Nobody knows when the harbour opens.";

fn config(upstreams: &[&Upstream], prefill: bool, more: &str) -> String {
    let (mut providers, mut targets, mut names) = (String::new(), String::new(), Vec::new());
    for (index, upstream) in upstreams.iter().enumerate() {
        let url = upstream.base_url();
        let provider = format!("{{ dialect: openai_chat, base_url: \"{url}\", api_key: k }}");
        let able = format!("capabilities: {{ assistant_prefill: {prefill} }}");
        providers = format!("{providers}  p{index}: {provider}\n");
        targets =
            format!("{targets}  t{index}: {{ provider: p{index}, model: m-{index}, {able} }}\n");
        names.push(format!("t{index}"));
    }
    format!(
        "providers:\n{providers}targets:\n{targets}routes:\n  r: {{ targets: [{}], deadline: 30s }}\ndefault_route: r\n\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }}{more} }} }} }}\n",
        names.join(", ")
    )
}

async fn invoked(upstream: &Upstream) -> String {
    let relight = Relight::start(&config(&[upstream], true, "")).await;
    match relight.ask("When?").await.outcome {
        Some(Outcome::Completion(completion)) => completion.text,
        other => panic!("{other:?}"),
    }
}

async fn streamed(upstreams: &[&Upstream], prefill: bool, more: &str) -> Answer {
    Front::start(&config(upstreams, prefill, more))
        .await
        .ask("r", true)
        .await
}

/// The answer is far longer than the 1,024 tokens that are expected of a call without a limit.
#[tokio::test]
async fn an_answer_that_is_longer_than_expected_and_cut_is_completed() {
    let days = (0..40).map(|day| format!("Day {day}. {BEGUN}."));
    let begun = days.collect::<Vec<_>>().join(" ");
    let whole = format!("{begun} And so on.");
    for (prefill, rest) in [(true, " And so on."), (false, &whole)] {
        let upstream = Upstream::start().await;
        upstream.push(pieces(&begun, None));
        upstream.otherwise(pieces(rest, Some("stop")));
        let relight = Relight::start(&config(&[&upstream], prefill, "")).await;
        match relight.ask("When?").await.outcome {
            Some(Outcome::Completion(completion)) => assert_eq!(completion.text, whole),
            other => panic!("{prefill}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_continuation_that_repeats_the_begun_text_is_delivered_once() {
    let whole = format!("{BEGUN}{REST}");
    for ending in [None, Some("length")] {
        for more in [REST.to_owned(), whole.clone()] {
            let upstream = Upstream::start().await;
            upstream
                .push(pieces(BEGUN, ending))
                .otherwise(pieces(&more, Some("stop")));
            assert_eq!(invoked(&upstream).await, whole, "{ending:?}, {more}");
            let begun = upstream.await_request(2).await.body["messages"]
                .as_array()
                .unwrap()
                .last()
                .cloned()
                .unwrap();
            assert_eq!(
                (&begun["role"], &begun["content"]),
                (&json!("assistant"), &json!(BEGUN)),
                "it was continued"
            );
            let upstream = Upstream::start().await;
            upstream
                .push(pieces(BEGUN, ending))
                .otherwise(pieces(&more, Some("stop")));
            let answer = streamed(&[&upstream], true, "").await;
            assert!(
                answer.succeeded_with(&whole),
                "{ending:?}, {more}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_text_that_begins_anew_replaces_the_begun_one_where_that_can_be_revoked() {
    let upstream = Upstream::start().await;
    upstream
        .push(pieces(BEGUN, None))
        .otherwise(pieces(OTHER, Some("stop")));
    assert_eq!(invoked(&upstream).await, OTHER);
}

#[tokio::test]
async fn a_text_that_begins_anew_is_no_extension_of_one_that_its_length_cut() {
    let upstream = Upstream::start().await;
    upstream
        .push(pieces(BEGUN, Some("length")))
        .otherwise(pieces(OTHER, Some("stop")));
    assert_eq!(invoked(&upstream).await, BEGUN, "what came is the answer");
}

#[tokio::test]
async fn a_text_that_begins_anew_is_never_glued_to_what_was_sent() {
    for other in [OTHER, &format!("{} but not today.", &BEGUN[..80])] {
        let upstream = Upstream::start().await;
        upstream
            .push(pieces(BEGUN, None))
            .otherwise(pieces(other, Some("stop")));
        let answer = streamed(&[&upstream], true, "").await;
        assert!(answer.clean && !answer.is_done(), "{answer:?}");
        assert_eq!(
            (answer.error()["code"].as_str(), answer.text().as_str()),
            (Some("stream_interrupted"), BEGUN)
        );
    }
}

#[tokio::test]
async fn after_a_cut_the_target_that_wrote_the_text_is_called_to_repeat_it() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let whole = "One two three four five.";
    first
        .push(pieces("One two three ", None))
        .otherwise(pieces(whole, Some("stop")));
    second.otherwise(pieces("Five four three.", Some("stop")));
    let answer = streamed(&[&first, &second], false, "").await;
    assert!(answer.succeeded_with(whole), "{answer:?}");
    assert_eq!((first.requests().len(), second.requests().len()), (2, 0));
}

#[tokio::test]
async fn all_attempts_are_used_before_a_cut_stream_fails() {
    for (retries, is_answered) in [(3, true), (1, false)] {
        let upstream = Upstream::start().await;
        let whole = "One two three four five.";
        upstream.push(pieces("One two three ", None));
        upstream
            .push(pieces("Two one.", Some("stop")))
            .push(pieces("One two four.", Some("stop")));
        upstream.otherwise(pieces(whole, Some("stop")));
        let answer = streamed(&[&upstream], false, &format!(", max_retries: {retries}")).await;
        assert_eq!(answer.succeeded_with(whole), is_answered, "{answer:?}");
        assert_eq!(upstream.requests().len(), retries + 1);
        assert!(
            whole.starts_with(&answer.text()),
            "nothing else was sent: {answer:?}"
        );
    }
}
