//! Plain HTTP tools: each declared in the configuration, its arguments sent as JSON or in the URL,
//! its body the result.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{
    ToolServersError, body, errors,
    mcp_http::{AGENT, checked_url, connections, headers, media_type, refused},
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
    policy::schema::{self, SchemaFault},
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
    /// Returns a server; nothing is connected yet.
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
            sent: None,
        });
        Ok(Self {
            connections: connections(spec, place)?,
            base: checked_url(spec, place)?.trim_end_matches('/').to_owned(),
            headers: headers(spec, place)?,
            tools: tools.to_vec(),
            list: Arc::new(ToolList {
                left_out: Vec::new(),
                tools: listed.collect(),
                generation: 1,
            }),
            max_reply_bytes: spec.limits.max_reply_bytes,
        })
    }

    /// Returns its tools, which change with the configuration alone.
    pub(super) fn list(&self) -> Arc<ToolList> {
        Arc::clone(&self.list)
    }

    /// Executes a tool once.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolReply, ProviderError> {
        let unknown = || errors::of_tool(ToolReply::of_text(format!("Unknown tool: {tool}")));
        let tool = self
            .tools
            .iter()
            .find(|known| known.name == tool)
            .ok_or_else(unknown)?;
        let arguments = fitting(tool, arguments)?;
        let request = self.request(tool, arguments)?;
        let response = self.connections.request(request).await;
        let response =
            response.map_err(|error| outbound::head_fault(&Arc::from(errors::MCP), &error))?;
        let (head, incoming) = response.into_parts();
        let body = ReplyBody::new(incoming, Arc::from(errors::MCP), u64::MAX);
        if !head.status.is_success() {
            let mut error = refused(&head, body).await;
            let words = error.body.as_deref().map(ToolReply::of_text);
            error.reply = words.map(Arc::new);
            return Err(error);
        }
        let kind = media_type(&head);
        let charset = body::charset(&head);
        let bytes = body::whole(&head, body, self.max_reply_bytes).await?;
        reply_of(kind, charset.as_deref(), bytes)
    }

    fn request(
        &self,
        tool: &HttpToolSpec,
        mut arguments: Map<String, Value>,
    ) -> Result<Request<Full<Bytes>>, ProviderError> {
        let mut url = format!("{}{}", self.base, path_of(tool, &mut arguments)?);
        let own = own_names(&tool.path);
        arguments.retain(|name, _| !own.contains(&queried(name)));
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

/// Returns the path of a tool, with the arguments that it names in it; these are taken out.
fn path_of(
    tool: &HttpToolSpec,
    arguments: &mut Map<String, Value>,
) -> Result<String, ProviderError> {
    let mut path = String::with_capacity(tool.path.len());
    let mut rest = tool.path.as_str();
    let mut is_query = false;
    while let Some((before, (name, after))) = rest
        .split_once('{')
        .and_then(|(before, at)| Some((before, at.split_once('}')?)))
    {
        path.push_str(before);
        is_query |= before.contains('?');
        let missing =
            || errors::arguments(&tool.name, &format!("missing required parameter `{name}`"));
        let value = arguments
            .remove(name)
            .filter(|value| !value.is_null())
            .ok_or_else(missing)?;
        let text = text_of(&value);
        if !is_query && (text.is_empty() || text == "." || text == "..") {
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

/// The arguments of a call as they may be sent.
///
/// # Errors
/// When they do not fit the schema that the tool is declared with, or name what it does not have.
fn fitting(
    tool: &HttpToolSpec,
    arguments: Map<String, Value>,
) -> Result<Map<String, Value>, ProviderError> {
    let arguments = Value::Object(arguments);
    // A schema that cannot be checked is the operator's; the tool says what it does not take.
    if let Err(misfit @ SchemaFault::Misfit(_)) = schema::check(&tool.input_schema, &arguments) {
        return Err(errors::arguments(&tool.name, &misfit.to_string()));
    }
    let Value::Object(arguments) = arguments else {
        return Ok(Map::new());
    };
    let Some(declared) = declared(&tool.input_schema) else {
        return Ok(arguments);
    };
    let in_path = |name: &str| tool.path.contains(&format!("{{{name}}}"));
    let unknown = |name: &&String| !declared.contains_key(*name) && !in_path(name);
    match arguments.keys().find(unknown) {
        Some(name) => {
            let why = format!("unexpected parameter `{name}`: the tool is not declared with it");
            Err(errors::arguments(&tool.name, &why))
        }
        None => Ok(arguments),
    }
}

/// Returns the parameters of a schema that names all of them; `None` if it leaves others open.
fn declared(schema: &Value) -> Option<&Map<String, Value>> {
    let leaves_open = [
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
        "propertyNames",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "$ref",
        "$dynamicRef",
    ];
    let is_open = leaves_open.iter().any(|key| schema.get(*key).is_some());
    schema["properties"].as_object().filter(|_| !is_open)
}

/// Returns the names in the query of a path, which its operator wrote: no argument has a say in
/// them.
fn own_names(path: &str) -> Vec<String> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let names = query
        .split(['&', ';'])
        .map(|pair| pair.split('=').next().unwrap_or_default());
    let names = names.filter(|name| !name.is_empty());
    names
        .map(|name| queried(&percent_decode_str(name).decode_utf8_lossy()))
        .collect()
}

/// Returns a name in a query as servers compare it: some ignore case, and some what follows a
/// bracket or surrounds the name.
fn queried(name: &str) -> String {
    let name = name.split('[').next().unwrap_or_default();
    let name = name.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '+');
    name.to_lowercase().replace(['.', ' ', '+'], "_")
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

/// Returns a value in a URL: texts without quotation marks, everything else as JSON.
fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the reply of a body.
fn reply_of(
    kind: Option<String>,
    charset: Option<&str>,
    body: Vec<u8>,
) -> Result<ToolReply, ProviderError> {
    if body.is_empty() {
        return Ok(ToolReply::default());
    }
    let kind = kind.unwrap_or_default();
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let is_text = is_json || kind.is_empty() || kind.starts_with("text/") || kind.ends_with("xml");
    let text = match (is_json || kind.starts_with("text/"), charset) {
        (true, _) => Ok(body::text_of_any(charset, body)),
        (false, Some(_)) => body::text(charset, body),
        (false, None) => String::from_utf8(body).map_err(std::string::FromUtf8Error::into_bytes),
    };
    let body = match text {
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
                sent: None,
            });
        }
        Ok(text) if is_text => {
            return Ok(ToolReply {
                content: vec![ToolContent::Text(text)],
                ..ToolReply::default()
            });
        }
        Ok(text) => text.into_bytes(),
        Err(body) => body,
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
        ..ToolReply::default()
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
        let reply = |kind: &str, body: &[u8]| reply_of(Some(kind.to_owned()), None, body.to_vec());
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
