//! A running Relight with its OpenAI-compatible front, and a client that reads what a careful SDK
//! would read.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use relight::internals::server::Running;
use serde_json::{Value, json};

use super::{relight::running, upstream::Upstream};

/// Longest time that a call may take before the test fails.
const PATIENCE: Duration = Duration::from_mins(2);

/// A running Relight.
pub(crate) struct Front {
    running: Option<Running>,
    /// The gRPC address of the same server.
    pub(crate) grpc_address: SocketAddr,
    address: SocketAddr,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The body, or as much of it as came.
    pub(crate) body: String,
    /// Whether the body ended as HTTP wants it.
    pub(crate) clean: bool,
}

// === impl Front ===

impl Front {
    /// Starts it with this configuration; `server` of the configuration is given here.
    pub(crate) async fn start(rest: &str) -> Self {
        Self::start_with("", rest).await
    }

    /// Starts it with more settings of `server` (each line indented by two), among which the
    /// front's may be.
    pub(crate) async fn start_with(server: &str, rest: &str) -> Self {
        let front = if server.contains("openai_front:") {
            ""
        } else {
            "  openai_front: { listen: \"127.0.0.1:0\" }\n"
        };
        let listen = "  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n";
        let text = format!("server:\n{listen}{front}{server}\n{rest}");
        let running = running(&text, None).await;
        let address = running.openai_front_address.unwrap();
        Self {
            grpc_address: running.address,
            running: Some(running),
            address,
        }
    }

    /// The server, to be shut down.
    pub(crate) fn take_running(&mut self) -> Running {
        self.running.take().unwrap()
    }

    /// The front's address.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends `route` one question.
    pub(crate) async fn ask(&self, route: &str, stream: bool) -> Answer {
        self.chat(&question(route, stream)).await
    }

    /// Sends a chat completion request.
    pub(crate) async fn chat(&self, body: &Value) -> Answer {
        self.send(Method::POST, "/v1/chat/completions", &[], body.to_string())
            .await
    }

    /// Sends what a browser sends before a call to this path from a page of this origin, to the
    /// port that serves it.
    pub(crate) async fn preflight(&self, path: &str, origin: &str) -> Answer {
        preflight(
            if path.starts_with("/v1/") {
                self.address
            } else {
                self.grpc_address
            },
            path,
            origin,
        )
        .await
    }

    /// Sends any request and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let body = body.into();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        tokio::time::timeout(PATIENCE, exchange(request))
            .await
            .expect("the call hangs")
    }
}

/// A route over targets of these upstreams, each with its dialect.
pub(crate) fn over(route: &str, upstreams: &[(&Upstream, &str)]) -> String {
    let (mut providers, mut targets, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (upstream, dialect)) in upstreams.iter().enumerate() {
        let url = upstream.base_url();
        let provider = format!(
            "{{ dialect: {dialect}, base_url: \"{url}\", api_key: k, allow_plaintext: true }}"
        );
        providers.push(format!("  p{index}: {provider}"));
        targets.push(format!(
            "  t{index}: {{ provider: p{index}, model: model-{index} }}"
        ));
        names.push(format!("t{index}"));
    }
    let (providers, targets, names) = (providers.join("\n"), targets.join("\n"), names.join(", "));
    format!(
        "providers:\n{providers}\ntargets:\n{targets}\nroutes:\n  {route}: {{ targets: [{names}] }}\n"
    )
}

