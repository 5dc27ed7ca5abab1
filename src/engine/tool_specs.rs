//! From the configuration to the specifications of the tool servers.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    config::{
        ToolsConfig,
        connection::ProxyConfig,
        tools::{HttpMethod, HttpToolConfig, ToolServerConfig, ToolServerKind},
    },
    tool::{ChildSpec, HttpPlace, HttpToolSpec, ToolLimits, ToolServerPlace, ToolServerSpec},
};

/// Returns the tool servers of a configuration, in the order of their names.
#[must_use]
pub fn configured(tools: &ToolsConfig) -> Vec<ToolServerSpec> {
    let limits = ToolLimits {
        max_reply_bytes: usize::try_from(tools.limits.max_reply_bytes).unwrap_or(usize::MAX),
        ..ToolLimits::default()
    };
    let spec = |(name, server): (&String, &ToolServerConfig)| {
        Some(ToolServerSpec {
            name: name.as_str().into(),
            place: place(server)?,
            start_timeout: server.start_timeout,
            refresh: server.refresh,
            limits,
        })
    };
    tools.servers.iter().filter_map(spec).collect()
}

fn place(server: &ToolServerConfig) -> Option<ToolServerPlace> {
    let http = |url: &str| HttpPlace {
        headers: server.all_headers().into_iter().collect(),
        allow_http: server.allow_plaintext,
        allow_private: server.allow_private_addresses,
        proxy: server.proxy.as_ref().and_then(ProxyConfig::proxy),
        tls: server.tls.as_ref().and_then(|tls| tls.loaded.clone()),
        ..HttpPlace::new(url)
    };
    Some(match server.kind()? {
        ToolServerKind::Url(url) => ToolServerPlace::McpHttp(http(url)),
        ToolServerKind::Http(plain) => ToolServerPlace::PlainHttp {
            at: http(&plain.base_url),
            tools: plain
                .tools
                .iter()
                .map(|(name, tool)| http_tool(name, tool))
                .collect(),
        },
        ToolServerKind::Command(command) => ToolServerPlace::McpChild(ChildSpec {
            args: server.args.clone(),
            env: server.whole_env().into_iter().collect(),
            cwd: server.cwd.clone(),
            ..ChildSpec::new(command)
        }),
    })
}

fn http_tool(name: &str, tool: &HttpToolConfig) -> HttpToolSpec {
    let any = || json!({ "type": "object" });
    HttpToolSpec {
        name: name.to_owned(),
        description: tool.description.clone(),
        input_schema: Arc::new(
            tool.input_schema
                .clone()
                .filter(Value::is_object)
                .unwrap_or_else(any),
        ),
        method: match tool.method {
            HttpMethod::Get => http::Method::GET,
            HttpMethod::Post => http::Method::POST,
            HttpMethod::Put => http::Method::PUT,
            HttpMethod::Patch => http::Method::PATCH,
            HttpMethod::Delete => http::Method::DELETE,
        },
        path: tool.path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{GivenEnvironment, load_text};

    #[test]
    fn each_kind_of_server_is_specified_with_all_that_is_set_for_it() {
        let text = r#"
tools:
  limits: { max_reply_bytes: 2MiB }
  servers:
    a: { url: "http://10.0.0.1/mcp", api_key: k, headers: { X-A: v }, allow_plaintext: true, allow_private_addresses: true, refresh: 7m }
    b: { command: tool, args: [-x], env: { A: b }, cwd: /tmp, start_timeout: 5s }
    c: { http: { base_url: "https://c.example/api", tools: { t: { description: T, input_schema: { type: string }, method: GET, path: "/t/{id}" } } } }
"#;
        let tools = load_text(text, None, &GivenEnvironment::new())
            .unwrap()
            .config
            .tools;
        let headers = [("authorization", "Bearer k"), ("x-a", "v")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let a = HttpPlace {
            headers: headers.into_iter().collect(),
            allow_http: true,
            allow_private: true,
            ..HttpPlace::new("http://10.0.0.1/mcp")
        };
        let b = ChildSpec {
            args: vec!["-x".to_owned()],
            env: [("A".to_owned(), "b".to_owned())].into_iter().collect(),
            cwd: Some("/tmp".into()),
            ..ChildSpec::new("tool")
        };
        let t = HttpToolSpec {
            name: "t".to_owned(),
            description: "T".to_owned(),
            input_schema: Arc::new(json!({ "type": "string" })),
            method: http::Method::GET,
            path: "/t/{id}".to_owned(),
        };
        let c = ToolServerPlace::PlainHttp {
            at: HttpPlace::new("https://c.example/api"),
            tools: vec![t],
        };
        let limits = ToolLimits {
            max_reply_bytes: 2 << 20,
            ..ToolLimits::default()
        };
        let new = |name, place| ToolServerSpec {
            limits,
            ..ToolServerSpec::new(name, place)
        };
        let expected = [
            ToolServerSpec {
                refresh: Duration::from_mins(7),
                ..new("a", ToolServerPlace::McpHttp(a))
            },
            ToolServerSpec {
                start_timeout: Duration::from_secs(5),
                ..new("b", ToolServerPlace::McpChild(b))
            },
            new("c", c),
        ];
        assert_eq!(configured(&tools), expected);
    }
}
