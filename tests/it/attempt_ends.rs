//! How an attempt ended is one fact: its record, its event and its span say the same.

use std::{collections::BTreeMap, time::Duration};

use relight::internals::grpc::v1::{
    AttemptState, FailureClass, InvocationRecord, RecoveryEvent, recovery_event::Body,
    watch_recovery_request::Start,
};

use crate::support::{
    front::{post, question},
    otlp::{OtlpReceiver, attr},
    relight::{Relight, asking},
    upstream::{Reply, Upstream, pieces},
};

/// Longest time that the spans of a call may take to arrive.
const PATIENCE: Duration = Duration::from_secs(15);

/// The first words of an answer, long enough to be continued; a target writes them and is then cut.
const BEGUN: &str = "The harbour opens at six in the morning, when the night watch hands over to the day watch, and the \
                     first boats leave as soon as the light on the northern pier is out. Until noon no boat may enter, \
                     because the channel is narrow, the current is strong, and the pilots of the town are all at sea";

/// The failures of a call's attempts by their numbers.
type Failures = BTreeMap<u32, String>;

/// Two targets, of which the first can continue a text, and all that is observed of a call to them.
struct ObservedCall {
    relight: Relight,
    receiver: OtlpReceiver,
    main: Upstream,
    spare: Upstream,
}

// === impl ObservedCall ===

impl ObservedCall {
    async fn prepared(targets: &str, timers: &str, retry: &str) -> Self {
        let (main, spare, receiver) = (
            Upstream::start().await,
            Upstream::start().await,
            OtlpReceiver::start().await,
        );
        let provider = |upstream: &Upstream| {
            format!(
                "{{ dialect: openai_chat, base_url: \"{}\", api_key: k }}",
                upstream.base_url()
            )
        };
        let listen = "\"127.0.0.1:0\"";
        let relight = Relight::start_whole(&format!(
            "server: {{ listen: {listen}, admin_listen: {listen}, openai_front: {{ listen: {listen} }} }}\n\
             providers: {{ p: {}, q: {} }}\n\
             targets:\n  main: {{ provider: p, model: m, capabilities: {{ assistant_prefill: true }} }}\n  \
             spare: {{ provider: q, model: n }}\n\
             routes: {{ r: {{ targets: [{targets}], deadline: 30s }} }}\ndefault_route: r\ntimers: {{ {timers} }}\n\
             policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }}{retry} }} }} }}\n\
             telemetry: {{ otlp_endpoint: \"{}\" }}\n",
            provider(&main),
            provider(&spare),
            receiver.endpoint()
        ))
        .await;
        Self {
            relight,
            receiver,
            main,
            spare,
        }
    }

    async fn to_one_target(retry: &str) -> Self {
        Self::prepared("main", "soft_first_token: 0ms", retry).await
    }

    /// Makes the call, and returns what its record, its events and its spans agree upon.
    async fn failures(&self, over_http: bool) -> Failures {
        let mut watch = self.relight.watch(Start::Live(true)).await;
        if over_http {
            let front = self.relight.running.openai_front_address.unwrap();
            post(front, "/v1/chat/completions", &question("r", true)).await;
        } else {
            self.relight.invoke(asking("When?")).await;
        }
        let ends = [
            "invocation_succeeded",
            "invocation_recovered",
            "invocation_failed",
        ];
        let id = watch.until_any(&ends).await.invocation_id;
        let record = self.relight.get(&id).await;
        let numbers: Vec<u32> = record
            .attempts
            .iter()
            .map(|attempt| attempt.number)
            .collect();
        let recorded = recorded(&record);
        let published = published(&watch.seen);
        assert_eq!(published, recorded, "the events and the record");
        let name = |number: u32| format!("attempt {number}");
        let all = |spans: &[_]| {
            numbers
                .iter()
                .all(|number| span_names(spans).contains(&name(*number)))
        };
        let spans = self.receiver.await_until(PATIENCE, all).await;
        let traced: Failures = numbers
            .iter()
            .filter_map(|number| {
                let span = spans.iter().find(|span| span.name == name(*number))?;
                Some((*number, attr(span, "error.type")?))
            })
            .collect();
        assert_eq!(traced, recorded, "the spans and the record");
        recorded
    }
}

