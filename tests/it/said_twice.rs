//! Whatever happens to the events or the bytes of a stream, in any dialect: the caller holds the
//! exact answer, or an error. What a dialect has no second witness for is stated here, and nothing
//! else.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{collections::HashSet, sync::Mutex};

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        target::Dialect,
    },
    provider::Providers,
};

use crate::support::{
    dialect::{attempt_in, speaking, stream},
    every_front::{FRONTS, asked, held as held_at},
    front::{Front, over},
    room::room,
    told::{Holds, Told, Words, told, words},
    upstream::Upstream,
    wire::{Seen, ask, asking, providers},
};

/// How many answers are made in each dialect.
const ANSWERS: usize = 6;

/// What happens to a stream on its way.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// An event is lost.
    Lost(usize),
    /// An event comes twice.
    Doubled(usize),
    /// An event comes after the next one.
    Swapped(usize),
    /// A byte is lost.
    ByteLost(usize),
    /// A byte comes twice.
    ByteDoubled(usize),
    /// A byte comes after the next one.
    BytesSwapped(usize),
    /// The body ends after so many bytes, as if it were whole.
    Ended(usize),
}

/// What of an answer a caller reads or acts upon: its blocks, and why it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    blocks: Vec<(BlockKind, String, bool)>,
    finish: Option<FinishReason>,
}

// === impl Held ===

impl Held {
    fn of(seen: &Seen) -> Self {
        let mut blocks: Vec<(u32, (BlockKind, String, bool))> = Vec::new();
        for delta in &seen.deltas {
            match delta {
                Delta::BlockStart { block, kind } => {
                    blocks.push((*block, (kind.clone(), String::new(), false)));
                }
                Delta::BlockDelta { block, text } => {
                    let known = blocks.iter_mut().find(|(number, _)| number == block);
                    known.unwrap().1.1.push_str(text);
                }
                Delta::BlockStop { block, .. } => {
                    let known = blocks.iter_mut().find(|(number, _)| number == block);
                    known.unwrap().1.2 = true;
                }
                _ => {}
            }
        }
        Self {
            blocks: blocks.into_iter().map(|(_, block)| block).collect(),
            finish: seen.finish(),
        }
    }

    /// Whether it says of itself that it is whole.
    fn claims_to_be_whole(&self) -> bool {
        matches!(
            self.finish,
            Some(FinishReason::Stop | FinishReason::ToolCalls)
        )
    }
}

// === impl Fault ===

impl Fault {
    /// The body that is left of these events.
    fn befalls(self, events: &[Vec<u8>]) -> Vec<u8> {
        let mut events = events.to_vec();
        let mut body = events.concat();
        match self {
            Self::Lost(at) => {
                events.remove(at);
            }
            Self::Doubled(at) => events.insert(at, events[at].clone()),
            Self::Swapped(at) => events.swap(at, at + 1),
            Self::ByteLost(at) => {
                body.remove(at);
            }
            Self::ByteDoubled(at) => body.insert(at, body[at]),
            Self::BytesSwapped(at) => body.swap(at, at + 1),
            Self::Ended(at) => body.truncate(at),
        }
        match self {
            Self::Lost(_) | Self::Doubled(_) | Self::Swapped(_) => events.concat(),
            _ => body,
        }
    }

    /// Every fault of the events, and those of some bytes.
    fn all(events: &[Vec<u8>], step: usize) -> Vec<Self> {
        let (count, bytes) = (events.len(), events.concat().len());
        let mut faults: Vec<Self> = (0..count)
            .flat_map(|at| [Self::Lost(at), Self::Doubled(at)])
            .collect();
        faults.extend((0..count - 1).map(Self::Swapped));
        for at in (0..bytes - 1).step_by(step) {
            let kinds: [fn(usize) -> Self; 4] = [
                Self::ByteLost,
                Self::ByteDoubled,
                Self::BytesSwapped,
                Self::Ended,
            ];
            faults.push(kinds[at / step % kinds.len()](at));
        }
        faults
    }
}

