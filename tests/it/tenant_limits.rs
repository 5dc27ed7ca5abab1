//! A tenant is held to its limits at every front, in the words of each, and no other tenant or
//! target notices.

use futures_util::future::join_all;
use http::Method;
use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, recovery_service_client::RecoveryServiceClient,
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::{
    front::{Answer, Front, over, post_with},
    http::metrics,
    process::{key, with_key},
    relight::asking,
    tool_stage::echo,
    upstream::{Reply, Upstream, chunk, usage_chunk},
};

/// A front whose tenants `acme` and `other` have the keys `a` and `o`, with these limits of `acme`.
async fn limited(upstream: &Upstream, limits: &str) -> Front {
    let keys = format!("{}, {}", key("acme", "a", ""), key("other", "o", ""));
    let server = format!("  keys: [{keys}]\n  tenants: {{ acme: {{ limits: {{ {limits} }} }} }}\n");
    Front::start_with(&server, &over("main", &[(upstream, "openai_chat")])).await
}

fn chat() -> Value {
    json!({ "model": "main", "messages": [{ "role": "user", "content": "Hello." }] })
}

fn message() -> Value {
    let mut message = chat();
    message["max_tokens"] = json!(20);
    message
}

fn response() -> Value {
    json!({ "model": "main", "input": "Hello." })
}

async fn send(front: &Front, path: &str, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    front
        .send(Method::POST, path, &headers, body.to_string())
        .await
}

fn number(answer: &Answer, header: &str) -> u64 {
    let value = answer.header(header);
    let value = value.unwrap_or_else(|| panic!("{header} is missing: {answer:?}"));
    value.parse().unwrap()
}

#[tokio::test]
async fn of_many_calls_at_once_exactly_as_many_pass_as_the_limit_allows_and_others_pass_all() {
    let upstream = Upstream::start().await;
    let mut front = limited(&upstream, "requests_per_minute: 20").await;
    let calls = (0..60).map(|n| {
        let key = if n % 2 == 0 { "a" } else { "o" };
        let front = &front;
        async move { (key, send(front, "/v1/chat/completions", key, &chat()).await) }
    });
    let answers = join_all(calls).await;
    let passed = |of: &str| {
        let of_key = answers.iter().filter(|(key, _)| *key == of);
        of_key.filter(|(_, answer)| answer.status == 200).count()
    };
    assert_eq!((passed("a"), passed("o")), (20, 30));
    assert_eq!(
        upstream.requests().len(),
        50,
        "a refused call reaches no provider"
    );
    for (_, refused) in answers.iter().filter(|(_, answer)| answer.status != 200) {
        assert_eq!(refused.status, 429, "{refused:?}");
    }
    let scraped = metrics(front.take_running().admin_address).await;
    let counted = r#"relight_tenant_limited_total{limit="requests_per_minute",tenant="acme"} 10"#;
    assert!(scraped.contains(counted), "{scraped}");
    for untouched in [
        r#"relight_gate_closed{gate="rate",target="t0"} 0"#,
        r#"relight_circuit_transitions_total{target="t0",to="open"} 0"#,
    ] {
        assert!(scraped.contains(untouched), "{scraped}");
    }
}

#[tokio::test]
async fn each_front_refuses_in_its_own_words_with_its_own_headers() {
    let upstream = Upstream::start().await;
    for (path, body, kind, openai) in [
        ("/v1/chat/completions", chat(), "rate_limit_error", true),
        ("/v1/responses", response(), "rate_limit_error", true),
        ("/v1/messages", message(), "rate_limit_error", false),
    ] {
        let front = limited(
            &upstream,
            "requests_per_minute: 1, input_tokens_per_minute: 5000, output_tokens_per_minute: 900",
        )
        .await;
        let passed = send(&front, path, "a", &body).await;
        assert_eq!(passed.status, 200, "{passed:?}");
        let refused = send(&front, path, "a", &body).await;
        assert_eq!(refused.status, 429, "{refused:?}");
        let error = refused.json()["error"].clone();
        assert_eq!(error["type"], kind);
        assert_eq!(error["code"], "rate_limit_exceeded");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("requests_per_minute 1")
        );
        let wait = number(&refused, "retry-after");
        assert!((1..=61).contains(&wait), "{wait}");
        for answer in [&passed, &refused] {
            if openai {
                assert_eq!(number(answer, "x-ratelimit-limit-requests"), 1);
                assert_eq!(number(answer, "x-ratelimit-remaining-requests"), 0);
                assert_eq!(number(answer, "x-ratelimit-limit-tokens"), 900);
                assert!(answer.header("x-ratelimit-reset-requests").is_some());
            } else {
                assert_eq!(number(answer, "anthropic-ratelimit-requests-limit"), 1);
                assert_eq!(number(answer, "anthropic-ratelimit-requests-remaining"), 0);
                assert_eq!(
                    number(answer, "anthropic-ratelimit-input-tokens-limit"),
                    5000
                );
                assert_eq!(
                    number(answer, "anthropic-ratelimit-output-tokens-limit"),
                    900
                );
                assert!(
                    answer
                        .header("anthropic-ratelimit-requests-reset")
                        .is_some()
                );
            }
        }
        let other = send(&front, path, "o", &body).await;
        assert_eq!(other.status, 200);
        assert!(!format!("{other:?}").contains("ratelimit"), "{other:?}");
    }
}

