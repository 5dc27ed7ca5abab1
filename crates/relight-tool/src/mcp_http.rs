//! The HTTP of MCP's streamable transport: the SDK keeps the session and its streams, and this
//! sends the requests, over the same kind of connections as those to providers, within the same
//! bounds, and keeps the facts of what fails.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
    response::Parts,
};
use http_body_util::Full;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage},
    transport::{
        common::client_side_sse::ExponentialBackoff,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
            StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use sse_stream::Sse;

use super::{
    ToolServersError, body, era,
    errors::{self, WireError},
    facts::RequestFacts,
    mcp_events::{self, ExpectedResponse},
    progress::ProgressListeners,
    session::ListChanges,
    session_doubt::{self, SessionDoubt},
    spec::{HttpPlace, ToolServerSpec},
    unsolicited::Unsolicited,
};
use crate::{
    domain::failure::{ProviderError, Surface, TransportFault},
    outbound::{self, ConnectionSettings, HttpConnections, ReplyBody},
};

pub(super) const AGENT: &str = concat!("relight/", env!("CARGO_PKG_VERSION"));

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Most requests on the way at once; the slots of the targets above are fewer.
const MAX_REQUESTS: usize = 1024;
/// Number of times that a stream that broke is read on, and the first and longest wait before that.
const READ_ON: (usize, Duration, Duration) =
    (4, Duration::from_millis(250), Duration::from_secs(2));

/// Time that a server may take to say how it speaks before it is spoken to in the older way: some do
/// not respond to what they do not know.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

type SendError = StreamableHttpError<WireError>;

/// Sends the requests of the sessions with one server; cheap to clone.
#[derive(Clone)]
pub(super) struct McpHttpClient {
    connections: HttpConnections,
    url: Arc<str>,
    headers: HeaderMap,
    max_reply_bytes: usize,
    /// Of the session that it sends for.
    unsolicited: Unsolicited,
}

// === impl McpHttpClient ===

impl McpHttpClient {
    /// Returns a client of a server; nothing is connected yet.
    pub(super) fn build(
        spec: &ToolServerSpec,
        place: &HttpPlace,
    ) -> Result<Self, ToolServersError> {
        Ok(Self {
            connections: connections(spec, place)?,
            url: checked_url(spec, place)?.as_str().into(),
            headers: headers(spec, place)?,
            max_reply_bytes: spec.limits.max_reply_bytes,
            unsolicited: Unsolicited::new(ListChanges::default(), ProgressListeners::default()),
        })
    }

    /// Returns the client for one session, and what the SDK needs to know for it.
    pub(super) fn for_session(
        &self,
        unsolicited: Unsolicited,
    ) -> (Self, StreamableHttpClientTransportConfig) {
        let mut read_on = ExponentialBackoff::default();
        (read_on.max_times, read_on.base_duration, read_on.max_delay) =
            (Some(READ_ON.0), READ_ON.1, Some(READ_ON.2));
        let mut config = StreamableHttpClientTransportConfig::with_uri(Arc::clone(&self.url))
            .max_concurrent_requests(MAX_REQUESTS)
            // Only the retry loop above repeats a request.
            .reinit_on_expired_session(false)
            .max_sse_event_size(self.max_reply_bytes)
            .max_json_response_size(self.max_reply_bytes);
        config.retry_config = Arc::new(read_on);
        config.allow_stateless = true;
        (
            Self {
                unsolicited,
                ..self.clone()
            },
            config,
        )
    }

    async fn send(
        &self,
        method: Method,
        accept: &'static str,
        body: Bytes,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(Parts, ReplyBody), ProviderError> {
        let invalid =
            |error: http::Error| errors::fault(TransportFault::Protocol, error.to_string());
        let mut request = Request::builder()
            .method(method)
            .uri(&*self.url)
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, accept)
            .header(USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(invalid)?;
        let own = request.headers_mut();
        own.extend(self.headers.clone());
        own.extend(headers);
        if let Some(session) = session {
            let session = HeaderValue::from_str(session).map_err(|error| invalid(error.into()))?;
            own.insert(SESSION_ID, session);
        }
        let response = self.connections.request(request).await;
        let response =
            response.map_err(|error| outbound::head_fault(&Arc::from(errors::MCP), &error))?;
        let (head, incoming) = response.into_parts();
        // Bounded by event or as one document when it is read.
        Ok((
            head,
            ReplyBody::new(incoming, Arc::from(errors::MCP), u64::MAX),
        ))
    }

    /// Returns the response to a message to post; for a probe that the server does not know, the
    /// response is made here.
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, ProviderError> {
        let Some(probe) = era::probe_id(&message) else {
            return self.exchange(message, session, headers).await;
        };
        let asking = async {
            let response = self.exchange(message, session, headers).await?;
            let read = response.expect_initialized().await;
            read.map_err(|error: SendError| {
                errors::fault(TransportFault::Protocol, error.to_string())
            })
        };
        let message = match tokio::time::timeout(PROBE_TIMEOUT, asking).await {
            Err(_) => era::unknown_method(probe, None),
            Ok(Ok((message @ ServerJsonRpcMessage::Response(_), _)))
                if !era::is_discovery(&message) =>
            {
                era::unknown_method(probe, None)
            }
            Ok(Ok((message, _))) => message,
            Ok(Err(facts)) => era::refused_probe(probe, &facts).ok_or(facts)?,
        };
        Ok(StreamableHttpPostResponse::Json(message, None))
    }

    async fn exchange(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, ProviderError> {
        let is_probe = era::probe_id(&message).is_some();
        let expected = expected_of(&message, session.is_some());
        let body = serde_json::to_vec(&message)
            .map_err(|error| errors::fault(TransportFault::Protocol, error.to_string()))?;
        if let Some(expected) = &expected {
            expected.facts.note_sent();
        }
        let (head, body) = self
            .send(
                Method::POST,
                "application/json, text/event-stream",
                body.into(),
                session,
                headers,
            )
            .await?;
        // A server that does not want a notification says so by the next request, if it matters.
        let Some(expected) = expected else {
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if !head.status.is_success() {
            let error = refused(&head, body).await;
            let text = error.text().unwrap_or_default();
            let is_correlated = expected.is_named_by(text);
            let doubt = session_doubt::of_status(head.status, text, is_correlated);
            // A probe comes before a session, which a server may say.
            let was_begun = session.is_some() || session_doubt::asks_for_start(text);
            let doubt = doubt.filter(|_| was_begun && !is_probe);
            if let Some(doubt) = doubt {
                expected.facts.note_doubt(doubt);
            }
            if doubt == Some(SessionDoubt::Lost) {
                let words = "the tool server ended the session";
                return Err(errors::fault(TransportFault::NotReady, words));
            }
            return Err(error);
        }
        let new_session = head
            .headers
            .get(SESSION_ID)
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        let kind = media_type(&head);
        if kind.as_deref() == Some(EVENTS) {
            let unsolicited = self.unsolicited.clone();
            let events = mcp_events::of_request(body, self.max_reply_bytes, expected, unsolicited);
            return Ok(StreamableHttpPostResponse::Sse(events, new_session));
        }
        let text = body::whole(&head, body, self.max_reply_bytes).await?;
        let response = expected.check(&text).map_err(|error| {
            if kind.as_deref() == Some(JSON) {
                return error;
            }
            let kind = kind.as_deref().unwrap_or("nothing");
            let words = format!("the tool server responded with {kind} in place of JSON or events");
            errors::fault(TransportFault::Protocol, words)
        })?;
        Ok(StreamableHttpPostResponse::Json(response, new_session))
    }

    async fn events(
        &self,
        session: Option<&str>,
        last_event_id: Option<String>,
        mut headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, SendError> {
        if let Some(id) = last_event_id {
            let id = HeaderValue::from_str(&id).map_err(|_| SendError::UnexpectedEndOfStream)?;
            headers.insert(LAST_EVENT_ID, id);
        }
        let sent = self
            .send(Method::GET, EVENTS, Bytes::new(), session, headers)
            .await;
        let (head, body) = sent.map_err(|error| SendError::Client(WireError(error)))?;
        if head.status.is_success() && media_type(&head).as_deref() == Some(EVENTS) {
            return Ok(mcp_events::of_stream(
                body,
                self.max_reply_bytes,
                self.unsolicited.clone(),
            ));
        }
        // Whatever else it returns, there is no response to read.
        Err(SendError::ServerDoesNotSupportSse)
    }
}

impl StreamableHttpClient for McpHttpClient {
    type Error = WireError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, SendError> {
        self.post(message, session_id.as_deref(), headers)
            .await
            .map_err(|error| SendError::Client(WireError(error)))
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), SendError> {
        let sent = self
            .send(
                Method::DELETE,
                JSON,
                Bytes::new(),
                Some(&session_id),
                headers,
            )
            .await;
        match sent {
            Ok((head, _)) if head.status.is_success() => Ok(()),
            Ok(_) => Err(SendError::ServerDoesNotSupportDeleteSession),
            Err(error) => Err(SendError::Client(WireError(error))),
        }
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, SendError> {
        self.events(session_id.as_deref(), last_event_id, headers)
            .await
    }
}

/// Connections to a server.
pub(super) fn connections(
    spec: &ToolServerSpec,
    place: &HttpPlace,
) -> Result<HttpConnections, ToolServersError> {
    let settings = ConnectionSettings {
        connect_timeout: place.connect_timeout,
        allow_private: place.allow_private,
        proxy: place.proxy.clone(),
        tls: place.tls.clone(),
        ..ConnectionSettings::default()
    };
    let tls = |source| ToolServersError::Tls {
        server: Arc::clone(&spec.name),
        source,
    };
    outbound::connections(&settings).map_err(tls)
}

/// Returns the URL of a server, if it is one that may be used.
pub(super) fn checked_url(
    spec: &ToolServerSpec,
    place: &HttpPlace,
) -> Result<String, ToolServersError> {
    let wrong = |why: &str| ToolServersError::Url {
        server: Arc::clone(&spec.name),
        url: crate::policy::shown_url::shown_url(&place.url),
        why: why.to_owned(),
    };
    let uri: Uri = place.url.parse().map_err(|_| wrong("it is no URL"))?;
    let host = uri.host().ok_or_else(|| wrong("it names no host"))?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if place.allow_http || outbound::is_loopback(host) => {}
        Some("http") => return Err(wrong("plaintext is not allowed beyond this host")),
        _ => return Err(wrong("its scheme is neither https nor http")),
    }
    Ok(place.url.clone())
}

/// Returns the headers of every request to a server.
pub(super) fn headers(
    spec: &ToolServerSpec,
    place: &HttpPlace,
) -> Result<HeaderMap, ToolServersError> {
    let header = |(name, value): (&str, &str)| {
        let refused = || ToolServersError::Header {
            server: Arc::clone(&spec.name),
            header: name.to_owned(),
        };
        let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
        // Any of them may carry a key: none is printed, and none is kept in a table of HPACK.
        value.set_sensitive(true);
        Ok((
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?,
            value,
        ))
    };
    place.headers.exposed().map(header).collect()
}

/// Returns the facts of a status that is not a success.
pub(super) async fn refused(head: &Parts, body: ReplyBody) -> ProviderError {
    let body = body::excerpt(head, body).await;
    let message = match body {
        Some(_) => None,
        None if head.status.is_redirection() => Some("redirects are not followed".to_owned()),
        None => Some(head.status.to_string()),
    };
    ProviderError {
        provider: errors::MCP.into(),
        surface: Surface::Tool,
        status: Some(head.status.as_u16()),
        headers: outbound::kept(&head.headers),
        reply: body.as_deref().and_then(errors::reply_in).map(Arc::new),
        body,
        message,
        ..ProviderError::default()
    }
}

/// Returns the media type of a response, in lower case, without parameters.
pub(super) fn media_type(head: &Parts) -> Option<String> {
    let value = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    (!kind.is_empty()).then_some(kind)
}

/// Returns the response that a message expects; `None` if it expects none.
fn expected_of(message: &ClientJsonRpcMessage, has_session: bool) -> Option<ExpectedResponse> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let facts = match &request.request {
        ClientRequest::CallToolRequest(call) => call.extensions.get::<RequestFacts>().cloned(),
        ClientRequest::ListToolsRequest(list) => list.extensions.get::<RequestFacts>().cloned(),
        ClientRequest::PingRequest(ping) => ping.extensions.get::<RequestFacts>().cloned(),
        _ => None,
    };
    Some(ExpectedResponse {
        id: request.id.clone(),
        has_session,
        facts: facts.unwrap_or_default(),
    })
}
