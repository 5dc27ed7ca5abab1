//! Access to environment variables, replaceable in tests, and the references to them inside the
//! file.
//!
//! `${NAME}` refers to a required variable, `${NAME:-text}` to one that may be missing or empty,
//! and `$${` is an escaped `${`. Names of variables may appear in messages, their values do not.

use std::collections::BTreeMap;

use super::{
    fault::Fault,
    tree::{Node, Value},
};

/// A source of environment variables.
pub trait Environment: Send + Sync {
    /// Returns the value of a variable; `None` if it is not set or not text.
    fn var(&self, name: &str) -> Option<String>;
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

/// A given environment.
pub type GivenEnvironment = BTreeMap<String, String>;

impl Environment for ProcessEnvironment {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Environment for GivenEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

/// Resolves every reference in the tree; a value whose reference fails is a fault and taken out.
pub(super) fn expand(node: &mut Node, environment: &dyn Environment, faults: &mut Vec<Fault>) {
    let before = faults.len();
    expand_within(node, environment, faults);
    for path in faults[before..]
        .iter()
        .map(|fault| fault.path.clone())
        .collect::<Vec<_>>()
    {
        node.remove(&path);
    }
}

fn expand_within(node: &mut Node, environment: &dyn Environment, faults: &mut Vec<Fault>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") => match resolve(text, environment) {
            Ok(resolved) => {
                let reference = std::mem::replace(text, resolved.text);
                node.reference = resolved.from_environment.then_some(reference);
            }
            Err(reason) => {
                let shown = node.shown();
                faults.push(
                    Fault::new(node.path.clone(), reason)
                        .at(node.at)
                        .with_value(shown),
                );
            }
        },
        Value::List(items) => items
            .iter_mut()
            .for_each(|item| expand_within(item, environment, faults)),
        Value::Map(members) => members
            .iter_mut()
            .for_each(|(_, member)| expand_within(member, environment, faults)),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Float(_)
        | Value::Text(_) => {}
    }
}

struct Resolved {
    text: String,
    from_environment: bool,
}

fn resolve(text: &str, environment: &dyn Environment) -> Result<Resolved, String> {
    let mut resolved = Resolved {
        text: String::with_capacity(text.len()),
        from_environment: false,
    };
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if let Some(literal) = rest[..start].strip_suffix('$') {
            resolved.text.push_str(literal);
            resolved.text.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        resolved.text.push_str(&rest[..start]);
        let inside = &rest[start + 2..];
        let end = inside
            .find('}')
            .ok_or("has a reference `${` without its `}`; write $${ for the characters")?;
        let (name, fallback) = match inside[..end].split_once(":-") {
            Some((name, fallback)) => (name, Some(fallback)),
            None => (&inside[..end], None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || !name.chars().all(is_name)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(
                "refers to no name of a variable; write ${NAME}, or $${ for the characters"
                    .to_owned(),
            );
        }
        match (environment.var(name), fallback) {
            (Some(value), None) => resolved.text.push_str(&value),
            (Some(value), Some(_)) if !value.is_empty() => resolved.text.push_str(&value),
            (Some(_) | None, Some(fallback)) => resolved.text.push_str(fallback),
            (None, None) => {
                return Err(format!(
                    "refers to the environment variable {name}, which is not set; set it, or write ${{{name}:-default}}"
                ));
            }
        }
        resolved.from_environment = true;
        rest = &inside[end + 1..];
    }
    resolved.text.push_str(rest);
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<String, String> {
        let environment = GivenEnvironment::from([
            ("KEY".to_owned(), "secret".to_owned()),
            ("EMPTY".to_owned(), String::new()),
        ]);
        resolve(text, &environment).map(|resolved| resolved.text)
    }

    #[test]
    fn references_are_replaced_by_their_values() {
        for (text, expected) in [
            ("${KEY}", "secret"),
            ("Bearer ${KEY}!", "Bearer secret!"),
            ("${KEY}${KEY}", "secretsecret"),
            ("${MISSING:-else}", "else"),
            ("${EMPTY:-else}", "else"),
            ("${EMPTY}", ""),
            ("${MISSING:-}", ""),
            ("$${KEY}", "${KEY}"),
            ("$KEY costs $5", "$KEY costs $5"),
        ] {
            assert_eq!(resolved(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_unresolved_reference_is_reported_with_the_reason_and_the_variable() {
        assert!(
            resolved("${MISSING}")
                .unwrap_err()
                .contains("MISSING, which is not set")
        );
        assert!(resolved("${KEY").unwrap_err().contains("without its `}`"));
        for text in ["${}", "${1A}", "${A B}", "${:-x}"] {
            assert!(
                resolved(text)
                    .unwrap_err()
                    .contains("no name of a variable"),
                "{text}"
            );
        }
    }
}
