//! Answers that the model's output limit cut: gone on with, made shorter, or passed on.

use super::harness::{Ask, Client, engine_able, engine_with, replica, tenant, usual};
use crate::{
    domain::{
        completion::FinishReason,
        failure::FailureClass,
        invocation::{AttemptCause, Outcome, RecoveryStrategy},
    },
    execution::InvocationName,
};

const ABLE: &str = ", capabilities: { assistant_prefill: true }";

/// Returns a text of more than 256 bytes, which begins otherwise than the other parts and ends with
/// its number.
fn part(number: usize) -> String {
    let begins = if number == 1 {
        "It began."
    } else {
        " Then it went its way."
    };
    format!(
        "{begins} {}part {number}.",
        "A sentence of a long text. ".repeat(12)
    )
}

fn cut(number: usize) -> String {
    format!(
        "{{ answer: {{ text: {:?}, finish: length }} }}",
        part(number)
    )
}

fn whole(number: usize) -> String {
    format!("{{ answer: {{ text: {:?} }} }}", part(number))
}

fn script(steps: &[String], otherwise: &str) -> String {
    format!(
        "{{ steps: [{}], otherwise: {otherwise} }}",
        steps.join(", ")
    )
}

async fn played(script: &str, able: &str) -> (Client, Outcome) {
    let engine = engine_able(script, able);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut started = Ask::new("Tell me.").start(&here).await.unwrap();
    let mut client = Client::default();
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    let outcome = client.outcome.clone().unwrap();
    (client, outcome)
}

fn finish(outcome: &Outcome) -> FinishReason {
    outcome.result.as_ref().unwrap().finish
}

