//! What a provider quotes of a request in its refusal decides nothing, in the forms in which
//! providers, their servers and their validators write such refusals.

use proptest::prelude::*;

use super::{samples::Sample, *};
use crate::{domain::circuit::GateKind, policy::gates::closed_by};

/// A refusal that quotes a caller's words: its status, and its body with `QUOTED` in their place.
type Form = (u16, &'static str, fn(&str) -> String);

/// JSON with the words as part of a string, `QUOTED` in its template.
pub(super) fn json(template: &str, words: &str) -> String {
    let escaped = serde_json::Value::from(words).to_string();
    template.replace("QUOTED", &escaped[1..escaped.len() - 1])
}

/// Returns the same one level deeper: an error as the message of another.
fn nested(template: &str, words: &str) -> String {
    serde_json::json!({"error": {"message": json(template, words), "code": 400}}).to_string()
}

/// Returns a string as Python prints it.
fn python(words: &str) -> String {
    let quote = if words.contains('\'') && !words.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut shown = words.replace('\\', "\\\\").replace('\n', "\\n");
    if quote == '\'' {
        shown = shown.replace('\'', "\\'");
    }
    format!("{quote}{shown}{quote}")
}

/// Forms with quotes or fields around the caller's words.
const QUOTED: &[Form] = &[
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Invalid schema for function 'f': 'QUOTED' is not valid under any of the given schemas.","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Invalid value: 'QUOTED'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"'QUOTED' is not one of ['system', 'assistant', 'user', 'function'] - 'messages.0.role'","type":"invalid_request_error","param":null,"code":null}}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Additional properties are not allowed ('QUOTED' was unexpected) - 'tools.0.function'","type":"invalid_request_error","param":null,"code":null}}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Invalid parameter: 'tool_call_id' of 'QUOTED' not found in 'tool_calls' of previous message.","type":"invalid_request_error","param":"messages.[2].tool_call_id","code":null}}"#,
            w,
        )
    }),
    (404, "openai", |w| {
        json(
            r#"{"error":{"message":"The model `QUOTED` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            w,
        )
    }),
    (400, "azure-openai", |w| {
        json(
            r#"{"error":{"message":"Unsupported value: 'QUOTED' is not supported with this model. Only the default value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
            w,
        )
    }),
    (400, "anthropic", |w| {
        json(
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.0: Input tag 'QUOTED' found using 'type' does not match any of the expected tags: 'document', 'image', 'text', 'tool_result', 'tool_use'"},"request_id":"req_1"}"#,
            w,
        )
    }),
    (400, "anthropic", |w| {
        json(
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages: Unexpected role \"QUOTED\". Allowed roles are \"user\" or \"assistant\""}}"#,
            w,
        )
    }),
    (400, "gemini", |w| {
        json(
            r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"QUOTED\" at 'generation_config': Cannot find field.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"generation_config","description":"Invalid JSON payload received. Unknown name \"QUOTED\" at 'generation_config': Cannot find field."}]}]}}"#,
            w,
        )
    }),
    (400, "vertex", |w| {
        json(
            r#"[{"error":{"code":400,"message":"Invalid value at 'contents[0].role' (TYPE_STRING), \"QUOTED\"","status":"INVALID_ARGUMENT"}}]"#,
            w,
        )
    }),
    (400, "bedrock", |w| {
        json(
            r#"{"message":"1 validation error detected: Value 'QUOTED' at 'toolConfig.tools.1.member.toolSpec.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"}"#,
            w,
        )
    }),
    (422, "mistral", |w| {
        json(
            r#"{"object":"error","message":{"detail":[{"type":"literal_error","loc":["body","messages",0,"role"],"msg":"Input should be 'user'","input":"QUOTED","ctx":{"expected":"'user'"}}]},"type":"invalid_request_error","param":null,"code":null}"#,
            w,
        )
    }),
    (400, "groq", |w| {
        json(
            r#"{"error":{"message":"'messages.0' : for 'role:QUOTED' the following must be satisfied[('messages.0.role' : value must be one of 'system', 'user')]","type":"invalid_request_error"}}"#,
            w,
        )
    }),
    (400, "together", |w| {
        json(
            r#"{"error":{"message":"Input validation error: `QUOTED` is not a valid role","type":"invalid_request_error","param":"messages","code":null}}"#,
            w,
        )
    }),
    (400, "vllm", |w| {
        serde_json::json!({"object": "error", "message": format!("[{{'type': 'literal_error', 'loc': ('body', 'messages', 0, 'role'), 'msg': \"Input should be 'user'\", 'input': {}, 'ctx': {{'expected': \"'user'\"}}}}]", python(w)), "type": "BadRequestError", "code": 400}).to_string()
    }),
    (400, "vllm", |w| {
        serde_json::json!({"object": "error", "message": format!("1 validation error for ChatCompletionRequest\nmessages.0\n  Input should be a valid dictionary [type=dict_type, input_value={}, input_type=str]\n    For further information visit https://errors.pydantic.dev/2.5/v/dict_type", python(w)), "type": "BadRequestError", "code": 400}).to_string()
    }),
    (404, "cohere", |w| {
        json(
            r#"{"id":"1","message":"model 'QUOTED' not found, make sure the correct model ID was used and that you have access to the model."}"#,
            w,
        )
    }),
    (404, "ollama", |w| {
        json(
            r#"{"error":"model \"QUOTED\" not found, try pulling it first"}"#,
            w,
        )
    }),
    (422, "deepseek", |w| {
        format!(
            "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `{w}`, expected one of `system`, `user`, `assistant`, `tool` at line 1 column 60"
        )
    }),
    (400, "fireworks", |w| {
        json(
            r#"[{"received":"QUOTED","code":"invalid_enum_value","options":["user"],"path":["messages",0,"role"],"message":"Invalid enum value. Expected 'user', received 'QUOTED'"}]"#,
            w,
        )
    }),
    (400, "spring", |w| {
        json(
            r#"{"status":400,"error":"Bad Request","message":"JSON parse error: Cannot deserialize value of type `Role` from String \"QUOTED\": not one of the values accepted for Enum class: [USER]"}"#,
            w,
        )
    }),
    (400, "litellm", |w| {
        nested(
            r#"litellm.BadRequestError: OpenAIException - {"error":{"message":"Invalid value: 'QUOTED'. Supported values are: 'user'.","type":"invalid_request_error","code":"invalid_value"}}"#,
            w,
        )
    }),
    (400, "openrouter", |w| {
        nested(
            r#"{"error":{"message":"Unsupported value: 'QUOTED' is not supported","type":"invalid_request_error"}}"#,
            w,
        )
    }),
    (400, "kong", |w| {
        json(
            r#"{"message":"body property validation failed","fields":{"role":"expected one of: user"},"received":{"role":"QUOTED"}}"#,
            w,
        )
    }),
    (422, "fastapi", |w| {
        json(
            r#"{"detail":[{"loc":["body","messages",0,"role"],"msg":"unexpected value; permitted: 'user'","type":"value_error.const","ctx":{"given":"QUOTED","permitted":["user"]}}]}"#,
            w,
        )
    }),
    (400, "ajv", |w| {
        json(
            r##"{"errors":[{"instancePath":"/tools/0/name","schemaPath":"#/properties/tools","keyword":"pattern","params":{"pattern":"^[a-z]+$"},"message":"must match pattern \"^[a-z]+$\"","data":"QUOTED"}]}"##,
            w,
        )
    }),
    (400, "fastify", |w| {
        json(
            r#"{"error":"Bad Request","message":"body must NOT have additional properties: 'QUOTED'","statusCode":400,"validation":[{"instancePath":"","keyword":"additionalProperties","params":{"additionalProperty":"QUOTED"},"message":"must NOT have additional properties"}]}"#,
            w,
        )
    }),
    (400, "hapi", |w| {
        json(
            r#"{"statusCode":400,"error":"Bad Request","message":"\"QUOTED\" is not allowed","validation":{"source":"payload","keys":["QUOTED"]}}"#,
            w,
        )
    }),
    (400, "zod", |w| {
        json(
            r#"{"error":{"issues":[{"code":"unrecognized_keys","keys":["QUOTED"],"path":[],"message":"Unrecognized key: \"QUOTED\""}]}}"#,
            w,
        )
    }),
    (422, "marshmallow", |w| {
        json(r#"{"json":{"QUOTED":["Unknown field."]}}"#, w)
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"We could not parse the JSON body of your request. What was sent was not valid JSON: 'QUOTED'","type":"invalid_request_error"}}"#,
            w,
        )
    }),
    (400, "gemini", |w| {
        json(
            r#"{"error":{"code":400,"message":"Function calling config: allowed_function_names contains 'QUOTED' which is not in function_declarations","status":"INVALID_ARGUMENT"}}"#,
            w,
        )
    }),
    (422, "rails", |w| {
        json(
            r#"{"errors":["Role 'QUOTED' is not included in the list"]}"#,
            w,
        )
    }),
    (400, "protojson", |w| {
        json(
            r#"{"code":3,"message":"proto: (line 1:12): unknown field \"QUOTED\"","details":[]}"#,
            w,
        )
    }),
    (400, "fenced", |w| {
        let sent = serde_json::json!({"role": w});
        let message = format!("Could not parse the request body:\n```json\n{sent}\n```");
        serde_json::json!({"error": {"message": message}}).to_string()
    }),
];

