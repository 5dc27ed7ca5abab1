//! The part of a value that messages may show: nothing of a secret, and of what came from the environment its
//! reference alone.

use super::tree::{Node, Value};
use crate::{domain::secret::REDACTED, policy::shown_url::shown_url};

/// Longer values are cut in messages, in characters; so are all but the first line.
const MAX_SHOWN: usize = 80;

/// Sections within which every value may be a secret.
const SECRET_SECTIONS: [&str; 4] = ["headers", "otlp_headers", "env", "credentials"];

/// Settings that are secrets wherever they are.
const SECRET_NAMES: [&str; 6] = [
    "api_key",
    "api_keys",
    "key",
    "encryption_keys",
    "session_token",
    "sha256",
];

/// Settings that are URLs, also if they are written without their scheme.
const URL_NAMES: [&str; 5] = ["url", "base_url", "jwks_url", "otlp_endpoint", "path"];

// === impl Node ===

impl Node {
    /// The scalar as a message may show it: a reference instead of its value, nothing of a secret.
    pub(super) fn shown(&self) -> Option<String> {
        let is_sensitive = self.is_sensitive();
        if let Some(reference) = &self.reference {
            return if is_sensitive {
                bare_reference(reference)
            } else {
                Some(self.shown_text(reference))
            };
        }
        if is_sensitive {
            return None;
        }
        match &self.value {
            Value::Null => Some("null".to_owned()),
            Value::Bool(bool) => Some(bool.to_string()),
            Value::Int(int) => Some(int.to_string()),
            Value::Uint(uint) => Some(uint.to_string()),
            Value::Float(float) => Some(float.to_string()),
            Value::Text(text) => Some(self.shown_text(text)),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns a message without any secret of this value or of those within.
    pub(super) fn without_secrets(&self, mut message: String) -> String {
        self.each(&mut |node| {
            let hidden = if node.is_sensitive() {
                Some(REDACTED)
            } else {
                node.reference.as_deref()
            };
            let secret = match &node.value {
                Value::Text(text) => text.clone(),
                Value::Int(int) => int.to_string(),
                Value::Uint(uint) => uint.to_string(),
                Value::Null | Value::Bool(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => {
                    return;
                }
            };
            if let Some(hidden) = hidden.filter(|_| !secret.is_empty() && message.contains(&secret))
            {
                message = message.replace(&secret, hidden);
            }
        });
        message
    }

    /// Returns the first line of a text, cut, and without what is secret in a URL.
    fn shown_text(&self, text: &str) -> String {
        let is_url = text.contains("://") || URL_NAMES.contains(&self.name());
        let text = if is_url {
            shown_url(text)
        } else {
            text.to_owned()
        };
        let whole = text.trim_end();
        let line = whole.lines().next().unwrap_or_default();
        let cut = line.chars().count() > MAX_SHOWN || line.len() < whole.len();
        line.chars()
            .take(MAX_SHOWN)
            .chain(cut.then_some('…'))
            .collect()
    }

    /// Returns whether it may hold a secret, judged by its name and by what only an address with a
    /// password has.
    fn is_sensitive(&self) -> bool {
        let is_within = |section: &&str| self.path.split('.').any(|part| part == *section);
        let name = self.name();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let texts = match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        };
        SECRET_SECTIONS.iter().any(is_within)
            || SECRET_NAMES.contains(&name)
            || texts.into_iter().chain(&self.reference).any(|text| {
                // A store is a word, or an address that may have a password in any place.
                text.contains('@') || (name == "store" && !text.chars().all(is_word))
            })
    }

    /// Returns the name of its setting, without its place in a list.
    fn name(&self) -> &str {
        let name = self.path.rsplit('.').next().unwrap_or_default();
        name.split('[').next().unwrap_or(name)
    }
}

/// Returns the first reference of a text without its default, such as `${NAME}`.
fn bare_reference(text: &str) -> Option<String> {
    let (_, inside) = text.split_once("${")?;
    let (name, _) = inside.split_once('}')?;
    let name = name.split_once(":-").map_or(name, |(name, _)| name);
    Some(format!("${{{name}}}"))
}
