//! Stop sequences that a provider has no place for: the answer ends before the first of them, in
//! whatever pieces it comes, and no more of it is generated.

use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use relight::internals::domain::target::Dialect;
use serde_json::{Value, json};

use crate::support::{
    dialect::stream,
    every_front::{Protocol, held},
    front::{Answer, Front, over},
    told::{Told, Words},
    upstream::{Reply, Upstream, chunk},
};

/// The protocols that have stop sequences, as a document and as a stream, and their word for an
/// answer that ended at one.
const FRONTS: [(Protocol, bool, &str); 4] = [
    (Protocol::Chat, false, "stop"),
    (Protocol::Chat, true, "stop"),
    (Protocol::Messages, false, "stop_sequence"),
    (Protocol::Messages, true, "stop_sequence"),
];

/// An answer in these pieces, which falls silent for ever behind the one that holds `last`: only
/// one who ends it there has it whole.
fn endless(dialect: Dialect, pieces: &[&str], last: &str) -> Reply {
    let words = Words {
        reasoning: Vec::new(),
        text: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
        calls: Vec::new(),
        is_numbered: true,
    };
    let Told { events, .. } = Told::of(dialect, &words);
    let holds_last = |event: &Vec<u8>| String::from_utf8_lossy(event).contains(last);
    let place = events.iter().position(holds_last).unwrap();
    stream(&events.concat()).stall_after(events[..=place].concat().len())
}

async fn asked(front: &Front, protocol: Protocol, is_streamed: bool, stops: &[&str]) -> Answer {
    let messages = json!([{"role": "user", "content": "Count."}]);
    let mut body = json!({"model": "chat", "messages": messages, "stream": is_streamed});
    let path = if protocol == Protocol::Chat {
        body["stop"] = json!(stops);
        "/v1/chat/completions"
    } else {
        body["stop_sequences"] = json!(stops);
        body["max_tokens"] = json!(4000);
        "/v1/messages"
    };
    front.send(Method::POST, path, &[], body.to_string()).await
}

async fn before(upstream: &Upstream, dialect: Dialect) -> Front {
    Front::start(&over("chat", &[(upstream, dialect.as_str())])).await
}

/// The text that its client holds, and why it ended.
fn text_and_stop(way: (Protocol, bool), answer: &Answer) -> Option<(String, String)> {
    held(way, answer).map(|held| (held.text, held.stop))
}

#[tokio::test]
async fn an_answer_ends_before_its_first_stop_sequence_and_its_generation_too() {
    for (protocol, is_streamed, word) in FRONTS {
        let upstream = Upstream::start().await;
        let front = before(&upstream, Dialect::OpenaiResponses).await;
        let pieces = ["One. HALT", "ED. Two. HA", "LT-H", "ERE Three.", " Four."];
        upstream.push(endless(Dialect::OpenaiResponses, &pieces, "ERE Three."));
        let answer = asked(&front, protocol, is_streamed, &["NEVER", "HALT-HERE"]).await;
        assert_eq!(
            text_and_stop((protocol, is_streamed), &answer),
            Some(("One. HALTED. Two. ".to_owned(), word.to_owned())),
            "{answer:?}"
        );
        if !is_streamed {
            assert_eq!(answer.header("x-relight-adapted"), Some("stop emulated"));
        }
        let sent = &upstream.await_request(1).await.body;
        assert!(!sent.to_string().contains("HALT-HERE"), "{sent}");
        upstream.await_cancel(1).await;
    }
}