/// Whether the dialect says nothing from which this fault could be seen.
///
/// A piece of a text stands nowhere else in chat completions, in messages, in Gemini and in
/// Bedrock: one that is lost, doubled or out of order leaves a stream like any other. So does a
/// byte that was changed within one event and leaves it well formed, except in Bedrock, whose
/// frames have checksums. The Responses API says all of it again.
fn has_no_witness(dialect: Dialect, told: &Told, fault: Fault, body: &[u8]) -> bool {
    let is_piece = |at: usize| told.holds[at] == Holds::Piece;
    let is_framed = matches!(dialect, Dialect::Anthropic | Dialect::Bedrock);
    match fault {
        Fault::Lost(at) => told.holds[at] != Holds::Frame,
        Fault::Doubled(at) => is_piece(at),
        // A piece is outside of its block, where blocks are told by their beginning and end.
        Fault::Swapped(at) if is_framed => is_piece(at) && is_piece(at + 1),
        Fault::Swapped(at) => told.holds[at..=at + 1] != [Holds::Frame; 2],
        Fault::ByteLost(_) | Fault::ByteDoubled(_) | Fault::BytesSwapped(_) => {
            dialect != Dialect::Bedrock && are_well_formed(body)
        }
        Fault::Ended(_) => false,
    }
}

/// Whether each event of a body is JSON, so that nothing shows that it was another.
fn are_well_formed(body: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(body) else {
        return false;
    };
    text.replace("\r\n", "\n").split("\n\n").all(|event| {
        let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = data.collect::<Vec<&str>>().join("\n");
        event.trim().is_empty()
            || data.trim() == "[DONE]"
            || serde_json::from_str::<serde_json::Value>(&data).is_ok()
    })
}

async fn held(
    upstream: &Upstream,
    providers: &Providers,
    told: &Told,
    body: &[u8],
) -> (Held, Seen) {
    upstream.push(stream(body));
    let seen = ask(providers, attempt_in(told.dialect, asking("Hi"))).await;
    (Held::of(&seen), seen)
}

/// Plays answers with every fault; `witnessed` is whether the dialect says all of it twice.
async fn no_fault_makes_another_answer(dialect: Dialect, step: usize, witnessed: bool) {
    let upstream = Upstream::start().await;
    let providers = providers(speaking(dialect, upstream.base_url()));
    let mut runner = TestRunner::new(Config::default());
    let (mut exact, mut refused, mut unseen) = (0, 0, 0);
    for _ in 0..ANSWERS {
        let told = told(dialect).new_tree(&mut runner).unwrap().current();
        let (whole, seen) = held(&upstream, &providers, &told, &told.events.concat()).await;
        assert!(
            seen.error.is_none() && whole.claims_to_be_whole(),
            "{told:?}: {seen:?}"
        );
        assert_eq!(whole.blocks, told.blocks, "{told:?}");
        for fault in Fault::all(&told.events, step) {
            let body = fault.befalls(&told.events);
            let (held, seen) = held(&upstream, &providers, &told, &body).await;
            let words = || {
                let body = String::from_utf8_lossy(&body).into_owned();
                format!("{dialect:?} {fault:?}\n{body}\n{seen:?}\nwhole: {whole:?}")
            };
            if held == whole {
                exact += 1;
            } else if seen.error.is_some() {
                assert_eq!(held.finish, None, "{}", words());
                refused += 1;
            } else if held.claims_to_be_whole() {
                let is_unseen = !witnessed && has_no_witness(dialect, &told, fault, &body);
                assert!(is_unseen, "another answer looks whole: {}", words());
                unseen += 1;
            }
        }
    }
    assert!(
        exact > 0 && refused > exact / 4,
        "{dialect:?}: {exact} exact, {refused} refused, {unseen} unseen"
    );
}

#[tokio::test]
async fn no_fault_of_a_numbered_response_makes_another_answer() {
    let _room = room().await;
    no_fault_makes_another_answer(Dialect::OpenaiResponses, 17, true).await;
}

#[tokio::test]
async fn no_fault_that_chat_completions_show_makes_another_answer() {
    let _room = room().await;
    no_fault_makes_another_answer(Dialect::OpenaiChat, 5, false).await;
}

