//! The reply of a wire server to one request.
//!
//! A reply is a head, pieces of a body, each after a pause, and an ending; the faults are changes
//! to these. Nothing is checked: whatever a test or a demo specifies is sent unchanged.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::answers::openai;

/// The reply to one request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Nothing is sent before this time.
    head_after: Duration,
    /// Everything before the body; empty sends none.
    head: Vec<u8>,
    pieces: Vec<BodyPiece>,
    /// The body is sent in chunked encoding, whose last chunk is the clean end.
    chunked: bool,
    then: Then,
}

/// Bytes of a body after a pause.
#[derive(Debug, Clone)]
struct BodyPiece {
    after: Duration,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Then {
    /// The body ends as the protocol wants it.
    End,
    /// The connection is closed without ending the body.
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing more, for ever.
    Silence,
    /// These bytes again and again.
    Endless(Vec<u8>),
}

/// Fate of the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    KeepOpen,
    Close,
    Reset,
}

// === impl Reply: whole completions ===

impl Reply {
    /// A streamed chat completion of one text, word by word, with usage.
    #[must_use]
    pub fn text(text: &str) -> Self {
        openai::text(text)
    }

    /// A streamed chat completion that wants one tool called; its arguments come in pieces of five
    /// bytes.
    #[must_use]
    pub fn tool_call(name: &str, arguments: &str) -> Self {
        openai::tool_call(name, arguments)
    }

    /// A stream of these `data` fields, one event each.
    #[must_use]
    pub fn events<T: AsRef<str>>(data: &[T]) -> Self {
        let lines = data
            .iter()
            .map(|data| format!("data: {}\n\n", data.as_ref()));
        Self::stream(
            lines
                .map(|line| (Duration::ZERO, line.into_bytes()))
                .collect(),
        )
    }

    /// An event stream whose body comes in these pieces, each after its pause.
    #[must_use]
    pub fn stream(pieces: Vec<(Duration, Vec<u8>)>) -> Self {
        let pieces = pieces
            .into_iter()
            .map(|(after, bytes)| BodyPiece { after, bytes })
            .collect();
        Self {
            pieces,
            ..Self::with_head(200, &[("content-type", "text/event-stream")], true)
        }
    }

    /// A stream of events, each with its name and data.
    #[must_use]
    pub fn named_events(events: &[(&str, Value)]) -> Self {
        let lines = events
            .iter()
            .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"));
        Self::stream(
            lines
                .map(|line| (Duration::ZERO, line.into_bytes()))
                .collect(),
        )
    }

    /// A refusal whose body is this document.
    #[must_use]
    pub fn refusal(code: u16, headers: &[(&str, &str)], body: &Value) -> Self {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        Self::body(code, &all, body.to_string().as_bytes())
    }

    /// A whole document.
    #[must_use]
    pub fn document(body: &Value) -> Self {
        Self::body(
            200,
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    /// A refusal with an error object such as `OpenAI` sends.
    #[must_use]
    pub fn status(code: u16) -> Self {
        let error = json!({"error": {"message": format!("upstream returned {code}"), "type": "test_error", "code": null}});
        Self::body(
            code,
            &[("content-type", "application/json")],
            error.to_string().as_bytes(),
        )
    }

    /// A status, headers and a body, sent unchanged.
    #[must_use]
    pub fn body(code: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let length = body.len().to_string();
        let mut all = vec![("content-length", length.as_str())];
        all.extend_from_slice(headers);
        let reply = Self::with_head(code, &all, false);
        Self {
            pieces: vec![BodyPiece {
                after: Duration::ZERO,
                bytes: body.to_vec(),
            }],
            ..reply
        }
    }

    /// A web page with status 200.
    #[must_use]
    pub fn html() -> Self {
        let page = b"<!doctype html><html><body>It works!</body></html>";
        Self::body(200, &[("content-type", "text/html")], page)
    }

    /// Status 200 and an empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::body(200, &[("content-type", "text/event-stream")], b"")
    }
}

// === impl Reply: faults ===

impl Reply {
    /// Nothing, ever.
    #[must_use]
    pub fn silence() -> Self {
        Self {
            then: Then::Silence,
            ..Self::raw(b"")
        }
    }

    /// The connection is reset instead of a response.
    #[must_use]
    pub fn reset() -> Self {
        Self {
            then: Then::Reset,
            ..Self::raw(b"")
        }
    }

    /// These bytes in place of a response, then the connection is closed.
    #[must_use]
    pub fn raw(bytes: &[u8]) -> Self {
        let head = bytes.to_vec();
        Self {
            head_after: Duration::ZERO,
            head,
            pieces: Vec::new(),
            chunked: false,
            then: Then::Close,
        }
    }

