//! Values of the contract that depend on a provider, on a history or on the moment: each is sent
//! where it should be.

use std::time::Duration;

use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::target::Dialect,
    grpc::v1::{
        Attempt, AttemptState, GetStatusRequest, ImagePart, InjectionSkipReason, InjectionVehicle,
        InvocationState, InvokeWithRecoveryRequest, Message, ModelCall, Part, ReasoningPart,
        RequestDisposition, RewindMode, Role, ServiceState, StreamWithRecoveryRequest, TextPart,
        ToolCallPart, ToolContent, ToolDefinition, ToolResultPart, UsageExactness,
        WatchRecoveryRequest, admin_service_client::AdminServiceClient, image_part,
        invocation::Call, part::Content, recovery_event::Body, stream_with_recovery_request,
        tool_content, watch_recovery_request::Start,
    },
    server::{Listeners, Running, ServerOptions},
    wire_server::answers,
};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::support::{
    folding::{Folding, start},
    http::metrics,
    relight::{Relight, asking, streaming},
    targets::one_target,
    upstream::{Reply, Upstream},
};

fn message(role: Role, content: Content) -> Message {
    let part = Part {
        content: Some(content),
        ..Part::default()
    };
    Message {
        role: role.into(),
        parts: vec![part],
        ..Message::default()
    }
}

fn question() -> Vec<Message> {
    vec![message(
        Role::User,
        Content::Text(TextPart {
            text: "What is the weather?".to_owned(),
        }),
    )]
}

/// A question, a call of a tool, and its result.
fn after_a_tool(is_error: bool) -> Vec<Message> {
    let [id, name] = ["c1", "weather"].map(str::to_owned);
    let call = ToolCallPart {
        id: id.clone(),
        name,
        arguments_json: "{}".to_owned(),
    };
    let rain = ToolContent {
        content: Some(tool_content::Content::Text(TextPart {
            text: "Rain.".to_owned(),
        })),
        mcp_json: None,
    };
    let result = ToolResultPart {
        call_id: id,
        content: vec![rain],
        is_error,
        ..ToolResultPart::default()
    };
    let turns = [
        message(Role::Assistant, Content::ToolCall(call)),
        message(Role::Tool, Content::ToolResult(result)),
    ];
    question().into_iter().chain(turns).collect()
}

fn with_history(messages: Vec<Message>) -> relight::internals::grpc::v1::Invocation {
    let mut invocation = asking("");
    if let Some(Call::Model(ModelCall {
        messages: asked,
        tools,
        ..
    })) = &mut invocation.call
    {
        *asked = messages;
        let input_schema_json = "{\"type\":\"object\"}".to_owned();
        tools.push(ToolDefinition {
            name: "weather".to_owned(),
            input_schema_json,
            ..ToolDefinition::default()
        });
    }
    invocation
}

/// Relight before a server of this dialect, which always injects a note.
async fn noting(dialect: Dialect, upstream: &Upstream, capabilities: &str) -> Relight {
    let url = upstream.base_url();
    let url = if dialect == Dialect::OpenaiChat {
        &url
    } else {
        url.trim_end_matches("/v1")
    };
    let dialect = dialect.as_str();
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: {dialect}, family: other, base_url: \"{url}\", api_key: k }} }}\n\
         targets: {{ t: {{ provider: p, model: m, capabilities: {{ {capabilities} }} }} }}\n\
         policies: {{ standard: {{ injection: {{ mode: always }}, retry: {{ backoff: {{ base: 1ms, cap: 2ms }} }} }} }}\n"
    ))
    .await
}

#[tokio::test]
async fn a_note_has_the_place_that_the_dialect_and_the_history_give_it() {
    let cases = [
        (
            Dialect::Anthropic,
            question(),
            "tail_system_message: false",
            InjectionVehicle::TextPart,
        ),
        (
            Dialect::Anthropic,
            after_a_tool(false),
            "",
            InjectionVehicle::UserMessage,
        ),
        (
            Dialect::OpenaiChat,
            after_a_tool(true),
            "",
            InjectionVehicle::ToolResult,
        ),
        (
            Dialect::OpenaiChat,
            question(),
            "tail_system_message: true, developer_role: true",
            InjectionVehicle::DeveloperMessage,
        ),
        (
            Dialect::OpenaiChat,
            question(),
            "tail_system_message: true, developer_role: false",
            InjectionVehicle::SystemMessage,
        ),
    ];
    for (dialect, history, capabilities, expected) in cases {
        let upstream = Upstream::start().await;
        upstream
            .push(Reply::status(500))
            .otherwise((answers::of(dialect).text)("Rain."));
        let relight = noting(dialect, &upstream, capabilities).await;
        let mut watch = relight.watch(Start::Live(true)).await;
        relight.invoke(with_history(history)).await;
        let Some(Body::ContextInjected(injected)) = watch.until("context_injected").await.body
        else {
            unreachable!()
        };
        assert_eq!(injected.vehicle(), expected, "{dialect:?}, {capabilities}");
    }
}

