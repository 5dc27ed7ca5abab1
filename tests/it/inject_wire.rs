//! Notes in requests: their position by what is known of a model; they do not make a request fail.

use relight::internals::{
    domain::target::Dialect,
    grpc::v1::{
        Attempt, FailureClass, InjectionSkipReason, InvokeWithRecoveryResponse, ModelCall,
        RecoveryStrategy, ToolDefinition, invocation::Call, invoke_with_recovery_response::Outcome,
    },
    wire_server::answers,
};
use serde_json::{Value, json};

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Relight before these models, each a target of a server of its own, in this order.
async fn before(dialect: Dialect, policy: &str, servers: &[(&Upstream, &str)]) -> Relight {
    let (mut providers, mut targets, mut names) = (String::new(), String::new(), Vec::new());
    for (index, (upstream, model)) in servers.iter().enumerate() {
        let url = upstream.base_url();
        let url = if dialect == Dialect::Anthropic {
            url.trim_end_matches("/v1")
        } else {
            &url
        };
        let dialect = dialect.as_str();
        let provider =
            format!("{{ dialect: {dialect}, family: {dialect}, base_url: \"{url}\", api_key: k }}");
        providers = format!("{providers}  p{index}: {provider}\n");
        targets = format!("{targets}  t{index}: {{ provider: p{index}, model: {model} }}\n");
        names.push(format!("t{index}"));
    }
    Relight::start(&format!(
        "providers:\n{providers}targets:\n{targets}routes:\n  r: {{ targets: [{}] }}\ndefault_route: r\n\
         policies:\n  standard: {{ retry: {{ {policy} }} }}\n",
        names.join(", ")
    ))
    .await
}

async fn ask(relight: &Relight) -> InvokeWithRecoveryResponse {
    let mut invocation = asking("What is the weather?");
    if let Some(Call::Model(ModelCall { tools, .. })) = &mut invocation.call {
        tools.push(ToolDefinition {
            name: "weather".to_owned(),
            input_schema_json: "{\"type\":\"object\"}".to_owned(),
            ..ToolDefinition::default()
        });
    }
    relight.invoke(invocation).await
}

fn answered(response: &InvokeWithRecoveryResponse) -> bool {
    matches!(response.outcome, Some(Outcome::Completion(_)))
}

fn notes(attempts: &[Attempt]) -> Vec<bool> {
    attempts
        .iter()
        .map(|attempt| !attempt.injected_note.is_empty())
        .collect()
}

#[tokio::test]
async fn a_note_that_is_refused_is_left_out_once_more_and_never_sent_there_again() {
    let upstream = Upstream::start().await;
    let error = json!({"object": "error", "message": "Unexpected role 'system' after role 'user'", "code": 3230,
        "type": "invalid_request_message_order"});
    let broken = (answers::of(Dialect::OpenaiChat).broken_tool_call)("weather");
    upstream
        .push(broken.clone())
        .push(Reply::refusal(400, &[], &error))
        .push(Reply::text("Rain."));
    let relight = before(Dialect::OpenaiChat, "", &[(&upstream, "m")]).await;
    let response = ask(&relight).await;
    assert!(answered(&response), "{response:?}");
    assert_eq!(notes(&response.attempts), [false, true, false]);
    let strategies = [RecoveryStrategy::Retry, RecoveryStrategy::Adapt].map(i32::from);
    assert_eq!(response.recovery_applied, strategies);
    let changes: Vec<&str> = response
        .attempts
        .iter()
        .map(|attempt| attempt.adaptation.as_str())
        .collect();
    assert_eq!(
        changes,
        ["", "the note about earlier failures was left out", ""]
    );
    let seen: Vec<Value> = upstream
        .requests()
        .into_iter()
        .map(|request| request.body["messages"].clone())
        .collect();
    assert_eq!(
        seen[1].as_array().unwrap().len(),
        2,
        "the history and one note: {}",
        seen[1]
    );
    assert_eq!(
        seen[0], seen[2],
        "without the note, the history is as the caller wrote it"
    );

    upstream.push(broken).push(Reply::text("Rain."));
    let response = ask(&relight).await;
    assert!(answered(&response), "{response:?}");
    assert_eq!(notes(&response.attempts), [false, false]);
    assert_eq!(
        response.attempts[1].injection_skipped(),
        InjectionSkipReason::TargetRefused
    );
}

#[tokio::test]
async fn a_note_is_placed_where_this_model_accepts_it() {
    let said = |note: &str| json!({"type": "text", "text": note});
    let overridden = "claude-haiku-4-5, capabilities: { tail_system_message: true }";
    for (model, takes_system) in [
        ("claude-haiku-4-5", false),
        ("claude-opus-5-5", true),
        (overridden, true),
    ] {
        let upstream = Upstream::start().await;
        let answers = answers::of(Dialect::Anthropic);
        upstream.push((answers.broken_tool_call)("weather"));
        upstream.otherwise((answers.text)("Rain."));
        let relight = before(Dialect::Anthropic, "", &[(&upstream, model)]).await;
        let response = ask(&relight).await;
        assert!(answered(&response), "{response:?}");
        let note = response.attempts[1].injected_note.as_str();
        let question = json!({"type": "text", "text": "What is the weather?"});
        let messages = &upstream.requests()[1].body["messages"];
        let expected = if takes_system {
            json!([{"role": "user", "content": [question]}, {"role": "system", "content": [said(note)]}])
        } else {
            json!([{"role": "user", "content": [question, said(note)]}])
        };
        assert_eq!(*messages, expected, "{model}");
    }
}

#[tokio::test]
async fn a_refusal_fails_over_only_where_the_policy_allows_it() {
    let error = json!({"error": {"message": "The request was refused by the safety system.", "type": "invalid_request_error",
        "param": null, "code": "content_policy_violation"}});
    for (policy, expected) in [("", false), ("fallback_on_content_filter: true", true)] {
        let (upstream, spare) = (Upstream::start().await, Upstream::start().await);
        upstream.otherwise(Reply::refusal(400, &[], &error));
        let relight = before(
            Dialect::OpenaiChat,
            policy,
            &[(&upstream, "m"), (&spare, "n")],
        )
        .await;
        let response = ask(&relight).await;
        assert_eq!(
            (answered(&response), spare.requests().len()),
            (expected, usize::from(expected)),
            "{policy}"
        );
        assert_eq!(
            response.attempts[0].failure_class(),
            FailureClass::ContentFiltered
        );
        assert!(
            notes(&response.attempts).iter().all(|noted| !noted),
            "a refusal is never told"
        );
        assert_eq!(upstream.requests().len(), 1);
    }
}