#[tokio::test(start_paused = true)]
async fn a_text_that_its_output_limit_cut_is_gone_on_with_and_reads_as_one() {
    let (client, outcome) = played(&script(&[cut(1), cut(2)], &whole(3)), ABLE).await;
    assert_eq!(client.answer(), part(1) + &part(2) + &part(3));
    assert_eq!((client.rewinds, client.fold.blocks().len()), (0, 1));
    assert_eq!(finish(&outcome), FinishReason::Stop);
    assert_eq!(
        outcome
            .attempts
            .iter()
            .filter(|one| one.cause == AttemptCause::Extend)
            .count(),
        2
    );
    assert_eq!(outcome.recovery_applied, [RecoveryStrategy::Continue]);
    assert_eq!(outcome.history_patch.messages.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_text_is_gone_on_with_three_times_at_most() {
    let steps: Vec<String> = (1..=9).map(cut).collect();
    let (client, outcome) = played(&script(&steps, &whole(10)), ABLE).await;
    assert_eq!(client.answer(), (1..=4).map(part).collect::<String>());
    assert_eq!(
        (finish(&outcome), outcome.attempts.len()),
        (FinishReason::Length, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_go_on_is_not_asked_to() {
    let (client, outcome) = played(
        &script(&[cut(1)], &whole(2)),
        ", capabilities: { assistant_prefill: false }",
    )
    .await;
    assert_eq!(client.answer(), part(1));
    assert_eq!(
        (finish(&outcome), outcome.attempts.len()),
        (FinishReason::Length, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_leaves_what_is_there() {
    for failure in [
        "{ status: { code: 503 } }",
        "{ status: { code: 401 } }",
        "{ answer: { text: '' } }",
    ] {
        let (client, outcome) =
            played(&script(&[cut(1), failure.to_owned()], &whole(2)), ABLE).await;
        assert_eq!(client.answer(), part(1), "{failure}");
        assert_eq!(
            (finish(&outcome), client.rewinds),
            (FinishReason::Length, 0),
            "{failure}"
        );
        assert!(outcome.attempts[1].failure.is_some(), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_breaks_off_goes_on_where_it_broke() {
    let broken = format!("{{ cut: {{ after_text: {:?} }} }}", part(2));
    let (client, outcome) = played(&script(&[cut(1), broken], &whole(3)), ABLE).await;
    assert_eq!(client.answer(), part(1) + &part(2) + &part(3));
    assert_eq!((finish(&outcome), client.rewinds), (FinishReason::Stop, 0));
}

#[tokio::test(start_paused = true)]
async fn an_operator_may_have_it_made_shorter_instead_or_passed_on() {
    let script = script(&[cut(1)], "{ answer: { text: Short. } }");
    for (policy, answer, attempts) in [("shorten", "Short.".to_owned(), 2), ("accept", part(1), 1)]
    {
        let engine = engine_with(&script, ABLE, &format!("on_length: {policy}"));
        let here = replica("a", &engine, &usual());
        let mut started = Ask::new("Tell me.").start(&here).await.unwrap();
        let mut client = Client::default();
        client
            .read(&mut started.follower, usize::MAX)
            .await
            .unwrap();
        assert_eq!(client.answer(), answer, "{policy}");
        let outcome = client.outcome.unwrap();
        assert_eq!(outcome.attempts.len(), attempts, "{policy}");
        let note = outcome
            .attempts
            .last()
            .and_then(|last| last.injection.note.clone())
            .unwrap_or_default();
        assert_eq!(note.contains("Be shorter"), policy == "shorten", "{note}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_the_caller_set_is_accepted() {
    let engine = engine_able(&script(&[cut(1)], &whole(2)), ABLE);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut incoming = Ask::new("Tell me.").resolved(&engine);
    let invocation = std::sync::Arc::make_mut(&mut incoming.invocation);
    let crate::domain::invocation::Call::Model(call) = &mut invocation.call else {
        panic!("a model is asked")
    };
    std::sync::Arc::make_mut(call).max_output_tokens = Some(50);
    let mut started = here.start(incoming).await.unwrap();
    let outcome = started.follower.outcome().await.unwrap();
    assert_eq!(
        (finish(&outcome), outcome.attempts.len()),
        (FinishReason::Length, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn breaks_end_after_three_recoveries_whether_more_comes_each_time_or_not() {
    let growing: Vec<String> = (1..=9)
        .map(|n| format!("{{ cut: {{ after_text: {:?} }} }}", "word ".repeat(n)))
        .collect();
    let (_, outcome) = played(&script(&growing, &whole(1)), "").await;
    assert_eq!(
        outcome.result.unwrap_err().class,
        FailureClass::StreamInterrupted
    );
    assert_eq!(
        outcome.attempts.len(),
        4,
        "one and three recoveries, though four retries are allowed"
    );
    let same: Vec<String> = (1..=9)
        .map(|_| "{ cut: { after_text: 'the same' } }".to_owned())
        .collect();
    let (_, outcome) = played(&script(&same, &whole(1)), "").await;
    assert_eq!(outcome.attempts.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_counted_survives_a_takeover() {
    // Unusable answers, each of which counts; the policy allows to try again four times.
    let unusable = "{ answer: { text: '' } }".to_owned();
    let stall = "{ stall: { after_text: 'Well' } }".to_owned();
    let script = script(&[unusable.clone(), unusable.clone(), stall], &unusable);
    let engine = engine_with(&script, "", "max_token_multiple: 100");
    let journal = usual();
    let here = replica("a", &engine, &journal);
    // So long that the notes to the model are within the bound of tokens.
    let prompt = "Hello, and tell me all. ".repeat(20);
    let started = Ask::new(&prompt).resumable().start(&here).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let steps = here.steps(&started.id, 100).await.unwrap();
    assert!(
        steps.iter().any(|one| one.attempt == 3),
        "the third attempt is under way: {steps:?}"
    );
    here.crash().await;
    let there = replica("b", &engine, &journal);
    let mut client = Client::default();
    client.finish(&there, &started.id).await;
    let outcome = client.outcome.unwrap();
    assert_eq!(
        outcome.result.as_ref().unwrap_err().class,
        FailureClass::MalformedResponse
    );
    assert_eq!(
        outcome.attempts.len(),
        6,
        "five, and the one that was lost with its replica: {outcome:?}"
    );
    assert!(
        outcome.reasoning.contains("All allowed attempts"),
        "it ended for their number: {}",
        outcome.reasoning
    );
    let record = there
        .find(&tenant(), &InvocationName::Id(started.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.epoch, 2);
    assert_eq!(journal.stats().await.unwrap().running, 0);
}
