//! Tests of `call_ids`, one for each guarantee.

use proptest::prelude::*;

use super::*;
use crate::domain::message::{Role, ToolResult};

const FORMS: [IdForm; 4] = [
    IdForm::Visible(40),
    IdForm::Plain(64),
    IdForm::Nine,
    IdForm::Plain(9),
];

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "search".to_owned(),
        arguments: "{}".to_owned(),
        opaque: None,
    })
}

fn result(id: &str) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.to_owned(),
        name: "search".to_owned(),
        content: "rain".to_owned(),
        is_error: false,
    })
}

/// Returns a conversation of these turns, each with its calls and then their results.
fn conversation(turns: &[Vec<String>]) -> Vec<Message> {
    let both = turns.iter().flat_map(|ids| {
        [
            Message::new(Role::Assistant, ids.iter().map(|id| call(id)).collect()),
            Message::new(Role::Tool, ids.iter().map(|id| result(id)).collect()),
        ]
    });
    both.collect()
}

fn sent(turns: &[Vec<String>], form: IdForm) -> Vec<String> {
    Renamed::all(&conversation(turns), form, Dialect::Anthropic)
}

/// Ids as servers make them, with repetitions.
fn ids() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("call_1".to_owned()),
        "call_[0-9]",
        "[a-zA-Z0-9]{9}",
        "functions\\.[a-z]{3}:[0-9]",
        "[a-zA-Z0-9_-]{30,90}",
        "\\PC{0,80}",
    ]
}

proptest! {
    #[test]
    fn every_call_has_an_id_of_its_own_that_the_target_takes_and_its_result_has_the_same(
        turns in prop::collection::vec(prop::collection::vec(ids(), 1..4), 1..5)
    ) {
        for form in FORMS.into_iter().take(3) {
            let sent = sent(&turns, form);
            let mut seen = HashSet::new();
            let mut at = 0;
            for ids in &turns {
                let calls = &sent[at..at + ids.len()];
                let results = &sent[at + ids.len()..at + 2 * ids.len()];
                prop_assert_eq!(calls, results);
                for id in calls {
                    prop_assert!(form.takes(id), "{:?} {}", form, id);
                    prop_assert!(seen.insert(id.clone()), "{} twice", id);
                }
                at += 2 * ids.len();
            }
        }
    }

    #[test]
    fn an_id_stays_what_it_was_when_the_conversation_grows(
        turns in prop::collection::vec(prop::collection::vec(ids(), 1..4), 2..5)
    ) {
        for form in FORMS.into_iter().take(3) {
            let before = sent(&turns[..turns.len() - 1], form);
            let after = sent(&turns, form);
            prop_assert_eq!(&after[..before.len()], &before[..]);
        }
    }

    #[test]
    fn an_id_that_every_provider_takes_is_made_for_a_call_without_one(seed in ".{0,40}", salt in any::<u32>()) {
        let id = made(&seed, salt);
        prop_assert!(is_made(&id));
        for form in FORMS {
            prop_assert!(form.takes(&id), "{:?} {}", form, id);
        }
    }
}

#[test]
fn an_id_that_fits_is_sent_as_it_is() {
    let turns = [vec!["toolu_01-A".to_owned()], vec!["call_b".to_owned()]];
    for form in [IdForm::Visible(40), IdForm::Plain(64)] {
        assert_eq!(
            sent(&turns, form),
            ["toolu_01-A", "toolu_01-A", "call_b", "call_b"]
        );
    }
}
