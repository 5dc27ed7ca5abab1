//! Each rejection as its provider writes it, and the change that follows.

use serde_json::json;

use super::*;
use crate::domain::message::{Message, Opaque, Reasoning, ToolChoice};

fn call() -> ModelCall {
    let mut call = ModelCall {
        messages: vec![Message::text(Role::User, "Hi")],
        max_output_tokens: Some(100_000),
        reasoning_effort: Some("low".to_owned()),
        parallel_tool_calls: Some(true),
        ..ModelCall::default()
    };
    call.sampling.temperature = Some(0.5);
    call.sampling.top_p = Some(0.9);
    call.sampling.seed = Some(1);
    call
}

fn refusal(body: &Value) -> ProviderError {
    ProviderError {
        status: Some(400),
        body: Some(body.to_string()),
        ..ProviderError::default()
    }
}

fn openai(message: &str, param: Option<&str>, code: &str) -> ProviderError {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    refusal(&json!({"error": error}))
}

fn anthropic(message: &str) -> ProviderError {
    refusal(
        &json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}}),
    )
}

fn gemini(message: &str) -> ProviderError {
    refusal(&json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}))
}

fn found_as(class: FailureClass, facts: &ProviderError, call: &ModelCall) -> Option<Adaptation> {
    find(facts, &Failure::local(class, "refused"), call)
}

fn found(facts: &ProviderError) -> Option<Adaptation> {
    found_as(FailureClass::InvalidRequest, facts, &call())
}

fn without(parameter: Parameter) -> Adaptation {
    Adaptation::DropParameter { parameter }
}

fn limit(to: u32) -> Adaptation {
    Adaptation::OutputLimit {
        from: Some(100_000),
        to,
    }
}

#[test]
fn strict_tools_are_offered_without_it_where_it_is_not_taken() {
    let tool = |strict| crate::domain::message::ToolDefinition {
        name: "look".to_owned(),
        strict,
        ..Default::default()
    };
    let with = |strict| ModelCall {
        tools: vec![tool(strict)],
        ..ModelCall::default()
    };
    let words = "tools.0.custom.strict: Extra inputs are not permitted";
    let refused = |call| found_as(FailureClass::InvalidRequest, &anthropic(words), &call);
    let change = refused(with(Some(true)));
    assert_eq!(change, Some(without(Parameter::StrictTools)));
    assert_eq!(refused(with(None)), None);
    let other = "tools.0.custom.input_schema: Extra inputs are not permitted";
    let other = found_as(
        FailureClass::InvalidRequest,
        &anthropic(other),
        &with(Some(true)),
    );
    assert_eq!(other, None);
}

#[test]
fn a_parameter_that_is_not_taken_is_left_out() {
    let value = "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is \
                 supported.";
    assert_eq!(
        found(&openai(value, Some("temperature"), "unsupported_value")),
        Some(without(Parameter::Temperature))
    );
    let effort = "Unsupported parameter: 'reasoning.effort' is not supported with this model.";
    let effort = openai(effort, Some("reasoning.effort"), "unsupported_parameter");
    assert_eq!(found(&effort), Some(without(Parameter::ReasoningEffort)));
    assert_eq!(
        found(&anthropic("`temperature` is deprecated for this model.")),
        Some(without(Parameter::Temperature))
    );
    let both =
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.";
    assert_eq!(found(&anthropic(both)), Some(without(Parameter::TopP)));
    let vertex = "Invalid JSON payload received. Unknown name \"seed\" at 'generation_config': Cannot find field.";
    assert_eq!(found(&gemini(vertex)), Some(without(Parameter::Seed)));
    assert_eq!(
        found(&gemini("Thinking level is not supported for this model.")),
        Some(without(Parameter::ReasoningEffort))
    );
    let old = refusal(
        &json!({"object": "error", "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), \
        'msg': 'Extra inputs are not permitted'}]", "code": 400}),
    );
    assert_eq!(found(&old), Some(without(Parameter::StreamUsage)));
    let mistral = refusal(
        &json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "parallel_tool_calls"], "msg": "Extra \
        inputs are not permitted"}]}),
    );
    assert_eq!(found(&mistral), Some(without(Parameter::ParallelToolCalls)));
}

