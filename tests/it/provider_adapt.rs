//! What a target rejects about a request is changed once, and reported: over real sockets, through
//! the whole stack.

use relight::internals::{
    domain::target::Dialect,
    grpc::v1::{
        Attempt, AttemptCause, FailureClass, InvokeWithRecoveryResponse, Message, ModelCall,
        Opaque, Part, ReasoningPart, RecoveryStrategy, Role, Sampling, TextPart, invocation::Call,
        invoke_with_recovery_response::Outcome, part::Content, recovery_event::Body,
        watch_recovery_request::Start,
    },
    wire_server::answers,
};
use serde_json::{Value, json};

use crate::support::{
    front::{Front, question},
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Relight before one target of that dialect, and another one where `spare` is given.
async fn before(dialect: Dialect, upstream: &Upstream, spare: Option<&Upstream>) -> Relight {
    let url = |upstream: &Upstream| upstream.base_url().trim_end_matches("/v1").to_owned();
    let provider = |name: &str, upstream: &Upstream| {
        format!(
            "  {name}: {{ dialect: {}, family: f, base_url: \"{}\", api_key: k }}\n",
            dialect.as_str(),
            url(upstream)
        )
    };
    let mut yaml = format!("providers:\n{}", provider("p", upstream));
    yaml += &spare.map(|spare| provider("s", spare)).unwrap_or_default();
    yaml += "targets:\n  main: { provider: p, model: m, capabilities: { context_window_tokens: 8192 } }\n";
    if spare.is_some() {
        yaml +=
            "  spare: { provider: s, model: m, capabilities: { context_window_tokens: 131072 } }\n";
    }
    let targets = if spare.is_some() {
        "[main, spare]"
    } else {
        "[main]"
    };
    Relight::start(&format!(
        "{yaml}routes:\n  r: {{ targets: {targets} }}\ndefault_route: r\n"
    ))
    .await
}

fn refusal(message: &str, param: Option<&str>, code: &str) -> Reply {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Reply::refusal(400, &[], &json!({"error": error}))
}

fn no_temperature() -> Reply {
    let words = "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is \
                 supported.";
    refusal(words, Some("temperature"), "unsupported_value")
}

async fn ask(relight: &Relight, change: impl FnOnce(&mut ModelCall)) -> InvokeWithRecoveryResponse {
    let mut invocation = asking("Hi");
    if let Some(Call::Model(call)) = &mut invocation.call {
        change(call);
    }
    relight.invoke(invocation).await
}

fn daring(call: &mut ModelCall) {
    call.sampling = Some(Sampling {
        temperature: Some(0.5),
        ..Sampling::default()
    });
    call.max_output_tokens = Some(100);
}

fn answered(response: &InvokeWithRecoveryResponse) -> bool {
    matches!(response.outcome, Some(Outcome::Completion(_)))
}

fn changes(attempts: &[Attempt]) -> Vec<&str> {
    attempts
        .iter()
        .map(|attempt| attempt.adaptation.as_str())
        .collect()
}

#[tokio::test]
async fn an_unsupported_parameter_is_removed_once_and_reported_everywhere() {
    let upstream = Upstream::start().await;
    upstream.push(no_temperature());
    let relight = before(Dialect::OpenaiChat, &upstream, None).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let response = ask(&relight, daring).await;
    assert!(answered(&response), "{response:?}");
    assert_eq!(
        response.recovery_applied,
        [i32::from(RecoveryStrategy::Adapt)]
    );
    assert_eq!(
        changes(&response.attempts),
        ["temperature was left out", ""]
    );
    assert_eq!(response.attempts[1].cause(), AttemptCause::Adapt);
    assert!(
        response
            .reasoning
            .ends_with("To fit the model, temperature was left out."),
        "{}",
        response.reasoning
    );
    let Some(Body::RecoveryAttempted(told)) = watch.until("recovery_attempted").await.body else {
        panic!("no recovery")
    };
    assert_eq!(told.adaptation, "temperature was left out");
    assert!(
        told.display_text.ends_with("; temperature was left out"),
        "{}",
        told.display_text
    );
    let seen: Vec<Value> = upstream
        .requests()
        .into_iter()
        .map(|request| request.body)
        .collect();
    assert_eq!(
        (&seen[0]["temperature"], &seen[1]["temperature"]),
        (&json!(0.5), &Value::Null)
    );
    let mut without = seen[0].clone();
    without.as_object_mut().unwrap().remove("temperature");
    assert_eq!(seen[1], without, "nothing else changed");
}

#[tokio::test]
async fn a_change_is_made_at_most_once_and_another_one_may_follow_within_the_cap() {
    let upstream = Upstream::start().await;
    upstream.otherwise(no_temperature());
    let relight = before(Dialect::OpenaiChat, &upstream, None).await;
    let response = ask(&relight, daring).await;
    assert!(!answered(&response));
    assert_eq!(
        upstream.requests().len(),
        2,
        "the same change is not made twice"
    );

    let upstream = Upstream::start().await;
    let renamed = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    upstream
        .push(refusal(
            renamed,
            Some("max_tokens"),
            "unsupported_parameter",
        ))
        .push(no_temperature());
    let relight = before(Dialect::OpenaiChat, &upstream, None).await;
    let response = ask(&relight, daring).await;
    assert!(answered(&response), "{response:?}");
    let told = [
        "the output limit was sent as max_completion_tokens",
        "temperature was left out",
        "",
    ];
    assert_eq!(changes(&response.attempts), told);
    let last = &upstream.requests()[2].body;
    assert_eq!(
        (&last["max_completion_tokens"], &last["max_tokens"]),
        (&json!(100), &Value::Null)
    );
}

#[tokio::test]
async fn what_was_changed_for_one_target_is_not_changed_for_another() {
    let (upstream, spare) = (Upstream::start().await, Upstream::start().await);
    upstream.push(no_temperature()).push(Reply::status(503));
    upstream.otherwise(Reply::status(503));
    let relight = before(Dialect::OpenaiChat, &upstream, Some(&spare)).await;
    let response = ask(&relight, daring).await;
    assert_eq!(
        (answered(&response), response.final_target.as_str()),
        (true, "spare"),
        "{response:?}"
    );
    assert_eq!(spare.requests()[0].body["temperature"], json!(0.5));
}

#[tokio::test]
async fn without_retries_nothing_is_changed() {
    let upstream = Upstream::start().await;
    upstream.otherwise(no_temperature());
    let yaml = format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\ntargets:\n  main: {{ provider: p, model: m \
         }}\nroutes:\n  r: {{ targets: [main], policy: none }}\ndefault_route: r\n",
        upstream.base_url()
    );
    let response = ask(&Relight::start(&yaml).await, daring).await;
    assert_eq!((answered(&response), upstream.requests().len()), (false, 1));
    assert_eq!(
        response.attempts[0].failure_class,
        i32::from(FailureClass::InvalidRequest)
    );
}

