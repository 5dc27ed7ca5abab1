//! What commands print where a server is silent, freezes, or is not reached as it is to be reached;
//! and what may last.

use std::{fs, net::TcpListener, path::Path, process::Output, time::Duration};

use futures_util::future::join_all;
use rcgen::ExtendedKeyUsagePurpose;
use relight::internals::{grpc::v1::GetStatusRequest, server::Running};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{
    authority::Authority,
    binary::{relight, run},
    process::Process,
    relight::{Relight, running},
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that need a server.
const COMMANDS: &[&[&str]] = &[
    &["health"],
    &["status"],
    &["explain", "some-id"],
    &["top", "--tables", "1"],
    &["invocations"],
    &["executions"],
    &["learning"],
    &["circuits"],
    &["releases"],
    &["watch"],
    &["invoke", "Hello?"],
    &["invoke", "--output", "json", "Hello?"],
    &["invoke", "--resume=some-token"],
];

/// Writes a certificate for `localhost`, its key and its authority.
fn certify(folder: &Path, authority: &Authority) {
    let (certificate, key) = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
}

/// A server that serves TLS with the certificate in this folder.
async fn with_tls(folder: &Path) -> Running {
    let at = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  tls: {{ cert_file: {}, key_file: {} }}\n",
        at("cert.pem"),
        at("key.pem")
    );
    running(&text, None).await
}

/// What a command wrote to standard error, and its exit code.
fn ended(output: &Output) -> (Option<i32>, String) {
    (
        output.status.code(),
        String::from_utf8(output.stderr.clone()).unwrap(),
    )
}

#[tokio::test]
async fn a_server_that_accepts_and_is_silent_is_reported_by_every_command_within_seconds() {
    // Its connections wait to be accepted by a program, which never happens.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let server = ["--address", &address];
    let runs = COMMANDS.iter().map(|command| async move {
        let ran = run(&[*command, &server].concat()).await;
        (command, ran, began.elapsed())
    });
    let expected = format!(
        "relight: the server at {address} accepts connections but does not respond within 10 s"
    );
    for (command, ran, took) in join_all(runs).await {
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.lines().count()),
            (Some(1), "", 1),
            "{command:?}: {}",
            ran.err
        );
        assert!(ran.err.starts_with(&expected), "{command:?}: {}", ran.err);
        assert!(took < Duration::from_secs(20), "{command:?} took {took:?}");
    }
}