/// Forms without quotes.
const BARE: &[Form] = &[
    (400, "openrouter", |w| {
        json(
            r#"{"error":{"message":"QUOTED is not a valid model ID","code":400}}"#,
            w,
        )
    }),
    (404, "anthropic", |w| {
        json(
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: QUOTED"}}"#,
            w,
        )
    }),
    (404, "gemini", |w| {
        json(
            r#"{"error":{"code":404,"message":"models/QUOTED is not found for API version v1beta, or is not supported for generateContent.","status":"NOT_FOUND"}}"#,
            w,
        )
    }),
    (400, "bedrock", |w| {
        json(
            r#"{"message":"Malformed input request: #/messages/0/role: QUOTED is not a valid enum value, please reformat your input and try again."}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Unrecognized request argument supplied: QUOTED","type":"invalid_request_error","param":null,"code":null}}"#,
            w,
        )
    }),
    (404, "together", |w| {
        json(
            r#"{"error":{"message":"Unable to access model QUOTED. Please visit https://api.together.ai/models to view the list of supported models.","type":"invalid_request_error","param":null,"code":"model_not_available"}}"#,
            w,
        )
    }),
    (404, "huggingface", |w| {
        json(r#"{"error":"Model QUOTED does not exist"}"#, w)
    }),
    (400, "azure-openai", |w| {
        json(
            r#"{"error":{"code":"BadRequest","message":"Unknown model: QUOTED"}}"#,
            w,
        )
    }),
    (400, "gemini", |w| {
        json(
            r#"{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"contents[0].role","description":"Invalid value: QUOTED"}]}]}}"#,
            w,
        )
    }),
    (422, "xai", |w| {
        json(
            r#"{"detail":[{"loc":["body","model"],"msg":"Value error, QUOTED","type":"value_error"}]}"#,
            w,
        )
    }),
    (400, "anthropic", |w| {
        json(
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"QUOTED: Extra inputs are not permitted"}}"#,
            w,
        )
    }),
    (400, "bedrock", |w| {
        json(
            r#"{"message":"Malformed input request: extraneous key [QUOTED] is not permitted, please reformat your input and try again."}"#,
            w,
        )
    }),
    (400, "mistral", |w| {
        json(
            r#"{"object":"error","message":"Tool call id was QUOTED but must be a-z, A-Z, 0-9, with a length of 9.","type":"invalid_request_error","code":"3280"}"#,
            w,
        )
    }),
    (400, "openai", |w| {
        json(
            r#"{"error":{"message":"Duplicate function name: QUOTED","type":"invalid_request_error"}}"#,
            w,
        )
    }),
    (400, "gemini", |w| {
        json(
            r#"{"error":{"code":400,"message":"* tools[0].function_declarations[0].name: Invalid function name. Must start with a letter or an underscore. Got: QUOTED","status":"INVALID_ARGUMENT"}}"#,
            w,
        )
    }),
    (400, "dotnet", |w| {
        json(
            r#"{"title":"One or more validation errors occurred.","status":400,"errors":{"QUOTED":["The QUOTED field is required."]}}"#,
            w,
        )
    }),
    (400, "jsonschema", |w| {
        json(
            r#"{"error":"{'role': 'QUOTED'} is not valid under any of the given schemas\n\nFailed validating 'anyOf' in schema['properties']['messages']['items']:\n    {'anyOf': [{}]}\n\nOn instance['messages'][0]:\n    {'role': 'QUOTED'}"}"#,
            w,
        )
    }),
];

