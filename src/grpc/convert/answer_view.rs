//! Number of times that a response holds the model's completion: three times (a stream twice), or, if it
//! is long, once.

use super::violation::Violations;
use crate::{
    domain::{completion::BlockKind, fold::Block},
    grpc::v1,
};

/// Longest text that a response or stream repeats unless it was asked to, in bytes.
const REPEATED_BYTES: usize = 256 << 10;

/// Returns the view that a request for a completion asks for.
///
/// # Errors
/// A fault if the contract has no such view.
pub fn answer_view(wire: &v1::InvokeWithRecoveryRequest) -> Result<v1::AnswerView, Violations> {
    view_of(wire.invocation.as_ref())
}

/// Returns the view that a request for a stream asks for.
///
/// # Errors
/// When the contract has no such view.
pub fn stream_view(wire: &v1::StreamWithRecoveryRequest) -> Result<v1::AnswerView, Violations> {
    use v1::stream_with_recovery_request::Start;
    match &wire.start {
        Some(Start::Resume(resume)) => read("resume.answer_view", resume.answer_view),
        Some(Start::Invocation(invocation)) => view_of(Some(invocation)),
        None => Ok(v1::AnswerView::Unspecified),
    }
}

fn view_of(invocation: Option<&v1::Invocation>) -> Result<v1::AnswerView, Violations> {
    let number = invocation.map_or(0, |wire| wire.answer_view);
    read("invocation.answer_view", number)
}

fn read(field: &'static str, number: i32) -> Result<v1::AnswerView, Violations> {
    v1::AnswerView::try_from(number)
        .map_err(|_| Violations::of(field, "is no value that the contract has"))
}

/// Returns whether a view has a completion with so many bytes of text only once.
const fn is_once(view: v1::AnswerView, bytes: usize) -> bool {
    match view {
        v1::AnswerView::Unspecified => bytes > REPEATED_BYTES,
        v1::AnswerView::Once => true,
        v1::AnswerView::Repeated => false,
    }
}

/// Leaves the texts that a stream's blocks hold out of the model's turn in the history patch at its
/// end, if this view has a completion only once.
pub fn see_end(
    view: v1::AnswerView,
    blocks: &[Block],
    turn: Option<&v1::Message>,
    patch: &mut [v1::Message],
) {
    let blocks = blocks.iter().filter(|block| block.kind == BlockKind::Text);
    let texts: Vec<&str> = blocks.map(|block| block.text.as_str()).collect();
    let bytes = texts.iter().map(|text| text.len()).sum();
    let parts = turn.into_iter().flat_map(|turn| &turn.parts);
    let is_in_blocks = parts.filter_map(text_of).eq(texts);
    let turn = patch.iter_mut().rfind(|own| Some(&**own) == turn);
    if let Some(turn) = turn.filter(|_| is_in_blocks && is_once(view, bytes)) {
        leave_text_out(turn);
    }
}

fn text_of(part: &v1::Part) -> Option<&str> {
    match &part.content {
        Some(v1::part::Content::Text(text)) => Some(&text.text),
        _ => None,
    }
}

/// The response as this view has it.
#[must_use]
pub fn seen(
    view: v1::AnswerView,
    mut response: v1::InvokeWithRecoveryResponse,
) -> v1::InvokeWithRecoveryResponse {
    use v1::invoke_with_recovery_response::Outcome;
    let Some(Outcome::Completion(completion)) = &mut response.outcome else {
        return response;
    };
    let is_once = is_once(view, completion.text.len());
    let Some(message) = completion.message.take_if(|_| is_once) else {
        return response;
    };
    // The patch holds the model's turn as it is; if a thread keeps it, it may be changed.
    match response
        .history_patch
        .iter_mut()
        .rfind(|own| **own == message)
    {
        Some(turn) => leave_text_out(turn),
        None => completion.message = Some(message),
    }
    response
}

fn leave_text_out(turn: &mut v1::Message) {
    for part in &mut turn.parts {
        if let Some(v1::part::Content::Text(text)) = &mut part.content {
            part.left_out_bytes = text.text.len() as u64;
            text.text = String::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(texts: &[String]) -> v1::InvokeWithRecoveryResponse {
        let part = |text: &String| v1::Part {
            content: Some(v1::part::Content::Text(v1::TextPart { text: text.clone() })),
            ..v1::Part::default()
        };
        let turn = v1::Message {
            role: v1::Role::Assistant.into(),
            parts: texts.iter().map(part).collect(),
            ..v1::Message::default()
        };
        let completion = v1::Completion {
            message: Some(turn.clone()),
            text: texts.join("\n"),
            ..v1::Completion::default()
        };
        v1::InvokeWithRecoveryResponse {
            outcome: Some(v1::invoke_with_recovery_response::Outcome::Completion(
                completion,
            )),
            history_patch: vec![turn],
            ..v1::InvokeWithRecoveryResponse::default()
        }
    }

    /// Returns the patch with its texts in their places, as the contract tells clients to fill it.
    fn filled(response: &v1::InvokeWithRecoveryResponse) -> Vec<v1::Message> {
        let Some(v1::invoke_with_recovery_response::Outcome::Completion(completion)) =
            &response.outcome
        else {
            panic!("it is a completion")
        };
        let mut patch = response.history_patch.clone();
        let mut at = 0;
        for part in patch.iter_mut().flat_map(|turn| &mut turn.parts) {
            if let Some(v1::part::Content::Text(text)) = &mut part.content {
                let end = at + usize::try_from(part.left_out_bytes).unwrap();
                completion.text[at..end].clone_into(&mut text.text);
                (part.left_out_bytes, at) = (0, end + 1);
            }
        }
        patch
    }

    proptest! {
        #[test]
        fn what_is_held_once_is_all_of_it(texts in prop::collection::vec("[a-z\n\u{1f600}]{0,9}", 1..4)) {
            let whole = response(&texts);
            prop_assert_eq!(&seen(v1::AnswerView::Repeated, whole.clone()), &whole);
            prop_assert_eq!(&seen(v1::AnswerView::Unspecified, whole.clone()), &whole);
            let once = seen(v1::AnswerView::Once, whole.clone());
            prop_assert_eq!(filled(&once), whole.history_patch);
        }
    }

    #[test]
    fn a_long_answer_is_held_once_unless_it_is_asked_for_more() {
        use prost::Message as _;
        let long = response(&["long ".repeat(REPEATED_BYTES / 4)]);
        let bytes = |view| seen(view, long.clone()).encoded_len();
        let short = bytes(v1::AnswerView::Unspecified);
        let repeated = bytes(v1::AnswerView::Repeated);
        assert!(short < repeated / 3 + 1000, "{short} of {repeated}");
    }
}
