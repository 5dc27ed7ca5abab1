//! Calls Relight, which retries, reroutes and repairs calls of language models and tools that fail.
//!
//! - [`Client::invoke`] returns a whole answer, [`Client::stream`] final text piece by piece,
//!   [`Client::stream_live`] text as it comes and what is taken back of it.
//! - [`Client::call_tool`] calls a tool of a tool server.
//! - [`Client::watch`] yields recovery events.
//!
//! A stream resumes after a lost connection, at any replica, with nothing lost and nothing shown
//! twice. Each call has a request id, so that sending it again joins the invocation that runs.
//!
//! # Examples
//!
//! ```no_run
//! # async fn example() -> Result<(), relight_client::Error> {
//! use relight_client::Client;
//!
//! let client = Client::new("127.0.0.1:50051")?;
//! let mut answer = client.stream("Why is the sky blue?");
//! while let Some(text) = answer.next().await {
//!     print!("{}", text?);
//! }
//! # Ok(())
//! # }
//! ```

/// The page of the package, so that its example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod call;
mod client;
mod connection;
mod error;
mod fold;
mod link;
mod outcome;
mod reader;
mod retry;
mod stream;
mod watch;

pub use relight_proto::v1;
pub use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Identity},
};

pub use crate::{
    call::{Call, Tool, system, user},
    client::{Builder, Client},
    connection::Connection,
    error::{Error, StatusError},
    outcome::{Answer, Failed, Outcome, ToolOutcome, ToolResult},
    reader::{Change, ResumePoint},
    retry::Reconnect,
    stream::AnswerStream,
    watch::{EventStream, Watch},
};