#[tokio::test]
async fn an_attempt_without_a_note_reports_what_prevented_it() {
    let refusal = |status, code: &str| {
        Reply::refusal(
            status,
            &[],
            &json!({"error": {"message": code, "code": code}}),
        )
    };
    let yaml = |first: &Upstream, second: &Upstream| {
        let url = (first.base_url(), second.base_url());
        format!(
            "providers:\n  p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n  \
             q: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n\
             targets:\n  main: {{ provider: p, model: m, capabilities: {{ context_window_tokens: 8192 }} }}\n  \
             spare: {{ provider: q, model: n, capabilities: {{ context_window_tokens: 131072 }} }}\n\
             routes: {{ r: {{ targets: [main, spare] }} }}\n\
             policies: {{ standard: {{ retry: {{ fallback_on_content_filter: true }}, injection: {{ mode: always }} }} }}\n",
            url.0, url.1
        )
    };
    let reasoning = ReasoningPart {
        text: "Hm.".to_owned(),
    };
    let mut bare_reasoning = question();
    bare_reasoning.push(message(Role::Assistant, Content::Reasoning(reasoning)));
    let cases = [
        (
            refusal(400, "content_policy_violation"),
            question(),
            InjectionSkipReason::ContentPolicy,
        ),
        (
            refusal(400, "context_length_exceeded"),
            question(),
            InjectionSkipReason::ContextFull,
        ),
        (
            Reply::status(500),
            bare_reasoning,
            InjectionSkipReason::NoLegalPlace,
        ),
    ];
    for (first, history, expected) in cases {
        let (upstream, spare) = (Upstream::start().await, Upstream::start().await);
        upstream.push(first);
        let relight = Relight::start(&yaml(&upstream, &spare)).await;
        let mut watch = relight.watch(Start::Live(true)).await;
        let response = relight.invoke(with_history(history)).await;
        assert_eq!(
            response.attempts[1].injection_skipped(),
            expected,
            "{response:?}"
        );
        if expected == InjectionSkipReason::NoLegalPlace {
            watch.until("context_injection_skipped").await;
        }
    }
}

#[tokio::test]
async fn a_name_a_detail_and_strict_reach_a_provider_that_has_a_place_for_them() {
    let source = Some(image_part::Source::Data(vec![1]));
    let image = ImagePart {
        mime_type: "image/png".to_owned(),
        detail: "low".to_owned(),
        source,
    };
    let turn = Message {
        name: "ann".to_owned(),
        ..message(Role::User, Content::Image(image))
    };
    let mut invocation = with_history(vec![turn]);
    if let Some(Call::Model(ModelCall { tools, .. })) = &mut invocation.call {
        tools[0].strict = Some(true);
    }
    let chat = [
        ("/messages/0/name", json!("ann")),
        ("/messages/0/content/0/image_url/detail", json!("low")),
    ];
    let responses = [
        ("/input/0/content/0/detail", json!("low")),
        ("/tools/0/strict", json!(true)),
    ];
    for (dialect, fields) in [
        (
            Dialect::OpenaiChat,
            [&chat[..], &[("/tools/0/function/strict", json!(true))]].concat(),
        ),
        (Dialect::OpenaiResponses, responses.to_vec()),
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::status(400));
        let relight = noting(dialect, &upstream, "images: true").await;
        relight.invoke(invocation.clone()).await;
        let sent = upstream.requests()[0].body.clone();
        for (pointer, value) in fields {
            assert_eq!(sent.pointer(pointer), Some(&value), "{sent}");
        }
    }
}

#[tokio::test]
async fn a_watcher_that_fell_behind_receives_the_number_of_missed_events() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&format!(
        "{}events: {{ capacity: 16 }}\n",
        one_target(&upstream)
    ))
    .await;
    let mut watch = relight.watch(Start::Live(true)).await;
    relight.ask("Hello").await;
    let cursor = watch.until("invocation_succeeded").await.cursor;
    for _ in 0..20 {
        relight.ask("Hello").await;
    }
    let request = WatchRecoveryRequest {
        filter: None,
        start: Some(Start::After(cursor.clone())),
    };
    let mut late = relight
        .recovery()
        .watch_recovery(request)
        .await
        .unwrap()
        .into_inner();
    let missed = loop {
        match late.message().await.unwrap().unwrap().event.unwrap().body {
            Some(Body::Bookmark(_)) => {}
            Some(Body::Missed(missed)) => break missed,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        missed.count >= 20 && missed.from_cursor == cursor,
        "{missed:?}"
    );
    let scraped = metrics(relight.running.admin_address).await;
    let counted = scraped
        .lines()
        .find(|line| line.starts_with("relight_events_missed_total{reader=\"watch\"}"));
    assert!(
        counted.is_some_and(|line| !line.ends_with(" 0")),
        "{counted:?}"
    );
}