#[tokio::test]
async fn a_call_with_a_deadline_is_given_up_soon_after_it_where_the_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    for output in ["text", "json"] {
        let ran = run(&[
            "invoke",
            "--address",
            &address,
            "--deadline",
            "1s",
            "--output",
            output,
            "Hello?",
        ])
        .await;
        let expected = format!(
            "relight: the server at {address} accepts connections but does not respond within 6 s"
        );
        assert!(
            ran.code == Some(1) && ran.err.starts_with(&expected),
            "{output}: {}",
            ran.err
        );
    }
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_is_reported_within_seconds() {
    let (folder, silent) = (
        tempfile::tempdir().unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    certify(folder.path(), &Authority::new());
    let address = format!("https://{}", silent.local_addr().unwrap());
    let authority = folder.path().join("ca.pem").display().to_string();
    let ran = run(&["status", "--address", &address, "--ca-file", &authority]).await;
    let expected = format!(
        "relight: the server at {address} accepts connections but does not respond within 10 s\n"
    );
    assert_eq!((ran.code, ran.err), (Some(1), expected));
}

#[tokio::test]
async fn a_server_that_freezes_during_a_call_is_waited_for_until_shortly_after_the_deadline() {
    let hangs = "\
providers: { stage: { dialect: scripted, script: { otherwise: timeout } } }
targets: { silent: { provider: stage, model: silent } }
";
    let server = Process::start(hangs).await;
    let arguments = ["invoke", "--address", &server.address, "--deadline", "4s"];
    let of = |output: &'static str| {
        relight(&[&arguments[..], &["--output", output, "Hello?"]].concat()).output()
    };
    let (text, json) = (of("text"), of("json"));
    let freezing = async {
        while server
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
            .invocations_in_flight
            < 2
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.signal(Signal::STOP);
    };
    let both = async { tokio::join!(text, json, freezing) };
    let (text, json, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    for output in [text.unwrap(), json.unwrap()] {
        let (code, err) = ended(&output);
        let expected =
            "relight: the server did not end the call within its deadline, nor 5 s later";
        assert!(code == Some(1) && err.contains(expected), "{code:?}: {err}");
    }
}

#[tokio::test]
async fn a_call_may_last_longer_than_a_server_may_be_silent() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("At last.").slow_head(Duration::from_secs(12)));
    let yaml = one_target(&upstream)
        .replace("deadline: 20s", "deadline: 1m")
        .replace("400ms", "30s");
    let server = Relight::start(&yaml).await;
    let address = format!("http://{}", server.running.address);
    let call = ["invoke", "--address", &address, "Are you there?"];
    let json = [&call[..], &["--output", "json"]].concat();
    let (text, json) = tokio::join!(run(&call), run(&json));
    assert_eq!(
        (text.code, text.out.as_str()),
        (Some(0), "At last.\n"),
        "{}",
        text.err
    );
    assert!(
        json.code == Some(0) && json.out.contains("At last."),
        "{}{}",
        json.out,
        json.err
    );
}

#[tokio::test]
async fn a_server_that_serves_tls_is_named_so_where_its_address_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), &Authority::new());
    let server = with_tls(folder.path()).await;
    let bare = server.address.to_string();
    let expected = format!(
        "relight: the server at http://{bare} serves TLS; write https:// in --address, and name the authority that \
         signed its certificate with --ca-file"
    );
    for address in [bare.clone(), format!("http://{bare}")] {
        for command in [
            &["health"][..],
            &["status"],
            &["watch"],
            &["top"],
            &["invoke", "Hello?"],
        ] {
            let ran = run(&[command, &["--address", &address]].concat()).await;
            assert!(
                ran.code == Some(1) && ran.err.starts_with(&expected),
                "{command:?}: {}",
                ran.err
            );
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_accepted_is_reported_with_the_reason() {
    let (folder, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certify(folder.path(), &Authority::new());
    certify(others.path(), &Authority::new());
    let server = with_tls(folder.path()).await;
    let port = server.address.port();
    let status = async |host: &str, folder: &Path| {
        let (address, authority) = (
            format!("https://{host}:{port}"),
            folder.join("ca.pem").display().to_string(),
        );
        run(&["status", "--address", &address, "--ca-file", &authority]).await
    };
    assert_eq!(status("localhost", folder.path()).await.code, Some(0));
    for (host, authority, reason) in [
        ("localhost", &others, "no authority in --ca-file signed it"),
        (
            "127.0.0.1",
            &folder,
            "it is for localhost, and not for 127.0.0.1",
        ),
    ] {
        let ran = status(host, authority.path()).await;
        let expected = format!(
            "relight: the certificate of the server at https://{host}:{port} was not accepted: {reason}\n"
        );
        assert_eq!((ran.code, ran.err), (Some(1), expected));
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named_so_where_its_address_says_otherwise() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    certify(folder.path(), &Authority::new());
    let server = Relight::start(&one_target(&upstream)).await;
    let address = format!("https://{}", server.running.address);
    let authority = folder.path().join("ca.pem").display().to_string();
    let ran = run(&["status", "--address", &address, "--ca-file", &authority]).await;
    assert_eq!(ran.code, Some(1));
    let names_it = ran
        .err
        .starts_with(&format!("relight: the server at {address} "));
    assert!(
        names_it && ran.err.contains("write http:// in --address"),
        "{}",
        ran.err
    );
}