    /// A stream of comments that never ends.
    #[must_use]
    pub fn endless_body() -> Self {
        let comments = b": ping\n".repeat(8192);
        Self {
            then: Then::Endless(comments),
            ..Self::stream(Vec::new())
        }
    }

    /// A stream of one line that never ends.
    #[must_use]
    pub fn endless_line() -> Self {
        Self {
            then: Then::Endless(vec![b'x'; 65_536]),
            ..Self::stream(vec![(Duration::ZERO, b"data: ".to_vec())])
        }
    }

    /// The same, its head after that time.
    #[must_use]
    pub fn slow_head(self, head_after: Duration) -> Self {
        Self { head_after, ..self }
    }

    /// The same, each piece after that pause.
    #[must_use]
    pub fn paced(mut self, after: Duration) -> Self {
        self.pieces.iter_mut().for_each(|piece| piece.after = after);
        self
    }

    /// The same, its body sent in pieces of that many bytes.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        let body = self.body_bytes();
        let piece = |bytes: &[u8]| BodyPiece {
            after: Duration::ZERO,
            bytes: bytes.to_vec(),
        };
        self.pieces = body.chunks(bytes).map(piece).collect();
        self
    }

    /// The same up to that many bytes of the body, then the connection is closed in the middle of
    /// it.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Self {
        Self {
            then: Then::Close,
            ..self.only(bytes)
        }
    }

    /// The same up to that many bytes of the body, then it ends as if that were all.
    #[must_use]
    pub fn ended_after(self, bytes: usize) -> Self {
        Self {
            then: Then::End,
            ..self.only(bytes)
        }
    }

    /// The same up to that many bytes of the body, then the connection is reset.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> Self {
        Self {
            then: Then::Reset,
            ..self.only(bytes)
        }
    }

    /// The same up to that many bytes of the body, then nothing more.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> Self {
        Self {
            then: Then::Silence,
            ..self.only(bytes)
        }
    }

    /// The same up to the middle of its body, then the connection is closed.
    #[must_use]
    pub fn cut_in_the_middle(self) -> Self {
        let bytes = self.body_bytes().len() / 2;
        self.cut_after(bytes)
    }

    /// Returns the body as it would be sent, without its transfer encoding.
    #[must_use]
    pub fn body_bytes(&self) -> Vec<u8> {
        self.pieces
            .iter()
            .flat_map(|piece| piece.bytes.clone())
            .collect()
    }
}

impl Reply {
    fn with_head(code: u16, headers: &[(&str, &str)], chunked: bool) -> Self {
        let mut head = format!("HTTP/1.1 {code} Test\r\n");
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if chunked {
            head.push_str("transfer-encoding: chunked\r\n");
        }
        head.push_str("\r\n");
        let head = head.into_bytes();
        Self {
            head_after: Duration::ZERO,
            head,
            pieces: Vec::new(),
            chunked,
            then: Then::End,
        }
    }

    fn only(mut self, bytes: usize) -> Self {
        let mut left = bytes;
        for piece in &mut self.pieces {
            piece.bytes.truncate(left);
            left -= piece.bytes.len();
        }
        self.pieces.retain(|piece| !piece.bytes.is_empty());
        self
    }

    /// Sends it; `None` when the client is gone.
    pub(super) async fn play(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
    ) -> Option<ConnectionEnd> {
        pause(self.head_after).await;
        socket.write_all(&self.head).await.ok()?;
        for piece in &self.pieces {
            pause(piece.after).await;
            self.send(socket, &piece.bytes).await?;
        }
        match &self.then {
            Then::End if self.chunked => {
                socket.write_all(b"0\r\n\r\n").await.ok()?;
                Some(ConnectionEnd::KeepOpen)
            }
            Then::End => Some(ConnectionEnd::KeepOpen),
            Then::Close => Some(ConnectionEnd::Close),
            Then::Reset => {
                // What was sent must arrive first: a reset discards what is not read yet.
                pause(Duration::from_millis(50)).await;
                Some(ConnectionEnd::Reset)
            }
            Then::Silence => std::future::pending().await,
            Then::Endless(bytes) => loop {
                self.send(socket, bytes).await?;
            },
        }
    }

    async fn send(&self, socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<()> {
        if self.chunked {
            let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
            framed.extend_from_slice(bytes);
            framed.extend_from_slice(b"\r\n");
            socket.write_all(&framed).await.ok()
        } else {
            socket.write_all(bytes).await.ok()
        }
    }
}

async fn pause(duration: Duration) {
    if duration > Duration::ZERO {
        tokio::time::sleep(duration).await;
    }
}
