//! What a tool returned, out of the types of the SDK.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult, Tool};
use serde_json::Value;

use super::errors;
use crate::domain::{
    failure::{ProviderError, TransportFault},
    invocation::SideEffects,
    message::{Media, MediaSource},
    tool::{ToolContent, ToolReply, ToolSpec},
};

/// The reply of an execution; what the tool itself marked as an error is one.
pub(super) fn of_result(result: ServerResult) -> Result<ToolReply, ProviderError> {
    let protocol = |words: &str| errors::fault(TransportFault::Protocol, words);
    match result {
        ServerResult::CallToolResult(result) if result.is_error == Some(true) => {
            Err(errors::of_tool(text_of(&result)))
        }
        ServerResult::CallToolResult(result) => of_call(result),
        // A reply without content, which the SDK takes for an empty response.
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(ToolReply::default()),
        ServerResult::InputRequiredResult(_) => Err(errors::of_tool(
            "the tool requires input from a person".to_owned(),
        )),
        ServerResult::CreateTaskResult(_) => {
            Err(protocol("the tool returned a task in place of a result"))
        }
        _ => Err(protocol("the response is no result of a tool")),
    }
}

/// A tool as it is listed.
pub(super) fn of_tool(tool: &Tool) -> ToolSpec {
    let schema = |object: &serde_json::Map<String, Value>| {
        std::sync::Arc::new(Value::Object(object.clone()))
    };
    let hints = tool.annotations.as_ref();
    ToolSpec {
        name: tool.name.to_string(),
        description: tool.description.as_deref().unwrap_or_default().to_owned(),
        input_schema: schema(&tool.input_schema),
        output_schema: tool.output_schema.as_deref().map(schema),
        annotations: SideEffects {
            read_only: hints.and_then(|hints| hints.read_only_hint),
            idempotent: hints.and_then(|hints| hints.idempotent_hint),
            destructive: hints.and_then(|hints| hints.destructive_hint),
            open_world: hints.and_then(|hints| hints.open_world_hint),
        },
    }
}

fn of_call(result: CallToolResult) -> Result<ToolReply, ProviderError> {
    let content = result
        .content
        .into_iter()
        .map(of_block)
        .collect::<Result<_, _>>()?;
    Ok(ToolReply {
        content,
        structured: result.structured_content.map(|value| value.to_string()),
    })
}

fn of_block(block: ContentBlock) -> Result<ToolContent, ProviderError> {
    let media = |data: &str, mime_type: String, name: Option<String>| {
        let bytes = STANDARD.decode(data).map_err(|_| {
            errors::fault(
                TransportFault::Protocol,
                "the tool returned binary content that is not base64",
            )
        })?;
        Ok::<_, ProviderError>(Media {
            mime_type,
            source: MediaSource::Bytes(bytes),
            name,
            detail: None,
        })
    };
    let unnamed = || "application/octet-stream".to_owned();
    Ok(match block {
        ContentBlock::Text(text) => ToolContent::Text(text.text),
        ContentBlock::Image(image) => {
            ToolContent::Image(media(&image.data, image.mime_type, None)?)
        }
        ContentBlock::Audio(audio) => ToolContent::File(media(&audio.data, audio.mime_type, None)?),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => ToolContent::Text(text),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => ToolContent::File(media(&blob, mime_type.unwrap_or_else(unnamed), Some(uri))?),
            _ => {
                return Err(errors::fault(
                    TransportFault::Protocol,
                    "the tool returned content of an unknown kind",
                ));
            }
        },
        ContentBlock::ResourceLink(link) => ToolContent::File(Media {
            mime_type: link.mime_type.unwrap_or_else(unnamed),
            source: MediaSource::Url(link.uri),
            name: Some(link.name),
            detail: None,
        }),
        _ => {
            return Err(errors::fault(
                TransportFault::Protocol,
                "the tool returned content of an unknown kind",
            ));
        }
    })
}

/// The words of an error: its texts, or its structured data where it has none.
fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    match &result.structured_content {
        Some(structured) if text.trim().is_empty() => structured.to_string(),
        _ if text.trim().is_empty() => "the tool reported an error without words".to_owned(),
        _ => text,
    }
}