/// The message that a client of a stream of Anthropic's API holds at the end; it fails where the
/// events do not fit each other.
pub(crate) fn folded(answer: &Answer) -> Value {
    let mut message = Value::Null;
    let mut open = None;
    for event in answer.events() {
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(
                    (open.take(), &event["index"]),
                    (None, &json!(content.len())),
                    "{answer:?}"
                );
                open = Some(content.len());
                content.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = &mut message["content"][open.unwrap()];
                if event["delta"]["type"] == "citations_delta" {
                    let citations = &mut block["citations"];
                    if citations.is_null() {
                        *citations = json!([]);
                    }
                    let citation = event["delta"]["citation"].clone();
                    citations.as_array_mut().unwrap().push(citation);
                    continue;
                }
                let (field, piece) = match event["delta"]["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("signature", "signature"),
                    "input_json_delta" => ("partial", "partial_json"),
                    other => panic!("{other}"),
                };
                let grown = block[field].as_str().unwrap_or_default().to_owned();
                block[field] = json!(grown + event["delta"][piece].as_str().unwrap());
            }
            "content_block_stop" => {
                let block = &mut message["content"][open.take().unwrap()];
                if let Some(partial) = block.as_object_mut().unwrap().remove("partial") {
                    block["input"] = serde_json::from_str(partial.as_str().unwrap()).unwrap();
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => message["whole"] = json!(true),
            "error" => message["error"] = event["error"].clone(),
            other => panic!("{other}"),
        }
    }
    message
}

/// Gets whatever is at this path.
pub(crate) async fn get(address: impl Display, path: &str) -> Answer {
    let request = Request::get(format!("http://{address}{path}"))
        .body(Full::default())
        .unwrap();
    tokio::time::timeout(PATIENCE, exchange(request))
        .await
        .expect("the call hangs")
}

/// Posts a document to a front that is running somewhere.
pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    post_with(address, path, &[], body).await
}

/// Posts a document with these headers to a front that is running somewhere.
pub(crate) async fn post_with(
    address: impl Display,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let mut request =
        Request::post(format!("http://{address}{path}")).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.to_string().into())).unwrap();
    tokio::time::timeout(PATIENCE, exchange(request))
        .await
        .expect("the call hangs")
}

/// Sends what a browser sends before a call to this path from a page of this origin.
pub(crate) async fn preflight(address: SocketAddr, path: &str, origin: &str) -> Answer {
    let request = Request::builder()
        .method(Method::OPTIONS)
        .uri(format!("http://{address}{path}"));
    let request = request
        .header("origin", origin)
        .header("access-control-request-method", "POST");
    let request = request.header("access-control-request-headers", "content-type,x-grpc-web");
    exchange(request.body(Full::new(Bytes::new())).unwrap()).await
}

async fn exchange(request: Request<Full<Bytes>>) -> Answer {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let mut body = response.into_body();
    let (mut bytes, mut clean) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            clean = false;
            break;
        };
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    Answer {
        status,
        headers,
        body: String::from_utf8(bytes).unwrap(),
        clean,
    }
}

/// A request of one question.
pub(crate) fn question(route: &str, stream: bool) -> Value {
    let mut body = json!({"model": route, "messages": [{"role": "user", "content": "Why?"}], "stream": stream});
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

// === impl Answer ===

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as a document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The `data` of each event, `[DONE]` left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Whether the stream marks the answer as complete.
    pub(crate) fn is_done(&self) -> bool {
        self.clean && self.body.ends_with("data: [DONE]\n\n")
    }

    /// The text that was delivered, in whichever form it came.
    pub(crate) fn text(&self) -> String {
        if self.is_stream() {
            let pieces = self.events();
            pieces
                .iter()
                .filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str())
                .collect()
        } else {
            self.json()
                .pointer("/choices/0/message/content")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        }
    }

    /// The model as the answer names it last.
    pub(crate) fn model(&self) -> String {
        self.last("/model").as_str().unwrap_or_default().to_owned()
    }

    /// The usage.
    pub(crate) fn usage(&self) -> Value {
        self.last("/usage")
    }

    /// The error object, of a status or of an event.
    pub(crate) fn error(&self) -> Value {
        self.last("/error")
    }

    /// Whether the caller holds the whole answer, and knows it.
    pub(crate) fn succeeded_with(&self, text: &str) -> bool {
        self.status == 200
            && self.error().is_null()
            && self.text() == text
            && (!self.is_stream() || self.is_done())
    }

    fn is_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    fn last(&self, pointer: &str) -> Value {
        let all = if self.is_stream() {
            self.events()
        } else {
            vec![self.json()]
        };
        let found = all
            .iter()
            .rev()
            .filter_map(|event| event.pointer(pointer))
            .find(|value| !value.is_null());
        found.cloned().unwrap_or_default()
    }
}
