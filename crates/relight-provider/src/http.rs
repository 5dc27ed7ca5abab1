//! One HTTP request to a provider, and its response as bounded bytes with the relevant facts.
//!
//! Connections are pooled, and HTTP/2 is used if TLS negotiates it. There are no retries and no
//! redirects, and a response is not read beyond its bound. Dropping a request or a body cancels it
//! upstream.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT},
};
use http_body_util::Full;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    BuildError,
    identity::{CloudIdentity, IdentityToken},
    spec::{HttpSettings, KeyHeader, ProviderSpec},
};
use crate::{
    domain::{
        failure::{ProviderError, Surface, TransportFault},
        invocation::TraceContext,
        wire::ProviderRequest,
    },
    outbound::{self, ConnectionSettings, HttpConnections},
};

pub(super) use crate::outbound::{ReplyBody, lasting};

const AGENT: &str = concat!("relight/", env!("CARGO_PKG_VERSION"));

/// A provider's HTTP client with its keys and headers; cheap to clone.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: HttpConnections,
    shared: Arc<ClientPool>,
    /// Identity whose tokens are sent in the place of keys.
    identity: Option<CloudIdentity>,
}

struct ClientPool {
    base: String,
    query: Option<String>,
    keys: HeaderMapByName,
    key_header: KeyHeader,
    extra: HeaderMap,
    settings: HttpSettings,
    propagate_trace: bool,
}

type HeaderMapByName = std::collections::BTreeMap<String, HeaderValue>;

/// A response with a 2xx status.
pub(super) struct ProviderResponse {
    /// Status, always 2xx.
    pub(super) status: u16,
    /// Kept headers.
    pub(super) headers: Vec<(String, String)>,
    /// The rest, as it comes.
    pub(super) body: ReplyBody,
}

/// The parts of a request beside those in the provider's specification.
#[derive(Clone, Default)]
pub(super) struct Post {
    /// Behind the base URL.
    pub(super) path: String,
    /// JSON.
    pub(super) body: Vec<u8>,
    /// The accepted media types.
    pub(super) accept: &'static str,
    /// Headers of this request alone; they replace all others of the same name.
    pub(super) headers: HeaderMap,
}

/// Returns the accepted media types: events if a stream is requested, else one document.
pub(super) const fn accepted(stream: bool) -> &'static str {
    if stream {
        "text/event-stream"
    } else {
        "application/json"
    }
}

// === impl HttpClient ===

