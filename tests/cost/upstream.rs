//! The model that the counted calls are for.

use relight::internals::wire_server::{Reply, WireServer, answers::openai};
use serde_json::{Value, json};

/// An upstream whose answers have as many words as the request's `max_tokens` says.
pub(crate) async fn start() -> WireServer {
    let upstream = WireServer::start().await.unwrap();
    upstream.otherwise(|request| {
        let body = &request.body;
        let limit = body
            .get("max_completion_tokens")
            .or_else(|| body.get("max_tokens"));
        let words = usize::try_from(limit.and_then(Value::as_u64).unwrap()).unwrap();
        if body["stream"] != true {
            return document(words);
        }
        let mut events = vec![openai::chunk(
            &json!({"role": "assistant", "content": ""}),
            None,
        )];
        events.extend(
            (0..words)
                .map(|word| openai::chunk(&json!({"content": format!("word {word} ")}), None)),
        );
        events.push(openai::chunk(&json!({}), Some("stop")));
        events.push(openai::usage_chunk(10, words));
        events.push("[DONE]".to_owned());
        // At once, so that the count of reads and writes is the server's own.
        let body: String = events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        Reply::body(
            200,
            &[("content-type", "text/event-stream")],
            body.as_bytes(),
        )
    });
    upstream
}

fn document(words: usize) -> Reply {
    let text: String = (0..words).map(|word| format!("word {word} ")).collect();
    let message = json!({"role": "assistant", "content": text});
    Reply::document(&json!({
        "id": "c-1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words},
    }))
}
