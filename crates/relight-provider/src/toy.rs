//! The smallest provider: the shape of each real one. `docs/add-a-provider.md` walks through it.
//!
//! Its dialect: `POST {base_url}/say` with `{"model", "text"}`. The response is events
//! `{"word": "…"}`; the last one is `{"end": true}`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    BuildError, ProviderFuture,
    blocks::Blocks,
    http::{HttpClient, Post, accepted},
    reading::{self, ParseError, ParseStep, ReadLimits, ResponseParser, SseFrames},
    spec::ProviderSpec,
    sse::SseEvent,
};
use crate::domain::{
    completion::{BlockKind, Delta, FinishReason},
    failure::ProviderError,
    message::{ModelCall, Part},
    wire::ProviderRequest,
};

/// The only block of a response.
const TEXT: u64 = 0;

/// A client of the dialect for one provider.
#[derive(Debug, Clone)]
struct ToyClient {
    http: HttpClient,
}

/// The parser of one response.
#[derive(Debug, Default)]
struct ToyReader {
    has_begun: bool,
    blocks: Blocks,
}

/// One event of a response.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToyEvent {
    Word(String),
    End(serde::de::IgnoredAny),
    Error(Value),
}

// === impl ToyClient ===

impl ToyClient {
    fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        Ok(Self {
            http: HttpClient::build(spec)?,
        })
    }

    /// One request; errors of HTTP and of the network are facts that the HTTP client reports by
    /// itself.
    fn answer(&self, call: ProviderRequest) -> ProviderFuture {
        let http = self.http.clone();
        let body = json!({"model": &*call.target.model, "text": texts(&call.call)})
            .to_string()
            .into_bytes();
        Box::pin(async move {
            let post = Post {
                path: "/say".to_owned(),
                body,
                accept: accepted(true),
                ..Post::default()
            };
            let reply = http.post(&call, post).await?;
            Ok(reading::read(
                reply,
                ReadLimits::of(&call, http.settings()),
                ToyReader::default(),
            ))
        })
    }
}

