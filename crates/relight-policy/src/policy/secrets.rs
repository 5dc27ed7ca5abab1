//! Removes the exact values of configured secrets from texts, whatever their shape.
//!
//! A provider's error may repeat the key that it was sent. `redact` knows the shapes of keys; a
//! short or plain one (`changeme`) has none, and is recognised by its value alone.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    sync::Arc,
};

use aho_corasick::{AhoCorasick, MatchKind};

use crate::domain::{
    failure::ProviderError,
    tool::{ToolContent, ToolReply},
};

/// Text that replaces a secret.
const GONE: &str = "[redacted]";

/// Shorter values do not count as secrets: they would remove ordinary words from every text.
const SHORTEST: usize = 4;
/// A value of this length is removed even within a longer word.
const LONG: usize = 8;

/// The configured secrets.
#[derive(Clone, Default)]
pub struct Secrets(Option<AhoCorasick>);

// === impl Secrets ===

impl Secrets {
    /// Knows these values, as they are and as JSON and addresses write them.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known: Vec<String> = Vec::new();
        for value in values
            .into_iter()
            .map(str::trim)
            .filter(|value| value.len() >= SHORTEST)
        {
            let json = serde_json::Value::from(value).to_string();
            for form in [value, json.trim_matches('"'), &percent_encoded(value)] {
                if !known.iter().any(|known| known == form) {
                    known.push(form.to_owned());
                }
            }
        }
        if known.is_empty() {
            return Self(None);
        }
        // Values of a configuration are few and short; a set of them that cannot be searched for is
        // treated as empty.
        Self(
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&known)
                .ok(),
        )
    }

    /// Returns the text without them.
    #[must_use]
    pub fn take_out<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(search) = &self.0 else {
            return Cow::Borrowed(text);
        };
        let mut clean = String::new();
        let mut kept = 0;
        for found in search.find_iter(text) {
            if found.len() >= LONG || is_whole_word(text, found.start(), found.end()) {
                clean.push_str(&text[kept..found.start()]);
                clean.push_str(GONE);
                kept = found.end();
            }
        }
        if kept == 0 {
            return Cow::Borrowed(text);
        }
        clean.push_str(&text[kept..]);
        Cow::Owned(clean)
    }

    /// Returns the facts without them.
    #[must_use]
    pub fn take_out_of(&self, mut facts: ProviderError) -> ProviderError {
        let values = facts.headers.iter_mut().map(|(_, value)| value);
        for text in values.chain(&mut facts.body).chain(&mut facts.message) {
            if let Cow::Owned(clean) = self.take_out(text) {
                *text = clean;
            }
        }
        if let Some(clean) = facts.reply.as_deref().and_then(|it| self.clean_reply(it)) {
            facts.reply = Some(Arc::new(clean));
        }
        facts
    }

    /// Returns a tool's reply without them; `None` if it has none of them.
    fn clean_reply(&self, reply: &ToolReply) -> Option<ToolReply> {
        let sent = reply.sent.as_deref().map(|sent| self.take_out(sent));
        let mut clean = match sent {
            Some(Cow::Owned(sent)) => ToolReply::of_mcp(sent)?.0,
            Some(Cow::Borrowed(_)) | None => reply.clone(),
        };
        let texts = clean
            .content
            .iter_mut()
            .filter_map(|content| match content {
                ToolContent::Text(text) | ToolContent::Other(text) => Some(text),
                ToolContent::Image(_) | ToolContent::File(_) => None,
            });
        let mut is_hidden = false;
        for text in texts.chain(&mut clean.structured) {
            if let Cow::Owned(without) = self.take_out(text) {
                (*text, is_hidden) = (without, true);
            }
        }
        if is_hidden {
            // It was written in a way that only shows where it is read.
            clean.sent = None;
        }
        (clean != *reply).then_some(clean)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

fn is_whole_word(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
}

fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_values_go_in_every_form_and_words_that_merely_hold_a_short_one_stay() {
        let secrets = Secrets::new([
            "sk-1234",
            "changeme",
            "Hunter2hunter2",
            "a\"b c/d",
            "key",
            " padded-key ",
        ]);
        for (text, clean) in [
            (
                "nobody is known by sk-1234 here",
                "nobody is known by [redacted] here",
            ),
            ("xchangemex", "x[redacted]x"),
            ("risk-12345 is no key", "risk-12345 is no key"),
            ("{\"k\":\"a\\\"b c/d\"}", "{\"k\":\"[redacted]\"}"),
            ("?k=a%22b%20c%2Fd&x", "?k=[redacted]&x"),
            ("padded-key Hunter2hunter2", "[redacted] [redacted]"),
            ("nothing of it", "nothing of it"),
        ] {
            assert_eq!(secrets.take_out(text), clean);
        }
        assert_eq!(Secrets::default().take_out("changeme"), "changeme");
        assert_eq!(format!("{secrets:?}"), "Secrets");
    }

    #[test]
    fn facts_lose_them_in_body_message_and_headers() {
        let facts = ProviderError {
            headers: vec![("x-echo".into(), "Bearer sk-1234".into())],
            body: Some("bad key sk-1234".into()),
            message: Some("sk-1234".into()),
            ..ProviderError::default()
        };
        let clean = Secrets::new(["sk-1234"]).take_out_of(facts);
        assert!(!format!("{clean:?}").contains("1234"), "{clean:?}");
    }
}
