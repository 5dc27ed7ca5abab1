//! Every attempt is a span, under the caller's own trace, at a real OTLP receiver.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use relight::internals::grpc::v1::InvokeWithRecoveryRequest;

use crate::support::{
    front::Front,
    http::metrics,
    otlp::{OtlpReceiver, attr, children, hex, is_error, named, parent},
    relight::{Relight, asking},
    targets::one_target,
    upstream::{Reply, Upstream},
};

#[tokio::test]
async fn attempts_appear_as_spans_under_the_callers_trace() {
    let receiver = OtlpReceiver::start().await;
    let upstream = Upstream::start().await;
    upstream.push(Reply::body(500, &[("x-request-id", "req-7")], b"{}"));
    let yaml = format!(
        "{}telemetry: {{ otlp_endpoint: \"{}\" }}\n",
        one_target(&upstream),
        receiver.endpoint()
    );
    let yaml = yaml.replace("api_key: k", "api_key: k, propagate_trace: true");
    let relight = Relight::start(&yaml).await;
    let mut request = tonic::Request::new(InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    });
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request
        .metadata_mut()
        .insert("traceparent", caller.parse().unwrap());
    let response = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        response.attempts[0].trace_id,
        "0af7651916cd43dd8448eb211c80319c"
    );
    let spans = receiver.await_spans(8, Duration::from_secs(15)).await;
    let root = named(&spans, "relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(hex(&root.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&root.parent_span_id), "b7ad6b7169203331");
    assert!(!is_error(root), "a recovered invocation is no error");
    let (first, second) = (named(&spans, "attempt 1"), named(&spans, "attempt 2"));
    assert!(is_error(first) && !is_error(second));
    let ids: Vec<&str> = response
        .attempts
        .iter()
        .map(|attempt| attempt.span_id.as_str())
        .collect();
    assert_eq!(ids, [hex(&first.span_id), hex(&second.span_id)]);
    assert_eq!(
        response.attempts[0].upstream_request_id, "req-7",
        "to be quoted to the provider's support"
    );
    for attempt in [first, second] {
        assert_eq!(parent(&spans, attempt).unwrap().span_id, root.span_id);
    }
    let why = ["rule", "fact"].map(|what| attr(first, &format!("relight.error.{what}")));
    assert_eq!(
        why.each_ref().map(Option::as_deref),
        [Some("status.http"), Some("status 500")]
    );
    assert_eq!(
        attr(second, "relight.attempt.cause").as_deref(),
        Some("retry:server_error")
    );
    assert_eq!(
        parent(&spans, named(&spans, "backoff")).unwrap().span_id,
        second.span_id
    );
    let chats: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "chat m-1")
        .collect();
    assert_eq!(chats.len(), 2);
    assert!(
        chats
            .iter()
            .any(|chat| attr(chat, "error.type").as_deref() == Some("server_error"))
    );
    let posts: Vec<_> = spans.iter().filter(|span| span.name == "POST").collect();
    assert_eq!(posts.len(), 2);
    assert!(
        posts
            .iter()
            .any(|post| attr(post, "http.request.resend_count").as_deref() == Some("1"))
    );
    let sent = upstream.requests();
    let outgoing = sent[1]
        .headers
        .iter()
        .find(|(name, _)| name == "traceparent")
        .map(|(_, value)| value.clone());
    assert!(
        outgoing.is_some_and(|value| value.contains("0af7651916cd43dd8448eb211c80319c")),
        "{:?}",
        sent[1].headers
    );
}

#[tokio::test]
async fn metrics_count_attempts_and_recoveries() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::status(500));
    let relight = Relight::start(&one_target(&upstream)).await;
    relight.ask("Hello").await;
    let address = relight.running.admin_address;
    let text = loop {
        let text = metrics(address).await;
        let recovered =
            |line: &str| line.contains("outcome=\"recovered\"") && !line.ends_with(" 0");
        if text
            .lines()
            .any(|line| line.starts_with("relight_invocations_total") && recovered(line))
        {
            break text;
        }
        tokio::task::yield_now().await;
    };
    let journal = [
        "invocations",
        "steps",
        "bytes",
        "threads",
        "waiting",
        "dropped_total",
        "removed_total",
    ];
    for series in journal.map(|what| format!("relight_journal_{what}")) {
        assert!(text.contains(&series), "{series} is missing in\n{text}");
    }
    for series in [
        "relight_attempts_total",
        "relight_recoveries_total",
        "relight_circuit_state",
        "relight_inflight",
    ] {
        assert!(text.contains(series), "{series} is missing in\n{text}");
    }
}

