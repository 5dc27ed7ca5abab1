//! All secrets of a configuration, so that they can be redacted.

use super::{Config, connection::ProxyConfig};
use crate::journal::JournalStore;
use crate::policy::shown_url::is_plain;

impl Config {
    /// Returns the values of all secrets: keys, header values, passwords within URLs.
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
                .chain(&provider.api_keys)
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
            let tools = server.http.iter().flat_map(|http| http.tools.values());
            values.extend(tools.flat_map(|tool| of_url(&tool.path)));
        }
        let endpoints = &self.telemetry.endpoints;
        let urls = [&endpoints.traces, &endpoints.metrics];
        let urls = urls.into_iter().flatten().map(|at| &at.url);
        let written = self.telemetry.otlp_endpoint.iter();
        let keys = self
            .server
            .jwt
            .iter()
            .filter_map(|jwt| jwt.jwks_url.as_ref());
        values.extend(urls.chain(written).chain(keys).flat_map(|url| of_url(url)));
        values.extend(
            self.telemetry
                .otlp_headers
                .values()
                .chain(&self.telemetry.header_values)
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
        if let Some(url) = self.fleet.store.url() {
            values.push(url.expose());
            values.extend(of_url(url.expose()));
        }
        values.extend(self.fleet.key.iter().map(super::Secret::expose));
        values
    }
}

/// Returns the credentials of a proxy, and the password alone.
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

/// Returns the password and the query values of a URL.
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
                .filter(|(name, value)| !is_plain(name, value))
                .map(|(_, value)| value),
        )
        .collect()
}

#[cfg(test)]
mod tests {
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
  pool: { dialect: openai_chat, base_url: \"https://pool.example/v1\", api_keys: [pool-key-1, pool-key-2] }
targets: { t: { provider: p, model: m } }
tools:
  servers:
    s: { url: \"https://h.example/mcp?key=mcp-query\", api_key: key-3, headers: { x-a: \"Token to-ken\" } }
    c: { command: tool, env: { TOKEN: child-secret } }
    h: { http: { base_url: \"https://h.example/api\", tools: { t: { path: \"/t/{id}?of={id}&key=tool-query\" } } } }
journal: { store: \"postgres://user:data-base@127.0.0.1/relight\" }
fleet: { key: a-key-of-the-fleet }
telemetry: { otlp_headers: { authorization: otlp-key }, otlp_endpoint: \"http://localhost:4317/?key=otlp-query\" }
server:
  jwt: { issuer: i, audience: a, jwks_url: \"https://login.example/keys?code=keys-query\" }
";
        let config = load_text(text, None, &GivenEnvironment::new())
            .unwrap()
            .config;
        let values = config.secret_values();
        for value in [
            "key-1",
            "key-2",
            "pool-key-1",
            "pool-key-2",
            "head-er",
            "query-key",
            "data-base",
            "otlp-key",
            "mcp-query",
            "key-3",
            "to-ken",
            "child-secret",
            "proxy-password",
            "tool-query",
            "otlp-query",
            "a-key-of-the-fleet",
            "keys-query",
        ] {
            assert!(values.contains(&value), "{value}: {values:?}");
        }
        let shown = serde_json::to_string(&config).unwrap();
        for value in values {
            assert!(!shown.contains(value), "{value}: {shown}");
        }
        assert!(shown.contains("/t/{id}?of={id}&key=[redacted]"), "{shown}");
    }
}
