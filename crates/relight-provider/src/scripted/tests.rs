//! Tests of `scripted`, one for each guarantee.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;

use super::*;
use crate::domain::{
    adaptation::DialectOverrides,
    completion::{Delta, FinishReason},
    failure::{ProviderError, TransportFault},
    ids::InvocationId,
    invocation::TraceContext,
    message::{Message, Role},
    target::{Capabilities, Dialect, Target},
    upstream::BackgroundResponses,
    wire::{CompletionForm, SentTo},
};

fn player(yaml: &str) -> Player {
    let script: Script = serde_saphyr::from_str(yaml).unwrap();
    Player::new(script, StreamMode::default())
}

pub(crate) fn request(model: &str, texts: &[&str]) -> ProviderRequest {
    let target = Target {
        id: TargetId::from(model),
        provider: "embedded".into(),
        family: "scripted".into(),
        dialect: Dialect::Scripted,
        model: model.into(),
        credential: "".into(),
        endpoint: "".into(),
        capabilities: Capabilities::default(),
        system_prompt: None,
    };
    let messages = texts
        .iter()
        .map(|text| Message::text(Role::User, *text))
        .collect();
    ProviderRequest {
        tool: None,
        invocation: InvocationId::from("i"),
        attempt: 1,
        target: Arc::new(target),
        call: Arc::new(ModelCall {
            messages,
            ..ModelCall::default()
        }),
        wording: DialectOverrides::default(),
        form: CompletionForm::Whole,
        deadline: Instant::now() + Duration::from_mins(10),
        idle: None,
        trace: TraceContext::default(),
        sent_to: SentTo::default(),
        background: BackgroundResponses::default(),
        attach: None,
    }
}

/// Returns the deltas of one call, and its error.
async fn played(player: &Player, call: ProviderRequest) -> (Vec<Delta>, Option<ProviderError>) {
    let mut deltas = Vec::new();
    let mut stream = match player.answer(call).await {
        Ok(stream) => stream,
        Err(error) => return (deltas, Some(error)),
    };
    while let Some(next) = stream.next().await {
        match next {
            Ok(delta) => deltas.push(delta),
            Err(error) => return (deltas, Some(*error)),
        }
    }
    (deltas, None)
}

