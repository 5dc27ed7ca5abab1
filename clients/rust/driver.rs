//! Runs the calls of the specification with this package: one call as JSON on each line of the
//! input, what its caller held as JSON on each line of the output.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program of the tests, which ends with its harness"
)]

use std::{
    io::BufRead as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use relight_client::{
    AnswerStream, Call, Certificate, Change, Client, ClientTlsConfig, Code, Error, Failed, Outcome,
    Reconnect, ResumePoint, Tool, ToolOutcome, Watch, user,
    v1::{self, part::Content, recovery_event::Body, tool_content},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Job {
    target: String,
    call: Asked,
}

#[derive(Deserialize, Clone)]
struct Asked {
    method: String,
    #[serde(default)]
    prompt: String,
    route: Option<String>,
    request_id: Option<String>,
    api_key: Option<String>,
    #[serde(default)]
    tls: String,
    #[serde(default)]
    live: bool,
    #[serde(default)]
    return_failure: bool,
    after: Option<String>,
    #[serde(default)]
    from_start: bool,
    take: Option<usize>,
    detach: Option<usize>,
    cancel_after: Option<usize>,
    attempts: Option<u32>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    distinct: usize,
    #[serde(default)]
    most: usize,
    tool: Option<AskedTool>,
}

#[derive(Deserialize, Clone)]
struct AskedTool {
    name: String,
    arguments: Value,
    call_id: Option<String>,
    #[serde(default)]
    goal: String,
    meta: Option<Value>,
}

/// Fields of the result, which a cancelled task leaves as they were.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Map<String, Value>>>);

impl Held {
    fn add(&self, more: Value) {
        let Value::Object(more) = more else {
            return;
        };
        self.0.lock().unwrap().extend(more);
    }

    fn push(&self, list: &str, item: Value) -> usize {
        let mut held = self.0.lock().unwrap();
        let items = held[list].as_array_mut().unwrap();
        items.push(item);
        items.len()
    }

    fn outcome(&self, outcome: &Outcome, prompt: &str) {
        match outcome {
            Outcome::Answer(answer) => {
                let mut history = vec![user(prompt)];
                answer.apply_to(&mut history);
                let calls = answer.tool_calls.iter();
                let calls = calls.map(|call| json!([call.id, call.name, call.arguments_json]));
                let around = answer.around.as_ref();
                let around = around.and_then(|it| serde_json::from_slice::<Value>(&it.data).ok());
                self.add(json!({
                    "ended": "answer",
                    "text": answer.text,
                    "target": answer.target,
                    "tool_calls": calls.collect::<Vec<_>>(),
                    "history": shown(&history),
                    "around": around.unwrap_or_else(|| json!({})),
                }));
            }
            Outcome::Failed(failed) => self.failure(failed, false),
        }
    }

    fn failure(&self, failed: &Failed, thrown: bool) {
        let class = failed.failure.failure_class().as_str_name();
        let failure = json!([class, failed.failure.user_message]);
        self.add(json!({ "ended": "failure", "thrown": thrown, "failure": failure }));
    }

    fn error(&self, error: &Error) {
        match error {
            Error::Failed(failed) => self.failure(failed, true),
            Error::Deadline(_) => {
                self.add(json!({ "ended": "status", "status": ["DEADLINE_EXCEEDED", ""] }));
            }
            Error::Status(status) => {
                let status = json!([code_name(status.code), status.reason]);
                self.add(json!({ "ended": "status", "status": status }));
            }
            Error::Protocol(_) => self.add(json!({ "ended": "protocol" })),
            error => self.add(json!({ "ended": error.to_string() })),
        }
    }
}

/// The name of a status as the contract writes it.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The role of each message, and what of it can be read.
fn shown(messages: &[v1::Message]) -> Vec<Value> {
    let text_of = |part: &v1::Part| match &part.content {
        Some(Content::Text(text)) => text.text.clone(),
        Some(Content::ToolCall(call)) => call.name.clone(),
        Some(Content::ToolResult(result)) => result
            .content
            .iter()
            .filter_map(|piece| match &piece.content {
                Some(tool_content::Content::Text(text)) => Some(text.text.as_str()),
                _ => None,
            })
            .collect(),
        _ => String::new(),
    };
    let shown = messages.iter().map(|message| {
        let text: String = message.parts.iter().map(text_of).collect();
        json!([message.role().as_str_name(), text])
    });
    shown.collect()
}

/// A piece of an answer that the caller is shown.
trait Piece {
    fn item(self) -> Value;
}

impl Piece for String {
    fn item(self) -> Value {
        json!(["text", self])
    }
}

impl Piece for Change {
    fn item(self) -> Value {
        match self {
            Self::Text(text) => json!(["text", text]),
            Self::Rewind(kept) => json!(["rewind", kept]),
        }
    }
}

/// Reads a stream to its end, or to the piece after which its caller leaves.
async fn read<T: Piece>(
    mut stream: AnswerStream<T>,
    asked: &Asked,
    held: &Held,
    limit: Option<usize>,
) -> Result<Option<ResumePoint>, Error> {
    while let Some(piece) = stream.next().await {
        let count = held.push("items", piece?.item());
        if Some(count) == limit {
            if asked.detach.is_some() {
                return stream.detach().map(Some);
            }
            stream.close().await;
            held.add(json!({ "ended": "left" }));
            return Ok(None);
        }
    }
    held.outcome(&stream.outcome()?, &asked.prompt);
    Ok(None)
}

async fn stream(client: &Client, asked: &Asked, call: Call, held: &Held) -> Result<(), Error> {
    held.add(json!({ "items": [] }));
    let limit = asked.take.or(asked.detach);
    let point = if asked.live {
        read(client.stream_live(call), asked, held, limit).await?
    } else {
        read(client.stream(call), asked, held, limit).await?
    };
    if let Some(point) = point {
        if asked.live {
            read(client.resume_live(point), asked, held, None).await?;
        } else {
            read(client.resume(point), asked, held, None).await?;
        }
    }
    Ok(())
}

async fn watch(client: &Client, asked: &Asked, held: &Held) -> Result<(), Error> {
    held.add(json!({ "events": [] }));
    let mut feed = client.watch(match &asked.after {
        Some(cursor) => Watch::after(cursor),
        None if asked.from_start => Watch::from_start(),
        None => Watch::live(),
    });
    while let Some(event) = feed.next().await {
        let event = event?;
        let text = match &event.body {
            Some(Body::Missed(missed)) => format!("missed {}", missed.count),
            _ => event.display_text,
        };
        let count = held.push("events", json!([event.cursor, text]));
        held.add(json!({ "cursor": feed.cursor() }));
        if Some(count) == asked.take {
            break;
        }
    }
    held.add(json!({ "ended": "left" }));
    Ok(())
}

async fn call_tool(client: &Client, asked: &Asked, held: &Held) -> Result<(), Error> {
    let wanted = asked.tool.clone().unwrap();
    let mut tool = match wanted.call_id {
        Some(id) => Tool::from(&v1::ToolCallPart {
            id,
            name: wanted.name,
            arguments_json: wanted.arguments.to_string(),
        }),
        None => Tool::new(wanted.name, wanted.arguments),
    }
    .goal(wanted.goal);
    if let Some(meta) = wanted.meta {
        tool = tool.meta(meta);
    }
    if let Some(route) = &asked.route {
        tool = tool.route(route);
    }
    if let Some(timeout) = asked.timeout_ms {
        tool = tool.timeout(Duration::from_millis(timeout));
    }
    let mut history = Vec::new();
    let result = if asked.return_failure {
        match client.try_call_tool(tool).await? {
            ToolOutcome::Result(result) => result,
            ToolOutcome::Failed(failed) => {
                failed.apply_to(&mut history);
                held.failure(&failed, false);
                held.add(json!({ "history": shown(&history) }));
                return Ok(());
            }
        }
    } else {
        match client.call_tool(tool).await {
            Err(Error::Failed(failed)) => {
                failed.apply_to(&mut history);
                held.add(json!({ "history": shown(&history) }));
                return Err(Error::Failed(failed));
            }
            result => result?,
        }
    };
    result.apply_to(&mut history);
    held.add(json!({
        "ended": "result",
        "text": result.text,
        "target": result.target,
        "structured": result.structured::<Value>().unwrap(),
        "history": shown(&history),
    }));
    Ok(())
}

/// Calls until so many different answers came.
async fn distinct(client: &Client, asked: &Asked, held: &Held) -> Result<(), Error> {
    let mut texts = Vec::new();
    for _ in 0..asked.most {
        let answer = client.invoke(asked.prompt.as_str()).await?;
        if !texts.contains(&answer.text) {
            texts.push(answer.text);
        }
        if texts.len() == asked.distinct {
            break;
        }
    }
    held.add(json!({ "texts": texts }));
    Ok(())
}

async fn run(client: &Client, asked: &Asked, held: &Held) -> Result<(), Error> {
    let mut call = Call::from(asked.prompt.as_str());
    if let Some(route) = &asked.route {
        call = call.route(route);
    }
    if let Some(request_id) = &asked.request_id {
        call = call.request_id(request_id);
    }
    if let Some(timeout) = asked.timeout_ms {
        call = call.timeout(Duration::from_millis(timeout));
    }
    if asked.return_failure {
        call = call.return_failure();
    }
    match asked.method.as_str() {
        "stream" => stream(client, asked, call, held).await?,
        "watch" => watch(client, asked, held).await?,
        "call_tool" => call_tool(client, asked, held).await?,
        "distinct" => distinct(client, asked, held).await?,
        _ if asked.return_failure => {
            held.outcome(&client.try_invoke(call).await?, &asked.prompt);
        }
        _ => {
            let answer = client.invoke(call).await?;
            held.outcome(&Outcome::Answer(answer), &asked.prompt);
        }
    }
    Ok(())
}

fn connect(job: &Job) -> Result<Client, Error> {
    let reconnect = Reconnect {
        attempts: job.call.attempts.unwrap_or(12),
        wait: Duration::from_millis(50),
        ..Reconnect::default()
    };
    let mut builder = Client::builder(&job.target).reconnect(reconnect);
    if let Some(key) = &job.call.api_key {
        builder = builder.api_key(key);
    }
    if !job.call.tls.is_empty() {
        let authority = Certificate::from_pem(&job.call.tls);
        builder = builder.tls(ClientTlsConfig::new().ca_certificate(authority));
    }
    builder.build()
}

/// Runs one call in a task of its own, which is aborted if the caller cancels it.
async fn held(job: Job) -> Map<String, Value> {
    let held = Held::default();
    let client = connect(&job).unwrap();
    let mut calling = tokio::task::JoinSet::new();
    calling.spawn({
        let client = client.clone();
        let asked = job.call.clone();
        let held = held.clone();
        async move { run(&client, &asked, &held).await }
    });
    if let Some(count) = job.call.cancel_after {
        let has_items = || {
            let held = held.0.lock().unwrap();
            held.get("items")
                .and_then(Value::as_array)
                .is_some_and(|items| items.len() >= count)
        };
        while !has_items() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        calling.abort_all();
    }
    match calling.join_next().await.unwrap() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => held.error(&error),
        Err(_) => held.add(json!({ "ended": "cancelled" })),
    }
    client.close().await;
    held.0.lock().unwrap().clone()
}

#[tokio::main]
async fn main() {
    // One call at a time: nothing else waits for the thread of the input.
    for line in std::io::stdin().lock().lines() {
        let job: Job = serde_json::from_str(&line.unwrap()).unwrap();
        println!("{}", Value::Object(held(job).await));
    }
}
