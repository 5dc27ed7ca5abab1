//! Commands that talk to a server: what people read on the terminal, and what programs read.

use std::time::Duration;

use relight::internals::grpc::v1::GetStatusRequest;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{
    binary::{relight, run, run_with},
    http::closed_address,
    relight::Relight,
};

/// Longest time that a watch may take to come to a point.
const PATIENCE: Duration = Duration::from_secs(20);

/// A model that hangs until it gets a note, one whose credit is gone, and one that accepts no
/// request.
const CONFIG: &str = r#"
providers:
  stage:
    dialect: scripted
    script:
      models:
        dreamer:
          otherwise:
            when_told: { then: { answer: { text: "Told, and awake." } }, otherwise: timeout }
        picky:
          otherwise: { status: { code: 400, body: { error: { type: invalid_request_error, message: "temperature is too high" } } } }
  # On its own: a spent credit closes the gate of its credential.
  bank:
    dialect: scripted
    script:
      models:
        broke:
          otherwise:
            status: { code: 429, body: { error: { code: insufficient_quota, message: "You exceeded your current quota" } } }
targets:
  dreamer: { provider: stage, model: dreamer }
  broke: { provider: bank, model: broke }
  picky: { provider: stage, model: picky }
routes:
  default: { targets: [dreamer] }
  quota: { targets: [broke] }
  picky: { targets: [picky] }
timers: { first_token: 100ms, first_token_alone: 100ms, soft_first_token: 0ms }
policies: { standard: { retry: { backoff: { base: 10ms } } } }
"#;

async fn served() -> (Relight, String) {
    let server = Relight::start(CONFIG).await;
    let address = format!("http://{}", server.running.address);
    (server, address)
}

#[tokio::test]
async fn invoke_answers_on_standard_output_and_shows_retries_on_standard_error() {
    let (_server, address) = served().await;
    let ran = run_with(&["invoke", "--address", &address], "Are you awake?").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Told, and awake.\n"),
        "{}",
        ran.err
    );
    let shown: Vec<&str> = ran.err.lines().collect();
    assert!(
        shown
            .iter()
            .any(|line| line.starts_with("Retrying")
                && line.contains("(attempt 1/2): Request timeout")),
        "{}",
        ran.err
    );
    assert_eq!(
        shown.last(),
        Some(&"Recovered by retry: attempt 2 answered, by dreamer.")
    );
}

#[tokio::test]
async fn invoke_without_an_answer_prints_hints_and_every_attempt_and_exits_with_code_1() {
    let (_server, address) = served().await;
    let ran = run(&[
        "invoke",
        "--address",
        &address,
        "--route",
        "quota",
        "Who pays?",
    ])
    .await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(
        ran.err
            .contains("quota_exceeded (LLM_ERROR): You exceeded your current quota"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("\nHint: "), "{}", ran.err);
    let row = ran
        .err
        .lines()
        .find(|line| line.starts_with("1  broke"))
        .unwrap();
    assert!(
        row.contains("first") && row.contains("quota_exceeded"),
        "{row}"
    );

    let ran = run(&[
        "invoke",
        "--address",
        &address,
        "--route",
        "picky",
        "--output",
        "json",
        "Who pays?",
    ])
    .await;
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, &told["failure"]["failure_class"]),
        (Some(1), &"FAILURE_CLASS_INVALID_REQUEST".into())
    );
    assert_eq!(ran.err, "");
}

#[tokio::test]
async fn a_refusal_of_the_server_is_printed_with_every_detail_and_the_nearest_name() {
    let (_server, address) = served().await;
    let ran = run(&[
        "invoke",
        "--address",
        &address,
        "--route",
        "qouta",
        "Who pays?",
    ])
    .await;
    let expected =
        "relight: there is no route `qouta`; did you mean `quota`? (NotFound, ROUTE_NOT_FOUND)\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), expected));
    let ran = run(&[
        "invoke",
        "--address",
        &address,
        "--max-retries",
        "50",
        "--deadline",
        "0s",
        "Who pays?",
    ])
    .await;
    assert_eq!(ran.code, Some(1));
    for field in [
        "\n  invocation.overrides.max_retries ",
        "\n  invocation.overrides.deadline_ms ",
    ] {
        assert!(ran.err.contains(field), "{}", ran.err);
    }
}

