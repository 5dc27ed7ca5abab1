//! JSON that is demanded is asked for in the first request, in each dialect's own way, and taken out
//! of its fence.

use serde_json::{Value, json};

use crate::support::{
    front::{Front, over, question},
    upstream::{Reply, Upstream, pieces},
};

const SCHEMA: &str = r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#;

fn demanding(format: &Value) -> Value {
    let mut body = question("r", false);
    body["response_format"] = format.clone();
    body
}

fn formats() -> [Value; 2] {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    [
        json!({"type": "json_object"}),
        json!({"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}),
    ]
}

/// The first request for this format in this dialect.
async fn requested(dialect: &str, format: &Value) -> Value {
    let upstream = Upstream::start().await;
    // A refusal that ends the call at once.
    upstream.otherwise(Reply::status(400));
    let mut yaml = over("r", &[(&upstream, dialect)]);
    if dialect == "bedrock" {
        yaml = yaml.replace("api_key: k", "api_key: k, region: eu-test-1");
    }
    let front = Front::start(&yaml).await;
    front.chat(&demanding(format)).await;
    upstream.requests()[0].body.clone()
}

#[tokio::test]
async fn every_dialect_is_asked_for_json_in_the_first_request() {
    let [object, schema] = formats();
    let wanted: Value = serde_json::from_str(SCHEMA).unwrap();

    let sent = requested("openai_chat", &object).await;
    assert_eq!(sent["response_format"], object);
    let sent = requested("openai_chat", &schema).await;
    assert_eq!(
        sent.pointer("/response_format/json_schema/schema"),
        Some(&wanted)
    );

    let sent = requested("openai_responses", &object).await;
    assert_eq!(sent["text"]["format"]["type"], "json_object");
    let sent = requested("openai_responses", &schema).await;
    assert_eq!(sent["text"]["format"]["schema"], wanted);

    let sent = requested("gemini", &object).await;
    assert_eq!(
        sent["generationConfig"]["responseMimeType"],
        "application/json"
    );
    let sent = requested("gemini", &schema).await;
    assert_eq!(
        sent["generationConfig"]["responseMimeType"],
        "application/json"
    );
    assert_eq!(sent["generationConfig"]["responseJsonSchema"], wanted);

    let sent = requested("anthropic", &object).await;
    assert!(sent["system"].to_string().contains("JSON object"), "{sent}");
    let sent = requested("anthropic", &schema).await;
    assert_eq!(sent["output_config"]["format"]["schema"], wanted);

    let sent = requested("bedrock", &object).await;
    assert!(sent["system"].to_string().contains("JSON object"), "{sent}");
    let sent = requested("bedrock", &schema).await;
    let system = sent["system"][0]["text"].as_str().unwrap();
    assert!(
        system.contains("JSON Schema") && system.contains("\"integer\""),
        "{system}"
    );
}

#[tokio::test]
async fn json_in_a_fence_costs_one_call() {
    for text in [
        "```json\n{\"a\": 1}\n```",
        "```\n{\"a\": 1}\n```\n",
        "~~~json\n{\"a\": 1}\n~~~\n",
        "\u{feff}{\"a\": 1}",
        "Here you are:\n\n```json\n{\"a\": 1}\n```\nIs there anything else?",
    ] {
        for format in formats() {
            for stream in [false, true] {
                let upstream = Upstream::start().await;
                upstream.otherwise(pieces(text, Some("stop")));
                let front = Front::start(&over("r", &[(&upstream, "openai_chat")])).await;
                let mut body = demanding(&format);
                body["stream"] = json!(stream);
                let answer = front.chat(&body).await;
                let got = if stream {
                    answer.text()
                } else {
                    let document = answer.json();
                    document["choices"][0]["message"]["content"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                };
                assert_eq!(got.trim(), "{\"a\": 1}", "{text:?}: {answer:?}");
                assert_eq!(upstream.requests().len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn text_for_which_no_json_is_demanded_keeps_its_fences() {
    let upstream = Upstream::start().await;
    let text = "```json\n{\"a\": 1}\n```";
    upstream.otherwise(pieces(text, Some("stop")));
    let front = Front::start(&over("r", &[(&upstream, "openai_chat")])).await;
    assert!(front.ask("r", true).await.succeeded_with(text));
}
