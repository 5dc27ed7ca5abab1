//! Checks how providers know their caller: by a key, a pool of keys, or an identity.

use std::collections::BTreeMap;

use http::{
    HeaderName, HeaderValue,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use super::Checker;
use crate::{
    config::{
        Secret,
        provider::{DEFAULT_CREDENTIAL, MAX_POOL, ProviderConfig},
    },
    domain::target::Dialect,
    provider::{Cloud, KeyHeader},
};

/// Header fields that belong to a connection or to the length of a body.
const OF_HTTP: [HeaderName; 7] = [
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

// === impl Checker ===

impl Checker<'_> {
    /// Header fields of requests, beside those that the settings named in `keys` give.
    pub(super) fn headers(
        &mut self,
        path: &str,
        headers: &BTreeMap<String, Secret>,
        keys: &[(&'static str, HeaderName)],
    ) {
        let mut seen: Vec<HeaderName> = Vec::with_capacity(headers.len());
        for (header, value) in headers {
            let at = format!("{path}.{header}");
            let Ok(name) = HeaderName::from_bytes(header.as_bytes()) else {
                self.fault(&at, "is no name of a header field");
                continue;
            };
            if HeaderValue::from_str(value.expose()).is_err() {
                self.fault(&at, "holds characters that no header field takes");
            } else if OF_HTTP.contains(&name) {
                self.fault(&at, "is set by HTTP itself; remove it");
            } else if let Some((key, _)) = keys.iter().find(|(_, field)| *field == name) {
                self.fault(&at, format!("is given beside {key}; keep one of them"));
            } else if seen.contains(&name) {
                self.fault(&at, "is written twice");
            }
            seen.push(name);
        }
    }

    pub(super) fn key(&mut self, path: &str, key: Option<&Secret>) {
        match key.map(Secret::expose) {
            Some("") => self.fault(path, "is empty"),
            Some(key) if HeaderValue::from_str(key).is_err() => {
                self.fault(
                    path,
                    "holds characters that no header field takes, such as a line break",
                );
            }
            Some(_) | None => {}
        }
    }

    /// The pool of keys of a provider.
    pub(super) fn pool(&mut self, path: &str, provider: &ProviderConfig) {
        let keys = &provider.api_keys;
        let at = format!("{path}.api_keys");
        if keys.is_empty() {
            if self.is_written(&at) {
                self.fault(&at, "is empty; a pool has at least one key");
            }
            return;
        }
        if provider.api_key.is_some() {
            self.fault(&at, "is given beside api_key; keep one of them");
        }
        if provider.credentials.contains_key(DEFAULT_CREDENTIAL) {
            let reason = "is what api_keys beside it means already; keep one of them";
            self.fault(&format!("{path}.credentials.{DEFAULT_CREDENTIAL}"), reason);
        }
        if keys.len() > MAX_POOL {
            self.fault(&at, format!("has more than {MAX_POOL} keys"));
        }
        for (index, key) in keys.iter().enumerate() {
            let at = format!("{at}[{index}]");
            self.key(&at, Some(key));
            let same = |one: &Secret| one.expose() == key.expose();
            if let Some(first) = keys[..index].iter().position(same) {
                self.fault(&at, format!("is the same key as api_keys[{first}]"));
            }
        }
    }

    /// An identity takes the place of keys, and belongs to a dialect that its cloud serves.
    pub(super) fn identity(&mut self, path: &str, provider: &ProviderConfig) {
        let Some(identity) = &provider.identity else {
            return;
        };
        let at = format!("{path}.identity");
        let has_keys = provider.api_key.is_some()
            || !provider.api_keys.is_empty()
            || !provider.credentials.is_empty();
        if has_keys {
            self.fault(
                &at,
                "takes the place of api_key, api_keys and credentials; keep one of them",
            );
        }
        let is_aws = identity.cloud == Cloud::Aws;
        if is_aws != (provider.dialect == Dialect::Bedrock) {
            let why = if is_aws {
                "of aws signs requests of the dialect bedrock alone"
            } else {
                "of the dialect bedrock is aws"
            };
            self.fault(&format!("{at}.cloud"), why);
        }
        if is_aws && identity.scope.is_some() {
            self.fault(
                &format!("{at}.scope"),
                "is not of aws, whose keys have none",
            );
        }
    }
}

/// Returns the settings of a provider that give the value of a header field, with that field.
pub(super) fn keys_of(name: &str, provider: &ProviderConfig) -> Vec<(&'static str, HeaderName)> {
    let api_key = match provider.dialect {
        Dialect::Anthropic => Some(HeaderName::from_static("x-api-key")),
        Dialect::Gemini => Some(HeaderName::from_static("x-goog-api-key")),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => match provider.key_header(name) {
            KeyHeader::Bearer => Some(AUTHORIZATION),
            KeyHeader::ApiKey => Some(HeaderName::from_static("api-key")),
            KeyHeader::None => None,
        },
        Dialect::Bedrock => Some(AUTHORIZATION),
        Dialect::Scripted | Dialect::Tool => None,
    }
    .filter(|_| provider.api_key_header != Some(KeyHeader::None));
    let identity = provider.identity.as_ref().map(|_| AUTHORIZATION);
    let written = [
        ("api_key", provider.api_key.is_some(), &api_key),
        ("api_keys", !provider.api_keys.is_empty(), &api_key),
        ("identity", true, &identity),
    ];
    let given = written.into_iter().filter(|(_, is_written, _)| *is_written);
    given
        .filter_map(|(setting, _, field)| Some((setting, field.clone()?)))
        .collect()
}
