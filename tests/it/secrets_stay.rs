//! A provider's error may repeat the key that it was sent, and the prompt: neither leaves where it
//! may not.

use std::{fmt::Write as _, path::Path, time::Duration};

use relight::internals::grpc::v1::{
    GetInvocationRequest, GetStatusRequest, InvokeWithRecoveryRequest, ListTargetsRequest,
    StreamWithRecoveryRequest, WatchRecoveryRequest, get_invocation_request,
    invoke_with_recovery_response::Outcome, stream_with_recovery_request,
    watch_recovery_request::Start,
};
use serde_json::json;

use crate::support::{
    http::{metrics, post},
    otlp::OtlpReceiver,
    process::{KEY, Process, Serve, key, with_key},
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

const PROMPT: &str = "my-private-question";

/// A server whose provider repeats everything that it was sent.
async fn echoing(upstream: &Upstream, key: &str) -> Relight {
    upstream.answering(|request| {
        let key = request.header("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let prompt = request.texts_of("user").join(" ");
        let error = json!({"error": {"message": format!("key {key} may not say {prompt}"), "code": "invalid_request"}});
        Reply::body(400, &[("content-type", "application/json"), ("x-request-id", &key)], error.to_string().as_bytes())
    });
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: {key:?} }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\njournal: {{ store: memory }}\n",
        upstream.base_url()
    ))
    .await
}

#[tokio::test]
async fn a_key_of_any_shape_is_shown_to_none_and_a_prompt_to_its_caller_alone() {
    for key in ["sk-1234", "changeme", "Hunter2hunter2", "q\"uo/ted k"] {
        let upstream = Upstream::start().await;
        let server = echoing(&upstream, key).await;
        let mut watch = server.watch(Start::Live(true)).await;
        let response = server.invoke(asking(PROMPT)).await;
        assert_eq!(
            upstream.requests()[0].header("authorization"),
            Some(format!("Bearer {key}").as_str())
        );
        let Some(Outcome::Failure(failure)) = &response.outcome else {
            panic!("{response:?}")
        };
        assert!(
            failure.message.contains(PROMPT),
            "the caller gets the provider's words: {failure:?}"
        );
        watch.until("invocation_failed").await;
        let events = format!("{:?}", watch.seen);
        let record = format!("{:?}", server.get(&response.invocation_id).await);
        for shown in [format!("{response:?}"), record, events.clone()] {
            assert!(
                !shown.contains(key) && !shown.contains(&format!("{key:?}")),
                "{key}: {shown}"
            );
        }
        assert!(!events.contains(PROMPT), "{events}");
    }
}

/// The routes of [`leaky`], one for each shape of a secret, and the secrets, none of which looks
/// like one.
const ROUTES: [&str; 7] = [
    "openai",
    "named",
    "file",
    "gemini",
    "responses",
    "bedrock",
    "away",
];
const SECRETS: [&str; 12] = [
    "hunter-is-here",
    "head-of-the-token",
    "named-on-its-own",
    "from-a-file",
    "twins-in-the-sky",
    "replies-to-all",
    "rock-and-water",
    "query-of-the-day",
    "away-with-words",
    "collector-of-art",
    "stranger-at-the-door",
    KEY,
];

/// Providers of many shapes at one address, and one that cannot be reached.
fn leaky(upstream: &Upstream, receiver: &OtlpReceiver, folder: &Path) -> String {
    std::fs::write(folder.join("key"), "from-a-file\n").unwrap();
    let at = upstream.base_url();
    let mut text = format!(
        "  keys: [{}, {}]
journal: {{ store: \"sqlite:{}\", mode: strict }}
telemetry:
  otlp_endpoint: \"{}\"
  otlp_headers: {{ authorization: collector-of-art }}
  otlp_metrics: true
  log: {{ level: trace }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }} }} }} }}
