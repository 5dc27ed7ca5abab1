//! Scripted wire servers to point other clients at: `cargo run --example wires`.
//!
//! Prints one line for each dialect, its name and its address, and serves until its input ends. The
//! model that a request names chooses the answer: `text`, `tool`, `limited` (status 429),
//! `overloaded` (inside the stream), `unfit` (status 400), `refuses`. That the official SDKs read
//! them as their own providers' is what makes them worth testing with.

use std::{error::Error, io::Write as _};

use relight::internals::{
    domain::target::Dialect,
    wire_server::{Reply, Request, WireServer, answers},
};
use tokio::io::AsyncReadExt as _;

const DIALECTS: [(&str, Dialect); 5] = [
    ("openai_chat", Dialect::OpenaiChat),
    ("openai_responses", Dialect::OpenaiResponses),
    ("anthropic", Dialect::Anthropic),
    ("gemini", Dialect::Gemini),
    ("bedrock", Dialect::Bedrock),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for (name, dialect) in DIALECTS {
        let server = WireServer::start().await?;
        server.otherwise(move |request| reply(dialect, request));
        writeln!(std::io::stdout(), "{name} http://{}", server.address())?;
        servers.push(server);
    }
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn reply(dialect: Dialect, request: &Request) -> Reply {
    let answers = answers::of(dialect);
    // Some name the model in the path, some in the body.
    let named = |model: &str| {
        request.body["model"] == model || request.path.split(['/', ':']).any(|part| part == model)
    };
    if named("text") {
        (answers.text)("Blue light is scattered most.")
    } else if named("tool") {
        (answers.tool_call)("get_weather", r#"{"city":"Riga"}"#)
    } else if named("limited") {
        (answers.rate_limited)()
    } else if named("overloaded") {
        (answers.overloaded_amid)("Blue light is")
    } else if named("unfit") {
        (answers.unfit)()
    } else if named("refuses") {
        (answers.refuses)()
    } else {
        Reply::status(404)
    }
}
