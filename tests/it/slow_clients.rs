//! Clients that are slow, silent or too many end by themselves, on every port, and never at the
//! cost of the others.

use std::{collections::VecDeque, time::Duration};

use rustix::process::{Resource, Rlimit, prlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::process::{KEY, Process, Serve, key};

/// Longest wait for the end of a connection whose limit is a second at most.
const PATIENCE: Duration = Duration::from_secs(20);
const SETTINGS: &str = "  timeouts: { head: 500ms, body: 500ms, idle: 1s }\n";

/// A server with these settings of `server`.
async fn server(settings: &str) -> Process {
    Serve::with_front(&format!("  keys: [{}]\n{settings}", key("acme", KEY, "")))
        .start()
        .await
}

/// Sends this and reads until the server closes; returns what came.
async fn until_closed(address: &str, sent: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut came = Vec::new();
    // A reset is an end, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut came))
        .await
        .unwrap_or_else(|_| panic!("{sent:?} stays open"));
    String::from_utf8_lossy(&came).into_owned()
}

#[tokio::test]
async fn silent_connections_and_half_heads_end_on_every_port() {
    let server = server(SETTINGS).await;
    for address in [
        &server.address,
        &server.front_address,
        &server.admin_address,
    ] {
        until_closed(address, "").await;
        until_closed(
            address,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: ",
        )
        .await;
    }
    // An HTTP/2 connection without calls.
    let mut preface = TcpStream::connect(&server.address).await.unwrap();
    preface
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut came = Vec::new();
    let _ = timeout(PATIENCE, preface.read_to_end(&mut came))
        .await
        .expect("an idle HTTP/2 connection stays open");
}

#[tokio::test]
async fn a_head_that_drips_and_a_body_that_does_not_end_are_abandoned() {
    let server = server(SETTINGS).await;
    let mut stream = TcpStream::connect(&server.front_address).await.unwrap();
    let dripping = async {
        loop {
            if stream.write_all(b"a").await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, dripping)
        .await
        .expect("a head that drips stays for ever");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let came = until_closed(&server.front_address, &head).await;
    assert!(came.starts_with("HTTP/1.1 408"), "{came}");
}

#[tokio::test]
async fn without_file_descriptors_the_server_waits_and_serves_again_when_there_are_some() {
    let server = server("").await;
    let few = Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    prlimit(Some(server.pid()), Resource::Nofile, few).unwrap();
    let mut held = Vec::new();
    for _ in 0..80 {
        // What the server does not accept waits in the kernel's queue.
        held.extend(
            timeout(
                Duration::from_millis(200),
                TcpStream::connect(&server.address),
            )
            .await
            .into_iter()
            .flatten(),
        );
    }
    let (before, window) = (server.worked(), Duration::from_secs(2));
    tokio::time::sleep(window).await;
    let worked = server.worked() - before;
    assert!(
        worked < Duration::from_millis(600),
        "it spins: {worked:?} of {window:?}"
    );
    drop(held);
    let came = until_closed(
        &server.admin_address,
        "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(came.contains("alive"), "{came}");
}

/// Opens silent connections for ever, and a new one as soon as there are so many.
async fn renewed(address: String, count: usize) {
    let mut held = VecDeque::new();
    loop {
        if let Ok(stream) = TcpStream::connect(&address).await {
            held.push_back(stream);
        }
        if held.len() > count {
            held.pop_front();
        }
        // Slow enough for who comes between to be heard.
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn silent_connections_however_often_renewed_keep_nobody_out() {
    let server = server("  limits: { connections: 64 }\n").await;
    let calls = [
        (&server.admin_address, "/livez", "alive"),
        (&server.front_address, "/v1/models", "invalid_api_key"),
        (&server.address, "/nothing", "HTTP/1.1"),
    ];
    for (address, path, wanted) in calls {
        let mut silent = JoinSet::new();
        silent.spawn(renewed(address.clone(), 128));
        sleep(Duration::from_secs(2)).await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        for call in 0..20 {
            let came = until_closed(address, &request).await;
            assert!(came.contains(wanted), "{path}, call {call}: {came:?}");
        }
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_at_once_and_places_come_back() {
    let server = server("  limits: { connections: 3 }\n").await;
    let mut held = Vec::new();
    for _ in 0..3 {
        // They have shown whose they are, and their request goes on.
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\ncontent-length: 9\r\n\r\n"
        );
        let mut stream = TcpStream::connect(&server.front_address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let request = format!(
        "GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\r\n"
    );
    let served = async |wanted: bool| {
        loop {
            if until_closed(&server.front_address, &request)
                .await
                .contains("200 OK")
                == wanted
            {
                return;
            }
        }
    };
    timeout(PATIENCE, served(false))
        .await
        .expect("a fourth connection is served");
    drop(held);
    timeout(PATIENCE, served(true))
        .await
        .expect("a place does not come back");
}
