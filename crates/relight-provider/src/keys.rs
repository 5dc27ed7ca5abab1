//! HTTP clients by credential, for dialects that send a key in a header of their own.
//!
//! The HTTP client knows the headers that several dialects share; a key that is sent in another one
//! goes into the extra headers of a client of its own, so connections of two credentials are not
//! shared. Keys are not printed.

use std::{collections::BTreeMap, sync::Arc};

use secrecy::ExposeSecret as _;

use super::{
    BuildError,
    http::HttpClient,
    spec::{KeyHeader, ProviderSpec},
};
use crate::domain::{failure::ProviderError, wire::ProviderRequest};

/// One client per credential; one without a key if there are none.
#[derive(Debug, Clone)]
pub(super) struct KeyedClients {
    by_credential: Arc<BTreeMap<String, HttpClient>>,
    keyless: Option<HttpClient>,
    sends_keys: bool,
}

// === impl KeyedClients ===

impl KeyedClients {
    /// Builds the clients; `header` gives the name and value of the header for a key.
    ///
    /// # Errors
    /// When the specification cannot work.
    pub(super) fn build(
        spec: &ProviderSpec,
        header: impl Fn(&str) -> (&'static str, String),
    ) -> Result<Self, BuildError> {
        let bare = ProviderSpec {
            api_key_header: KeyHeader::None,
            ..spec.clone()
        };
        // A cloud identity is known to the client itself.
        let sends_keys = spec.api_key_header != KeyHeader::None && spec.identity.is_none();
        let mut by_credential = BTreeMap::new();
        if sends_keys {
            for (credential, key) in &spec.credentials {
                let (name, value) = header(key.expose_secret());
                let keyed = with_header(bare.clone(), name, value);
                let named = |error| match error {
                    BuildError::Header { provider, .. }
                        if http::HeaderValue::from_str(key.expose_secret()).is_err() =>
                    {
                        BuildError::Header {
                            provider,
                            what: format!("the value of credential `{credential}`"),
                        }
                    }
                    error => error,
                };
                by_credential.insert(
                    credential.clone(),
                    HttpClient::build(&keyed).map_err(named)?,
                );
            }
        }
        let keyless = if by_credential.is_empty() {
            Some(HttpClient::build(&bare)?)
        } else {
            None
        };
        Ok(Self {
            by_credential: Arc::new(by_credential),
            keyless,
            sends_keys,
        })
    }

    /// Returns the client for a call's credential; with a single credential or none, the call need
    /// not name it.
    ///
    /// # Errors
    /// When no such credential is configured.
    pub(super) fn of(&self, call: &ProviderRequest) -> Result<&HttpClient, ProviderError> {
        let credential = &*call.target.credential;
        let keys = &self.by_credential;
        let found = match (&self.keyless, credential) {
            (Some(keyless), named) if named.is_empty() || !self.sends_keys => Some(keyless),
            (None, "") if keys.len() == 1 => keys.values().next(),
            (_, named) => keys.get(named),
        };
        found.ok_or_else(|| missing(call))
    }
}

/// No credential is configured under the name that the call's target has for it.
pub(super) fn missing(call: &ProviderRequest) -> ProviderError {
    let name = &call.target.credential;
    ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(format!(
            "Missing credentials: no credential is configured under the name `{name}`"
        )),
        ..ProviderError::default()
    }
}

/// Returns the specification with one more header, unless the configuration names that header
/// itself.
pub(super) fn with_header(
    mut spec: ProviderSpec,
    name: &str,
    value: impl Into<String>,
) -> ProviderSpec {
    if !spec
        .extra_headers
        .keys()
        .any(|known| known.eq_ignore_ascii_case(name))
    {
        spec.extra_headers.insert(name.to_owned(), value.into());
    }
    spec
}
