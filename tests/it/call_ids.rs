//! The ids of tool calls differ within a conversation, and every provider takes them: over real
//! sockets.

use std::{collections::BTreeSet, sync::Arc};

use relight::internals::{
    domain::{
        completion::{BlockKind, Delta},
        message::{Message, ModelCall, Part, Role, ToolCall},
        target::Dialect,
    },
    wire_server::answers,
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{answer_in, attempt_in, continued, exchange, result, speaking, stream},
    upstream::{Reply, Upstream, chunk},
    wire::{Seen, ask, asking, providers},
};

/// Ids as providers and clients make them: long, of strange letters, empty, and one twice.
const IDS: [&str; 6] = [
    "toolu_01-A",
    "functions.search:0",
    "gemini_0199c3a1-7c4f-7d8e-9a55-3f4e1b2c3d4e_1_0",
    "",
    "call_1",
    "call_1",
];

/// A server of chat completions that knows no ids, as a stream.
fn without_ids() -> Reply {
    let function = json!({"name": "search", "arguments": "{}"});
    let call = json!({"tool_calls": [{"index": 0, "function": function}]});
    Reply::events(&[chunk(&call, None), chunk(&json!({}), Some("tool_calls"))])
}

fn ids_of(seen: &Seen) -> Vec<String> {
    let kinds = seen.deltas.iter().filter_map(|delta| match delta {
        Delta::BlockStart { kind, .. } => Some(kind),
        _ => None,
    });
    kinds
        .filter_map(|kind| match kind {
            BlockKind::ToolCall { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect()
}

/// A conversation of one call a turn, each with one of the ids.
fn conversation() -> ModelCall {
    let mut call = asking("Search on.");
    for id in IDS {
        let part = Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "search".to_owned(),
            arguments: "{}".to_owned(),
            opaque: None,
        });
        call.messages
            .push(Message::new(Role::Assistant, vec![part]));
        call.messages.push(result(id, "search", "found"));
    }
    call
}

/// The values of fields of these names, in order.
fn values(value: &Value, names: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if names.contains(&name.as_str()) => {
                        found.push(text.clone());
                    }
                    value => values(value, names, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| values(item, names, found)),
        _ => {}
    }
}

fn is_plain(id: &str, most: usize) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=most).contains(&id.len()) && id.bytes().all(letters)
}

#[tokio::test]
async fn calls_of_a_server_without_ids_have_others_in_every_turn() {
    let (mut call, mut seen_ids) = (asking("Search."), BTreeSet::new());
    for turn in 0..4 {
        let (seen, _) = exchange(Dialect::OpenaiChat, without_ids(), call.clone()).await;
        let [id] = &ids_of(&seen)[..] else {
            panic!("turn {turn}: {seen:?}")
        };
        assert!(seen_ids.insert(id.clone()), "{id} came twice");
        assert!(id.len() == 9 && is_plain(id, 9), "{id}");
        call = continued(call, &seen);
    }
}

#[tokio::test]
async fn an_id_that_a_server_gives_twice_is_given_to_one_call_only() {
    let call = conversation();
    let taken: BTreeSet<&str> = IDS.into_iter().collect();
    let function = json!({"name": "search", "arguments": "{}"});
    let calls: Vec<Value> = ["call_1", "new", "new"]
        .into_iter()
        .enumerate()
        .map(|(index, id)| json!({"index": index, "id": id, "function": function}))
        .collect();
    let reply = Reply::events(&[
        chunk(&json!({"tool_calls": calls}), None),
        chunk(&json!({}), Some("tool_calls")),
    ]);
    let (seen, _) = exchange(Dialect::OpenaiChat, reply, call).await;
    let ids = ids_of(&seen);
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (3, 3), "{ids:?}");
    assert_eq!(ids[1], "new");
    assert!(ids.iter().all(|id| !taken.contains(id.as_str())), "{ids:?}");
}

#[tokio::test]
async fn an_answer_in_any_dialect_has_the_ids_that_its_provider_gave() {
    for dialect in [
        Dialect::OpenaiChat,
        Dialect::OpenaiResponses,
        Dialect::Anthropic,
        Dialect::Bedrock,
    ] {
        let reply = (answers::of(dialect).tool_call)("search", "{}");
        let body = String::from_utf8_lossy(&reply.body_bytes()).into_owned();
        let ids = ids_of(&answer_in(dialect, stream(&reply.body_bytes())).await);
        assert!(
            ids.len() == 1 && body.contains(&ids[0]),
            "{dialect:?}: {ids:?}"
        );
    }
}

#[tokio::test]
async fn an_id_of_one_provider_is_sent_to_the_next_as_that_one_takes_it() {
    type Case<'a> = (Dialect, &'a str, &'a [&'a str], fn(&str) -> bool);
    let cases: [Case<'_>; 6] = [
        (
            Dialect::OpenaiChat,
            "openai",
            &["id", "tool_call_id"],
            |id| (1..=40).contains(&id.len()),
        ),
        (
            Dialect::OpenaiChat,
            "mistral",
            &["id", "tool_call_id"],
            |id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        ),
        (Dialect::OpenaiResponses, "openai", &["call_id"], |id| {
            is_plain(id, 64)
        }),
        (
            Dialect::Anthropic,
            "anthropic",
            &["id", "tool_use_id"],
            |id| is_plain(id, 64),
        ),
        (Dialect::Bedrock, "bedrock", &["toolUseId"], |id| {
            is_plain(id, 64)
        }),
        (Dialect::Gemini, "gemini", &["id"], |id| is_plain(id, 64)),
    ];
    for (dialect, family, names, takes) in cases {
        let upstream = Upstream::start().await;
        upstream.otherwise((answers::of(dialect).text)("Found."));
        let mut attempt = attempt_in(dialect, conversation());
        Arc::make_mut(&mut attempt.target).family = family.into();
        let providers = providers(speaking(dialect, upstream.base_url()));
        let seen = ask(&providers, attempt).await;
        assert_eq!(seen.error, None, "{dialect:?} {family}");
        let mut sent = Vec::new();
        values(&upstream.await_request(1).await.body, names, &mut sent);
        assert!(
            sent.iter().all(|id| takes(id)),
            "{dialect:?} {family}: {sent:?}"
        );
        // Gemini's own calls go without the ids that were made for them.
        if dialect != Dialect::Gemini {
            assert_eq!(sent.len(), 2 * IDS.len(), "{dialect:?} {family}: {sent:?}");
            let pairs: Vec<&[String]> = sent.chunks(2).collect();
            assert!(pairs.iter().all(|pair| pair[0] == pair[1]), "{sent:?}");
            let distinct: BTreeSet<&String> = sent.iter().collect();
            assert_eq!(distinct.len(), IDS.len(), "{dialect:?} {family}: {sent:?}");
        }
    }
}
