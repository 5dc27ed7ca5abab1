//! The fields of a text are behind that text, whatever follows it in its message.

use super::*;

/// Returns each text in the order in which it ended, with the fields behind it.
fn texts(deltas: &[Delta]) -> Vec<(String, Option<Value>)> {
    let mut open: BTreeMap<u32, String> = BTreeMap::new();
    let mut ended: Vec<(String, Option<Value>)> = Vec::new();
    for delta in deltas {
        match delta {
            Delta::BlockStart { block, .. } => {
                open.insert(*block, String::new());
            }
            Delta::BlockDelta { block, text } => open.get_mut(block).unwrap().push_str(text),
            Delta::BlockStop { block, opaque } => {
                let text = open.remove(block).unwrap();
                match opaque {
                    None => ended.push((text, None)),
                    Some(fields) => {
                        assert!(open.is_empty(), "another text began before: {deltas:?}");
                        let fields = serde_json::from_slice(&fields.bytes).unwrap();
                        ended.last_mut().unwrap().1 = Some(fields);
                    }
                }
            }
            _ => {}
        }
    }
    ended
}

fn part(text: &str, url: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [{"type": "url_citation", "url": url}]})
}

#[test]
fn annotations_are_behind_their_own_text_in_a_stream_as_in_a_document() {
    let parts = [part("Riga.", "a"), part("Latvia.", "b")];
    let item = json!({"type": "message", "id": "m", "content": parts});
    let mut whole = Vec::new();
    ResponseOutput::default()
        .done(0, &item, &mut whole)
        .unwrap();
    for (is_added, is_done) in [(true, false), (false, true), (true, true)] {
        let mut output = ResponseOutput::default();
        let mut out = Vec::new();
        for (place, part) in (0..).zip(&parts) {
            let text = text_of(part, "text");
            output
                .text((0, place), BlockKind::Text, text, &mut out)
                .unwrap();
            if is_added {
                output.annotation((0, place), &part[ANNOTATIONS][0]);
            }
            if is_done {
                output.content_done((0, place), part, &mut out).unwrap();
            }
        }
        output.done(0, &item, &mut out).unwrap();
        let annotations = |part: &Value| Some(json!({ANNOTATIONS: part[ANNOTATIONS]}));
        let expected = [
            ("Riga.".to_owned(), annotations(&parts[0])),
            ("Latvia.".to_owned(), annotations(&parts[1])),
        ];
        assert_eq!(texts(&out), expected);
        assert_eq!(texts(&whole), expected);
    }
}