impl HttpClient {
    /// Returns a client for one provider; nothing is connected yet.
    pub(super) fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let base_url = |why: &str| BuildError::BaseUrl {
            provider: Arc::clone(&spec.name),
            url: spec.base_url.clone(),
            why: why.to_owned(),
        };
        let (base, query) = match spec.base_url.split_once('?') {
            Some((base, query)) => (base, Some(query.to_owned())),
            None => (spec.base_url.as_str(), None),
        };
        let uri: Uri = base
            .replace("{model}", "model")
            .parse()
            .map_err(|_| base_url("it is no URL"))?;
        let host = uri.host().ok_or_else(|| base_url("it names no host"))?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if spec.http.allow_http || outbound::is_loopback(host) => {}
            Some("http") => return Err(base_url("plaintext is not allowed beyond this host")),
            _ => return Err(base_url("its scheme is neither https nor http")),
        }
        let settings = ConnectionSettings {
            connect_timeout: spec.http.connect_timeout,
            pool_idle_timeout: spec.http.pool_idle_timeout,
            pool_max_idle_per_host: spec.http.pool_max_idle_per_host,
            http2_prior_knowledge: spec.http.http2_prior_knowledge,
            tcp_nodelay: spec.http.tcp_nodelay,
            allow_private: spec.http.allow_private,
            proxy: spec.http.proxy.clone(),
            tls: spec.http.tls.clone(),
        };
        let tls = |source| BuildError::Tls {
            provider: Arc::clone(&spec.name),
            source,
        };
        let client = outbound::connections(&settings).map_err(tls)?;
        let shared = ClientPool {
            base: base.trim_end_matches('/').to_owned(),
            query,
            keys: key_headers(spec)?,
            key_header: spec.api_key_header,
            extra: extra_headers(spec)?,
            settings: spec.http.clone(),
            propagate_trace: spec.propagate_trace,
        };
        Ok(Self {
            client,
            shared: Arc::new(shared),
            identity: CloudIdentity::of(spec)?,
        })
    }

    /// Returns the bounds of this client.
    pub(super) fn settings(&self) -> &HttpSettings {
        &self.shared.settings
    }

    /// Sends one request and waits for the response head.
    ///
    /// # Errors
    /// With the facts, when the request could not be sent, no head came, or the status is not 2xx.
    pub(super) async fn post(
        &self,
        call: &ProviderRequest,
        post: Post,
    ) -> Result<ProviderResponse, ProviderError> {
        self.exchange(call, Method::POST, post).await
    }

    /// Sends a GET request; `path` may have a query.
    ///
    /// # Errors
    /// As for [`Self::post`].
    pub(super) async fn get(
        &self,
        call: &ProviderRequest,
        path: String,
        accept: &'static str,
    ) -> Result<ProviderResponse, ProviderError> {
        let get = Post {
            path,
            accept,
            ..Post::default()
        };
        self.exchange(call, Method::GET, get).await
    }

    /// Sends a request, with a token if an identity takes the place of keys.
    async fn exchange(
        &self,
        call: &ProviderRequest,
        method: Method,
        mut post: Post,
    ) -> Result<ProviderResponse, ProviderError> {
        let body = Bytes::from(std::mem::take(&mut post.body));
        let Some(identity) = &self.identity else {
            let request = self.request(call, (method, None), &post, body)?;
            return self.send(call, request).await;
        };
        // Boxed, so that calls with keys do not carry its room.
        Box::pin(self.prove(identity, call, (method, &post), body)).await
    }

    /// Sends a request with a token of this identity; once more with another one, if it is refused.
    async fn prove(
        &self,
        identity: &CloudIdentity,
        call: &ProviderRequest,
        (method, post): (Method, &Post),
        body: Bytes,
    ) -> Result<ProviderResponse, ProviderError> {
        let token = identity.token().await?;
        let request = self.request(call, (method.clone(), Some(&token)), post, body.clone())?;
        let first = self.send(call, request).await;
        let is_refused = matches!(&first, Err(error) if error.status == Some(401));
        if is_refused && let Some(newer) = identity.instead_of(&token).await {
            let request = self.request(call, (method, Some(&newer)), post, body)?;
            return self.send(call, request).await;
        }
        first
    }

    async fn send(
        &self,
        call: &ProviderRequest,
        request: Request<Full<Bytes>>,
    ) -> Result<ProviderResponse, ProviderError> {
        let provider = &call.target.family;
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => return Err(outbound::head_fault(provider, &error)),
        };
        let (head, incoming) = answer.into_parts();
        let headers = outbound::kept(&head.headers);
        let body = ReplyBody::new(
            incoming,
            Arc::clone(provider),
            self.shared.settings.max_body_bytes,
        );
        if head.status.is_success() {
            if let Some(encoding) = compressed(&head.headers) {
                let words = format!(
                    "the response is compressed ({encoding}), although that was not requested"
                );
                return Err(ProviderError::transport(
                    Arc::clone(provider),
                    TransportFault::Protocol,
                    words,
                ));
            }
            return Ok(ProviderResponse {
                status: head.status.as_u16(),
                headers,
                body,
            });
        }
        let is_plain = !head.status.is_redirection() && compressed(&head.headers).is_none();
        let text = if is_plain { body.excerpt().await } else { None };
        let message = match text {
            Some(_) => None,
            None if head.status.is_redirection() => Some(redirected(&head.headers)),
            None => Some(head.status.to_string()),
        };
        Err(ProviderError {
            provider: Arc::clone(provider),
            surface: Surface::Http,
            status: Some(head.status.as_u16()),
            headers,
            body: text,
            message,
            ..ProviderError::default()
        })
    }

    fn request(
        &self,
        call: &ProviderRequest,
        (method, token): (Method, Option<&Arc<IdentityToken>>),
        post: &Post,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ProviderError> {
        let not_configured = |message: String| ProviderError {
            provider: Arc::clone(&call.target.family),
            message: Some(message),
            ..ProviderError::default()
        };
        let shared = &*self.shared;
        let mut url = shared.base.replace("{model}", &call.target.model);
        url.push_str(&post.path);
        if let Some(query) = &shared.query {
            url.push(if post.path.contains('?') { '&' } else { '?' });
            url.push_str(query);
        }
        call.sent_to.note(&url);
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, post.accept)
            .header(USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(|error| {
                not_configured(format!(
                    "the provider's URL is not configured well: {error}"
                ))
            })?;
        let headers = request.headers_mut();
        if shared.propagate_trace {
            trace_headers(headers, &call.trace);
        }
        if let Some(proof) = token.and_then(|token| token.header()) {
            headers.insert(AUTHORIZATION, proof.clone());
        } else if let Some((name, key)) =
            self.key(&call.target.credential).map_err(not_configured)?
        {
            headers.insert(name, key.clone());
        }
        for (name, value) in shared.extra.iter().chain(&post.headers) {
            headers.insert(name.clone(), value.clone());
        }
        Ok(request)
    }

    fn key(&self, credential: &str) -> Result<Option<(HeaderName, &HeaderValue)>, String> {
        let keys = &self.shared.keys;
        let name = match self.shared.key_header {
            KeyHeader::Bearer => AUTHORIZATION,
            KeyHeader::ApiKey => HeaderName::from_static("api-key"),
            KeyHeader::None => return Ok(None),
        };
        let key = match credential {
            // With a single key or none, the call need not name it.
            "" if keys.is_empty() => return Ok(None),
            "" if keys.len() == 1 => keys.values().next(),
            named => keys.get(named),
        };
        key.map(|key| Some((name, key))).ok_or_else(|| {
            format!(
                "Missing credentials: no credential is configured under the name `{credential}`"
            )
        })
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("base", &self.shared.base)
            .finish_non_exhaustive()
    }
}