/// How a refusal of these words is judged: its class, and the gate that it closes for others.
fn outcome((status, provider, body): &Form, words: &str) -> (FailureClass, Option<GateKind>) {
    let error = ProviderError {
        provider: (*provider).into(),
        ..http(*status, &body(words))
    };
    let verdict = judge(&error);
    (verdict.class, closed_by(&verdict, false, false))
}

/// Whether words made a difference: of a class, or of a gate that closed for them.
fn differs(
    found: (FailureClass, Option<GateKind>),
    harmless: (FailureClass, Option<GateKind>),
) -> bool {
    found.0 != harmless.0 || (found.1.is_some() && found.1 != harmless.1)
}

pub(super) fn samples() -> Vec<Sample> {
    // A sentence that is a form itself cannot be told from it.
    let is_form = |sample: &Sample| sample.text == "extra inputs are not permitted";
    let mut samples: Vec<_> = rule::embedded().iter().flat_map(samples::of).collect();
    samples.retain(|sample| !is_form(sample));
    samples
}

#[test]
fn no_phrase_of_a_rule_that_a_refusal_quotes_changes_its_class_or_moves_a_gate() {
    let forms: Vec<&Form> = QUOTED.iter().chain(BARE).collect();
    let expected: Vec<_> = forms.iter().map(|form| outcome(form, "foo")).collect();
    let mut changed = Vec::new();
    let mut asked = 0;
    for (index, sample) in samples().iter().enumerate() {
        // Each phrase in several forms, each form with phrases of each rule.
        for turn in 0..EACH {
            let at = (index * EACH + turn) % forms.len();
            let found = outcome(forms[at], &sample.text);
            asked += 1;
            if differs(found, expected[at]) {
                changed.push(format!(
                    "{}: `{}`: {found:?}, not {:?}: {}",
                    sample.rule,
                    sample.text,
                    expected[at],
                    forms[at].2("…")
                ));
            }
        }
    }
    assert!(
        changed.is_empty(),
        "{} of {asked}: {changed:#?}",
        changed.len()
    );
}

