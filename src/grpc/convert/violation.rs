//! Paths of the fields at fault in a request.

use std::fmt;

pub use crate::call_error::Violations;

/// Longest map key shown in a path, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// The path of a field; costs nothing until it is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    Root(&'static str),
    Field(&'a Path<'a>, &'static str),
    Item(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

// === impl Path ===

impl<'a> Path<'a> {
    pub(super) const fn field(&'a self, name: &'static str) -> Self {
        Self::Field(self, name)
    }

    pub(super) const fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    pub(super) const fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) | Self::Field(Path::Root(""), name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(
                f,
                "{parent}[{:?}]",
                &key[..key.floor_char_boundary(MAX_KEY_BYTES)]
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_the_caller_wrote_the_request() {
        let root = Path::Root("invocation");
        let messages = root.field("model").field("messages").to_string();
        assert_eq!(messages, "invocation.model.messages");
        assert_eq!(
            root.field("labels").key("a b").to_string(),
            r#"invocation.labels["a b"]"#
        );
        assert_eq!(
            Path::Root("")
                .field("headers")
                .item(3)
                .field("name")
                .to_string(),
            "headers[3].name"
        );
    }
}