#[tokio::test]
async fn watch_prints_what_happens_one_event_a_line() {
    let (server, address) = served().await;
    server.ask("Are you awake?").await;
    let arguments = [
        "watch",
        "--address",
        &address,
        "--from-start",
        "--output",
        "json",
    ];
    let mut child = relight(&arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut events: Vec<Value> = Vec::new();
    let reading = async {
        while events
            .last()
            .is_none_or(|event| event["invocation_recovered"].is_null())
        {
            events.push(serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    child.kill().await.unwrap();
    let recovery = events
        .iter()
        .find(|event| event["recovery_attempted"].is_object())
        .unwrap();
    let text = recovery["recovery_attempted"]["display_text"]
        .as_str()
        .unwrap();
    assert!(text.contains("(attempt 1/2): Request timeout"), "{text}");
    assert!(
        events.iter().all(|event| event["cursor"].is_string()),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_watch_that_breaks_is_reported_and_resumed() {
    let (server, address) = served().await;
    let mut child = relight(&[
        "watch",
        "--address",
        &address,
        "--type",
        "invocation_recovered",
    ])
    .spawn()
    .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    let standing = async {
        while server
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
            .watchers
            == 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, standing).await.unwrap();
    let listen = server.running.address;
    server.running.shutdown().await;
    let told = tokio::time::timeout(PATIENCE, err.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(told.starts_with("The watch broke ("), "{told}");

    let config =
        format!("server: {{ listen: \"{listen}\", admin_listen: \"127.0.0.1:0\" }}\n{CONFIG}");
    let server = Relight::start_whole(&config).await;
    let asking_until_seen = async {
        loop {
            // The watch reconnects after its own wait, and sends only what happens from then on.
            server.ask("Are you awake?").await;
            if let Ok(line) =
                tokio::time::timeout(Duration::from_millis(300), out.next_line()).await
            {
                return line.unwrap().unwrap();
            }
        }
    };
    let line = tokio::time::timeout(PATIENCE, asking_until_seen)
        .await
        .unwrap();
    assert!(line.contains("the server was started anew"), "{line}");
    let line = tokio::time::timeout(PATIENCE, out.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(line.contains("recovered: answered by attempt 2"), "{line}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn circuits_are_listed_held_open_and_reset() {
    let (_server, address) = served().await;
    let ran = run(&["circuits", "--address", &address]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let first: Vec<&str> = ran
        .out
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(first, ["TARGET", "broke", "dreamer", "picky"]);

    let ran = run(&[
        "circuits",
        "--address",
        &address,
        "force",
        "broke",
        "open",
        "--reason",
        "no credit",
    ])
    .await;
    assert_eq!(
        ran.out, "The circuit of broke is forced open.\n",
        "{}",
        ran.err
    );
    let ran = run(&[
        "circuits",
        "list",
        "--address",
        &address,
        "--output",
        "json",
    ])
    .await;
    let listed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        listed["targets"][0]["circuit"]["state"],
        "CIRCUIT_STATE_FORCED_OPEN"
    );
    let ran = run(&["circuits", "reset", "broke", "--address", &address]).await;
    assert_eq!(ran.out, "The circuit of broke is closed.\n", "{}", ran.err);
    let ran = run(&["circuits", "reset", "brok", "--address", &address]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("did you mean `broke`?"), "{}", ran.err);
}

#[tokio::test]
async fn status_names_what_is_wrong_and_what_helps() {
    let (_server, address) = served().await;
    let ran = run(&["status", "--address", &address]).await;
    assert!(
        ran.code == Some(0) && ran.out.contains("is healthy"),
        "{}{}",
        ran.out,
        ran.err
    );
    // One refusal may be chance; several in a row without an answer close the gate.
    for _ in 0..5 {
        run_with(
            &["invoke", "--address", &address, "--route", "quota"],
            "Hello?",
        )
        .await;
    }
    let ran = run(&["status", "--address", &address]).await;
    for words in [
        "is degraded",
        "gate:broke",
        "quota",
        "check the key and the account",
    ] {
        assert!(ran.out.contains(words), "{words}: {}{}", ran.out, ran.err);
    }
    let ran = run(&["status", "--address", &address, "--output", "json"]).await;
    let status: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(status["reasons"][0]["component"], "gate:broke", "{status}");
}

#[tokio::test]
async fn explain_shows_the_attempts_of_a_call_and_why_they_were_made() {
    let (server, address) = served().await;
    let mut invocation = crate::support::relight::asking("Are you awake?");
    invocation.request_id = "order-17".to_owned();
    let id = server.invoke(invocation).await.invocation_id;
    for name in [&[id.as_str()][..], &["--request-id", "order-17"]] {
        let ran = run(&[&["explain", "--address", &address], name].concat()).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        for words in [
            &id,
            "answered after",
            "request id order-17",
            "dreamer",
            "timeout",
            "retry",
            "note of attempt 2",
        ] {
            assert!(ran.out.contains(words), "{words}: {}", ran.out);
        }
    }
    let ran = run(&["explain", "--address", &address, &id, "--output", "json"]).await;
    let record: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(record["attempts"].as_array().unwrap().len(), 2, "{record}");
    let ran = run(&["explain", "--address", &address, "nothing"]).await;
    assert!(
        ran.code == Some(1) && ran.err.lines().count() == 1,
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn explain_shows_an_attempt_in_flight_as_running_with_its_time_so_far() {
    let config = CONFIG.replace(
        "first_token: 100ms, first_token_alone: 100ms",
        "first_token: 1m, first_token_alone: 1m",
    );
    let server = Relight::start(&config).await;
    let address = format!("http://{}", server.running.address);
    let call = [
        "invoke",
        "--address",
        &address,
        "--request-id",
        "slow-1",
        "Are you awake?",
    ];
    let _calling = relight(&call).spawn().unwrap();
    let explaining = async {
        loop {
            let ran = run(&["explain", "--address", &address, "--request-id", "slow-1"]).await;
            if let Some(row) = ran.out.lines().find(|line| line.starts_with("1  dreamer")) {
                return row.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let row = tokio::time::timeout(PATIENCE, explaining).await.unwrap();
    assert!(row.ends_with("running") && !row.contains("answer"), "{row}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let ran = run(&[
        "explain",
        "--address",
        &address,
        "--request-id",
        "slow-1",
        "--output",
        "json",
    ])
    .await;
    let record: Value = serde_json::from_str(&ran.out).unwrap();
    let attempt = &record["attempts"][0];
    assert_eq!(attempt["state"], "ATTEMPT_STATE_RUNNING", "{record}");
    assert!(
        attempt["duration_ms"]
            .as_u64()
            .is_some_and(|ms| (1100..60_000).contains(&ms)),
        "{record}"
    );
    let ran = run(&["explain", "--address", &address, "--request-id", "slow-1"]).await;
    let row = ran
        .out
        .lines()
        .find(|line| line.starts_with("1  dreamer"))
        .unwrap();
    assert!(row.contains(" s ") && row.ends_with("running"), "{row}");
}

#[tokio::test]
async fn health_is_an_exit_code() {
    let (_server, address) = served().await;
    for service in ["", "relight.v1.RecoveryService", "liveness"] {
        let ran = run(&["health", "--address", &address, "--service", service]).await;
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(0), "SERVING\n"),
            "{service}: {}",
            ran.err
        );
    }
    assert_eq!(
        run(&["health", "--address", &address, "--service", "nothing"])
            .await
            .code,
        Some(1)
    );
    let (_socket, nothing) = closed_address();
    assert_eq!(
        run(&["health", "--address", &format!("http://{nothing}")])
            .await
            .code,
        Some(1)
    );
}