fn text_of(deltas: &[Delta]) -> String {
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::BlockDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_document_comes_whole_or_not_at_all() {
    let script =
        "steps: [{ answer: { text: \"All of it.\" } }, { cut: { after_text: \"Some of\" } }]";
    let player = player(script);
    let document = || ProviderRequest {
        form: CompletionForm::Document,
        ..request("m", &["Hi"])
    };
    let (deltas, error) = played(&player, document()).await;
    assert_eq!((text_of(&deltas).as_str(), error), ("All of it.", None));
    let (deltas, error) = played(&player, document()).await;
    let fault = error.and_then(|error| error.fault);
    assert_eq!((deltas, fault), (Vec::new(), Some(TransportFault::Cut)));
}

/// `ok`, the status, or the fault of each of the next calls.
async fn row(player: &Player, model: &str, calls: usize) -> Vec<String> {
    let mut row = Vec::new();
    for _ in 0..calls {
        row.push(match played(player, request(model, &["Hi"])).await {
            (_, None) => "ok".to_owned(),
            (
                _,
                Some(ProviderError {
                    fault: Some(fault), ..
                }),
            ) => format!("{fault:?}"),
            (_, Some(error)) => error
                .status
                .map(|status| status.to_string())
                .unwrap_or_default(),
        });
    }
    row
}

#[tokio::test]
async fn the_default_script_echoes_the_user_in_several_deltas() {
    let player = Player::new(Script::default(), StreamMode::default());
    let (deltas, error) = played(&player, request("m", &["What is a relight?"])).await;
    assert_eq!(error, None);
    assert!(text_of(&deltas).contains("What is a relight?"));
    assert!(
        deltas
            .iter()
            .filter(|delta| matches!(delta, Delta::BlockDelta { .. }))
            .count()
            > 3
    );
    assert!(matches!(
        deltas.last(),
        Some(Delta::Finish {
            reason: FinishReason::Stop,
            ..
        })
    ));
    assert!(
        deltas
            .iter()
            .any(|delta| matches!(delta, Delta::Usage(usage) if usage.input_tokens == 4))
    );
}

#[tokio::test]
async fn steps_are_played_in_order_for_each_target_on_its_own_and_then_otherwise() {
    let player = player(
        "steps: [{status: {code: 429, headers: {Retry-After: '1'}, body: {error: {message: slow}}}}, reset, crash]\n\
         models: {special: {steps: [{status: {code: 503}}], otherwise: {answer: {text: special}}}}",
    );
    assert_eq!(
        row(&player, "a", 5).await,
        ["429", "Reset", "ProcessExited", "ok", "ok"]
    );
    assert_eq!(row(&player, "special", 2).await, ["503", "ok"]);
    let (_, error) = played(&player, request("b", &["Hi"])).await;
    let error = error.unwrap();
    assert_eq!(error.header("retry-after"), Some("1"));
    assert_eq!(
        error.body.as_deref(),
        Some(r#"{"error":{"message":"slow"}}"#)
    );
}

#[tokio::test]
async fn a_model_that_is_informed_of_its_failure_behaves_differently() {
    let player = player(
        "otherwise: {when_told: {then: {answer: {text: fixed}}, otherwise: {malformed: tool_arguments}}}",
    );
    let (deltas, error) = played(&player, request("m", &["Hi"])).await;
    let error = error.unwrap();
    assert_eq!(error.fault, Some(TransportFault::Protocol));
    assert!(error.message.unwrap().contains("arguments are not JSON"));
    assert!(
        deltas
            .iter()
            .all(|delta| !matches!(delta, Delta::BlockStop { .. } | Delta::Finish { .. }))
    );
    for note in [
        "The previous model call failed: Request timeout. Adjust your approach — try a simpler action or different tool.",
        "The previous call failed: Request timeout. Adjust your approach.",
    ] {
        let (deltas, error) = played(&player, request("m", &["Hi", note])).await;
        assert_eq!(
            (text_of(&deltas).as_str(), error),
            ("fixed", None),
            "{note}"
        );
    }
}

#[tokio::test]
async fn an_answer_may_call_tools_and_then_has_no_text() {
    let player =
        player("otherwise: {answer: {tool_calls: [{name: f, arguments: {a: 1}}, {name: g}]}}");
    let (deltas, _) = played(&player, request("m", &["Hi"])).await;
    assert_eq!(text_of(&deltas), "{\"a\":1}{}");
    assert!(matches!(
        deltas.last(),
        Some(Delta::Finish {
            reason: FinishReason::ToolCalls,
            ..
        })
    ));
}

#[tokio::test]
async fn a_cut_answer_shows_its_text_and_no_finish() {
    let player = player("otherwise: {cut: {after_text: 'half an '}}");
    let (deltas, error) = played(&player, request("m", &["Hi"])).await;
    assert_eq!(text_of(&deltas), "half an ");
    assert_eq!(error.unwrap().fault, Some(TransportFault::Cut));
}

#[tokio::test(start_paused = true)]
async fn silence_lasts_for_ever() {
    let player = player("steps: [timeout, {stall: {after_text: begun}}]");
    let day = Duration::from_hours(24);
    assert!(
        tokio::time::timeout(day, player.answer(request("m", &["Hi"])))
            .await
            .is_err()
    );
    let mut stream = player.answer(request("m", &["Hi"])).await.unwrap();
    while let Some(next) = tokio::time::timeout(day, stream.next())
        .await
        .ok()
        .flatten()
    {
        assert!(!matches!(next, Ok(Delta::Finish { .. }) | Err(_)));
    }
    assert!(
        stream.next().now_or_never().is_none(),
        "a stalled stream must not end"
    );
}

#[tokio::test(start_paused = true)]
async fn words_come_at_the_configured_pace() {
    let player = player(
        "otherwise: {answer: {text: 'a b c d e', tokens_per_second: 10, first_token_after: 2s}}",
    );
    let began = Instant::now();
    let mut stream = player.answer(request("m", &["Hi"])).await.unwrap();
    let mut first = None;
    while let Some(next) = stream.next().await {
        if next.unwrap().is_content() && first.is_none() {
            first = Some(began.elapsed());
        }
    }
    let near = |time: Duration, millis: u128| time.as_millis().abs_diff(millis) <= 10;
    assert!(near(first.unwrap(), 2000), "{first:?}");
    assert!(near(began.elapsed(), 2400), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_token_is_late_by_that_time() {
    let player = player("otherwise: {slow_first_token: {after: 30s}}");
    let began = Instant::now();
    assert_eq!(row(&player, "m", 1).await, ["ok"]);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_outage_lasts_as_long_or_as_many_calls_as_configured() {
    let counted = player("outage: {attempts: 2, after_attempts: 1, step: reset}");
    assert_eq!(
        row(&counted, "m", 5).await,
        ["ok", "Reset", "Reset", "ok", "ok"]
    );
    let timed = player("outage: {for: 10s}");
    assert_eq!(row(&timed, "m", 3).await, ["503", "503", "503"]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(row(&timed, "m", 2).await, ["ok", "ok"]);
}

#[tokio::test]
async fn a_seed_gives_the_same_failures_and_another_seed_others() {
    let script = |seed: u32| {
        format!(
            "seed: {seed}\nprobabilities: [{{probability: 0.3, step: {{status: {{code: 500}}}}}}]"
        )
    };
    let row_of = async |seed| row(&player(&script(seed)), "m", 200).await;
    let first = row_of(1).await;
    assert_eq!(first, row_of(1).await);
    assert_ne!(first, row_of(2).await);
    let failures = first.iter().filter(|result| *result == "500").count();
    assert!((40..=80).contains(&failures), "{failures} of 200 at 0.3");
}

#[test]
fn an_unknown_key_in_a_script_is_refused() {
    for yaml in [
        "stepz: []",
        "otherwise: {answer: {txt: a}}",
        "otherwise: explode",
        "outage: {for: 5}",
    ] {
        assert!(serde_saphyr::from_str::<Script>(yaml).is_err(), "{yaml}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_script_of_the_documentation_plays() {
    let player = player(
        "outage: { for: 30s }\n\
         steps:\n  \
           - status: { code: 429, headers: { retry-after: \"1\" } }\n  \
           - when_told: { then: { answer: { text: fixed } }, otherwise: { malformed: tool_arguments } }\n\
         otherwise: { answer: { text: \"You said: {user}\", tokens_per_second: 50 } }\n",
    );
    assert_eq!(row(&player, "m", 1).await, ["503"]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(row(&player, "m", 2).await, ["429", "Protocol"]);
    assert_eq!(
        text_of(&played(&player, request("m", &["Hi"])).await.0),
        "You said: Hi"
    );
}

#[test]
fn the_schema_of_a_script_lists_its_keys() {
    let schema = serde_json::to_string(&schemars::schema_for!(Script)).unwrap();
    for word in [
        "tokens_per_second",
        "when_told",
        "slow_first_token",
        "after_attempts",
    ] {
        assert!(schema.contains(word), "{word}");
    }
}

#[test]
fn a_script_survives_being_written() {
    let script = Script::of(vec![Step::status(500), Step::Timeout, Step::answer("x")]);
    let json = serde_json::to_string(&script).unwrap();
    assert_eq!(serde_json::from_str::<Script>(&json).unwrap(), script);
}

proptest! {
    #[test]
    fn a_roll_of_the_dice_is_from_0_to_1(seed: u64, call: u32) {
        let rolled = roll(seed, &TargetId::from("t"), call);
        prop_assert!((0.0..1.0).contains(&rolled));
    }
}
