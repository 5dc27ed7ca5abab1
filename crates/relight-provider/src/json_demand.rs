//! The demand for JSON in words, for dialects that have no field for it.
//!
//! It is placed behind the caller's own instructions. The completion is checked like any other for
//! which JSON is demanded; nothing of the words is seen in it.

use super::turns::schema;
use crate::domain::message::ResponseFormat;

/// Returns the demand for a completion of this format; `None` for plain text.
///
/// # Errors
/// Returns an error if the schema is not JSON.
pub(super) fn in_words(format: &ResponseFormat) -> Result<Option<String>, String> {
    match format {
        ResponseFormat::Text => Ok(None),
        ResponseFormat::JsonObject => Ok(Some(
            "Your answer must be one JSON object and nothing else: no text before or after it, and no code fence."
                .to_owned(),
        )),
        ResponseFormat::JsonSchema {
            name,
            description,
            schema: text,
            ..
        } => {
            let schema = schema(text, &format!("response_format '{name}'"))?;
            let described = description.as_deref().map(str::trim).unwrap_or_default();
            let described = if described.is_empty() {
                String::new()
            } else {
                format!(" ({described})")
            };
            Ok(Some(format!(
                "Your answer must be one JSON value and nothing else: no text before or after it, and no code \
                 fence. It must fit this JSON Schema, named `{name}`{described}:\n{schema}"
            )))
        }
    }
}
