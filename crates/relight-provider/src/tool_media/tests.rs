//! A conversation in which a tool returned more than text, for the tests of the dialects, and what
//! is known of its types.

use super::*;
use crate::domain::message::{ToolCall, ToolResult};

pub(crate) fn media(kind: &str, bytes: &[u8], name: Option<&str>) -> Media {
    Media {
        mime_type: kind.to_owned(),
        source: MediaSource::Bytes(bytes.to_vec()),
        name: name.map(str::to_owned),
        detail: None,
    }
}

pub(crate) fn result(id: &str, words: &str, is_error: bool) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.to_owned(),
        name: "draw".to_owned(),
        content: words.to_owned(),
        is_error,
    })
}

/// Two calls: the first one returned a text, a picture, a document and `more`, the second one a
/// text; then the user shows a picture.
pub(crate) fn conversation(is_error: bool, more: Option<Part>) -> Vec<Message> {
    let call = |id: &str| {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "draw".to_owned(),
            arguments: "{}".to_owned(),
            opaque: None,
        })
    };
    let picture = Part::Image(media("image/png", b"one", None));
    let document = Part::File(media("application/pdf", b"two", Some("two.pdf")));
    let own = Part::Image(media("image/png", b"own", None));
    let first = [result("a", "first", is_error), picture, document];
    vec![
        Message::text(Role::User, "draw"),
        Message::new(Role::Assistant, vec![call("a"), call("b")]),
        Message::new(Role::Tool, first.into_iter().chain(more).collect()),
        Message::new(Role::Tool, vec![result("b", "second", false)]),
        Message::new(Role::User, vec![own, Part::Text("and this?".to_owned())]),
    ]
}

#[test]
fn a_type_is_what_is_stated_or_seen_and_never_made_up() {
    for (stated, bytes, name, expected) in [
        ("audio/mp4", &b"x"[..], None, Some("audio/mp4")),
        ("text/plain; charset=utf-8", b"x", None, Some("text/plain")),
        ("image/jpg", b"x", None, Some("image/jpeg")),
        (UNNAMED_TYPE, b"%PDF-1.7", None, Some("application/pdf")),
        (UNNAMED_TYPE, b"x", Some("A.CSV"), Some("text/csv")),
        ("", b"\xffx", Some("a.xyz"), None),
        (UNNAMED_TYPE, b"\0x", None, None),
        (UNNAMED_TYPE, b"x = 1", Some("a.py"), Some("text/plain")),
        ("image/*", b"\x89PNG", None, Some("image/png")),
    ] {
        let media = media(stated, bytes, name);
        assert_eq!(type_of(&media).as_deref(), expected, "{stated} {name:?}");
    }
}

#[test]
fn media_of_the_user_are_of_no_result() {
    let parts = vec![
        result("a", "", false),
        Part::Image(media("image/png", b"x", None)),
    ];
    assert!(is_of_result(&Message::new(Role::Tool, parts.clone()), 1));
    assert!(!is_of_result(&Message::new(Role::User, parts), 1));
}