#[tokio::test]
async fn the_only_stop_sequence_is_named_as_the_one_that_ended_the_answer() {
    for is_streamed in [false, true] {
        let upstream = Upstream::start().await;
        let front = before(&upstream, Dialect::OpenaiResponses).await;
        for (text, stops, named) in [
            (
                "One. HALT-HERE Two.",
                &["HALT-HERE"][..],
                json!("HALT-HERE"),
            ),
            ("One. HALT-HERE Two.", &["NEVER", "HALT-HERE"], Value::Null),
            ("One.", &["HALT-HERE"], Value::Null),
        ] {
            let words = Words {
                reasoning: Vec::new(),
                text: vec![text.to_owned()],
                calls: Vec::new(),
                is_numbered: true,
            };
            let events = Told::of(Dialect::OpenaiResponses, &words).events;
            upstream.push(stream(&events.concat()));
            let answer = asked(&front, Protocol::Messages, is_streamed, stops).await;
            let last = if is_streamed {
                let mut events = answer.events().into_iter();
                let delta = events.find(|event| event["type"] == "message_delta");
                delta.unwrap()["delta"].clone()
            } else {
                answer.json()
            };
            assert_eq!(last["stop_sequence"], named, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_a_stop_sequence_is_whole_to_its_last_letter() {
    for (protocol, is_streamed, _) in FRONTS {
        let upstream = Upstream::start().await;
        let front = before(&upstream, Dialect::OpenaiResponses).await;
        let words = Words {
            reasoning: Vec::new(),
            text: vec!["One. HA".to_owned(), "LT-HER".to_owned()],
            calls: Vec::new(),
            is_numbered: true,
        };
        let events = Told::of(Dialect::OpenaiResponses, &words).events;
        upstream.push(stream(&events.concat()));
        let answer = asked(&front, protocol, is_streamed, &["HALT-HERE"]).await;
        let word = if protocol == Protocol::Chat {
            "stop"
        } else {
            "end_turn"
        };
        assert_eq!(
            text_and_stop((protocol, is_streamed), &answer),
            Some(("One. HALT-HER".to_owned(), word.to_owned())),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn stop_sequences_that_a_server_would_refuse_are_cut_at_here_and_the_others_are_sent() {
    let cases: [(Dialect, &[&str], &str, Value); 3] = [
        (
            Dialect::OpenaiChat,
            &["s1", "s2", "s3", "s4", "s5"],
            "/stop",
            json!(["s1", "s2", "s3", "s4"]),
        ),
        (
            Dialect::Anthropic,
            &["\n\n", "s5", "s1"],
            "/stop_sequences",
            json!(["s5", "s1"]),
        ),
        (
            Dialect::Gemini,
            &["s1", "s2", "s3", "s4", "s6", "s5"],
            "/generationConfig/stopSequences",
            json!(["s1", "s2", "s3", "s4", "s6"]),
        ),
    ];
    for (dialect, stops, place, expected) in cases {
        let upstream = Upstream::start().await;
        let front = before(&upstream, dialect).await;
        let pieces = ["One. ", "Two. s5", " Three."];
        upstream.push(endless(dialect, &pieces, "s5"));
        let answer = asked(&front, Protocol::Chat, false, stops).await;
        assert_eq!(
            text_and_stop((Protocol::Chat, false), &answer),
            Some(("One. Two. ".to_owned(), "stop".to_owned())),
            "{answer:?}"
        );
        assert_eq!(answer.header("x-relight-adapted"), Some("stop emulated"));
        let sent = upstream.await_request(1).await.body;
        assert_eq!(sent.pointer(place), Some(&expected), "{sent}");
    }
}

/// End of the first response of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstEnd {
    /// The connection breaks.
    Broken,
    /// Its output limit is reached.
    Limit,
}

/// A server whose model writes this text, on from where the last message of a request breaks off.
/// Its first response ends behind so many bytes. If it knows stop sequences, it ends before those
/// that it writes whole.
fn writing(upstream: &Upstream, text: &str, (bytes, end): (usize, FirstEnd), knows_stops: bool) {
    let text = text.to_owned();
    let has_begun = AtomicBool::new(false);
    upstream.answering(move |request| {
        let messages = request.body["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        let is_begun = last["role"] == "assistant";
        let begun = last["content"].as_str().filter(|_| is_begun);
        let rest = text.strip_prefix(begun.unwrap_or_default()).unwrap();
        let is_first = !has_begun.swap(true, Ordering::Relaxed);
        let rest = if is_first { &rest[..bytes] } else { rest };
        let stop = rest.find(STOP).filter(|_| knows_stops);
        let rest = &rest[..stop.unwrap_or(rest.len())];
        let letters: Vec<char> = rest.chars().collect();
        let pieces = letters.chunks(5).map(|piece| {
            let piece: String = piece.iter().collect();
            chunk(&json!({"content": piece}), None)
        });
        let mut events: Vec<String> = pieces.collect();
        let is_broken = is_first && end == FirstEnd::Broken;
        let is_limit = is_first && end == FirstEnd::Limit;
        let reason = if is_limit { "length" } else { "stop" };
        events.extend((!is_broken).then(|| chunk(&json!({}), Some(reason))));
        let reply = Reply::events(&events);
        let whole = reply.body_bytes().len();
        if is_broken {
            reply.cut_after(whole)
        } else {
            reply
        }
    });
}

const STOP: &str = "HALT-HERE";

/// A route over one target that continues a begun message.
fn continuing(upstream: &Upstream) -> String {
    let url = upstream.base_url();
    format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true }}\n\
         targets:\n  t: {{ provider: p, model: m, capabilities: {{ assistant_prefill: true }} }}\n\
         routes:\n  chat: {{ targets: [t] }}\n"
    )
}

#[tokio::test]
async fn a_stop_sequence_ends_an_answer_that_was_cut_within_it_as_if_it_had_not_been() {
    let before = format!("{}It ends:", "A sentence of a long text. ".repeat(12));
    let text = format!("{before}{STOP} And on.");
    for knows_stops in [true, false] {
        // The server takes four, and the fifth is cut at here.
        let stops = if knows_stops {
            json!([STOP])
        } else {
            json!(["n1", "n2", "n3", "n4", STOP])
        };
        for end in [FirstEnd::Broken, FirstEnd::Limit] {
            for within in 0..STOP.len() {
                let upstream = Upstream::start().await;
                writing(&upstream, &text, (before.len() + within, end), knows_stops);
                let front = Front::start(&continuing(&upstream)).await;
                let question = json!([{"role": "user", "content": "Tell me."}]);
                let body = json!({"model": "chat", "stream": true, "stop": stops,
                    "messages": question});
                let answer = front.chat(&body).await;
                let words = format!("{knows_stops}, {end:?}, {within}: {answer:?}");
                let held = text_and_stop((Protocol::Chat, true), &answer);
                assert_eq!(held, Some((before.clone(), "stop".to_owned())), "{words}");
                let requests = upstream.requests();
                assert_eq!(requests.len(), 2, "{words}");
                // The second request continues the text, and is no new one.
                let last = requests[1].body["messages"].as_array().unwrap().last();
                assert_eq!(last.unwrap()["role"], "assistant", "{words}");
            }
        }
    }
}

#[tokio::test]
async fn what_looked_like_a_stop_sequence_stays_in_an_answer_that_cannot_be_continued() {
    let text = format!(
        "{}It ends:HALT-HE",
        "A sentence of a long text. ".repeat(12)
    );
    let upstream = Upstream::start().await;
    let whole = Reply::events(&[
        chunk(&json!({"content": text}), None),
        chunk(&json!({}), Some("length")),
    ]);
    upstream.push(whole);
    upstream.otherwise(Reply::status(400));
    let front = Front::start(&continuing(&upstream)).await;
    let body = json!({"model": "chat", "stream": true, "stop": [STOP],
        "messages": [{"role": "user", "content": "Tell me."}]});
    let answer = front.chat(&body).await;
    let held = text_and_stop((Protocol::Chat, true), &answer);
    assert_eq!(held, Some((text, "length".to_owned())), "{answer:?}");
    assert!(upstream.requests().len() > 1, "{answer:?}");
}
