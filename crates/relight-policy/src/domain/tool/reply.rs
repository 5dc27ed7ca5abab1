//! What a tool returned: in the forms that every tool's result has, and as an MCP server sent it.
//!
//! The forms are read from what was sent and lose some of it (annotations, a piece's URI, kinds
//! that are unknown here), so that both are kept: a caller that speaks MCP gets what was sent.

use std::collections::BTreeMap;

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::message::{Media, MediaSource};

/// Type of bytes of which nobody says what they are.
pub const UNNAMED_TYPE: &str = "application/octet-stream";

/// The members of a JSON object, each as its text.
pub type RawMembers = BTreeMap<String, Box<RawValue>>;

/// Result of one execution of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "KeptReply", into = "KeptReply")]
pub struct ToolReply {
    /// Returned content, in order.
    pub content: Vec<ToolContent>,
    /// The result as structured data, raw JSON text; `None` if the tool gave none.
    pub structured: Option<String>,
    /// The whole result as an MCP server sent it, raw JSON text of an object, from which the other
    /// fields were read: each piece of `content` is one of its own, in the same order. `None` for
    /// the result of a plain HTTP tool, and for one that was put together from several.
    pub sent: Option<String>,
}

/// A piece of a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    /// Text.
    Text(String),
    /// A picture.
    Image(Media),
    /// A document, recording or other file.
    File(Media),
    /// Something else that an MCP server sent, raw JSON text.
    Other(String),
}

/// A result of an MCP server, by what its members mean.
#[derive(Deserialize)]
struct SentResult<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    is_error: Option<bool>,
}

/// A piece of a result of an MCP server, by the members that the known kinds have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentPiece {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    resource: Option<SentResource>,
    uri: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentResource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// A reply as it is kept: what was sent is enough.
#[derive(Serialize, Deserialize)]
struct KeptReply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    content: Vec<ToolContent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<String>,
}

// === impl ToolReply ===

impl ToolReply {
    /// Returns the reply that an MCP server sent, and whether its tool marked it as an error;
    /// `None` if the text is not a result of a tool.
    #[must_use]
    pub fn of_mcp(sent: String) -> Option<(Self, bool)> {
        if !sent.starts_with('{') {
            return None;
        }
        let result: SentResult<'_> = serde_json::from_str(&sent).ok()?;
        let content = result.content.unwrap_or_default();
        let content = content.into_iter().map(ToolContent::of_mcp).collect();
        let structured = result.structured.map(|value| value.get().to_owned());
        let is_error = result.is_error == Some(true);
        let reply = Self {
            content,
            structured,
            sent: Some(sent),
        };
        Some((reply, is_error))
    }

    /// A reply of one text.
    #[must_use]
    pub fn of_text(text: impl Into<String>) -> Self {
        Self {
            content: vec![ToolContent::Text(text.into())],
            ..Self::default()
        }
    }

    /// Returns all its texts, joined by line feeds; if it has none, its structured data, else what
    /// it has of kinds that are unknown here. What holds bytes that cannot be read is named.
    #[must_use]
    pub fn text(&self) -> String {
        let words = |content: &ToolContent| match content {
            ToolContent::Text(text) => Some(text.clone()),
            ToolContent::Other(json) => unreadable(json),
            ToolContent::Image(_) | ToolContent::File(_) => None,
        };
        let has_text = self
            .content
            .iter()
            .any(|content| matches!(content, ToolContent::Text(_)));
        if !has_text && let Some(structured) = &self.structured {
            return structured.clone();
        }
        let all = self.content.iter().filter_map(|content| match content {
            ToolContent::Other(json) if !has_text => words(content).or_else(|| Some(json.clone())),
            _ => words(content),
        });
        all.collect::<Vec<_>>().join("\n")
    }

    /// Returns the members of what an MCP server sent; `None` if it was not one that returned this.
    #[must_use]
    pub fn sent_members(&self) -> Option<RawMembers> {
        serde_json::from_str(self.sent.as_deref()?).ok()
    }

    /// Returns the data that an MCP server sent beside the content, the structured data and the
    /// marks of the protocol, raw JSON text of an object; `None` if there is nothing.
    #[must_use]
    pub fn beside(&self) -> Option<String> {
        let mut members = self.sent_members()?;
        members.retain(|name, _| {
            !matches!(
                name.as_str(),
                "content" | "structuredContent" | "isError" | "resultType"
            )
        });
        if members.is_empty() {
            return None;
        }
        serde_json::to_string(&members).ok()
    }

