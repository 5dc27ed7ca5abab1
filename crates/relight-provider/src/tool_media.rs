//! Images and files that tools returned, and the types of what is sent as bytes.
//!
//! In the message of a tool they stand behind the result that they belong to.

use std::borrow::Cow;

use crate::domain::{
    message::{Media, MediaSource, Message, Part, Role},
    tool::UNNAMED_TYPE,
};

/// Types by the ends of names.
const BY_ENDS: [(&str, &str); 18] = [
    ("pdf", "application/pdf"),
    ("csv", "text/csv"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("md", "text/markdown"),
    ("txt", "text/plain"),
    ("json", "application/json"),
    ("doc", "application/msword"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("xls", "application/vnd.ms-excel"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
];

/// Types by the first bytes.
const BY_STARTS: [(&[u8], &str); 5] = [
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
];

/// Returns whether the part at a place is an image or file of the tool's result before it.
pub(super) fn is_of_result(message: &Message, place: usize) -> bool {
    let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
    message.role == Role::Tool
        && matches!(
            message.parts.get(place),
            Some(Part::Image(_) | Part::File(_))
        )
        && message.parts.iter().take(place).any(is_result)
}

/// Returns the words that stand in a tool's result for what follows it in the user's turn.
pub(super) fn note(media: &Media) -> String {
    let kind = type_of(media).unwrap_or(Cow::Borrowed("a file"));
    match &media.name {
        Some(name) => format!("[{kind} `{name}`: shown after the results of the tools]"),
        None => format!("[{kind}: shown after the results of the tools]"),
    }
}

/// Returns the type of media, without parameters: as it is stated, else by its first bytes, the
/// end of its name, or that it is text; `None` if nothing says it.
pub(super) fn type_of(media: &Media) -> Option<Cow<'_, str>> {
    let stated = media.mime_type.split(';').next().unwrap_or_default().trim();
    if stated == "image/jpg" {
        return Some(Cow::Borrowed("image/jpeg"));
    }
    if !matches!(stated, "" | UNNAMED_TYPE | "binary/octet-stream") && !stated.ends_with("/*") {
        return Some(Cow::Borrowed(stated));
    }
    let by_start = |bytes: &[u8]| {
        let mut known = BY_STARTS.iter();
        known.find_map(|(start, kind)| bytes.starts_with(start).then_some(*kind))
    };
    let by_end = |name: &str| {
        let name = name.split(['?', '#']).next()?;
        let end = name.rsplit_once('.')?.1.to_ascii_lowercase();
        BY_ENDS
            .iter()
            .find_map(|(known, kind)| (*known == end).then_some(*kind))
    };
    let can_be_read = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes);
        text.is_ok_and(|text| !text.contains('\0'))
    };
    let by_name = || media.name.as_deref().and_then(by_end);
    let kind = match &media.source {
        MediaSource::Bytes(bytes) => by_start(bytes)
            .or_else(by_name)
            .or_else(|| can_be_read(bytes).then_some("text/plain")),
        MediaSource::Url(url) => by_end(url).or_else(by_name),
    };
    kind.map(Cow::Borrowed)
}

/// Returns the type of media for a field that must have one.
pub(super) fn stated_type(media: &Media) -> Cow<'_, str> {
    type_of(media).unwrap_or(Cow::Borrowed(&media.mime_type))
}

/// Returns whether bytes of a type are text.
pub(super) fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || matches!(
            kind,
            "application/json" | "application/xml" | "application/yaml"
        )
}

/// Refuses what the user and tools gave by value and a dialect does not take.
///
/// # Errors
/// Returns which type it is of, for the caller.
pub(super) fn refuse(
    messages: &[Message],
    api: &str,
    takes: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let of_others = messages.iter().filter(|it| it.role != Role::Assistant);
    for part in of_others.flat_map(|message| &message.parts) {
        let (Part::Image(media) | Part::File(media)) = part else {
            continue;
        };
        if matches!(media.source, MediaSource::Bytes(_))
            && !type_of(media).is_some_and(|kind| takes(&kind))
        {
            return Err(refusal(api, media));
        }
    }
    Ok(())
}

/// Returns the words of a refusal of media.
pub(super) fn refusal(api: &str, media: &Media) -> String {
    let name = media.name.as_deref().unwrap_or("a file");
    match type_of(media) {
        Some(kind) => format!("Invalid request: {api} takes no media of type {kind} ({name})"),
        None => format!(
            "Invalid request: the media type of {name} is not stated and cannot be seen, and {api} must have it"
        ),
    }
}

/// Returns the conversation with what tools returned beside text in the user's next turn, for
/// dialects in which a result is text alone.
pub(super) fn behind_results(messages: &[Message]) -> Cow<'_, [Message]> {
    let has_some =
        |message: &Message| (0..message.parts.len()).any(|place| is_of_result(message, place));
    if !messages.iter().any(has_some) {
        return Cow::Borrowed(messages);
    }
    let mut all: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut waiting: Vec<Part> = Vec::new();
    for message in messages {
        match message.role {
            Role::Tool => {
                all.push(without_media(message, &mut waiting));
                continue;
            }
            Role::User => {
                waiting.extend_from_slice(&message.parts);
                let parts = std::mem::take(&mut waiting);
                all.push(Message {
                    parts,
                    ..message.clone()
                });
                continue;
            }
            Role::System | Role::Developer | Role::Assistant => {}
        }
        if !waiting.is_empty() {
            all.push(Message::new(Role::User, std::mem::take(&mut waiting)));
        }
        all.push(message.clone());
    }
    if !waiting.is_empty() {
        all.push(Message::new(Role::User, waiting));
    }
    Cow::Owned(all)
}

/// Returns a message of tools without the images and files of results, of which each leaves a note
/// in its result; they go behind those that wait, with words that say whose they are.
fn without_media(message: &Message, waiting: &mut Vec<Part>) -> Message {
    let mut rest = Message {
        parts: Vec::with_capacity(message.parts.len()),
        ..message.clone()
    };
    let mut is_taken = false;
    for (place, part) in message.parts.iter().enumerate() {
        is_taken = is_of_result(message, place) || (is_taken && part.is_fields());
        if !is_taken {
            rest.parts.push(part.clone());
            continue;
        }
        let result = rest.parts.iter_mut().rev().find_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        });
        if let (Part::Image(media) | Part::File(media), Some(result)) = (part, result) {
            if !result.content.is_empty() {
                result.content.push('\n');
            }
            result.content.push_str(&note(media));
            waiting.push(Part::Text(match result.name.as_str() {
                "" => "Returned by the tool:".to_owned(),
                name => format!("Returned by the tool `{name}`:"),
            }));
        }
        waiting.push(part.clone());
    }
    rest
}

#[cfg(test)]
pub(crate) mod tests;
