//! The entries of the table of models and transports, by examples.

use super::*;
use crate::domain::{adaptation::OutputLimitField, target::PrefillMark};

fn able(dialect: Dialect, family: &str, endpoint: &str, model: &str) -> Capabilities {
    capabilities(&ModelRef {
        dialect,
        family,
        endpoint,
        model,
    })
}

#[test]
fn every_record_of_the_table_is_readable_and_not_empty() {
    let records = read().unwrap();
    assert!(records.len() > 20);
    for record in &records {
        let silent =
            record.able == CapabilityOverrides::default() && record.manners == Manners::default();
        assert!(!silent, "{:?}", record.when);
    }
}

#[test]
fn openai_and_azure_know_developers_and_the_current_name_of_the_output_limit() {
    for (family, endpoint) in [
        ("openai", "https://api.openai.com/v1"),
        ("mine", "https://api.openai.com/v1"),
        (
            "mine",
            "https://x.openai.azure.com/openai/deployments/{model}?api-version=2024-10-21",
        ),
        ("azure", "https://proxy.example.com"),
    ] {
        let able = able(Dialect::OpenaiChat, family, endpoint, "gpt-4o-mini");
        assert_eq!(
            (able.developer_role, able.output_limit_field),
            (true, OutputLimitField::MaxCompletionTokens)
        );
        assert_eq!(able.context_window_tokens, Some(128_000));
    }
    let local = able(
        Dialect::OpenaiChat,
        "mine",
        "http://localhost:8000/v1",
        "a-model",
    );
    assert_eq!(local, Capabilities::default());
}

#[test]
fn system_messages_within_a_conversation_go_only_to_models_that_take_them() {
    let anthropic = |model| {
        able(
            Dialect::Anthropic,
            "anthropic",
            "https://api.anthropic.com",
            model,
        )
        .tail_system_message
    };
    assert_eq!(
        ["claude-sonnet-4-5", "claude-opus-5-5", "claude-haiku-4-5"].map(anthropic),
        [false, true, false]
    );
    assert!(able(Dialect::OpenaiChat, "openai", "", "gpt-5").tail_system_message);
    assert!(!able(Dialect::OpenaiChat, "my-vllm", "", "qwen").tail_system_message);
}

#[test]
fn begun_answers_are_marked_as_each_server_wants_it_and_given_only_where_they_are_taken() {
    let prefill = |family| {
        let able = able(Dialect::OpenaiChat, family, "", "m");
        (able.assistant_prefill, able.prefill_mark)
    };
    assert_eq!(prefill("vllm"), (true, PrefillMark::ContinueFinalMessage));
    assert_eq!(
        prefill("llama.cpp"),
        (true, PrefillMark::ContinueFinalMessage)
    );
    assert_eq!(prefill("mistral"), (true, PrefillMark::Prefix));
    assert_eq!(prefill("deepseek"), (false, PrefillMark::Prefix));
    assert_eq!(prefill("openai"), (false, PrefillMark::None));
    assert!(!able(Dialect::Anthropic, "anthropic", "", "claude-3-5-sonnet").assistant_prefill);
}

#[test]
fn only_the_models_that_require_signed_calls_get_placeholders() {
    let signed = |model| able(Dialect::Gemini, "google", "", model).signed_calls;
    assert_eq!(
        ["gemini-3-pro", "gemini-2.5-flash", "models/gemini-1.5-pro"].map(signed),
        [true, false, false]
    );
    let bedrock = |model| able(Dialect::Bedrock, "bedrock", "", model).user_after_tool;
    assert_eq!(
        [
            "anthropic.claude-3-haiku",
            "us.meta.llama3-1-70b-instruct-v1:0"
        ]
        .map(bedrock),
        [true, false]
    );
}

#[test]
fn manners_are_those_of_the_server_whatever_the_model() {
    let manners = |family| {
        manners(&ModelRef {
            dialect: Dialect::OpenaiChat,
            family,
            endpoint: "",
            model: "",
        })
    };
    assert_eq!(manners("azure").api_key_header, Some(KeyHeader::ApiKey));
    assert_eq!(
        manners("deepseek").reasoning_field.as_deref(),
        Some("reasoning_content")
    );
    assert_eq!(
        manners("openrouter").reasoning_field.as_deref(),
        Some("reasoning")
    );
    assert_eq!(manners("openai"), Manners::default());
}

#[test]
fn a_star_matches_anything() {
    for (pattern, text, expected) in [
        ("gpt-4o*", "gpt-4o-mini", true),
        ("gpt-4o", "gpt-4o-mini", false),
        ("*vllm*", "vllm", true),
        ("*.openai.azure.com", "x.openai.azure.com", true),
        ("*.openai.azure.com", "openai.azure.com", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b", "ab", true),
        ("ab*ba", "aba", false),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}