    /// Each piece as an MCP server sent it, without the text or bytes that its form has, raw JSON
    /// text of an object; `None` for a piece of which its form has everything.
    #[must_use]
    pub fn pieces_beside(&self) -> Vec<Option<String>> {
        let sent = || {
            let sent: SentResult<'_> = serde_json::from_str(self.sent.as_deref()?).ok()?;
            sent.content
        };
        let sent = sent().filter(|sent| sent.len() == self.content.len());
        let Some(sent) = sent else {
            return vec![None; self.content.len()];
        };
        let pieces = self.content.iter().zip(sent);
        pieces.map(|(form, sent)| form.beside(sent)).collect()
    }
}

impl From<KeptReply> for ToolReply {
    fn from(kept: KeptReply) -> Self {
        let read = kept.sent.and_then(Self::of_mcp);
        read.map_or(
            Self {
                content: kept.content,
                structured: kept.structured,
                sent: None,
            },
            |(reply, _)| reply,
        )
    }
}

impl From<ToolReply> for KeptReply {
    fn from(reply: ToolReply) -> Self {
        if reply.sent.is_some() {
            return Self {
                sent: reply.sent,
                content: Vec::new(),
                structured: None,
            };
        }
        Self {
            sent: None,
            content: reply.content,
            structured: reply.structured,
        }
    }
}

// === impl ToolContent ===

impl ToolContent {
    /// A piece of a result as an MCP server sent it. What cannot be read is kept as it is.
    fn of_mcp(sent: &RawValue) -> Self {
        let piece = serde_json::from_str::<SentPiece>(sent.get());
        let read = piece.ok().and_then(SentPiece::form);
        read.unwrap_or_else(|| Self::Other(sent.get().to_owned()))
    }

    fn beside(&self, sent: &RawValue) -> Option<String> {
        if let Self::Other(json) = self {
            return Some(json.clone());
        }
        let mut members: RawMembers = serde_json::from_str(sent.get()).ok()?;
        members.remove("text");
        members.remove("data");
        if let Some(resource) = members.get_mut("resource") {
            let mut inner: RawMembers = serde_json::from_str(resource.get()).ok()?;
            inner.remove("text");
            inner.remove("blob");
            *resource = serde_json::value::to_raw_value(&inner).ok()?;
        }
        let is_more = |name: &String| name != "type" && name != "mimeType";
        if !members.keys().any(is_more) {
            return None;
        }
        serde_json::to_string(&members).ok()
    }
}

// === impl SentPiece ===

impl SentPiece {
    /// Returns the form of it; `None` if it has none.
    fn form(self) -> Option<ToolContent> {
        Some(match self.kind.as_str() {
            "text" => ToolContent::Text(self.text?),
            "image" => ToolContent::Image(media(self.mime_type?, bytes(&self.data?)?, None)),
            "audio" => ToolContent::File(media(self.mime_type?, bytes(&self.data?)?, None)),
            "resource" => {
                let resource = self.resource?;
                if let Some(text) = resource.text {
                    return Some(ToolContent::Text(text));
                }
                let kind = resource.mime_type.unwrap_or_else(unnamed);
                ToolContent::File(media(kind, bytes(&resource.blob?)?, Some(resource.uri)))
            }
            "resource_link" => {
                let kind = self.mime_type.unwrap_or_else(unnamed);
                ToolContent::File(media(kind, MediaSource::Url(self.uri?), Some(self.name?)))
            }
            _ => return None,
        })
    }
}

fn media(mime_type: String, source: MediaSource, name: Option<String>) -> Media {
    Media {
        mime_type,
        source,
        name,
        detail: None,
    }
}

/// Reads bytes in either alphabet of base64, with or without line feeds and padding.
fn bytes(base64: &str) -> Option<MediaSource> {
    let plain = base64.replace(['\r', '\n'], "");
    let is_of_urls = plain.contains(['-', '_']);
    let alphabet = if is_of_urls { &URL_SAFE } else { &STANDARD };
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(alphabet, config);
    engine.decode(plain).ok().map(MediaSource::Bytes)
}

/// Returns the words for a piece that holds bytes that cannot be read; `None` if it holds none.
fn unreadable(json: &str) -> Option<String> {
    let piece: SentPiece = serde_json::from_str(json).ok()?;
    let blob = piece.resource.and_then(|resource| resource.blob);
    let kind = piece.kind;
    (piece.data.is_some() || blob.is_some()).then(|| format!("[{kind} that cannot be read]"))
}

fn unnamed() -> String {
    UNNAMED_TYPE.to_owned()
}

#[cfg(test)]
mod tests;
