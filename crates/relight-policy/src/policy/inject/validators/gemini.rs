//! The order that Gemini's `contents` require.
//!
//! A content with function calls is followed by one user content with exactly as many responses,
//! and with nothing else: some models accept text beside them, others do not. Thought signatures
//! are not judged.

use serde_json::Value;

use super::{Violation, ensure, list, text};

pub(super) fn contents(contents: &[Value]) -> Result<(), Violation> {
    let mut open: Vec<&str> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let parts = list(content, "parts");
        ensure(!parts.is_empty(), index, "a content has no parts")?;
        let is_user = match text(content, "role") {
            "user" | "function" => true,
            "model" => false,
            _ => {
                return Err(Violation {
                    index,
                    rule: "the role is unknown",
                });
            }
        };
        ensure(
            is_user || index > 0,
            index,
            "the conversation does not begin with the user",
        )?;
        let calls: Vec<&str> = names(parts, "functionCall");
        let responses: Vec<&str> = names(parts, "functionResponse");
        ensure(
            calls.is_empty() || !is_user,
            index,
            "a user content holds a function call",
        )?;
        ensure(
            responses.is_empty() || is_user,
            index,
            "a model content holds a function response",
        )?;
        ensure(
            responses == open,
            index,
            "the responses are not those of the calls before, one for each",
        )?;
        ensure(
            responses.is_empty() || responses.len() == parts.len(),
            index,
            "something is beside responses",
        )?;
        for part in parts {
            let response = part
                .get("functionResponse")
                .map(|response| response.get("response"));
            ensure(
                response.is_none_or(|body| body.is_some_and(Value::is_object)),
                index,
                "a response is no object",
            )?;
            let is_empty = part
                .get("text")
                .is_some_and(|text| text.as_str().is_none_or(str::is_empty));
            ensure(
                !is_empty || part.get("thoughtSignature").is_some(),
                index,
                "a text part is empty",
            )?;
        }
        open = calls;
    }
    ensure(
        open.is_empty(),
        contents.len(),
        "a function call is not answered",
    )?;
    let ends_with_user = contents
        .last()
        .is_some_and(|content| text(content, "role") != "model");
    ensure(
        ends_with_user,
        contents.len(),
        "the conversation does not end with the user",
    )
}

fn names<'a>(parts: &'a [Value], key: &str) -> Vec<&'a str> {
    parts
        .iter()
        .filter_map(|part| part.get(key))
        .map(|call| text(call, "name"))
        .collect()
}
