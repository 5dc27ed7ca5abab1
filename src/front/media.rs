//! Images and files as requests have them: URLs, data URLs and base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{error::CallError, place::FieldPath};
use crate::domain::message::{Media, MediaSource};

/// The type of an image whose URL does not say.
const SOME_IMAGE: &str = "image/*";

/// Returns an image by its URL or data URL.
pub(super) fn image(place: &FieldPath<'_>, url: &str) -> Result<Media, CallError> {
    if let Some((mime_type, bytes)) = data_url(place, url)? {
        return Ok(Media {
            mime_type,
            source: MediaSource::Bytes(bytes),
            name: None,
            detail: None,
        });
    }
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(place.refused("must be an http(s) or a data URL"));
    }
    let path = url
        .split(['?', '#'])
        .next()
        .unwrap_or(url)
        .to_ascii_lowercase();
    let mime_type = match path.rsplit('.').next() {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some(_) | None => SOME_IMAGE,
    };
    Ok(Media {
        mime_type: mime_type.to_owned(),
        source: MediaSource::Url(url.to_owned()),
        name: None,
        detail: None,
    })
}

/// Returns how closely the model is to look at an image, from `detail` of what is here; `None` if
/// it is not stated.
pub(super) fn detail(place: &FieldPath<'_>, image: &Value) -> Result<Option<String>, CallError> {
    match image.get("detail") {
        None | Some(Value::Null) => Ok(None),
        Some(_) => place
            .text(image, "detail")
            .map(|detail| Some(detail.to_owned())),
    }
}

/// Returns the type and bytes of a `data:` URL; `None` if it is not one.
pub(super) fn data_url(
    place: &FieldPath<'_>,
    url: &str,
) -> Result<Option<(String, Vec<u8>)>, CallError> {
    let Some(rest) = url.strip_prefix("data:") else {
        return Ok(None);
    };
    let split = rest
        .split_once(',')
        .and_then(|(head, data)| Some((head.strip_suffix(";base64")?, data)));
    let (head, data) = split.ok_or_else(|| place.refused("is no data URL in base64"))?;
    let mime_type = head
        .split(';')
        .next()
        .filter(|mime_type| !mime_type.is_empty());
    let mime_type = mime_type.unwrap_or("application/octet-stream").to_owned();
    Ok(Some((mime_type, decoded(place, data)?)))
}

pub(super) fn decoded(place: &FieldPath<'_>, data: &str) -> Result<Vec<u8>, CallError> {
    STANDARD
        .decode(data)
        .map_err(|_| place.refused("is no base64"))
}