circuit: {{ mode: 'off' }}
providers:
  openai:
    {{ dialect: openai_chat, base_url: \"{at}?code=query-of-the-day\", api_key: hunter-is-here,
      headers: {{ x-token: \"Bearer head-of-the-token\" }} }}
  named: {{ dialect: openai_chat, base_url: \"{at}\", credentials: {{ second: {{ api_key: named-on-its-own }} }} }}
  file: {{ dialect: anthropic, base_url: \"{at}\", api_key_file: {}/key }}
  gemini: {{ dialect: gemini, base_url: \"{at}\", api_key: twins-in-the-sky }}
  responses: {{ dialect: openai_responses, base_url: \"{at}\", api_key: replies-to-all }}
  bedrock: {{ dialect: bedrock, base_url: \"{at}\", region: eu-central-1, api_key: rock-and-water }}
  away: {{ dialect: openai_chat, base_url: \"http://127.0.0.1:9/v1?key=away-with-words\", api_key: hunter-is-here }}
",
        key("acme", KEY, ""),
        key("ops", "ops-key", ", admin: true"),
        folder.join("journal.db").display(),
        receiver.endpoint(),
        folder.display(),
    );
    let each = |line: &dyn Fn(&str) -> String| ROUTES.map(line).join(", ");
    let credential = |name: &str| {
        if name == "named" {
            ", credential: second"
        } else {
            ""
        }
    };
    let targets = each(&|name| {
        format!(
            "{name}: {{ provider: {name}, model: m{} }}",
            credential(name)
        )
    });
    let routes = each(&|name| format!("{name}: {{ targets: [{name}], deadline: 3s }}"));
    writeln!(
        text,
        "targets: {{ {targets} }}\nroutes: {{ {routes}, default: {{ targets: [openai] }} }}"
    )
    .unwrap();
    text
}

/// A reply that repeats the whole head of its request, in one of several places.
fn repeating(number: usize, head: &str) -> Reply {
    let error = json!({"type": "error", "error": {"message": head, "type": head, "code": head, "param": head}});
    let json = ("content-type", "application/json");
    match number % 5 {
        0 => Reply::body(
            400,
            &[json, ("x-request-id", head)],
            error.to_string().as_bytes(),
        ),
        1 => Reply::body(
            500,
            &[("content-type", "text/plain"), ("retry-after", head)],
            head.as_bytes(),
        ),
        2 => Reply::body(
            401,
            &[json, ("www-authenticate", head)],
            error.to_string().as_bytes(),
        ),
        3 => Reply::events(&[error.to_string()]),
        _ => Reply::body(200, &[json], head.as_bytes()),
    }
}

/// Calls each route in each way, and returns all that callers saw of it.
async fn called(server: &Process) -> String {
    let (mut client, mut seen) = (server.recovery(), String::new());
    for route in ROUTES {
        for _ in 0..3 {
            let mut invocation = asking("Hello");
            route.clone_into(&mut invocation.route);
            let request = InvokeWithRecoveryRequest {
                invocation: Some(invocation.clone()),
            };
            let response = client
                .invoke_with_recovery(with_key(KEY, request))
                .await
                .unwrap()
                .into_inner();
            let id = Some(get_invocation_request::Invocation::InvocationId(
                response.invocation_id.clone(),
            ));
            let record = client
                .get_invocation(with_key(KEY, GetInvocationRequest { invocation: id }))
                .await;
            writeln!(seen, "{response:?}\n{record:?}").unwrap();
            let start = Some(stream_with_recovery_request::Start::Invocation(invocation));
            let stream = client
                .stream_with_recovery(with_key(KEY, StreamWithRecoveryRequest { start }))
                .await;
            let mut stream = stream.unwrap().into_inner();
            while let Ok(Some(event)) = stream.message().await {
                writeln!(seen, "{event:?}").unwrap();
            }
            for given in [KEY, "stranger-at-the-door"] {
                let bearer = format!("Bearer {given}");
                let headers = [
                    ("authorization", bearer.as_str()),
                    ("content-type", "application/json"),
                ];
                let body =
                    json!({"model": route, "messages": [{"role": "user", "content": "Hello"}]})
                        .to_string();
                let came = post(
                    &server.front_address,
                    "/v1/chat/completions",
                    &headers,
                    false,
                    body.into_bytes(),
                )
                .await;
                writeln!(seen, "{came:?}").unwrap();
            }
        }
    }
    seen
}

/// All events since the server started.
async fn events_of(server: &Process) -> String {
    let request = WatchRecoveryRequest {
        filter: None,
        start: Some(Start::FromStart(true)),
    };
    let mut watch = server
        .recovery()
        .watch_recovery(with_key("ops-key", request))
        .await
        .unwrap()
        .into_inner();
    let mut events = String::new();
    while let Ok(Ok(Some(event))) =
        tokio::time::timeout(Duration::from_secs(2), watch.message()).await
    {
        writeln!(events, "{event:?}").unwrap();
    }
    events
}

/// What an operator sees of the server.
async fn status_of(server: &Process) -> String {
    let mut admin = server.admin();
    let status = admin
        .get_status(with_key("ops-key", GetStatusRequest::default()))
        .await
        .unwrap();
    let targets = admin
        .list_targets(with_key("ops-key", ListTargetsRequest::default()))
        .await
        .unwrap();
    format!(
        "{status:?}{targets:?}\n{}\n",
        metrics(&server.admin_address).await
    )
}

/// All files of the journal.
fn journal_in(folder: &Path) -> String {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let journal: Vec<u8> = files
        .filter(|file| !file.ends_with("key"))
        .flat_map(|file| std::fs::read(file).unwrap())
        .collect();
    String::from_utf8_lossy(&journal).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_any_shape_is_in_journal_telemetry_log_events_or_responses() {
    let (upstream, receiver) = (Upstream::start().await, OtlpReceiver::start().await);
    let number = std::sync::atomic::AtomicUsize::new(0);
    upstream.answering(move |request| {
        let fields = request
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let head = format!("{} {}", request.path, fields.collect::<Vec<_>>().join(", "));
        repeating(
            number.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            &head,
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::with_front(&leaky(&upstream, &receiver, folder.path()));
    let server = server
        .env("OTEL_METRIC_EXPORT_INTERVAL", "500")
        .start()
        .await;
    let seen = called(&server).await;
    let events = events_of(&server).await;
    let status = status_of(&server).await;
    let exported = async {
        while receiver.metrics().is_empty() || receiver.spans().is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), exported)
        .await
        .expect("nothing is exported");
    let log: Vec<String> = server.log().iter().map(ToString::to_string).collect();
    assert!(
        log.iter()
            .any(|line| line.contains("hyper") || line.contains("h2")),
        "libraries are not in the log"
    );
    let journal = journal_in(folder.path());
    assert!(
        journal.contains("openai") && events.contains("InvocationFailed"),
        "nothing was kept"
    );

    let sent: Vec<String> = upstream
        .requests()
        .iter()
        .map(|request| format!("{request:?}"))
        .collect();
    let sent = sent.join("\n");
    for secret in SECRETS {
        let goes_out = ![
            "away-with-words",
            "collector-of-art",
            "stranger-at-the-door",
            KEY,
        ]
        .contains(&secret);
        assert_eq!(
            sent.contains(secret),
            goes_out,
            "what is sent to providers: {secret}"
        );
        let places = [
            ("responses", &seen),
            ("journal", &journal),
            ("events", &events),
            ("admin", &status),
            ("telemetry", &receiver.exports()),
            ("log", &log.join("\n")),
        ];
        for (place, text) in places {
            if let Some(at) = text.find(secret) {
                let (from, to) = (
                    text.floor_char_boundary(at.saturating_sub(400)),
                    text.ceil_char_boundary(at + 100),
                );
                panic!("{place} shows {secret}: {}", &text[from..to]);
            }
        }
    }
}