/// Returns the texts of the conversation.
fn texts(call: &ModelCall) -> String {
    let parts = call.messages.iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| {
        if let Part::Text(text) = part {
            Some(text.as_str())
        } else {
            None
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

// === impl ToyReader ===

impl ResponseParser for ToyReader {
    type Frames = SseFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        let event = serde_json::from_str(&event.data)
            .map_err(|error| ParseError::torn(self.has_begun, &error))?;
        if !std::mem::replace(&mut self.has_begun, true) {
            out.push(Delta::Start {
                model: None,
                response_id: None,
                headers: Vec::new(),
            });
            self.blocks.open(TEXT, BlockKind::Text, out)?;
        }
        match event {
            ToyEvent::Word(word) => self.blocks.add(TEXT, &word, out).map(|()| ParseStep::More),
            ToyEvent::Error(error) => Err(ParseError::Failed(reading::Failed::new(
                None,
                &error.to_string(),
            ))),
            ToyEvent::End(_) => {
                self.blocks.stop(TEXT, None, out);
                self.blocks
                    .seal(FinishReason::Stop, "end", out)
                    .map(|()| ParseStep::Complete)
            }
        }
    }

    fn document(&mut self, _: &Value, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        Err(ParseError::NotUnderstood)
    }

    /// An end without the dialect's own mark is a cut, not a short completion.
    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        Err(ParseError::Cut(
            "the answer ended without its end".to_owned(),
        ))
    }
}

mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        domain::{failure::TransportFault, target::Dialect, wire::CompletionForm},
        scripted::tests::request,
    };

    /// Returns the deltas of one call whose provider replies like this, and its error.
    async fn called(status: &str, body: &str) -> (String, bool, Option<ProviderError>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let serve = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !String::from_utf8_lossy(&seen).contains("\"Hello\"") {
                assert_ne!(
                    connection.read_buf(&mut seen).await.unwrap(),
                    0,
                    "the prompt is not sent"
                );
            }
            connection.write_all(reply.as_bytes()).await.unwrap();
        };
        let call = async {
            // The dialect of the specification is only for those that choose a client by it.
            let client =
                ToyClient::build(&ProviderSpec::new("toy", Dialect::Scripted, base_url)).unwrap();
            let mut text = String::new();
            let mut whole = false;
            let mut deltas = match client.answer(request("toy", &["Hello"])).await {
                Ok(deltas) => deltas,
                Err(error) => return (text, whole, Some(error)),
            };
            while let Some(next) = deltas.next().await {
                match next {
                    Ok(Delta::BlockDelta { text: more, .. }) => text.push_str(&more),
                    Ok(Delta::Finish { .. }) => whole = true,
                    Ok(_) => {}
                    Err(error) => return (text, whole, Some(*error)),
                }
            }
            (text, whole, None)
        };
        tokio::join!(serve, call).1
    }

    #[tokio::test]
    async fn a_whole_answer_ends_with_its_mark_and_a_torn_one_with_a_cut() {
        let whole =
            "data: {\"word\":\"Good \"}\n\ndata: {\"word\":\"day\"}\n\ndata: {\"end\":true}\n\n";
        assert_eq!(
            called("200 OK", whole).await,
            ("Good day".to_owned(), true, None)
        );
        for torn in [
            "data: {\"word\":\"Good \"}\n\n",
            "data: {\"word\":\"Good \"}\n\ndata: {\"wo",
        ] {
            let (text, is_whole, error) = called("200 OK", torn).await;
            assert_eq!(
                (text.as_str(), is_whole, error.and_then(|error| error.fault)),
                ("Good ", false, Some(TransportFault::Cut))
            );
        }
    }

    /// Returns the text of a call whose provider sends this many words, 2 ms apart, and the number of
    /// deltas in which it came.
    async fn dripped(words: usize, form: CompletionForm) -> (String, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let serve = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            for number in 0..words {
                let event = format!("data: {{\"word\":\"{number} \"}}\n\n");
                connection.write_all(event.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            connection
                .write_all(b"data: {\"end\":true}\n\n")
                .await
                .unwrap();
        };
        let call = async {
            let client =
                ToyClient::build(&ProviderSpec::new("toy", Dialect::Scripted, base_url)).unwrap();
            let request = ProviderRequest {
                form,
                ..request("toy", &["Hello"])
            };
            let (mut text, mut deltas) = (String::new(), 0);
            let mut answer = client.answer(request).await.unwrap();
            while let Some(delta) = answer.next().await {
                if let Delta::BlockDelta { text: more, .. } = delta.unwrap() {
                    text.push_str(&more);
                    deltas += 1;
                }
            }
            (text, deltas)
        };
        tokio::join!(serve, call).1
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_along_is_the_same_and_read_in_batches() {
        let (along, at_the_end) = tokio::join!(
            dripped(400, CompletionForm::Pieces),
            dripped(400, CompletionForm::Whole)
        );
        assert_eq!(along.0, at_the_end.0);
        assert!(along.0.ends_with("398 399 "), "{}", along.0);
        assert!(
            at_the_end.1 * 2 < along.1,
            "{} batches of {} words",
            at_the_end.1,
            along.1
        );
    }

    #[tokio::test]
    async fn an_error_is_reported_with_its_status_and_text_and_not_classified() {
        let (_, _, error) = called("429 Too Many Requests", "slow down").await;
        let error = error.unwrap();
        assert_eq!(
            (error.status, error.body.as_deref()),
            (Some(429), Some("slow down"))
        );
        let (_, _, error) =
            called("200 OK", "data: {\"error\":{\"message\":\"no model\"}}\n\n").await;
        assert!(error.unwrap().body.unwrap().contains("no model"));
    }
}
