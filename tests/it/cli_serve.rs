//! `serve` and `demo`: the server as operators start and stop it, and the demo that keeps its
//! promises.

use std::time::Duration;

use relight::internals::grpc::v1::GetStatusRequest;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    binary::{relight, run},
    process::Process,
};

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn serve_logs_its_addresses_answers_without_a_key_and_ends_in_order_on_a_signal() {
    let mut server = Process::start("").await;
    assert_eq!(server.log()[0]["event"], "listening");
    let ran = run(&["invoke", "--address", &server.address, "Say hello"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("You said: \"Say hello\""), "{}", ran.out);
    assert_eq!(server.terminate().await, Some(0));
}

#[tokio::test]
async fn the_first_signal_waits_for_what_runs_and_the_second_does_not() {
    let hangs = "\
providers: { stage: { dialect: scripted, script: { otherwise: timeout } } }
targets: { silent: { provider: stage, model: silent } }
";
    let mut server = Process::start(hangs).await;
    let mut asking = relight(&["invoke", "--address", &server.address, "Are you there?"])
        .spawn()
        .unwrap();
    let running = async {
        while server
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
            .invocations_in_flight
            == 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, running).await.unwrap();
    server.signal(Signal::TERM);
    let early = tokio::time::timeout(Duration::from_secs(1), server.ended()).await;
    assert!(early.is_err(), "it did not wait for the call that runs");
    let ended = tokio::time::timeout(Duration::from_secs(10), server.terminate())
        .await
        .unwrap();
    assert_eq!(ended, Some(128 + 15));
    assert_eq!(
        tokio::time::timeout(PATIENCE, asking.wait())
            .await
            .unwrap()
            .unwrap()
            .code(),
        Some(1)
    );
}

#[tokio::test]
async fn a_port_in_use_is_reported_in_one_line_and_exit_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(&[
        "serve",
        "--listen",
        &address,
        "--admin-listen",
        "127.0.0.1:0",
    ])
    .await;
    let expected = format!(
        "relight: server.listen: {address} is in use by another process; choose another port\n"
    );
    assert_eq!((ran.code, ran.err), (Some(1), expected));
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_without_authentication() {
    let ran = run(&[
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--admin-listen",
        "127.0.0.1:0",
    ])
    .await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("server.keys"), "{}", ran.err);
}

#[tokio::test]
async fn the_demo_recovers_all_five_failures_and_shows_how() {
    let ran = run(&["demo", "--fast"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    for promised in [
        "Retrying executor (attempt 1/2): Request timeout",
        "the note that the model got  \"The previous model call failed",
        "the provider's retry-after",
        "the arguments of tool `get_weather`",
        "Circuit of main opened",
        "Going straight to spare: main takes no calls now",
        "Falling back from account-a to account-b",
        "18 calls, ",
        "calls recovered, 0 failed",
        "relight serve",
    ] {
        assert!(
            ran.out.contains(promised),
            "{promised} is not in\n{}",
            ran.out
        );
    }
    assert_eq!(
        ran.out
            .lines()
            .filter(|line| line.starts_with("   ✓ "))
            .count(),
        5,
        "{}",
        ran.out
    );
    assert!(!ran.out.contains('\u{1b}'), "colour is for terminals");
}

#[tokio::test]
async fn the_demo_reports_to_programs_whether_each_scene_went_as_promised() {
    let ran = run(&["demo", "--output", "json"]).await;
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    let scenes = told["scenes"].as_array().unwrap();
    assert_eq!(scenes.len(), 5);
    assert!(
        scenes.iter().all(|scene| scene["as_promised"] == true),
        "{scenes:?}"
    );
}