#[tokio::test]
async fn an_overflow_goes_to_the_larger_window_and_only_without_one_gets_a_shorter_answer() {
    let words = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the \
                 messages, 8000 in the completion). Please reduce the length of the messages or completion.";
    let overflow = || refusal(words, Some("messages"), "context_length_exceeded");
    let long = |call: &mut ModelCall| call.max_output_tokens = Some(8000);
    let (upstream, spare) = (Upstream::start().await, Upstream::start().await);
    upstream.otherwise(overflow());
    let relight = before(Dialect::OpenaiChat, &upstream, Some(&spare)).await;
    let response = ask(&relight, long).await;
    assert_eq!(
        (answered(&response), response.final_target.as_str()),
        (true, "spare"),
        "{response:?}"
    );
    assert_eq!(
        (
            upstream.requests().len(),
            &spare.requests()[0].body["max_tokens"]
        ),
        (1, &json!(8000))
    );

    let upstream = Upstream::start().await;
    upstream.push(overflow());
    let relight = before(Dialect::OpenaiChat, &upstream, None).await;
    let response = ask(&relight, long).await;
    assert!(answered(&response), "{response:?}");
    assert_eq!(
        changes(&response.attempts),
        ["the output limit was lowered from 8000 to 7192 tokens", ""]
    );
    assert_eq!(upstream.requests()[1].body["max_tokens"], json!(7192));
}

#[tokio::test]
async fn reasoning_whose_signature_is_refused_is_left_out_once_and_no_key_is_blamed() {
    let upstream = Upstream::start().await;
    let words = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let error = json!({"type": "invalid_request_error", "message": words});
    upstream.push(Reply::refusal(
        400,
        &[],
        &json!({"type": "error", "error": error}),
    ));
    upstream.otherwise((answers::of(Dialect::Anthropic).text)("Fine."));
    let relight = before(Dialect::Anthropic, &upstream, None).await;
    let response = ask(&relight, |call| {
        let opaque = vec![Opaque {
            kind: "anthropic.signature".to_owned(),
            data: b"c2ln".to_vec(),
            ..Opaque::default()
        }];
        let part = |content, opaque| Part {
            content: Some(content),
            opaque,
            ..Part::default()
        };
        let thought = part(
            Content::Reasoning(ReasoningPart {
                text: "hm".to_owned(),
            }),
            opaque,
        );
        let text = |text: &str| {
            part(
                Content::Text(TextPart {
                    text: text.to_owned(),
                }),
                Vec::new(),
            )
        };
        let turn = |role: Role, parts| Message {
            role: role.into(),
            parts,
            ..Message::default()
        };
        call.messages
            .push(turn(Role::Assistant, vec![thought, text("So.")]));
        call.messages.push(turn(Role::User, vec![text("Go on.")]));
    })
    .await;
    assert!(answered(&response), "{response:?}");
    assert_eq!(
        response.attempts[0].failure_class,
        i32::from(FailureClass::InvalidRequest)
    );
    let turns: Vec<Value> = upstream
        .requests()
        .iter()
        .map(|request| request.body["messages"][1]["content"].clone())
        .collect();
    assert_eq!(turns[0][0]["type"], "thinking");
    assert_eq!(turns[1], json!([{"type": "text", "text": "So."}]));
    assert_eq!(
        changes(&response.attempts),
        [
            "signed reasoning and unknown fields of earlier turns were left out",
            ""
        ]
    );
}

#[tokio::test]
async fn callers_of_the_front_see_the_change_in_a_header() {
    let upstream = Upstream::start().await;
    let front = Front::start(&format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\ntargets:\n  main: {{ provider: p, model: m \
         }}\nroutes:\n  r: {{ targets: [main] }}\n",
        upstream.base_url()
    ))
    .await;
    for stream in [false, true] {
        upstream.push(no_temperature());
        let mut body = question("r", stream);
        body["temperature"] = json!(0.5);
        let answer = front.chat(&body).await;
        assert!(answer.succeeded_with("Hello from upstream."), "{answer:?}");
        assert_eq!(
            answer.header("x-relight-adapted"),
            Some("temperature was left out"),
            "{answer:?}"
        );
    }
    let plain = front.ask("r", true).await;
    assert_eq!(plain.header("x-relight-adapted"), None, "{plain:?}");
}