/// Returns the encoding of a body that is not plain.
fn compressed(headers: &HeaderMap) -> Option<&str> {
    let encoding = headers
        .get(CONTENT_ENCODING)?
        .to_str()
        .unwrap_or("unknown")
        .trim();
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then_some(encoding)
}

/// Words for a redirect; its query is left out, for it may hold a secret.
fn redirected(headers: &HeaderMap) -> String {
    let to = headers
        .get(LOCATION)
        .and_then(|to| to.to_str().ok())
        .and_then(|to| to.split(['?', '#']).next());
    match to {
        Some(to) => format!("redirects are not followed; this one leads to {to}: check `base_url`"),
        None => "redirects are not followed: check `base_url`".to_owned(),
    }
}

fn key_headers(spec: &ProviderSpec) -> Result<HeaderMapByName, BuildError> {
    let header = |(name, key): (&String, &SecretString)| {
        let key = key.expose_secret();
        let text = match spec.api_key_header {
            KeyHeader::Bearer => format!("Bearer {key}"),
            KeyHeader::ApiKey | KeyHeader::None => key.to_owned(),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| BuildError::Header {
            provider: Arc::clone(&spec.name),
            what: format!("the value of credential `{name}`"),
        })?;
        value.set_sensitive(true);
        Ok((name.clone(), value))
    };
    spec.credentials.iter().map(header).collect()
}

fn extra_headers(spec: &ProviderSpec) -> Result<HeaderMap, BuildError> {
    let header = |(name, value): (&String, &String)| {
        let refused = || BuildError::Header {
            provider: Arc::clone(&spec.name),
            what: format!("extra header `{name}`"),
        };
        let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
        // Any of them may carry a key: none is printed, and none is kept in a table of HPACK.
        value.set_sensitive(true);
        Ok((
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?,
            value,
        ))
    };
    spec.extra_headers.iter().map(header).collect()
}

fn trace_headers(headers: &mut HeaderMap, trace: &TraceContext) {
    let fields = [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
        ("baggage", &trace.baggage),
    ];
    for (name, value) in fields {
        // A value that HTTP does not allow is left out: a broken trace is not a reason to fail a
        // call.
        if let Some(value) = value
            .as_deref()
            .and_then(|value| HeaderValue::from_str(value).ok())
        {
            headers.insert(name, value);
        }
    }
}