#[tokio::test]
async fn over_grpc_the_limit_is_a_reason_with_the_time_to_come_back() {
    let upstream = Upstream::start().await;
    let front = limited(&upstream, "requests_per_minute: 1").await;
    let url = format!("http://{}", front.grpc_address);
    let mut client = RecoveryServiceClient::connect(url).await.unwrap();
    let request = || {
        let mut invocation = asking("Hello.");
        "main".clone_into(&mut invocation.route);
        let invocation = Some(invocation);
        with_key("a", InvokeWithRecoveryRequest { invocation })
    };
    client.invoke_with_recovery(request()).await.unwrap();
    let refused = client.invoke_with_recovery(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let details = refused.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!(info.reason, "RATE_LIMITED");
    assert_eq!(info.metadata["limit"], "requests_per_minute");
    let wait = details.retry_info().unwrap().retry_delay.unwrap();
    assert!((1..=61).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test]
async fn over_mcp_the_limit_is_an_error_of_the_protocol_with_the_wait_as_data() {
    use crate::support::relight::Relight;
    use relight::internals::wire_server::{WireServer, mcp::McpScript};

    let script = McpScript::new(vec![echo("look")]);
    let wire = WireServer::start().await.unwrap();
    script.play_on(&wire);
    let yaml = format!(
        "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  \
         tenants: {{ default: {{ limits: {{ requests_per_minute: 1 }} }} }}\ntools:\n  \
         servers: {{ s: {{ url: \"http://{}/mcp\" }} }}\n  mcp_front: {{ listen: \"127.0.0.1:0\" }}\n",
        wire.address()
    );
    let relight = Relight::start_whole(&yaml).await;
    let address = relight.running.mcp_front_address.unwrap();
    let params = json!({ "name": "look", "arguments": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.push(post_with(address, "/mcp", &[], &call).await.json());
    }
    assert!(answers[0]["result"].is_object(), "{answers:?}");
    let error = &answers[1]["error"];
    assert_eq!(error["data"]["limit"], "requests_per_minute", "{answers:?}");
    assert_eq!(error["data"]["reason"], "RATE_LIMITED");
    let wait = error["data"]["retryAfterMs"].as_u64().unwrap();
    assert!((1..=61_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn tokens_are_settled_by_what_the_provider_counts() {
    let upstream = Upstream::start().await;
    let used = |input, output| {
        Reply::events(&[
            chunk(&json!({ "content": "Hi." }), None),
            chunk(&json!({}), Some("stop")),
            usage_chunk(input, output),
        ])
    };
    for (limit, reply) in [
        ("input_tokens_per_minute", used(2500, 1)),
        ("output_tokens_per_minute", used(1, 2500)),
    ] {
        upstream.otherwise(reply);
        let front = limited(&upstream, &format!("{limit}: 1000")).await;
        assert_eq!(
            send(&front, "/v1/messages", "a", &message()).await.status,
            200
        );
        let refused = send(&front, "/v1/messages", "a", &message()).await;
        assert_eq!(
            refused.status, 429,
            "the prompt alone is a few tokens: {refused:?}"
        );
        // Two and a half minutes' worth are paid back before the next call.
        let wait = number(&refused, "retry-after");
        assert!((60..=182).contains(&wait), "{wait}");
        assert_eq!(
            refused.header("x-should-retry"),
            Some("false"),
            "no SDK waits that long"
        );
    }
}

#[tokio::test]
async fn a_place_in_flight_is_free_when_its_call_ends() {
    let upstream = Upstream::start().await;
    let front = limited(&upstream, "in_flight: 1").await;
    for _ in 0..3 {
        assert_eq!(
            send(&front, "/v1/chat/completions", "a", &chat())
                .await
                .status,
            200
        );
    }
    upstream.push(Reply::text("Slow.").paced(std::time::Duration::from_millis(300)));
    let body = chat();
    let (first, second) = tokio::join!(send(&front, "/v1/chat/completions", "a", &body), async {
        upstream.await_request(4).await;
        send(&front, "/v1/chat/completions", "a", &body).await
    });
    assert_eq!((first.status, second.status), (200, 429), "{second:?}");
    assert_eq!(second.header("x-should-retry"), Some("true"));
}

#[tokio::test]
async fn the_settings_of_the_page_hold_as_they_are_written() {
    let page = include_str!("../../docs/limits.md");
    let settings = page.split("```yaml\nserver:\n").nth(1).unwrap();
    let settings = settings.split("```").next().unwrap();
    let keys = ["acme", "batch", "somebody"].map(|tenant| key(tenant, tenant, ""));
    let server = format!("  keys: [{}]\n{settings}", keys.join(", "));
    let upstream = Upstream::start().await;
    let front = Front::start_with(&server, &over("main", &[(&upstream, "openai_chat")])).await;
    let limit = async |tenant, header| {
        let answer = send(&front, "/v1/chat/completions", tenant, &chat()).await;
        (answer.status, number(&answer, header))
    };
    assert_eq!(
        limit("acme", "x-ratelimit-limit-requests").await,
        (200, 600)
    );
    assert_eq!(
        limit("acme", "x-ratelimit-limit-tokens").await,
        (200, 400_000)
    );
    assert_eq!(
        limit("batch", "x-ratelimit-limit-tokens").await,
        (200, 50_000)
    );
    assert_eq!(
        limit("somebody", "x-ratelimit-limit-requests").await,
        (200, 60)
    );
}