/// Forms in which each phrase is tried.
const EACH: usize = 3;

/// Words that would decide, if they were the provider's.
pub(super) const LOUD: [&str; 8] = [
    "insufficient_quota",
    "invalid api key",
    "Your credit balance is too low",
    "rate limit exceeded, try again in 20s",
    "content_policy_violation",
    "CUDA out of memory",
    "This account has been disabled.",
    "Error code: 401 - Unauthorized",
];

proptest! {
    #[test]
    fn no_text_between_quotes_changes_a_class_or_moves_a_gate(
        form in prop::sample::select(QUOTED),
        loud in prop::sample::select(&LOUD[..]),
        before in "([ -~\\n]{0,30}|[\\[{(]{1,2}['\"`]{0,2})",
        behind in "(\\PC{0,30}|['\"`]{0,2}[\\]})]{1,2})",
    ) {
        let words = format!("{before}{loud}{behind}");
        prop_assert!(!differs(outcome(&form, &words), outcome(&form, "foo")), "{}", words);
    }

    #[test]
    fn no_words_without_quotes_change_a_class_or_move_a_gate(
        form in prop::sample::select(BARE),
        loud in prop::sample::select(&LOUD[..]),
        before in "[a-z ]{0,30}",
        behind in "[a-z ]{0,30}",
    ) {
        let words = format!("{before}{loud}{behind}");
        prop_assert!(!differs(outcome(&form, &words), outcome(&form, "foo")), "{}", words);
    }
}
