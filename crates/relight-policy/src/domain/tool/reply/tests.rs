//! What of a result is read, and that it stays word for word.

use super::{ToolContent as C, *};

fn read(sent: &str) -> ToolReply {
    ToolReply::of_mcp(sent.to_owned()).unwrap().0
}

#[test]
fn each_kind_of_content_has_its_form_and_what_has_none_is_kept_as_it_is() {
    let sent = r#"{"content":[
        {"type":"text","text":"a"},
        {"type":"image","data":"AQI=","mimeType":"image/png"},
        {"type":"audio","data":"AQI=","mimeType":"audio/wav"},
        {"type":"resource","resource":{"uri":"note://1","text":"b"}},
        {"type":"resource","resource":{"uri":"note://2","blob":"AQI="}},
        {"type":"resource_link","uri":"note://3","name":"three"},
        {"type":"image","data":"no base64","mimeType":"image/png"},
        {"type":"hologram"}, 7]}"#;
    let reply = read(sent);
    assert!(
        matches!(
            &reply.content[..],
            [
                C::Text(_),
                C::Image(_),
                C::File(_),
                C::Text(_),
                C::File(_),
                C::File(_),
                C::Other(_),
                C::Other(_),
                C::Other(_)
            ]
        ),
        "{reply:?}"
    );
    assert_eq!(reply.text(), "a\nb\n[image that cannot be read]");
    let beside = reply.pieces_beside();
    assert_eq!(beside[..3], [None, None, None]);
    assert_eq!(
        beside[3].as_deref(),
        Some(r#"{"resource":{"uri":"note://1"},"type":"resource"}"#)
    );
    assert_eq!(beside[8].as_deref(), Some("7"));
    assert_eq!(reply.beside(), None);
}

#[test]
fn a_result_that_is_marked_as_an_error_says_so_and_what_is_no_object_is_no_result() {
    for (sent, is_error) in [
        (r#"{"isError":true}"#, Some(true)),
        (r#"{"isError":false,"content":[]}"#, Some(false)),
        ("{}", Some(false)),
        ("[]", None),
        ("null", None),
        (r#"{"content":"text"}"#, None),
    ] {
        let read = ToolReply::of_mcp(sent.to_owned());
        assert_eq!(read.map(|(_, is_error)| is_error), is_error, "{sent}");
    }
}

#[test]
fn a_reply_without_texts_is_told_by_its_data() {
    let sent = r#"{"content":[{"type":"hologram"}],"structuredContent":{"n":1.0}}"#;
    assert_eq!(read(sent).text(), r#"{"n":1.0}"#);
    assert_eq!(
        read(r#"{"content":[{"type":"hologram"}]}"#).text(),
        r#"{"type":"hologram"}"#
    );
}

#[test]
fn a_kept_reply_is_what_it_was_and_one_of_an_earlier_version_can_be_read() {
    let all = [
        read(r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{},"later":1e400}"#),
        ToolReply::of_text("b"),
        ToolReply::default(),
    ];
    for reply in all {
        let kept = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<ToolReply>(&kept).unwrap(), reply);
    }
    let earlier = r#"{"content":[{"text":"a"}],"structured":null}"#;
    let reply: ToolReply = serde_json::from_str(earlier).unwrap();
    assert_eq!(reply, ToolReply::of_text("a"));
}

#[test]
fn bytes_are_read_however_their_letters_are_written_and_never_shown_as_text() {
    for data in ["+/8=", "-_8=", "-_8", "+\\n/8\\n="] {
        let sent =
            format!(r#"{{"content":[{{"type":"image","data":"{data}","mimeType":"image/png"}}]}}"#);
        let reply = read(&sent);
        let [C::Image(image)] = &reply.content[..] else {
            panic!("{data}: {reply:?}")
        };
        assert_eq!(image.source, MediaSource::Bytes(vec![0xfb, 0xff]), "{data}");
    }
    for piece in [
        r#"{"type":"image","data":"%%AAAA","mimeType":"image/png"}"#,
        r#"{"type":"audio","data":"AAAA"}"#,
        r#"{"type":"resource","resource":{"uri":"a","blob":"%%AAAA"}}"#,
    ] {
        let alone = read(&format!(r#"{{"content":[{piece}]}}"#)).text();
        assert!(
            alone.ends_with("that cannot be read]") && !alone.contains("AAAA"),
            "{alone}"
        );
        let beside = format!(r#"{{"content":[{{"type":"text","text":"a"}},{piece}]}}"#);
        assert_eq!(read(&beside).text(), format!("a\n{alone}"));
    }
}
