//! Servers that implement chat completions in their own ways: what they send, what they get, and
//! how they fail.
//!
//! The fixtures are written from what each server documents. Everything goes through the whole
//! stack, so that what is known of a server by its family alone is part of what is tested.

use relight::internals::grpc::v1::{
    Completion, FailureClass, FinishReason, InvokeWithRecoveryResponse, ModelCall, Part,
    ToolDefinition, invocation::Call, invoke_with_recovery_response::Outcome, part::Content,
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{fixture, stream},
    front::Front,
    relight::{Relight, asking},
    upstream::{Reply, Request, Upstream},
};

const TEXT: &str = "The sky is blue by day.";

/// A server of a family, and Relight before it.
struct Served {
    upstream: Upstream,
    relight: Relight,
}

// === impl Served ===

impl Served {
    /// Relight before a server of that family; `path` is what its base URL has behind the host.
    async fn by(family: &str, path: &str) -> Self {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::text(TEXT));
        let url = upstream.base_url().replace("/v1", path);
        let yaml = format!(
            "providers:\n  p: {{ dialect: openai_chat, family: {family}, base_url: \"{url}\", api_key: k }}\n\
             targets:\n  t: {{ provider: p, model: m }}\nroutes:\n  r: {{ targets: [t] }}\ndefault_route: r\n\
             policies:\n  standard: {{ retry: {{ backoff: {{ base: 10ms }} }} }}\n"
        );
        Self {
            upstream,
            relight: Relight::start(&yaml).await,
        }
    }

    /// The answer to a question that is first answered by this fixture.
    async fn played(&self, name: &str) -> InvokeWithRecoveryResponse {
        self.replied(stream(&fixture(&format!("openai/{name}.sse"))))
            .await
    }

    async fn replied(&self, reply: Reply) -> InvokeWithRecoveryResponse {
        self.upstream.push(reply);
        let mut invocation = asking("Why?");
        if let Some(Call::Model(call)) = &mut invocation.call {
            change(call);
        }
        self.relight.invoke(invocation).await
    }

    /// The class of a first attempt that fails so, and the whole answer of the second.
    async fn recovered(&self, name: &str) -> FailureClass {
        let response = self.played(name).await;
        assert_eq!(text(&completion(&response)), TEXT, "{response:?}");
        assert_eq!(response.attempts.len(), 2, "{response:?}");
        response.attempts[0].failure_class()
    }

    fn request(&self) -> Request {
        self.upstream.requests().remove(0)
    }
}

fn change(call: &mut ModelCall) {
    call.max_output_tokens = Some(50);
    call.tools.push(ToolDefinition {
        name: "get_weather".to_owned(),
        input_schema_json: "{\"type\":\"object\"}".to_owned(),
        ..ToolDefinition::default()
    });
}

fn completion(response: &InvokeWithRecoveryResponse) -> Completion {
    match &response.outcome {
        Some(Outcome::Completion(completion)) => completion.clone(),
        other => panic!("{other:?}"),
    }
}

fn parts(completion: &Completion) -> Vec<Part> {
    completion.message.clone().unwrap().parts
}

fn text(completion: &Completion) -> String {
    let texts = parts(completion)
        .into_iter()
        .filter_map(|part| match part.content {
            Some(Content::Text(text)) => Some(text.text),
            _ => None,
        });
    texts.collect()
}

fn reasoning(completion: &Completion) -> String {
    let texts = parts(completion)
        .into_iter()
        .filter_map(|part| match part.content {
            Some(Content::Reasoning(reasoning)) => Some(reasoning.text),
            _ => None,
        });
    texts.collect()
}

fn calls(completion: &Completion) -> Vec<(String, Value)> {
    let calls = parts(completion)
        .into_iter()
        .filter_map(|part| match part.content {
            Some(Content::ToolCall(call)) => Some((
                call.name,
                serde_json::from_str(&call.arguments_json).unwrap(),
            )),
            _ => None,
        });
    calls.collect()
}