/// The spans of one call over gRPC, with two targets of two upstreams, until this many have
/// arrived.
async fn spans_of(
    main: &Upstream,
    spare: &Upstream,
    settings: &str,
    calls: usize,
    count: usize,
) -> Vec<Span> {
    let receiver = OtlpReceiver::start().await;
    let provider = |name: &str, upstream: &Upstream| {
        let base_url = upstream.base_url();
        format!(
            "  {name}: {{ dialect: openai_chat, base_url: \"{base_url}?key=secret\", api_key: k }}\n"
        )
    };
    let yaml = format!(
        "providers:\n{}{}targets: {{ main: {{ provider: p, model: m }}, spare: {{ provider: q, model: n }} }}\n\
         telemetry: {{ otlp_endpoint: \"{}\" }}\n{settings}",
        provider("p", main),
        provider("q", spare),
        receiver.endpoint()
    );
    let relight = Relight::start(&yaml).await;
    for _ in 0..calls {
        relight.invoke(asking("Hello")).await;
    }
    receiver.await_spans(count, Duration::from_secs(15)).await
}

#[tokio::test]
async fn one_attempt_of_a_race_wins_and_the_other_is_no_error() {
    let (main, spare) = (Upstream::start().await, Upstream::start().await);
    main.otherwise(Reply::silence());
    spare.otherwise(Reply::text("Well."));
    let settings =
        "routes: { default: { targets: [main, spare] } }\ntimers: { soft_first_token: 200ms }\n";
    let spans = spans_of(&main, &spare, settings, 1, 7).await;
    let winner = |span: &&Span| attr(span, "relight.attempt.winner").as_deref() == Some("true");
    let winners: Vec<&str> = spans
        .iter()
        .filter(winner)
        .map(|span| span.name.as_str())
        .collect();
    assert_eq!(winners, ["attempt 2"]);
    let loser = named(&spans, "attempt 1");
    assert!(
        !is_error(loser) && attr(loser, "error.type").as_deref() == Some("cancelled"),
        "{loser:?}"
    );
}

#[tokio::test]
async fn a_request_s_span_has_the_url_that_was_called_without_its_secrets() {
    let (main, spare) = (Upstream::start().await, Upstream::start().await);
    main.push(Reply::status(500));
    let spans = spans_of(
        &main,
        &spare,
        "routes: { default: { targets: [main] } }\n",
        1,
        8,
    )
    .await;
    let urls: Vec<String> = spans
        .iter()
        .filter_map(|span| attr(span, "url.full"))
        .collect();
    assert_eq!(
        urls,
        [(); 2].map(|()| format!("{}/chat/completions?key=REDACTED", main.base_url()))
    );
}

#[tokio::test]
async fn the_time_before_a_closed_gate_is_a_span_of_its_own() {
    let (main, spare) = (Upstream::start().await, Upstream::start().await);
    for _ in 0..5 {
        main.push(Reply::body(429, &[("retry-after", "1")], b"{}"));
    }
    let settings = "routes: { default: { targets: [main] } }\n\
                    policies: { standard: { retry: { enabled: false } } }\n";
    // Five calls close the gate, the sixth waits for the probe.
    let spans = spans_of(&main, &spare, settings, 6, 25).await;
    let parked = named(&spans, "parked");
    let root = parent(&spans, parked).unwrap();
    let length = |span: &Span| span.end_time_unix_nano - span.start_time_unix_nano;
    assert!(length(parked) > 500_000_000, "{parked:?}");
    let covered: u64 = children(&spans, root).into_iter().map(length).sum();
    assert!(
        covered * 10 > length(root) * 8,
        "{covered} of {} ns are accounted for",
        length(root)
    );
}

#[tokio::test]
async fn facts_on_spans_are_plain_words_and_not_names_of_the_code() {
    let (main, spare) = (Upstream::start().await, Upstream::start().await);
    main.push(Reply::text("Half an answer that breaks off").cut_in_the_middle());
    let spans = spans_of(
        &main,
        &spare,
        "routes: { default: { targets: [main] } }\n",
        1,
        7,
    )
    .await;
    assert_eq!(
        attr(named(&spans, "attempt 1"), "relight.error.fact").as_deref(),
        Some("cut")
    );
}

#[tokio::test]
async fn the_span_of_a_request_of_the_front_has_its_path_and_status() {
    let (receiver, upstream) = (OtlpReceiver::start().await, Upstream::start().await);
    upstream
        .push(Reply::text("Well."))
        .push(Reply::body(400, &[], b"{}"))
        .push(Reply::text("Well."));
    let front = Front::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\nroutes: {{ default: {{ targets: [t] }} }}\n\
         telemetry: {{ otlp_endpoint: \"{}\" }}\n",
        upstream.base_url(),
        receiver.endpoint()
    ))
    .await;
    let answers = [
        front.ask("default", false).await,
        front.ask("default", false).await,
        front.ask("default", true).await,
    ];
    let spans = receiver.await_spans(12, Duration::from_secs(15)).await;
    let mut roots: Vec<&Span> = spans
        .iter()
        .filter(|span| span.name == "POST /v1/chat/completions")
        .collect();
    roots.sort_by_key(|span| span.start_time_unix_nano);
    for (root, answer) in roots.iter().zip(&answers) {
        let facts = ["url.path", "http.response.status_code"]
            .map(|name| attr(root, name).unwrap_or_default());
        assert_eq!(
            facts,
            ["/v1/chat/completions".to_owned(), answer.status.to_string()]
        );
    }
    assert_eq!((roots.len(), answers[1].status >= 400), (3, true));
}