#[test]
fn the_output_limit_is_sent_under_the_name_that_the_server_requires() {
    let named = |field| Some(Adaptation::OutputLimitField { field });
    let old = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let old = openai(old, Some("max_tokens"), "unsupported_parameter");
    assert_eq!(found(&old), named(OutputLimitField::MaxCompletionTokens));
    let new = openai(
        "Unrecognized request argument supplied: max_completion_tokens",
        None,
        "",
    );
    assert_eq!(found(&new), named(OutputLimitField::MaxTokens));
    let unlimited = ModelCall {
        max_output_tokens: None,
        ..call()
    };
    assert_eq!(
        found_as(FailureClass::InvalidRequest, &old, &unlimited),
        None
    );
}

#[test]
fn the_output_limit_becomes_what_the_refusal_states() {
    for (words, to) in [
        (
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided \
          100000.",
            16384,
        ),
        (
            "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
            8192,
        ),
        (
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 \
          (inclusive) to 65537 (exclusive). Update the value and try again.",
            65536,
        ),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that \
          is lower than 4096.",
            4096,
        ),
        (
            "`max_tokens` must be less than or equal to `8,192`, the maximum value for `max_tokens` is less than the \
          `context_window` for this model",
            8192,
        ),
        (
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
            8192,
        ),
    ] {
        assert_eq!(found(&anthropic(words)), Some(limit(to)), "{words}");
    }
    let low = ModelCall {
        max_output_tokens: Some(1),
        ..call()
    };
    let words = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.";
    let low = found_as(
        FailureClass::InvalidRequest,
        &openai(words, Some("max_output_tokens"), "integer_below_min_value"),
        &low,
    );
    assert_eq!(
        low,
        Some(Adaptation::OutputLimit {
            from: Some(1),
            to: 16
        })
    );
    let mut thinking = ModelCall {
        max_output_tokens: Some(1000),
        ..call()
    };
    thinking.extra.insert(
        "thinking".to_owned(),
        json!({"type": "enabled", "budget_tokens": 4000}),
    );
    let words = anthropic(
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation.",
    );
    let raised = found_as(FailureClass::InvalidRequest, &words, &thinking);
    assert_eq!(
        raised,
        Some(Adaptation::OutputLimit {
            from: Some(1000),
            to: 5000
        })
    );
}

#[test]
fn an_overflow_of_prompt_and_answer_together_leaves_a_shorter_answer_where_one_fits() {
    let overflow = |words: &str| found_as(FailureClass::ContextLength, &anthropic(words), &call());
    let words = "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens (30000 in \
                 the messages, 100000 in the completion). Please reduce the length of the messages or completion.";
    assert_eq!(overflow(words), Some(limit(98_000)));
    let words = "'max_tokens' or 'max_completion_tokens' is too large: 100000. This model's maximum context length is \
                 8192 tokens and your request has 500 input tokens (100000 > 8192 - 500).";
    assert_eq!(overflow(words), Some(limit(7692)));
    let words = "input length and `max_tokens` exceed context limit: 188240 + 100000 > 200000, decrease input length or \
                 `max_tokens` and try again";
    assert_eq!(overflow(words), Some(limit(11_760)));
    assert_eq!(
        overflow(
            "This model's maximum context length is 8192 tokens, but your messages have 9631 tokens."
        ),
        None
    );
    let words = "This model's maximum context length is 8192 tokens. However, you requested 108100 tokens (8100 in the \
                 messages, 100000 in the completion).";
    assert_eq!(overflow(words), None, "no room for an answer");
}