fn span_names(spans: &[opentelemetry_proto::tonic::trace::v1::Span]) -> Vec<String> {
    spans.iter().map(|span| span.name.clone()).collect()
}

fn class_name(class: FailureClass) -> String {
    class
        .as_str_name()
        .trim_start_matches("FAILURE_CLASS_")
        .to_lowercase()
}

/// The failures in the record, whose state each attempt must show.
fn recorded(record: &InvocationRecord) -> Failures {
    let mut failures = Failures::new();
    for attempt in &record.attempts {
        let expected = match attempt.failure_class() {
            FailureClass::Unspecified => AttemptState::Succeeded,
            FailureClass::Cancelled => AttemptState::Cancelled,
            _ => AttemptState::Failed,
        };
        assert_eq!(attempt.state(), expected, "{attempt:?}");
        if expected != AttemptState::Succeeded {
            failures.insert(attempt.number, class_name(attempt.failure_class()));
        }
    }
    failures
}

/// The failures that events announced, each once and before the recovery from it.
fn published(events: &[RecoveryEvent]) -> Failures {
    let mut failures = Failures::new();
    for event in events {
        match &event.body {
            Some(Body::AttemptFailed(failed)) => {
                let before = failures.insert(event.attempt, class_name(failed.failure_class()));
                assert_eq!(before, None, "an attempt ends once: {event:?}");
            }
            Some(Body::RecoveryAttempted(_)) => {
                assert!(
                    failures.contains_key(&event.attempt),
                    "an end comes before what follows it: {event:?}"
                );
            }
            _ => {}
        }
    }
    failures
}

fn only(number: u32, class: &str) -> Failures {
    Failures::from([(number, class.to_owned())])
}

#[tokio::test]
async fn an_attempt_that_its_target_failed() {
    let call = ObservedCall::to_one_target("").await;
    call.main
        .push(Reply::status(500))
        .push(pieces("One two ", None))
        .otherwise(pieces("One two three.", Some("stop")));
    let expected = [
        (1, "server_error".to_owned()),
        (2, "stream_interrupted".to_owned()),
    ];
    assert_eq!(call.failures(false).await, expected.into());
}

#[tokio::test]
async fn the_slower_attempt_of_a_race() {
    let call = ObservedCall::prepared("main, spare", "soft_first_token: 200ms", "").await;
    call.main.otherwise(Reply::silence());
    call.spare.otherwise(Reply::text("Well."));
    assert_eq!(call.failures(false).await, only(1, "cancelled"));
}

#[tokio::test]
async fn an_extension_that_began_anew() {
    // Known after a few words, and known only at its end.
    for other in ["Nobody knows when the harbour opens.", &BEGUN[..80]] {
        let call = ObservedCall::to_one_target("").await;
        call.main
            .push(pieces(BEGUN, Some("length")))
            .otherwise(pieces(other, Some("stop")));
        assert_eq!(
            call.failures(false).await,
            only(2, "malformed_response"),
            "{other}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_and_is_requested_again_but_shorter() {
    let call = ObservedCall::to_one_target(", on_length: shorten").await;
    call.main
        .push(pieces(BEGUN, Some("length")))
        .otherwise(pieces("Short.", Some("stop")));
    assert_eq!(call.failures(false).await, only(1, "malformed_response"));
}

#[tokio::test]
async fn an_answer_that_was_cut_and_cannot_be_requested_again() {
    let call = ObservedCall::to_one_target(", on_length: shorten, max_retries: 0").await;
    call.main.otherwise(pieces(BEGUN, Some("length")));
    assert_eq!(call.failures(false).await, Failures::new());
}

#[tokio::test]
async fn an_answer_that_is_not_the_one_that_was_sent() {
    // Another text, and the beginning of the same one: whether more of it comes is not known before
    // its end.
    for (other, failed) in [("Two one.", 2), ("One two ", 1)] {
        let call = ObservedCall::to_one_target("").await;
        call.main
            .push(pieces("One two three ", None))
            .push(pieces(other, Some("stop")));
        call.main
            .otherwise(pieces("One two three four.", Some("stop")));
        let expected: Failures = (1..=failed)
            .map(|number| (number, "stream_interrupted".to_owned()))
            .collect();
        assert_eq!(call.failures(true).await, expected, "{other}");
    }
}
