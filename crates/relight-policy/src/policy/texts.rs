//! The sentences that people read about a failure, if an operator replaces Relight's own.
//!
//! A text belongs to a class of failures or to a code (that of a tool's failure is `TOOL_ERROR`,
//! whatever its class), the class first; it may be for end users, in
//! several languages, and for operators. It changes texts only: retries, and the values that
//! programs match on, stay as they are.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::failure::{Failure, FailureClass, FailureCode};

/// The label of a call that names the language of its end user, such as `de` or `pt-BR`.
pub const LANGUAGE_LABEL: &str = "language";

/// Longest text, in characters.
const MAX_CHARS: usize = 500;

/// The operator's own sentences about failures, by class (`rate_limited`) or code (`LLM_ERROR`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Texts(BTreeMap<String, Text>);

/// The sentence about the failures of one class or code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a text for end users, or a map with `user`, `hint` and `languages`"
)]
pub enum Text {
    /// The sentence for end users.
    User(String),
    /// Sentences by reader.
    ByReader(TextByReader),
}

/// The sentences about one class or code, by reader; what is left out stays Relight's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextByReader {
    /// For end users, 1 to 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// For operators and developers: what can be done. 1 to 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For end users by language (`de`, `pt-BR`), which a call names in its label `language`;
    /// `pt-BR` falls back to `pt`, any other to `user`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub languages: BTreeMap<String, String>,
}

// === impl Texts ===

impl Texts {
    /// Puts the operator's sentences into a failure; `language` is that of the call's end user.
    pub fn apply(&self, failure: &mut Failure, language: Option<&str>) {
        let keys = [failure.class.as_str(), failure.code().as_str()];
        let texts: Vec<_> = keys
            .iter()
            .filter_map(|key| self.0.get(*key))
            .map(Text::by_reader)
            .collect();
        if let Some(user) = texts.iter().find_map(|text| text.user_in(language)) {
            user.clone_into(&mut failure.user_message);
        }
        if let Some(hint) = texts.iter().find_map(|text| text.hint.as_deref()) {
            hint.clone_into(&mut failure.recovery_hint);
        }
    }

    /// Returns their faults: the path below `texts` and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        for (key, text) in &self.0 {
            if FailureClass::parse(key).is_none() && FailureCode::parse(key).is_none() {
                faults.push((
                    key.clone(),
                    "is neither a failure class nor a code such as LLM_ERROR".to_owned(),
                ));
            }
            let at = |field: &str| match text {
                Text::User(_) => key.clone(),
                Text::ByReader(_) => format!("{key}.{field}"),
            };
            let text = text.by_reader();
            let own = [("user", &text.user), ("hint", &text.hint)];
            let own = own
                .iter()
                .filter_map(|(field, text)| Some((at(field), text.as_deref()?)));
            let others = text
                .languages
                .iter()
                .map(|(name, text)| (at(&format!("languages.{name}")), text.as_str()));
            for (path, text) in own.chain(others) {
                if text.trim().is_empty() {
                    faults.push((path, "is empty".to_owned()));
                } else if text.chars().count() > MAX_CHARS {
                    faults.push((path, format!("is longer than {MAX_CHARS} characters")));
                } else if text.chars().any(char::is_control) {
                    faults.push((path, "holds control characters".to_owned()));
                }
            }
        }
        faults
    }
}

// === impl Text ===

impl Text {
    fn by_reader(&self) -> Cow<'_, TextByReader> {
        match self {
            Self::User(user) => Cow::Owned(TextByReader {
                user: Some(user.clone()),
                ..TextByReader::default()
            }),
            Self::ByReader(texts) => Cow::Borrowed(texts),
        }
    }
}

// === impl TextByReader ===

impl TextByReader {
    fn user_in(&self, language: Option<&str>) -> Option<&str> {
        let translated = language.and_then(|language| {
            let general = language.split(['-', '_']).next().unwrap_or_default();
            self.languages
                .get(language)
                .or_else(|| self.languages.get(general))
        });
        translated.or(self.user.as_ref()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: &str) -> Texts {
        serde_json::from_str(json).unwrap()
    }

    fn texts_for(texts: &Texts, class: FailureClass, language: Option<&str>) -> (String, String) {
        let mut failure = Failure::local(class, "it failed");
        texts.apply(&mut failure, language);
        (failure.user_message, failure.recovery_hint)
    }

    #[test]
    fn the_text_of_a_class_goes_before_that_of_its_code_and_both_before_relights_own() {
        let texts = texts(
            r#"{"LLM_ERROR": "Let me try again.", "timeout": {"user": "Too slow.", "hint": "Wait."}}"#,
        );
        assert_eq!(
            texts_for(&texts, FailureClass::Timeout, None),
            ("Too slow.".to_owned(), "Wait.".to_owned())
        );
        let own = Failure::local(FailureClass::Overloaded, "");
        assert_eq!(
            texts_for(&texts, FailureClass::Overloaded, None),
            ("Let me try again.".to_owned(), own.recovery_hint)
        );
        let own = Failure::local(FailureClass::State, "").user_message;
        assert_eq!(texts_for(&texts, FailureClass::State, None).0, own);
    }

    #[test]
    fn a_tools_failure_has_the_text_of_tools_in_every_class_that_a_model_shares() {
        let texts =
            texts(r#"{"LLM_ERROR": "model", "STREAMING_ERROR": "stream", "TOOL_ERROR": "tool"}"#);
        for class in FailureClass::ALL {
            let mut failure = Failure::local(class, "it failed").of_tool("search");
            texts.apply(&mut failure, None);
            let is_tools = failure.code() == FailureCode::ToolError;
            assert_eq!(failure.user_message == "tool", is_tools, "{class}");
            assert!(
                !["model", "stream"].contains(&&*failure.user_message),
                "{class}"
            );
        }
    }

    #[test]
    fn a_language_falls_back_to_its_general_form_and_then_to_the_text_without_one() {
        let texts = texts(
            r#"{"timeout": {"user": "Slow.", "languages": {"pt": "Lento.", "de-AT": "Langsam."}}}"#,
        );
        for (language, expected) in [
            (Some("pt-BR"), "Lento."),
            (Some("de-AT"), "Langsam."),
            (Some("de"), "Slow."),
            (None, "Slow."),
        ] {
            assert_eq!(
                texts_for(&texts, FailureClass::Timeout, language).0,
                expected,
                "{language:?}"
            );
        }
    }

    #[test]
    fn every_fault_is_reported_with_its_path() {
        let texts = texts(
            r#"{"time_out": "x", "timeout": "", "crash": {"hint": "a\u0007b", "languages": {"de": " "}}, "state": "ok"}"#,
        );
        let paths: Vec<_> = texts.validate().into_iter().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            ["crash.hint", "crash.languages.de", "time_out", "timeout"]
        );
        assert!(serde_json::from_str::<Texts>(r#"{"timeout": {"usr": "x"}}"#).is_err());
    }
}