#[tokio::test]
async fn a_client_that_joins_when_the_beginning_is_no_longer_kept_gets_all_blocks_at_once() {
    let upstream = Upstream::start().await;
    let long = "a word and ".repeat(2_000);
    upstream.push(
        Reply::text(&long)
            .in_pieces_of(2_000)
            .paced(Duration::from_millis(10)),
    );
    let patient = one_target(&upstream).replace("400ms", "15s");
    let relight = Relight::start(&format!(
        "{patient}journal: {{ tail_bytes: 4KiB, payloads: none }}\n"
    ))
    .await;
    let mut invocation = streaming("Hello", RewindMode::Rewind);
    invocation.request_id = "same".to_owned();
    let mut first = start(relight.recovery(), invocation.clone()).await.unwrap();
    let mut begun = Folding::default();
    // Pieces that arrive together may come as one, so that their number says nothing.
    while begun.text().len() < long.len() * 3 / 4 {
        let status = begun.follow(&mut first, 1).await;
        assert!(status.is_none() && begun.terminal.is_none(), "{status:?}");
    }
    let (joined, ended) = Folding::all(relight.recovery(), invocation).await;
    assert!(ended.is_none(), "{ended:?}");
    assert!(
        joined.snapshots >= 1 && joined.text() == long,
        "{} snapshots",
        joined.snapshots
    );
}

#[tokio::test]
async fn a_request_that_runs_already_is_joined_and_marked_as_such() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::text("Once.").slow_head(Duration::from_millis(1_500)));
    let patient = one_target(&upstream).replace("400ms", "15s");
    let relight = Relight::start(&patient).await;
    let mut invocation = streaming("Hello", RewindMode::Rewind);
    invocation.request_id = "same".to_owned();
    let mut first = start(relight.recovery(), invocation.clone()).await.unwrap();
    let mut begun = Folding::default();
    begun.follow(&mut first, 2).await;
    let running = loop {
        // Steps are recorded behind the stream.
        let record = relight.get(&begun.invocation).await;
        if !record.attempts.is_empty() {
            break record;
        }
    };
    let attempts: Vec<AttemptState> = running.attempts.iter().map(Attempt::state).collect();
    assert_eq!(
        (running.state(), attempts),
        (InvocationState::Running, vec![AttemptState::Running])
    );
    let request = StreamWithRecoveryRequest {
        start: Some(stream_with_recovery_request::Start::Invocation(invocation)),
    };
    let mut second = relight
        .recovery()
        .stream_with_recovery(request)
        .await
        .unwrap()
        .into_inner();
    let mut joined = Folding::default();
    joined.follow(&mut second, 1).await;
    assert_eq!(
        joined.accepted.as_ref().unwrap().disposition(),
        RequestDisposition::Attached
    );
    joined.follow(&mut second, usize::MAX).await;
    assert_eq!(
        (joined.text().as_str(), upstream.requests().len()),
        ("Once.", 1)
    );
}

#[tokio::test]
async fn tokens_that_a_provider_only_estimates_are_reported_as_estimated() {
    let script = "{ otherwise: { answer: { text: Fine., usage: estimated } } }";
    let yaml = format!(
        "providers: {{ p: {{ dialect: scripted, script: {script} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}\n"
    );
    let usage = Relight::start(&yaml)
        .await
        .ask("Hello")
        .await
        .usage
        .unwrap();
    assert_eq!(usage.exactness(), UsageExactness::Estimated);
}

#[tokio::test]
async fn a_server_that_drains_reports_it_in_its_status() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::text("Late.").slow_head(Duration::from_secs(3)));
    let yaml = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\" }}\n{}",
        one_target(&upstream)
    );
    let loaded = load_text(&yaml, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let listeners = Listeners::bind(&loaded.config).await.unwrap();
    // With its pause between the report and the end of connections.
    let running = Running::start(&loaded, listeners, &ServerOptions::default())
        .await
        .unwrap();
    let channel = Channel::from_shared(format!("http://{}", running.address))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut calls =
        relight::internals::grpc::v1::recovery_service_client::RecoveryServiceClient::new(
            channel.clone(),
        );
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    };
    let mut call = JoinSet::new();
    call.spawn(async move { calls.invoke_with_recovery(request).await });
    upstream.await_request(1).await;
    let mut admin = AdminServiceClient::new(channel);
    let state = async |admin: &mut AdminServiceClient<Channel>| {
        admin
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
            .state()
    };
    assert_eq!(state(&mut admin).await, ServiceState::Healthy);
    let mut end = JoinSet::new();
    end.spawn(running.shutdown());
    while state(&mut admin).await != ServiceState::Draining {}
    assert!(
        call.join_next().await.unwrap().unwrap().is_ok(),
        "a call in flight is finished"
    );
    end.join_all().await;
}