/// A whole answer at the first attempt, with its usage: the text and the reasoning.
fn whole(response: &InvokeWithRecoveryResponse) -> (String, String) {
    let completion = completion(response);
    assert_eq!(response.attempts.len(), 1, "{response:?}");
    let usage = response.attempts[0].usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.output_tokens),
        (Some(9), Some(7)),
        "{response:?}"
    );
    (text(&completion), reasoning(&completion))
}

fn weather() -> Vec<(String, Value)> {
    vec![("get_weather".to_owned(), json!({"city": "Oslo"}))]
}

#[tokio::test]
async fn azure_annotates_and_filters_and_takes_its_key_in_a_header_of_its_own() {
    let served = Served::by(
        "azure",
        "/openai/deployments/{model}?api-version=2024-10-21",
    )
    .await;
    assert_eq!(
        whole(&served.played("azure_answer").await),
        (TEXT.to_owned(), String::new())
    );
    let request = served.request();
    assert_eq!(
        request.path,
        "/openai/deployments/m/chat/completions?api-version=2024-10-21"
    );
    assert_eq!(
        (request.header("api-key"), request.header("authorization")),
        (Some("k"), None)
    );
    assert_eq!(
        (
            &request.body["max_completion_tokens"],
            &request.body["max_tokens"]
        ),
        (&json!(50), &Value::Null)
    );
    let filtered = served.played("azure_filtered").await;
    assert_eq!(
        completion(&filtered).finish_reason(),
        FinishReason::ContentFilter,
        "{filtered:?}"
    );
    let words = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.";
    let blocked = json!({"error": {"message": words, "type": null, "param": "prompt", "code": "content_filter",
        "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}}});
    let blocked = served.replied(Reply::refusal(400, &[], &blocked)).await;
    assert_eq!(
        blocked.attempts[0].failure_class(),
        FailureClass::ContentFiltered
    );
    assert_eq!(blocked.attempts.len(), 1, "a filter is not asked twice");
}

#[tokio::test]
async fn vllm_reasons_in_a_field_of_its_own_and_fails_inside_the_stream() {
    let served = Served::by("vllm", "/v1").await;
    assert_eq!(
        whole(&served.played("vllm_answer").await),
        (TEXT.to_owned(), "Rayleigh, then.".to_owned())
    );
    let request = served.request();
    assert_eq!(request.header("authorization"), Some("Bearer k"));
    assert_eq!(
        (
            &request.body["max_tokens"],
            &request.body["max_completion_tokens"]
        ),
        (&json!(50), &Value::Null)
    );
    // A dead engine dies again of the same request: it is not called twice.
    let died = served.played("vllm_error_amid").await;
    assert_eq!(
        (died.attempts.len(), died.attempts[0].failure_class()),
        (1, FailureClass::Crash),
        "{died:?}"
    );
}

#[tokio::test]
async fn llama_cpp_fails_in_a_field_that_no_standard_knows() {
    let served = Served::by("llama.cpp", "/v1").await;
    assert_eq!(
        whole(&served.played("llamacpp_answer").await),
        (TEXT.to_owned(), String::new())
    );
    let response = served.played("llamacpp_error_amid").await;
    let class = response.attempts[0].failure_class();
    assert!(
        matches!(
            class,
            FailureClass::ServerError | FailureClass::ContextLength
        ),
        "{response:?}"
    );
    let words = "the request exceeds the available context size, try increasing it";
    let overflow = json!({"error": {"code": 400, "message": words, "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000, "n_ctx": 4096}});
    let overflow = served.replied(Reply::refusal(400, &[], &overflow)).await;
    assert_eq!(
        overflow.attempts[0].failure_class(),
        FailureClass::ContextLength
    );
}

#[tokio::test]
async fn ollama_sends_tool_calls_whole_and_fails_inside_the_stream() {
    let served = Served::by("ollama", "/v1").await;
    let response = served.played("ollama_answer").await;
    assert_eq!(
        whole(&response),
        (String::new(), "A tool helps.".to_owned())
    );
    assert_eq!(calls(&completion(&response)), weather());
    let failed = served.recovered("ollama_error_amid").await;
    assert!(
        matches!(failed, FailureClass::ServerError | FailureClass::Network),
        "{failed:?}"
    );
}

#[tokio::test]
async fn groq_reports_its_usage_elsewhere_and_stops_at_broken_calls() {
    let served = Served::by("groq", "/openai/v1").await;
    assert_eq!(
        whole(&served.played("groq_answer").await),
        (TEXT.to_owned(), "Hm.".to_owned())
    );
    assert_eq!(served.request().path, "/openai/v1/chat/completions");
    assert_eq!(
        served.recovered("groq_error_amid").await,
        FailureClass::MalformedResponse
    );
}

#[tokio::test]
async fn mistral_thinks_in_parts_and_takes_no_user_after_a_tool() {
    let served = Served::by("mistral", "/v1").await;
    let response = served.played("mistral_answer").await;
    assert_eq!(
        whole(&response),
        ("Let me look.".to_owned(), "Hm.".to_owned())
    );
    assert_eq!(calls(&completion(&response)), weather());
    let full = served.played("mistral_full").await;
    assert_eq!(
        completion(&full).finish_reason(),
        FinishReason::ContextFull,
        "{full:?}"
    );
    let words = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant";
    let order = json!({"object": "error", "message": words, "type": "invalid_request_message_order", "param": null, "code": "3230"});
    let order = served.replied(Reply::refusal(400, &[], &order)).await;
    assert_eq!(
        order.attempts[0].failure_class(),
        FailureClass::InvalidRequest
    );
}

#[tokio::test]
async fn deepseek_keeps_the_line_with_comments_and_ends_short_of_resources() {
    let served = Served::by("deepseek", "/v1").await;
    assert_eq!(
        whole(&served.played("deepseek_answer").await),
        (TEXT.to_owned(), "Hm.".to_owned())
    );
    assert_eq!(
        served.recovered("deepseek_overloaded").await,
        FailureClass::Overloaded
    );
}

#[tokio::test]
async fn openrouter_keeps_the_line_with_comments_and_fails_in_a_choice() {
    let served = Served::by("openrouter", "/api/v1").await;
    assert_eq!(
        whole(&served.played("openrouter_answer").await),
        (TEXT.to_owned(), "Hm.".to_owned())
    );
    // Its code is `server_error`; that the provider disconnected is the inner cause.
    assert_eq!(
        served.recovered("openrouter_error_amid").await,
        FailureClass::Network
    );
}

#[tokio::test]
async fn a_call_goes_to_the_targets_that_take_what_it_holds_where_there_are_any() {
    let (blind, seeing) = (Upstream::start().await, Upstream::start().await);
    blind.otherwise(Reply::text(TEXT));
    seeing.otherwise(Reply::text(TEXT));
    let provider = |upstream: &Upstream| {
        format!(
            "{{ dialect: openai_chat, family: openai, base_url: \"{}\", api_key: k }}",
            upstream.base_url()
        )
    };
    let front = Front::start(&format!(
        "providers:\n  a: {}\n  b: {}\ntargets:\n  a: {{ provider: a, model: gpt-3.5-turbo }}\n  b: {{ provider: b, model: \
         gpt-4o }}\nroutes:\n  both: {{ targets: [a, b] }}\n  blind: {{ targets: [a] }}\ndefault_route: both\n",
        provider(&blind),
        provider(&seeing)
    ))
    .await;
    let picture = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let showing =
        |route: &str| json!({"model": route, "messages": [{"role": "user", "content": [picture]}]});
    assert!(front.chat(&showing("both")).await.succeeded_with(TEXT));
    assert_eq!(
        (blind.requests().len(), seeing.requests().len()),
        (0, 1),
        "the second target is asked at once"
    );
    assert!(front.ask("both", false).await.succeeded_with(TEXT));
    assert_eq!(
        (blind.requests().len(), seeing.requests().len()),
        (1, 1),
        "without a picture, the first is"
    );
    assert!(
        front.chat(&showing("blind")).await.succeeded_with(TEXT),
        "what is known may be wrong: it is asked all the same"
    );
    assert_eq!(blind.requests().len(), 2);
}
