//! AWS Bedrock's Converse API, streamed.
//!
//! A response counts as complete only with `messageStop`; the `metadata` after it, with the usage,
//! may be missing. A credential is a Bedrock API key, sent as a bearer token, or AWS keys, which
//! sign each request; a cloud identity has such keys and renews them (`identity`).

mod answer;
mod content;
mod finish;
mod frames;
mod request;

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    BuildError, ProviderFuture,
    aws_sign::{self, AwsKeys, Unsigned},
    http::{HttpClient, Post, ProviderResponse, accepted, lasting},
    identity::CloudIdentity,
    keys::{KeyedClients, missing},
    reading::{self, ReadLimits},
    spec::{KeyHeader, ProviderSpec, StreamMode},
};
use crate::domain::{clock, failure::ProviderError, wire::ProviderRequest};

/// Kind of a reasoning text's signature.
pub(super) const SIGNATURE: &str = "bedrock.signature";
/// Kind of redacted reasoning, in the base64 that it came in.
pub(super) const REDACTED: &str = "bedrock.redacted";

const ACCEPT: &str = "application/vnd.amazon.eventstream";

/// Names of refusals of keys that ended, or that are no longer known.
const ENDED_KEYS: [&str; 4] = [
    "ExpiredToken",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
];

/// A client of Converse for one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ConverseClient {
    /// For API keys, and for requests without any.
    bearer: KeyedClients,
    signed: Option<Arc<Signed>>,
    stream: StreamMode,
}

/// Way in which one request is sent.
enum Sender {
    Signed(Arc<Signed>),
    Bearer(HttpClient),
}

/// Everything that signing a request requires.
#[derive(Debug)]
struct Signed {
    http: HttpClient,
    /// If set, there are API keys beside the signing ones.
    has_api_keys: bool,
    keys: BTreeMap<String, AwsKeys>,
    /// Identity whose keys are used in the place of configured ones.
    identity: Option<CloudIdentity>,
    region: String,
    /// As in the `host` header.
    host: String,
    /// The base URL's own path.
    prefix: String,
}

// === impl ConverseClient ===

impl ConverseClient {
    /// Builds a client for one provider; nothing is connected yet.
    ///
    /// A credential with a colon is `{access key id}:{secret access key}`, with `:{session token}`
    /// if there is one; any other is a Bedrock API key. The region is the specification's, else
    /// the one in the base URL's host; an empty base URL becomes the region's public endpoint.
    ///
    /// # Errors
    /// Returns an error if the specification cannot work.
    pub fn build(spec: &ProviderSpec) -> Result<Self, BuildError> {
        let unusable = |why: &str| BuildError::BaseUrl {
            provider: Arc::clone(&spec.name),
            url: spec.base_url.clone(),
            why: why.to_owned(),
        };
        let region = spec.region.clone().or_else(|| region_of(&spec.base_url));
        let mut spec = spec.clone();
        if spec.base_url.is_empty() {
            let region = region
                .as_deref()
                .ok_or_else(|| unusable("neither a URL nor a region is named"))?;
            spec.base_url = format!("https://bedrock-runtime.{region}.amazonaws.com");
        }
        let mut keys = BTreeMap::new();
        if spec.api_key_header != KeyHeader::None {
            let parsed = |(name, key): (&String, &SecretString)| {
                Some((name.clone(), AwsKeys::parse(key.expose_secret())?))
            };
            keys.extend(spec.credentials.iter().filter_map(parsed));
            spec.credentials.retain(|name, _| !keys.contains_key(name));
        }
        let identity = CloudIdentity::of(&spec)?;
        spec.identity = None;
        let bearer = KeyedClients::build(&spec, |key| ("authorization", format!("Bearer {key}")))?;
        if keys.is_empty() && identity.is_none() {
            return Ok(Self {
                bearer,
                signed: None,
                stream: spec.chat.stream,
            });
        }
        let region = region.ok_or_else(|| unusable("no region is named to sign for"))?;
        let uri: http::Uri = spec
            .base_url
            .parse()
            .map_err(|_| unusable("it is no URL"))?;
        if uri.query().is_some() {
            return Err(unusable("signed requests take no query"));
        }
        let host = host_header(&uri).ok_or_else(|| unusable("it names no host"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let bare = ProviderSpec {
            api_key_header: KeyHeader::None,
            ..spec.clone()
        };
        let http = HttpClient::build(&bare)?;
        let has_api_keys = !spec.credentials.is_empty();
        let stream = spec.chat.stream;
        Ok(Self {
            bearer,
            stream,
            signed: Some(Arc::new(Signed {
                http,
                has_api_keys,
                keys,
                identity,
                region,
                host,
                prefix,
            })),
        })
    }

    /// Sends the call; fails at once if it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        let body = request::body(&call)?;
        let (method, accept) = if self.stream.streams(&call) {
            ("converse-stream", ACCEPT)
        } else {
            ("converse", accepted(false))
        };
        let path = format!("/model/{}/{method}", aws_sign::segment(&call.target.model));
        let sender = match &self.signed {
            Some(signed) if signed.signs(&call)? => Sender::Signed(Arc::clone(signed)),
            Some(_) | None => Sender::Bearer(self.bearer.of(&call)?.clone()),
        };
        let post = Post {
            path,
            body,
            accept,
            headers: HeaderMap::new(),
        };
        Ok(Box::pin(async move {
            let (reply, http) = match &sender {
                Sender::Signed(signed) => (signed.post(&call, post).await?, &signed.http),
                Sender::Bearer(http) => (http.post(&call, post).await?, http),
            };
            let id = reply
                .headers
                .iter()
                .find(|(name, _)| name == "x-amzn-requestid")
                .map(|(_, id)| id.clone());
            let parser = answer::ConverseReader::new(lasting(&reply.headers), id);
            Ok(reading::read(
                reply,
                ReadLimits::of(&call, http.settings()),
                parser,
            ))
        }))
    }
}

// === impl Signed ===

impl Signed {
    /// Returns whether a call's credential signs; an API key does not. With a single credential, the
    /// call need not name it.
    ///
    /// # Errors
    /// Returns an error if the call names no credential, and there are several.
    fn signs(&self, call: &ProviderRequest) -> Result<bool, ProviderError> {
        match &*call.target.credential {
            _ if self.identity.is_some() => Ok(true),
            "" if self.keys.len() == 1 && !self.has_api_keys => Ok(true),
            "" => Err(missing(call)),
            named => Ok(self.keys.contains_key(named)),
        }
    }

