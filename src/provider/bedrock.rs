//! AWS Bedrock's Converse API, streamed.
//!
//! A response counts as complete only with `messageStop`; the `metadata` after it, with the usage,
//! may be missing. A credential is a Bedrock API key, sent as a bearer token, or AWS keys, which
//! sign each request. Credentials are neither read from the environment or the machine nor renewed.

mod answer;
mod content;
mod finish;
mod frames;
mod request;
mod sign;

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use self::sign::{AwsKeys, Unsigned};
use super::{
    BuildError, ProviderFuture,
    http::{HttpClient, Post, accepted, lasting},
    keys::{KeyedClients, missing},
    reading::{self, ReadLimits},
    spec::{KeyHeader, ProviderSpec},
};
use crate::domain::{clock, failure::ProviderError, wire::ProviderRequest};

/// Kind of a reasoning text's signature.
pub(super) const SIGNATURE: &str = "bedrock.signature";
/// Kind of redacted reasoning, in the base64 that it came in.
pub(super) const REDACTED: &str = "bedrock.redacted";

const ACCEPT: &str = "application/vnd.amazon.eventstream";

/// A client of Converse for one provider; cheap to clone.
#[derive(Debug, Clone)]
pub struct ConverseClient {
    /// For API keys, and for requests without any.
    bearer: KeyedClients,
    signed: Option<Arc<Signed>>,
    stream: bool,
}

/// What signing a request requires.
#[derive(Debug)]
struct Signed {
    http: HttpClient,
    /// Whether there are API keys beside the signing ones.
    has_api_keys: bool,
    keys: BTreeMap<String, AwsKeys>,
    region: String,
    /// As in the `host` header.
    host: String,
    /// The base URL's own path.
    prefix: String,
}

// === impl ConverseClient ===

impl ConverseClient {
    /// A client for one provider; nothing is connected yet.
    ///
    /// A credential with a colon is `{access key id}:{secret access key}`, with `:{session token}`
    /// where there is one; any other is a Bedrock API key. The region is the specification's, else
    /// the one in the base URL's host; an empty base URL becomes the region's public endpoint.
    ///
    /// # Errors
    /// When the specification cannot work.
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
        let bearer = KeyedClients::build(&spec, |key| ("authorization", format!("Bearer {key}")))?;
        if keys.is_empty() {
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
        let (http, has_api_keys) = (HttpClient::build(&bare)?, !spec.credentials.is_empty());
        let stream = spec.chat.stream;
        Ok(Self {
            bearer,
            stream,
            signed: Some(Arc::new(Signed {
                http,
                has_api_keys,
                keys,
                region,
                host,
                prefix,
            })),
        })
    }

    /// Sends the call; fails at once where it cannot be expressed in this dialect.
    pub(super) fn answer(&self, call: ProviderRequest) -> Result<ProviderFuture, ProviderError> {
        let body = request::body(&call)?;
        let (method, accept) = if self.stream {
            ("converse-stream", ACCEPT)
        } else {
            ("converse", accepted(false))
        };
        let path = format!("/model/{}/{method}", sign::segment(&call.target.model));
        let keys = match &self.signed {
            Some(signed) => signed.of(&call)?.map(|keys| (signed, keys)),
            None => None,
        };
        let (http, headers) = match keys {
            Some((signed, keys)) => {
                let headers = signed.headers(keys, &path, &body).ok_or_else(|| ProviderError {
                    provider: Arc::clone(&call.target.family),
                    message: Some("Missing credentials: the AWS keys hold characters that no header takes".to_owned()),
                    ..ProviderError::default()
                })?;
                (signed.http.clone(), headers)
            }
            None => (self.bearer.of(&call)?.clone(), HeaderMap::new()),
        };
        Ok(Box::pin(async move {
            let reply = http
                .post(
                    &call,
                    Post {
                        path,
                        body,
                        accept,
                        headers,
                    },
                )
                .await?;
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
    /// The keys for a call's credential, `None` where it is an API key; with a single credential,
    /// the call need not name it.
    ///
    /// # Errors
    /// When the call names no credential, and there are several.
    fn of(&self, call: &ProviderRequest) -> Result<Option<&AwsKeys>, ProviderError> {
        match &*call.target.credential {
            "" if self.keys.len() == 1 && !self.has_api_keys => Ok(self.keys.values().next()),
            "" => Err(missing(call)),
            named => Ok(self.keys.get(named)),
        }
    }

    /// What signs this request, and this one alone; `None` where no header takes it.
    fn headers(&self, keys: &AwsKeys, path: &str, body: &[u8]) -> Option<HeaderMap> {
        let path = format!("{}{path}", self.prefix);
        let request = Unsigned {
            host: &self.host,
            path: &path,
            body,
            region: &self.region,
            service: "bedrock",
        };
        let signed = sign::headers(&request, keys, clock::wall_now());
        let header = |(name, value): (&'static str, String)| {
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_static(name), value))
        };
        signed.into_iter().map(header).collect()
    }
}

/// The region in `bedrock-runtime.{region}.amazonaws.com` and its kin (FIPS, VPC endpoints).
fn region_of(base_url: &str) -> Option<String> {
    let uri: http::Uri = base_url.parse().ok()?;
    let mut labels = uri
        .host()?
        .split('.')
        .skip_while(|label| !label.starts_with("bedrock-runtime"));
    labels.nth(1).map(str::to_owned)
}

/// The host as HTTP sends it: with its port, unless that is the scheme's own.
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
