//! Tests of `sse`, one for each guarantee.

use proptest::prelude::*;

use super::*;

fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new(1024);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.feed(piece, &mut events).unwrap();
    }
    events.extend(decoder.finish().unwrap());
    events
}

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent {
        name: name.to_owned(),
        data: data.to_owned(),
    }
}

#[test]
fn every_kind_of_line_end_ends_a_line() {
    for text in [
        "data: a\n\ndata: b\n\n",
        "data: a\r\rdata: b\r\r",
        "data: a\r\n\r\ndata: b\r\n\r\n",
    ] {
        assert_eq!(
            decode(&[text.as_bytes()]),
            [event("", "a"), event("", "b")],
            "{text:?}"
        );
    }
}

#[test]
fn a_byte_order_mark_is_skipped_and_comments_and_heartbeats_are_no_events() {
    let text = "\u{feff}data: a\n\n: ping\n\nevent: ping\ndata:\n\nid: 7\nretry: 1\n\ndata:b\n\n";
    assert_eq!(decode(&[text.as_bytes()]), [event("", "a"), event("", "b")]);
}

#[test]
fn what_may_have_lost_its_data_is_an_event_that_does_not_parse() {
    for (torn, data) in [
        ("da", "da"),
        ("data", ""),
        ("data:", ""),
        ("dadata: {}", "dadata: {}"),
        ("ata: {}", "ata: {}"),
        ("dta: {\"a\": 1}", "dta: {\"a\": 1}"),
        ("data {\"a\": 1}", "data {\"a\": 1}"),
        ("event", ""),
    ] {
        assert_eq!(
            decode(&[format!("{torn}\n\n").as_bytes()]),
            [event("", data)],
            "{torn:?}"
        );
    }
    assert_eq!(
        decode(&[b"event: message_st\n\n"]),
        [event("message_st", "")]
    );
}

#[test]
fn a_byte_that_is_no_text_makes_its_event_one_that_does_not_parse() {
    let events = decode(&[b"data: {\"a\":\"\xE2\x82\"}\n\n"]);
    assert_eq!(events.len(), 1);
    assert!(serde_json::from_str::<serde_json::Value>(&events[0].data).is_err());
}

#[test]
fn a_heartbeat_that_is_numbered_is_an_event() {
    let numbered = "{\"type\":\"keepalive\",\"sequence_number\":3}";
    assert_eq!(
        decode(&[format!("event: keepalive\ndata: {numbered}\n\n").as_bytes()]),
        [event("keepalive", numbered)]
    );
}

#[test]
fn data_lines_of_one_event_are_joined_and_its_name_is_kept() {
    assert_eq!(
        decode(&[b"event: error\ndata: {\ndata:  1}\n\n"]),
        [event("error", "{\n 1}")]
    );
    assert_eq!(
        decode(&[b"event: error\ndata: a\n\ndata: b\n\n"]),
        [event("error", "a"), event("", "b")]
    );
}

#[test]
fn an_error_line_of_llama_cpp_is_an_error_event() {
    assert_eq!(
        decode(&[b"error: {\"code\":400}\n\n"]),
        [event("error", "{\"code\":400}")]
    );
}

#[test]
fn an_event_without_its_blank_line_is_given_at_the_end() {
    for text in ["data: [DONE]", "data: [DONE]\n", "data: [DONE]\r"] {
        assert_eq!(
            decode(&[text.as_bytes()]),
            [event("", "[DONE]")],
            "{text:?}"
        );
    }
    assert_eq!(decode(&[b"data: a\n\n"]), [event("", "a")]);
}

#[test]
fn a_line_beyond_its_bound_is_refused_before_its_end_came() {
    let mut decoder = SseDecoder::new(16);
    let mut events = Vec::new();
    assert_eq!(decoder.feed(b"data: 0123456789", &mut events), Ok(()));
    assert_eq!(events, []);
    assert_eq!(
        decoder.feed(b"x", &mut events),
        Err(EventTooLong { max_bytes: 16 })
    );
}

#[test]
fn an_event_of_many_short_lines_is_bounded_too() {
    let mut decoder = SseDecoder::new(16);
    assert!(
        decoder
            .feed(&b"data: 01234\n".repeat(4), &mut Vec::new())
            .is_err()
    );
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(
        lines in prop::collection::vec(
            prop_oneof![
                Just(String::new()),
                Just(": ping".to_owned()),
                Just("event: error".to_owned()),
                "data: [a-z{}\u{e9}\u{1f600}\u{feff}:]{0,9}",
                "error: [a-z]{0,4}",
                "[a-z]{0,5}:? ?[a-z\u{20ac}]{0,5}",
            ],
            0..20,
        ),
        ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r", "\r\n"]), 20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text: String = lines.iter().zip(&ends).flat_map(|(line, end)| [line.as_str(), end]).collect();
        let bytes = text.as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let whole = decode(&[bytes]);
        prop_assert_eq!(&decode(&pieces), &whole);
        prop_assert_eq!(&decode(&single), &whole);
    }
}