    /// Sends a signed request; once more with other keys, if those of an identity are refused.
    async fn post(
        &self,
        call: &ProviderRequest,
        post: Post,
    ) -> Result<ProviderResponse, ProviderError> {
        let Some(identity) = &self.identity else {
            let named = self.keys.get(&*call.target.credential);
            let keys = named.or_else(|| self.keys.values().next());
            let keys = keys.ok_or_else(|| missing(call))?;
            return self.http.post(call, self.signed(call, keys, post)?).await;
        };
        let token = identity.token().await?;
        let keys = token.aws_keys().and_then(AwsKeys::parse);
        let keys = keys.ok_or_else(|| missing(call))?;
        let first = self.signed(call, &keys, post.clone())?;
        let first = self.http.post(call, first).await;
        if !first.as_ref().is_err_and(are_keys_refused) {
            return first;
        }
        let newer = identity.instead_of(&token).await;
        match newer.and_then(|token| AwsKeys::parse(token.aws_keys()?)) {
            Some(newer) => self.http.post(call, self.signed(call, &newer, post)?).await,
            None => first,
        }
    }

    fn signed(
        &self,
        call: &ProviderRequest,
        keys: &AwsKeys,
        post: Post,
    ) -> Result<Post, ProviderError> {
        let headers = self.headers(keys, &post.path, &post.body);
        let headers = headers.ok_or_else(|| ProviderError {
            provider: Arc::clone(&call.target.family),
            message: Some(
                "Missing credentials: the AWS keys hold characters that no header takes".to_owned(),
            ),
            ..ProviderError::default()
        })?;
        Ok(Post { headers, ..post })
    }

    /// Returns the headers that sign this request, and this one alone; `None` if no header takes
    /// them.
    fn headers(&self, keys: &AwsKeys, path: &str, body: &[u8]) -> Option<HeaderMap> {
        let path = format!("{}{path}", self.prefix);
        let request = Unsigned {
            host: &self.host,
            path: &path,
            body,
            region: &self.region,
            service: "bedrock",
        };
        let signed = aws_sign::headers(&request, keys, clock::wall_now());
        let header = |(name, value): (&'static str, String)| {
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_static(name), value))
        };
        signed.into_iter().map(header).collect()
    }
}

/// Returns whether a refusal is about the keys, and not about a right that they lack.
fn are_keys_refused(error: &ProviderError) -> bool {
    let body = error.body.as_deref().unwrap_or_default();
    let is_named = |words: &str| ENDED_KEYS.iter().any(|name| words.contains(name));
    let kind = error
        .headers
        .iter()
        .find(|(name, _)| name == "x-amzn-errortype");
    error.status == Some(401)
        || (matches!(error.status, Some(400 | 403))
            && (kind.is_some_and(|(_, kind)| is_named(kind)) || is_named(body)))
}

/// Returns the region in `bedrock-runtime.{region}.amazonaws.com` and its kin (FIPS, VPC
/// endpoints).
fn region_of(base_url: &str) -> Option<String> {
    let uri: http::Uri = base_url.parse().ok()?;
    let mut labels = uri
        .host()?
        .split('.')
        .skip_while(|label| !label.starts_with("bedrock-runtime"));
    labels.nth(1).map(str::to_owned)
}

/// Returns the host as HTTP sends it: with its port, unless that is the scheme's own.
fn host_header(uri: &http::Uri) -> Option<String> {
    let host = uri.host()?;
    Some(match (uri.port_u16(), uri.scheme_str()) {
        (None, _) | (Some(443), Some("https")) | (Some(80), Some("http")) => host.to_owned(),
        (Some(port), _) => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::target::Dialect;

    #[test]
    fn the_region_is_read_from_the_host_of_every_kind_of_endpoint() {
        for host in [
            "bedrock-runtime",
            "bedrock-runtime-fips",
            "vpce-1.bedrock-runtime",
        ] {
            assert_eq!(
                region_of(&format!("https://{host}.eu-west-1.amazonaws.com")).as_deref(),
                Some("eu-west-1")
            );
        }
        assert_eq!(region_of("https://proxy.test/v1"), None);
        assert_eq!(region_of(""), None);
    }

    #[test]
    fn aws_keys_without_a_region_and_nothing_without_an_endpoint_are_refused() {
        let spec = |base_url: &str, key: &str| ProviderSpec {
            credentials: [("main".to_owned(), key.into())].into(),
            ..ProviderSpec::new("aws", Dialect::Bedrock, base_url)
        };
        assert!(ConverseClient::build(&spec("", "api-key")).is_err());
        assert!(ConverseClient::build(&spec("https://proxy.test", "AKIA:secret")).is_err());
        assert!(ConverseClient::build(&spec("https://proxy.test", "api-key")).is_ok());
        let composed = ProviderSpec {
            region: Some("eu-west-1".to_owned()),
            ..spec("", "AKIA:secret")
        };
        assert!(ConverseClient::build(&composed).is_ok());
    }
}
