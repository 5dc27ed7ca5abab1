//! Plain HTTP tools: each declared in the configuration, its arguments sent as JSON or in the URL,
//! its body the result.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{
    ToolServersError, errors,
    mcp_http::{AGENT, checked_url, connections, headers, media_type, refused, whole},
    spec::{HttpPlace, HttpToolSpec, ToolServerSpec},
};
use crate::{
    domain::{
        failure::{ProviderError, TransportFault},
        invocation::SideEffects,
        message::{Media, MediaSource},
        tool::{ToolContent, ToolList, ToolReply, ToolSpec},
    },
    outbound::{self, HttpConnections, ReplyBody},
};

/// The unreserved characters of RFC 3986 are the only ones that are sent as they are.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A server of plain HTTP tools.
pub(super) struct PlainHttp {
    connections: HttpConnections,
    base: String,
    headers: HeaderMap,
    tools: Vec<HttpToolSpec>,
    list: Arc<ToolList>,
    max_reply_bytes: usize,
}

// === impl PlainHttp ===

impl PlainHttp {
    /// A server; nothing is connected yet.
    pub(super) fn build(
        spec: &ToolServerSpec,
        place: &HttpPlace,
        tools: &[HttpToolSpec],
    ) -> Result<Self, ToolServersError> {
        let listed = tools.iter().map(|tool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: Arc::clone(&tool.input_schema),
            output_schema: None,
            annotations: SideEffects::default(),
        });
        Ok(Self {
            connections: connections(spec, place)?,
            base: checked_url(spec, place)?.trim_end_matches('/').to_owned(),
            headers: headers(spec, place)?,
            tools: tools.to_vec(),
            list: Arc::new(ToolList {
                tools: listed.collect(),
                generation: 1,
            }),
            max_reply_bytes: spec.limits.max_reply_bytes,
        })
    }

    /// Its tools, which change with the configuration alone.
    pub(super) fn list(&self) -> Arc<ToolList> {
        Arc::clone(&self.list)
    }

    /// Executes a tool once.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolReply, ProviderError> {
        let unknown = || errors::of_tool(format!("Unknown tool: {tool}"));
        let tool = self
            .tools
            .iter()
            .find(|known| known.name == tool)
            .ok_or_else(unknown)?;
        let request = self.request(tool, arguments)?;
        let response = self.connections.request(request).await;
        let response =
            response.map_err(|error| outbound::head_fault(&Arc::from(errors::MCP), &error))?;
        let (head, incoming) = response.into_parts();
        let body = ReplyBody::new(incoming, Arc::from(errors::MCP), u64::MAX);
        if !head.status.is_success() {
            return Err(refused(&head, body).await);
        }
        let kind = media_type(&head);
        reply_of(kind, whole(body, self.max_reply_bytes).await?)
    }

    fn request(
        &self,
        tool: &HttpToolSpec,
        mut arguments: Map<String, Value>,
    ) -> Result<Request<Full<Bytes>>, ProviderError> {
        let mut url = format!("{}{}", self.base, path_of(tool, &mut arguments)?);
        let body = if matches!(tool.method, Method::GET | Method::HEAD | Method::DELETE) {
            append_query(&mut url, &arguments);
            Bytes::new()
        } else {
            Bytes::from(Value::Object(arguments).to_string())
        };
        let mut request = Request::builder()
            .method(&tool.method)
            .uri(url)
            .header(ACCEPT, "application/json, text/plain;q=0.9, */*;q=0.5")
            .header(USER_AGENT, AGENT);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let mut request = request
            .body(Full::new(body))
            .map_err(|error| errors::arguments(&tool.name, &error.to_string()))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

/// The path of a tool, with the arguments that it names in it; these are taken out.
fn path_of(
    tool: &HttpToolSpec,
    arguments: &mut Map<String, Value>,
) -> Result<String, ProviderError> {
    let mut path = String::with_capacity(tool.path.len());
    let mut rest = tool.path.as_str();
    while let Some((before, (name, after))) = rest
        .split_once('{')
        .and_then(|(before, at)| Some((before, at.split_once('}')?)))
    {
        path.push_str(before);
        let missing =
            || errors::arguments(&tool.name, &format!("missing required parameter `{name}`"));
        let value = arguments
            .remove(name)
            .filter(|value| !value.is_null())
            .ok_or_else(missing)?;
        let text = text_of(&value);
        if text.is_empty() || text == "." || text == ".." {
            return Err(errors::arguments(
                &tool.name,
                &format!("parameter `{name}` cannot be part of a path"),
            ));
        }
        path.extend(utf8_percent_encode(&text, ESCAPED));
        rest = after;
    }
    path.push_str(rest);
    Ok(path)
}

/// Appends arguments to a URL: one pair for each, and for each item of a list.
fn append_query(url: &mut String, arguments: &Map<String, Value>) {
    let mut separator = if url.contains('?') { '&' } else { '?' };
    let mut append = |name: &str, value: &Value| {
        if value.is_null() {
            return;
        }
        url.push(separator);
        separator = '&';
        url.extend(utf8_percent_encode(name, ESCAPED));
        url.push('=');
        url.extend(utf8_percent_encode(&text_of(value), ESCAPED));
    };
    for (name, value) in arguments {
        match value {
            Value::Array(items) => items.iter().for_each(|item| append(name, item)),
            one => append(name, one),
        }
    }
}

/// A value in a URL: texts without quotation marks, everything else as JSON.
fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The reply of a body.
fn reply_of(kind: Option<String>, body: Vec<u8>) -> Result<ToolReply, ProviderError> {
    if body.is_empty() {
        return Ok(ToolReply::default());
    }
    let kind = kind.unwrap_or_default();
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let is_text = is_json || kind.is_empty() || kind.starts_with("text/") || kind.ends_with("xml");
    let body = match String::from_utf8(body) {
        Ok(text) if is_json => {
            serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|error| {
                errors::fault(
                    TransportFault::Protocol,
                    format!("the tool's JSON cannot be read: {error}"),
                )
            })?;
            return Ok(ToolReply {
                content: vec![ToolContent::Text(text.clone())],
                structured: Some(text),
            });
        }
        Ok(text) if is_text => {
            return Ok(ToolReply {
                content: vec![ToolContent::Text(text)],
                structured: None,
            });
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let mime_type = if kind.is_empty() {
        "application/octet-stream".to_owned()
    } else {
        kind
    };
    let is_image = mime_type.starts_with("image/");
    let media = Media {
        mime_type,
        source: MediaSource::Bytes(body),
        name: None,
        detail: None,
    };
    let content = if is_image {
        ToolContent::Image(media)
    } else {
        ToolContent::File(media)
    };
    Ok(ToolReply {
        content: vec![content],
        structured: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(path: &str) -> HttpToolSpec {
        HttpToolSpec {
            name: "t".to_owned(),
            description: String::new(),
            input_schema: Arc::new(json!({})),
            method: Method::GET,
            path: path.to_owned(),
        }
    }

    fn url_of(path: &str, arguments: Value) -> Result<String, ProviderError> {
        let Value::Object(mut arguments) = arguments else {
            panic!()
        };
        let mut url = path_of(&tool(path), &mut arguments)?;
        append_query(&mut url, &arguments);
        Ok(url)
    }

    #[test]
    fn arguments_go_where_the_path_names_them_and_else_into_the_query() {
        for (path, arguments, url) in [
            ("/customers/{id}", json!({"id": 7}), "/customers/7"),
            (
                "/a/{x}/b/{y}",
                json!({"y": "ä/ö", "x": "p q", "z": true}),
                "/a/p%20q/b/%C3%A4%2F%C3%B6?z=true",
            ),
            (
                "/s?v=2",
                json!({"tag": ["a", "b&c"], "none": null}),
                "/s?v=2&tag=a&tag=b%26c",
            ),
            ("/s", json!({"at": {"x": 1}}), "/s?at=%7B%22x%22%3A1%7D"),
        ] {
            assert_eq!(url_of(path, arguments).unwrap(), url);
        }
    }

    #[test]
    fn an_argument_cannot_leave_its_place_in_the_path() {
        for arguments in [
            json!({}),
            json!({"id": null}),
            json!({"id": ""}),
            json!({"id": ".."}),
        ] {
            let error = url_of("/customers/{id}", arguments).unwrap_err();
            assert!(error.text().unwrap().contains("`id`"), "{error}");
        }
    }

    #[test]
    fn a_body_becomes_structured_data_a_text_or_a_file() {
        let reply = |kind: &str, body: &[u8]| reply_of(Some(kind.to_owned()), body.to_vec());
        assert_eq!(
            reply("application/json", b"{\"a\":1}")
                .unwrap()
                .structured
                .as_deref(),
            Some("{\"a\":1}")
        );
        assert_eq!(reply("text/plain", b"{\"a\":1}").unwrap().structured, None);
        assert!(matches!(
            reply("image/png", b"\x89PNG").unwrap().content[..],
            [ToolContent::Image(_)]
        ));
        assert!(matches!(
            reply("application/zip", b"PK").unwrap().content[..],
            [ToolContent::File(_)]
        ));
        assert_eq!(
            reply("application/json", b"").unwrap(),
            ToolReply::default()
        );
        assert_eq!(
            reply("application/json", b"<html>").unwrap_err().fault,
            Some(TransportFault::Protocol)
        );
    }
}
