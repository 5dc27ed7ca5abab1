//! Checks the addresses of providers and tool servers, and the way to them.

use std::net::IpAddr;

use http::Uri;

use super::Checker;
use crate::{
    config::{
        connection::{ClientTlsConfig, ProxyConfig},
        provider::ProviderConfig,
        url::http_url,
    },
    domain::target::Dialect,
    outbound::{is_loopback, is_private_address},
    provider::Cloud,
};

// === impl Checker ===

impl Checker<'_> {
    /// A provider whose dialect has no place of its own for it names one.
    pub(super) fn place(&mut self, path: &str, provider: &ProviderConfig) {
        if provider.base_url.is_some() || self.is_written(&format!("{path}.base_url")) {
            return;
        }
        if provider.dialect == Dialect::Bedrock && provider.region.is_none() {
            self.required(
                &format!("{path}.region"),
                "is missing; write it, or a base_url",
            );
        }
        let Some(identity) = &provider.identity else {
            return;
        };
        let cloud = match (identity.cloud, provider.dialect) {
            (Cloud::Azure, _) => "azure",
            (Cloud::Google, dialect) if dialect != Dialect::Gemini => "google",
            (Cloud::Google | Cloud::Aws, _) => return,
        };
        self.required(
            &format!("{path}.base_url"),
            &format!("is missing; the dialect's own place is not of the cloud {cloud}"),
        );
    }

    /// A URL that requests go to, and what the section that it is in allows of it.
    pub(super) fn base_url(
        &mut self,
        path: &str,
        url: &str,
        allow_plaintext: bool,
        allow_private: bool,
    ) {
        let uri = match http_url(url) {
            Ok(uri) => uri,
            Err(fault) => return self.fault(path, fault.reason("https://api.openai.com/v1")),
        };
        let Some(authority) = uri.authority() else {
            return;
        };
        if authority.as_str().contains('@') {
            self.fault(path, "holds credentials; put the key in api_key");
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let address = host.parse::<IpAddr>().ok();
        let loopback = is_loopback(host);
        if uri.scheme_str() == Some("http") && !loopback && !allow_plaintext {
            self.fault(path, "would send keys and prompts in the clear; use https, or write allow_plaintext: true");
        }
        if !loopback && !allow_private && address.is_some_and(is_private_address) {
            self.fault(
                path,
                "is a private address; write allow_private_addresses: true if it is meant",
            );
        }
    }

    /// By which proxy and with which certificates a provider or tool server is reached. The
    /// contents of files were checked when they were read.
    pub(super) fn connection(
        &mut self,
        path: &str,
        proxy: Option<&ProxyConfig>,
        tls: Option<&ClientTlsConfig>,
        allow_private: bool,
    ) {
        if let Some(proxy) = proxy {
            self.proxy(&format!("{path}.proxy"), proxy, allow_private);
        }
        let Some(tls) = tls else { return };
        for (name, file, other, wanted) in [
            ("cert_file", &tls.cert_file, "key_file", &tls.key_file),
            ("key_file", &tls.key_file, "cert_file", &tls.cert_file),
        ] {
            if file.is_some()
                && wanted.is_none()
                && !self.is_written(&format!("{path}.tls.{other}"))
            {
                self.fault(
                    &format!("{path}.tls.{name}"),
                    format!("has no effect without {other}"),
                );
            }
        }
        for (name, file) in [
            ("ca_file", &tls.ca_file),
            ("cert_file", &tls.cert_file),
            ("key_file", &tls.key_file),
        ] {
            if file
                .as_ref()
                .is_some_and(|file| file.as_os_str().is_empty())
            {
                self.fault(&format!("{path}.tls.{name}"), "is empty; name a file");
            }
        }
    }

    fn proxy(&mut self, path: &str, proxy: &ProxyConfig, allow_private: bool) {
        let at = format!("{path}.url");
        let uri = proxy.url.parse::<Uri>().ok();
        let is_bare = |uri: &Uri| uri.path_and_query().is_none_or(|rest| rest.as_str() == "/");
        if proxy.url.is_empty() {
            self.required(&at, "is missing; write it like http://proxy.example:3128");
        } else if uri.is_none_or(|uri| uri.scheme_str() != Some("http") || !is_bare(&uri)) {
            self.fault(
                &at,
                "is no proxy; write a scheme, host and port, as in http://proxy.example:3128",
            );
        } else if proxy.url.contains('@') {
            self.fault(&at, "holds credentials; put them in credentials beside it");
        } else {
            self.base_url(&at, &proxy.url, true, allow_private);
        }
        if let Some(credentials) = &proxy.credentials {
            let credentials = credentials.expose();
            if !credentials.contains(':') || credentials.contains(char::is_control) {
                self.fault(
                    &format!("{path}.credentials"),
                    "must be of the form user:password",
                );
            }
        }
    }

    /// The keys that decide who may call are fetched from there: no one on the way may change them.
    pub(super) fn keys_url(&mut self, path: &str, url: &str) {
        match http_url(url) {
            Ok(uri) => {
                let is_safe =
                    uri.scheme_str() == Some("https") || uri.host().is_some_and(is_loopback);
                if !is_safe {
                    self.fault(path, "could be changed on the way; use https");
                }
            }
            Err(fault) => {
                self.fault(path, fault.reason("https://login.example.com/jwks.json"));
            }
        }
    }
}
