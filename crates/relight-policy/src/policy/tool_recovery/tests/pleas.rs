//! A tool that asks for a person or for time is not said to have been given wrong arguments.

use super::{
    world::{World, failed},
    *,
};
use crate::domain::failure::FailureClass as C;

/// Returns what is explained of a refusal in these words, and done about it.
fn refused(class: C, words: &str) -> (ToolStep, String) {
    let mut world = World::reading();
    world.is_fresh = false;
    let step = world.decide(&Failure {
        message: words.to_owned(),
        ..failed(class)
    });
    let text = match &step {
        ToolStep::Explain { explanation } | ToolStep::Offer { explanation, .. } => {
            format!("{} {}", explanation.text(), explanation.operator_hint)
        }
        other => format!("{other:?}"),
    };
    (step, text)
}

#[test]
fn a_need_for_a_person_or_for_time_is_explained_as_that() {
    for (words, part) in [
        ("the tool requires input from a person", "a person"),
        ("Client does not support elicitation", "a person"),
        ("-32601: Method not found: elicitation/create", "a person"),
        (
            "this tool needs sampling, which the client does not have",
            "a person",
        ),
        (
            "User input required before the booking can go on",
            "a person",
        ),
        ("waiting for user confirmation", "a person"),
        ("The server is busy, try again later", "later"),
        ("busy: another export is still running", "later"),
    ] {
        for class in [C::InvalidRequest, C::NotFound] {
            let (step, text) = refused(class, words);
            assert!(
                matches!(step, ToolStep::Explain { .. }),
                "{words}: {step:?}"
            );
            assert!(text.contains(part), "{words}: {text}");
            for wrong in ["rgument", "schema", "exist"] {
                assert!(!text.contains(wrong), "{words}: {text}");
            }
        }
    }
}

#[test]
fn arguments_that_only_sound_like_it_are_arguments() {
    for words in [
        "invalid user input: `date` must be YYYY-MM-DD",
        "the sampling rate is required",
        "`busy` is not one of free, tentative",
        "unknown argument `elicitation`",
    ] {
        let (step, _) = refused(C::InvalidRequest, words);
        assert!(
            matches!(step, ToolStep::RefetchList { .. }),
            "{words}: {step:?}"
        );
    }
}