#[tokio::test]
async fn no_fault_that_messages_show_makes_another_answer() {
    let _room = room().await;
    no_fault_makes_another_answer(Dialect::Anthropic, 5, false).await;
}

#[tokio::test]
async fn no_fault_that_gemini_shows_makes_another_answer() {
    let _room = room().await;
    no_fault_makes_another_answer(Dialect::Gemini, 3, false).await;
}

#[tokio::test]
async fn no_fault_that_bedrock_shows_makes_another_answer() {
    let _room = room().await;
    no_fault_makes_another_answer(Dialect::Bedrock, 7, false).await;
}

/// A server of one answer, whose first reply to each question is the one of its number.
fn failing_first(upstream: &Upstream, whole: Vec<u8>, broken: Vec<Vec<u8>>) {
    let asked = Mutex::new(HashSet::new());
    upstream.answering(move |request| {
        let body = request.body.to_string();
        let number = body.split("question ").nth(1).and_then(|rest| {
            let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next();
            digits?.parse::<usize>().ok()
        });
        let number = number.filter(|number| asked.lock().unwrap().insert(*number));
        stream(number.map_or(&whole, |number| &broken[number]))
    });
}

/// Asks through every protocol, with each of these faults in the first response.
async fn every_front_holds_the_answer_or_an_error(told: &Told, faults: &[Fault]) {
    let upstream = Upstream::start().await;
    let config = over("chat", &[(&upstream, told.dialect.as_str())]);
    let config = config.replace("api_key: k", "api_key: k, region: eu-test-1");
    let front = Front::start(&format!(
        "{config}circuit: {{ mode: off }}\nbudget: {{ enabled: false }}\n\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 20ms }} }} }} }}\n"
    ))
    .await;
    let tools: Vec<&str> = told
        .blocks
        .iter()
        .filter_map(|(kind, ..)| match kind {
            BlockKind::ToolCall { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let (mut exact, mut refused) = (0, 0);
    for way in FRONTS {
        let broken = faults.iter().map(|fault| fault.befalls(&told.events));
        failing_first(&upstream, told.events.concat(), broken.collect());
        let whole = asked(&front, way, "the whole", &tools).await;
        let whole = held_at(way, &whole).unwrap_or_else(|| panic!("{way:?}: {whole:?}"));
        for (number, fault) in faults.iter().enumerate() {
            let answer = asked(&front, way, &format!("question {number}"), &tools).await;
            match held_at(way, &answer) {
                Some(held) => {
                    assert_eq!(held, whole, "{fault:?} {way:?}: {answer:?}\n{told:?}");
                    exact += 1;
                }
                None => refused += 1,
            }
        }
    }
    assert!(exact > refused, "{exact} exact, {refused} refused");
}

#[tokio::test]
async fn through_every_protocol_a_broken_response_becomes_the_answer_or_an_error() {
    let _room = room().await;
    let mut runner = TestRunner::new(Config::default());
    let words = words().new_tree(&mut runner).unwrap().current();
    for is_numbered in [true, false] {
        let words = Words {
            is_numbered,
            ..words.clone()
        };
        let told = Told::of(Dialect::OpenaiResponses, &words);
        let faults = Fault::all(&told.events, 499);
        every_front_holds_the_answer_or_an_error(&told, &faults).await;
    }
}

#[tokio::test]
async fn through_every_protocol_a_cut_of_any_dialect_becomes_the_answer_or_an_error() {
    let _room = room().await;
    let mut runner = TestRunner::new(Config::default());
    for dialect in [
        Dialect::OpenaiChat,
        Dialect::Anthropic,
        Dialect::Gemini,
        Dialect::Bedrock,
    ] {
        let told = told(dialect).new_tree(&mut runner).unwrap().current();
        let bytes = told.events.concat().len();
        let faults: Vec<Fault> = (1..bytes).step_by(bytes / 8).map(Fault::Ended).collect();
        every_front_holds_the_answer_or_an_error(&told, &faults).await;
    }
}
