//! A broken connection is not reported to the model as its own fault; its own malformed output is.

use relight::internals::{
    domain::target::Dialect,
    grpc::v1::invoke_with_recovery_response::Outcome,
    wire_server::answers::{self, gemini},
};
use serde_json::json;

use crate::support::{
    relight::Relight,
    upstream::{Reply, Upstream, chunk},
};

async fn notes_after(dialect: Dialect, first: Reply) -> Vec<String> {
    let upstream = Upstream::start().await;
    upstream
        .push(first)
        .otherwise((answers::of(dialect).text)("Fine."));
    let relight = Relight::start(&format!(
        "providers: {{ p: {{ dialect: {}, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ r: {{ targets: [main] }} }}\n",
        dialect.as_str(),
        upstream.base_url()
    ))
    .await;
    let response = relight.ask("Why?").await;
    assert_eq!(response.attempts.len(), 2, "{response:?}");
    response
        .attempts
        .into_iter()
        .map(|attempt| attempt.injected_note)
        .collect()
}

#[tokio::test]
async fn a_broken_connection_is_not_reported_to_the_model() {
    let begun = chunk(&json!({"content": "Hel"}), None);
    for (words, reply) in [
        ("a web page", Reply::html()),
        ("an empty body", Reply::empty()),
        (
            "a torn event",
            Reply::events(&[begun.as_str(), "{\"choices\":[{\"ind", &begun]),
        ),
        (
            "another document",
            Reply::document(&json!({"hello": "world"})),
        ),
        (
            "no JSON",
            Reply::body(
                200,
                &[("content-type", "application/json")],
                b"{\"choices\": oops}",
            ),
        ),
        ("a torn event at first", Reply::events(&["{\"choi"])),
    ] {
        assert_eq!(
            notes_after(Dialect::OpenaiChat, reply).await,
            ["", ""],
            "{words}"
        );
    }
}

#[tokio::test]
async fn an_empty_answer_of_the_model_is_reported_to_it() {
    let reply = Reply::events(&[chunk(&json!({}), Some("stop"))]);
    let notes = notes_after(Dialect::OpenaiChat, reply).await;
    assert!(notes[1].contains("it was empty"), "{notes:?}");
}

#[tokio::test]
async fn a_tool_call_that_could_not_be_read_is_not_called_empty() {
    let notes = notes_after(Dialect::Gemini, gemini::broken_tool_call("search")).await;
    assert!(
        notes[1].contains("the tool call could not be read") && !notes[1].contains("empty"),
        "{notes:?}"
    );
}

#[tokio::test]
async fn an_answer_that_breaks_at_one_place_each_time_is_requested_as_often_as_allowed() {
    let upstream = Upstream::start().await;
    let torn = Reply::events(&[
        &chunk(&json!({"content": "Hel"}), None),
        "{\"choices\":[{\"ind",
    ]);
    upstream
        .push(torn.clone())
        .push(torn.clone())
        .push(torn)
        .otherwise(Reply::text("Hello there."));
    let relight = Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ r: {{ targets: [main] }} }}\n\
         policies: {{ standard: {{ retry: {{ max_retries: 3 }} }} }}\n",
        upstream.base_url()
    ))
    .await;
    let response = relight.ask("Why?").await;
    assert_eq!(response.attempts.len(), 4, "{response:?}");
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
}
