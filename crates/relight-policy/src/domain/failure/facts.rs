//! The raw facts of a failed attempt, before classification.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::domain::tool::ToolReply;

/// Place where a failure was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// An HTTP response of a provider or gateway.
    #[default]
    Http,
    /// No response: socket, DNS, TLS, child process.
    Transport,
    /// After the stream started, or an error event inside a 200.
    Stream,
    /// A gRPC status.
    Grpc,
    /// A tool.
    Tool,
}

/// A transport fault as Relight's own client observed it: typed, so that nothing matches on its
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TransportFault {
    /// The name did not resolve.
    Dns,
    /// The connection was refused.
    Refused,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The host or network cannot be reached.
    Unreachable,
    /// The TLS handshake failed.
    Tls,
    /// The peer's certificate was not accepted.
    Certificate,
    /// The peer reset the connection.
    Reset,
    /// The connection closed before the response head.
    ClosedEarly,
    /// This host ran out of ports, descriptors or memory.
    LocalExhaustion,
    /// No first token in time.
    FirstTokenTimeout,
    /// Silence after the first token.
    IdleTimeout,
    /// The response ended without its dialect's end mark.
    Cut,
    /// The response, or a part of it, exceeded a bound.
    TooLarge,
    /// The bytes are not what the protocol allows.
    Protocol,
    /// The process behind the target exited.
    ProcessExited,
    /// The process behind the target could not be started.
    NotStarted,
    /// The target did not become ready for requests, or was no longer: its start, handshake or
    /// session failed.
    NotReady,
    /// The call's deadline passed while the attempt ran.
    Deadline,
    /// The attempt was cancelled from this side.
    Cancelled,
}

impl TransportFault {
    /// Returns the fault's name in snake case, as in spans and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the request certainly did not reach the provider.
    #[must_use]
    pub const fn never_sent(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Refused
                | Self::ConnectTimeout
                | Self::Unreachable
                | Self::Tls
                | Self::Certificate
                | Self::LocalExhaustion
                | Self::NotStarted
                | Self::NotReady
        )
    }

    /// Returns whether the cause lies on this host or its network, not at the provider.
    #[must_use]
    pub const fn local_origin(self) -> bool {
        matches!(self, Self::Dns | Self::Unreachable | Self::LocalExhaustion)
    }
}

/// The raw facts of a failed attempt, classified by `policy::classify` alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderError {
    /// Provider's family or name (`openai`, `anthropic`, …), lower case; empty if unknown.
    pub provider: Arc<str>,
    /// Place where the failure was seen.
    pub surface: Surface,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// gRPC status code, if there was one.
    pub grpc_status: Option<i32>,
    /// Kept headers: lower-case names, only those that the classifier or people need.
    pub headers: Vec<(String, String)>,
    /// The body as received, bounded, lossily decoded.
    pub body: Option<String>,
    /// Error text of an SDK, a transport or a tool, if there is no body.
    pub message: Option<String>,
    /// Typed transport fault, if this service's own client saw one.
    pub fault: Option<TransportFault>,
    /// `true` if a tool returned this as its result, so that it surely ran.
    pub returned: bool,
    /// Error that a tool returned, word for word.
    pub reply: Option<Arc<ToolReply>>,
}

impl ProviderError {
    /// A transport fault, with a message for people.
    pub fn transport(
        provider: impl Into<Arc<str>>,
        fault: TransportFault,
        message: impl Into<String>,
    ) -> Self {
        let surface = match fault {
            TransportFault::IdleTimeout | TransportFault::Cut => Surface::Stream,
            _ => Surface::Transport,
        };
        Self {
            provider: provider.into(),
            surface,
            fault: Some(fault),
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// Returns the body, or the text in place of one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.body
            .as_deref()
            .filter(|body| !body.is_empty())
            .or(self.message.as_deref())
    }

    /// Returns the value of a kept header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(kept, _)| kept == name)
            .map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.fault) {
            (Some(status), _) => write!(f, "status {status}")?,
            (None, Some(fault)) => write!(f, "{fault:?}")?,
            (None, None) => write!(f, "provider error")?,
        }
        if let Some(text) = self.message.as_deref().or(self.body.as_deref()) {
            let end = text.floor_char_boundary(200);
            write!(f, ": {}", &text[..end])?;
        }
        Ok(())
    }
}

impl std::error::Error for ProviderError {}