#[test]
fn reasoning_whose_signature_is_refused_is_left_out_whatever_the_refusal_was_taken_for() {
    let opaque = Some(Opaque {
        kind: "x".to_owned(),
        bytes: vec![1],
    });
    let mut signed = call();
    let parts = vec![
        Part::Reasoning(Reasoning {
            text: String::new(),
            opaque,
        }),
        Part::Text("So.".to_owned()),
    ];
    signed.messages.push(Message::new(Role::Assistant, parts));
    for facts in [
        anthropic("messages.1.content.0: Invalid `signature` in `thinking` block"),
        gemini("Corrupted thought signature."),
        gemini("Thought signature is not valid"),
        openai(
            "The encrypted content gAAA could not be verified.",
            None,
            "invalid_encrypted_content",
        ),
    ] {
        for class in [FailureClass::InvalidRequest, FailureClass::Authentication] {
            let change = found_as(class, &facts, &signed);
            assert_eq!(change, Some(Adaptation::DropReasoning), "{facts}");
            assert_ne!(
                found_as(class, &facts, &call()),
                change,
                "nothing signed was sent"
            );
            let mut failure = Failure::local(class, "refused");
            record(&facts, &mut failure, &signed);
            assert_eq!(
                (failure.class, failure.adaptation),
                (FailureClass::InvalidRequest, change),
                "the key is well"
            );
        }
    }
    let key = anthropic("invalid x-api-key");
    assert_eq!(found_as(FailureClass::Authentication, &key, &signed), None);
}

#[test]
fn developer_messages_become_system_messages_where_the_role_is_not_known() {
    let mut instructed = call();
    instructed
        .messages
        .insert(0, Message::text(Role::Developer, "Be brief."));
    let words = "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant \
                 `developer`, expected one of `system`, `user`, `assistant`, `tool`";
    let facts = openai(words, None, "invalid_request_error");
    assert_eq!(
        found_as(FailureClass::InvalidRequest, &facts, &instructed),
        Some(Adaptation::DeveloperAsSystem)
    );
    assert_eq!(found(&facts), None, "no developer spoke");
}

#[test]
fn what_shapes_the_answer_and_what_is_merely_wrong_is_never_changed() {
    let mut call = call();
    call.stop = vec!["END".to_owned()];
    call.tool_choice = ToolChoice::Required;
    call.extra.insert("safetySettings".to_owned(), json!([]));
    for facts in [
        openai(
            "Unsupported parameter: 'stop' is not supported with this model.",
            Some("stop"),
            "unsupported_parameter",
        ),
        openai(
            "tool_choice 'required' is not supported",
            Some("tool_choice"),
            "unsupported_value",
        ),
        openai(
            "Unknown parameter: 'safetySettings'.",
            Some("safetySettings"),
            "unknown_parameter",
        ),
        openai(
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2.",
            Some("temperature"),
            "x",
        ),
        openai(
            "Invalid schema for function 'f': 'temperature' has an unsupported type.",
            None,
            "invalid_function",
        ),
        openai(
            "'temperature' is not permitted here",
            Some("tools[0].function.parameters"),
            "unsupported",
        ),
        openai("The request is not supported.", None, "unsupported"),
    ] {
        assert_eq!(
            found_as(FailureClass::InvalidRequest, &facts, &call),
            None,
            "{facts}"
        );
    }
    call.parallel_tool_calls = Some(false);
    let facts = openai(
        "Unknown parameter: 'parallel_tool_calls'.",
        Some("parallel_tool_calls"),
        "unknown_parameter",
    );
    assert_eq!(
        found_as(FailureClass::InvalidRequest, &facts, &call),
        None,
        "one call at a time was asked for"
    );
    let limited = openai("temperature is not supported", Some("temperature"), "x");
    assert_eq!(found_as(FailureClass::RateLimited, &limited, &call), None);
}

#[test]
fn a_field_of_extra_goes_only_where_the_answer_can_do_without_it() {
    let mut call = call();
    call.extra.insert("verbosity".to_owned(), json!("low"));
    let facts = openai(
        "Unknown parameter: 'verbosity'.",
        Some("verbosity"),
        "unknown_parameter",
    );
    let change = found_as(FailureClass::InvalidRequest, &facts, &call).unwrap();
    assert_eq!(
        change,
        Adaptation::DropExtra {
            field: "verbosity".to_owned()
        }
    );
    change.change(&mut call);
    assert!(call.extra.is_empty());
}
