//! What the tests of all dialects share: an exchange with a fake server, the turn it leaves, and
//! cuts at every place.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{path::Path, sync::Arc, time::Duration};

use relight::internals::{
    domain::{
        completion::{BlockKind, Delta},
        failure::TransportFault,
        message::{Message, ModelCall, Part, Reasoning, Role, ToolCall, ToolResult},
        target::Dialect,
        wire::ProviderRequest,
    },
    provider::ProviderSpec,
};

use super::{
    upstream::{Reply, Request, Upstream},
    wire::{Seen, ask, asking, attempt, providers, spec},
};

/// A documented answer from `tests/fixtures/wire`.
pub(crate) fn fixture(path: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/wire")
        .join(path);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// An event stream of these bytes.
pub(crate) fn stream(bytes: &[u8]) -> Reply {
    Reply::stream(vec![(Duration::ZERO, bytes.to_vec())])
}

/// The specification of a provider with that dialect at that URL.
pub(crate) fn speaking(dialect: Dialect, base_url: String) -> ProviderSpec {
    ProviderSpec {
        dialect,
        region: Some("eu-test-1".to_owned()),
        ..spec(base_url)
    }
}

/// An attempt at a target of the dialect.
pub(crate) fn attempt_in(dialect: Dialect, call: ModelCall) -> ProviderRequest {
    let mut attempt = attempt(call);
    Arc::make_mut(&mut attempt.target).dialect = dialect;
    attempt
}

/// One call and its answer, with the request as the server saw it.
pub(crate) async fn exchange(dialect: Dialect, reply: Reply, call: ModelCall) -> (Seen, Request) {
    let upstream = Upstream::start().await;
    upstream.push(reply);
    let seen = ask(
        &providers(speaking(dialect, upstream.base_url())),
        attempt_in(dialect, call),
    )
    .await;
    (seen, upstream.await_request(1).await)
}

/// The answer to a greeting.
pub(crate) async fn answer_in(dialect: Dialect, reply: Reply) -> Seen {
    exchange(dialect, reply, asking("Hi")).await.0
}

/// The assistant's turn that an answer leaves in the history.
pub(crate) fn turn_of(seen: &Seen) -> Message {
    let mut parts: Vec<(u32, Part)> = Vec::new();
    for delta in &seen.deltas {
        match delta {
            Delta::BlockStart { block, kind } => parts.push((*block, begun(kind))),
            Delta::BlockDelta { block, text } => match part_mut(&mut parts, *block) {
                Part::Text(all) | Part::Refusal(all) => all.push_str(text),
                Part::Reasoning(reasoning) => reasoning.text.push_str(text),
                Part::ToolCall(call) => call.arguments.push_str(text),
                other => panic!("{other:?}"),
            },
            Delta::BlockStop { block, opaque } => match part_mut(&mut parts, *block) {
                Part::Reasoning(reasoning) => reasoning.opaque.clone_from(opaque),
                Part::ToolCall(call) => call.opaque.clone_from(opaque),
                _ => assert_eq!(*opaque, None),
            },
            Delta::Start { .. }
            | Delta::Usage(_)
            | Delta::ReadOn(_)
            | Delta::Around(_)
            | Delta::ToolReply(_)
            | Delta::Finish { .. } => {}
        }
    }
    Message::new(
        Role::Assistant,
        parts.into_iter().map(|(_, part)| part).collect(),
    )
}

fn begun(kind: &BlockKind) -> Part {
    match kind {
        BlockKind::Text => Part::Text(String::new()),
        BlockKind::Refusal => Part::Refusal(String::new()),
        BlockKind::Reasoning => Part::Reasoning(Reasoning::default()),
        BlockKind::ToolCall { id, name } => Part::ToolCall(ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments: String::new(),
            opaque: None,
        }),
    }
}

fn part_mut(parts: &mut [(u32, Part)], block: u32) -> &mut Part {
    &mut parts
        .iter_mut()
        .find(|(number, _)| *number == block)
        .unwrap()
        .1
}

/// The conversation after an answer: its turn, a result for each of its calls, else the user's next
/// words.
pub(crate) fn continued(call: ModelCall, seen: &Seen) -> ModelCall {
    let turn = turn_of(seen);
    let results: Vec<Message> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(result(&call.id, &call.name, "rain")),
            _ => None,
        })
        .collect();
    let mut messages = call.messages.clone();
    messages.push(turn);
    if results.is_empty() {
        messages.push(Message::text(Role::User, "Go on."));
    }
    messages.extend(results);
    ModelCall { messages, ..call }
}

/// A tool's answer as a message.
pub(crate) fn result(call_id: &str, name: &str, content: &str) -> Message {
    let result = ToolResult {
        call_id: call_id.to_owned(),
        name: name.to_owned(),
        content: content.to_owned(),
        is_error: false,
    };
    Message::new(Role::Tool, vec![Part::ToolResult(result)])
}

/// An answer that ends before `mark` is an error, wherever and however it ends.
pub(crate) async fn assert_no_cut_looks_whole(
    dialect: Dialect,
    body: &[u8],
    mark: usize,
    reply: impl Fn(&[u8]) -> Reply,
) {
    let upstream = Upstream::start().await;
    let providers = providers(speaking(dialect, upstream.base_url()));
    let mut cuts = 0;
    for at in (1..mark).step_by(53).chain([mark - 1]) {
        for whole in [true, false] {
            let reply = if whole {
                reply(body).ended_after(at)
            } else {
                reply(body).cut_after(at)
            };
            upstream.push(reply);
            let seen = ask(&providers, attempt_in(dialect, asking("Hi"))).await;
            let fault = seen.failed().fault;
            let is_cut = matches!(fault, Some(TransportFault::Cut | TransportFault::Protocol));
            assert!(is_cut, "cut at {at}, {whole}: {:?}", seen.error);
            cuts += 1;
        }
    }
    assert!(cuts > 10, "only {cuts} cuts were made");
}

/// However the bytes of an answer are cut into pieces, its deltas are the same.
pub(crate) async fn assert_pieces_do_not_matter(dialect: Dialect, reply: Reply) {
    let whole = answer_in(dialect, reply.clone()).await;
    assert_eq!(whole.error, None);
    let expected = joined(whole.deltas);
    for bytes in [1, 7, 64] {
        let pieces = answer_in(dialect, reply.clone().in_pieces_of(bytes)).await;
        assert_eq!(joined(pieces.deltas), expected, "in pieces of {bytes}");
        assert_eq!(pieces.error, None);
    }
}

/// The deltas with adjacent ones of a block as one: those that arrive in one read are joined.
fn joined(mut deltas: Vec<Delta>) -> Vec<Delta> {
    deltas.dedup_by(|next, last| match (last, next) {
        (
            Delta::BlockDelta { block, text },
            Delta::BlockDelta {
                block: same,
                text: more,
            },
        ) if block == same => {
            text.push_str(more);
            true
        }
        _ => false,
    });
    deltas
}
