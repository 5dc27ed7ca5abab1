//! All secrets of a configuration, so that they can be redacted.

use super::{Config, connection::ProxyConfig, observe::JournalStore};

impl Config {
    /// The values of all secrets: keys, header values, passwords within URLs.
    #[must_use]
    pub fn secret_values(&self) -> Vec<&str> {
        let mut values = Vec::new();
        for provider in self.providers.values() {
            let keys = provider
                .credentials
                .values()
                .filter_map(|credential| credential.api_key.as_ref());
            let all = provider
                .api_key
                .iter()
                .chain(keys)
                .chain(provider.headers.values());
            for value in all.map(super::Secret::expose) {
                values.push(value);
                // `Bearer …` and `Basic …`: what follows is a secret by itself.
                values.extend(value.split_once(' ').map(|(_, credential)| credential));
            }
            values.extend(provider.proxy.iter().flat_map(of_proxy));
            values.extend(provider.base_url.as_deref().into_iter().flat_map(of_url));
        }
        for server in self.tools.servers.values() {
            for value in server
                .api_key
                .iter()
                .chain(server.headers.values())
                .chain(server.env.values())
            {
                values.push(value.expose());
                values.extend(
                    value
                        .expose()
                        .split_once(' ')
                        .map(|(_, credential)| credential),
                );
            }
            values.extend(server.proxy.iter().flat_map(of_proxy));
            let urls = server
                .url
                .as_deref()
                .into_iter()
                .chain(server.http.as_ref().map(|http| http.base_url.as_str()));
            values.extend(urls.flat_map(of_url));
        }
        values.extend(
            self.telemetry
                .otlp_headers
                .values()
                .map(super::Secret::expose),
        );
        values.extend(
            self.journal
                .encryption_keys
                .iter()
                .map(super::Secret::expose),
        );
        if let JournalStore::Postgres(url) = &self.journal.store {
            values.push(url.expose());
            values.extend(of_url(url.expose()));
        }
        values
    }
}

/// The credentials of a proxy, and the password alone.
fn of_proxy(proxy: &ProxyConfig) -> impl Iterator<Item = &str> {
    let credentials = proxy.credentials.iter().map(super::Secret::expose);
    credentials
        .flat_map(|both| {
            [
                Some(both),
                both.split_once(':').map(|(_, password)| password),
            ]
        })
        .flatten()
}

/// The password and the query values of a URL.
fn of_url(url: &str) -> Vec<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    let password = authority
        .rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
        .map(|(_, password)| password);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    password
        .into_iter()
        .chain(
            pairs
                .filter(|(name, _)| !is_plain(name))
                .map(|(_, value)| value),
        )
        .collect()
}

/// Whether the value of a query may be shown: Azure's API version is no secret.
fn is_plain(name: &str) -> bool {
    name == "api-version"
}

/// A URL in its printable form: without user, password and the values of its query.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (place, query) = rest
        .split_once('?')
        .map_or((rest, None), |(place, query)| (place, Some(query)));
    let (authority, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let user = if host.len() < authority.len() {
        "[redacted]@"
    } else {
        ""
    };
    let query = query.map(|query| {
        let shown = |pair: &str| match pair.split_once('=') {
            Some((name, _)) if !is_plain(name) => format!("{name}=[redacted]"),
            Some(_) | None => pair.to_owned(),
        };
        format!(
            "?{}",
            query.split('&').map(shown).collect::<Vec<_>>().join("&")
        )
    });
    let scheme = if scheme.is_empty() {
        String::new()
    } else {
        format!("{scheme}://")
    };
    format!("{scheme}{user}{host}{path}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GivenEnvironment, load_text};

    #[test]
    fn secrets_are_found_wherever_a_configuration_holds_them() {
        let text = "
providers:
  p:
    dialect: openai_chat
    base_url: \"https://host.example/v1?api-version=2&code=query-key\"
    api_key: key-1
    headers: { x-token: \"Bearer head-er\" }
    credentials: { other: { api_key: key-2 } }
    proxy: { url: \"http://proxy.example:3128\", credentials: \"user:proxy-password\" }
targets: { t: { provider: p, model: m } }
tools:
  servers:
    s: { url: \"https://h.example/mcp?key=mcp-query\", api_key: key-3, headers: { x-a: \"Token to-ken\" } }
    c: { command: tool, env: { TOKEN: child-secret } }
journal: { store: \"postgres://user:data-base@127.0.0.1/relight\" }
telemetry: { otlp_headers: { authorization: otlp-key } }
";
        let config = load_text(text, None, &GivenEnvironment::new())
            .unwrap()
            .config;
        let values = config.secret_values();
        for value in [
            "key-1",
            "key-2",
            "head-er",
            "query-key",
            "data-base",
            "otlp-key",
            "mcp-query",
            "key-3",
            "to-ken",
            "child-secret",
            "proxy-password",
        ] {
            assert!(values.contains(&value), "{value}: {values:?}");
        }
    }

    #[test]
    fn a_url_is_shown_without_what_is_secret_in_it() {
        for (url, shown) in [
            ("https://host.example/v1", "https://host.example/v1"),
            (
                "https://me:pw@host.example:8443/v1",
                "https://[redacted]@host.example:8443/v1",
            ),
            (
                "https://h/v1?api-version=1&code=k",
                "https://h/v1?api-version=1&code=[redacted]",
            ),
            ("h/v1?k", "h/v1?k"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
