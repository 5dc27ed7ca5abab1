//! Valkey as the store: as the file names it, with a password, behind TLS and behind sentinels.

use relight_fleet::{FleetStore, RecordWrite, ValkeyStore};

use super::*;
use crate::support::{
    authority::Authority, binary::run, connections::TlsFront, process::Serve, valkey::Valkey,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_word_an_outage_and_their_ends_hold_at_all_replicas_by_valkey() {
    let _room = room().await;
    let Some(server) = FleetServer::valkey() else {
        return;
    };
    let mut replicas = Replicas::on(server, "circuit: { open_base: 60s }").await;
    let store = status(&replicas.all[0]).await.stores.remove(1);
    assert_eq!((store.kind(), &*store.engine), (StoreKind::Fleet, "valkey"));
    replicas.upstream.otherwise(Reply::status(500));
    while state_of(&target(&replicas.all[0]).await) == CircuitState::Closed {
        failure(&replicas.all[0]).await;
    }
    let is_open = |target: &Target| state_of(target) == CircuitState::Open;
    replicas.until_all(0, "open", is_open).await;
    let late = replicas.start_another().await;
    until("open at a late one", async || is_open(&target(late).await)).await;
    force(&replicas.all[1], CircuitForce::Closed).await;
    let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedClosed;
    replicas.until_all(0, "forced", is_forced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_valkey_keeps_holds_no_key_no_prompt_and_no_answer() {
    let _room = room().await;
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let replicas = Replicas::on(FleetServer::Valkey(valkey), "").await;
    for answer in [Reply::text("The answer itself."), Reply::status(401)] {
        replicas.upstream.otherwise(answer);
        for _ in 0..6 {
            call(&replicas.all[0]).await;
        }
    }
    let is_closed = |target: &Target| is_closed_gate(target, GateKind::Credential);
    replicas.until_all(0, "closed", is_closed).await;
    force(&replicas.all[0], CircuitForce::Open).await;
    let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
    replicas.until_all(0, "forced", is_forced).await;
    let FleetServer::Valkey(valkey) = &replicas.cluster else {
        unreachable!("it was made above");
    };
    let dump = "return table.concat(redis.call('HGETALL',KEYS[1]),' ')";
    let dump = format!("EVAL \"{dump}\" 1 relight:fleet:1:records");
    let kept = valkey.ask(&dump).unwrap();
    assert!(kept.contains("maintenance at noon"), "{kept}");
    for secret in [
        "Hello",
        "The answer itself",
        "api_key",
        replicas.upstream.base_url().as_str(),
    ] {
        assert!(!kept.contains(secret), "{secret}: {kept}");
    }
    // Nothing but records, leases, and what expires by itself.
    let keys = valkey.ask("EVAL \"return table.concat(redis.call('KEYS','*'),' ')\" 0");
    for key in keys.unwrap().split_whitespace() {
        assert!(key.starts_with("relight:fleet:1:"), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valkey_that_others_reach_needs_a_password_or_the_word_of_the_file() {
    let _room = room().await;
    for (url, more, is_refused) in [
        ("redis://10.1.2.3:6379", "", true),
        ("redis://valkey", "", true),
        ("rediss://valkey.example/2", "", true),
        ("redis+sentinel://one,two/main", "", true),
        ("redis://valkey", ", allow_no_password: true", false),
        ("redis://relight:secret@valkey", "", false),
        ("redis://127.0.0.1:1", "", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relight.yaml");
        let config = format!("fleet: {{ store: \"{url}\"{more} }}\n");
        std::fs::write(&file, config).unwrap();
        let ran = run(&["config", "check", file.to_str().unwrap()]).await;
        let names_it = ran.err.contains("fleet.store") && ran.err.contains("no password");
        assert_eq!(names_it, is_refused, "{url}: {ran:?}");
        assert_eq!(ran.code == Some(0), !is_refused, "{url}: {ran:?}");
        assert!(
            !ran.out.contains("secret") && !ran.err.contains("secret"),
            "{ran:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_named_and_the_right_one_is_used() {
    let _room = room().await;
    let Some(valkey) = Valkey::with(&["--requirepass", "s3cret"]) else {
        return;
    };
    let upstream = Upstream::start().await;
    for (password, is_right) in [("s3cret", true), ("wr0ng", false)] {
        let config = format!(
            "{}fleet: {{ store: \"redis://:{password}@127.0.0.1:{}\" }}\njournal: {{ store: memory }}\n",
            one_target(&upstream),
            valkey.port
        );
        let replica = Process::start(&config).await;
        assert!(is_answered(&replica).await);
        until("its state is known", async || {
            let status = status(&replica).await;
            let is_reached = status.stores.iter().all(|it| it.reachable);
            let words = format!("{:?}", status.reasons);
            assert!(!words.contains(password), "{words}");
            is_reached == is_right && (is_right || words.contains("authentication failed"))
        })
        .await;
        let log = format!("{:?}", replica.log());
        assert!(!log.contains(password), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_is_reached_over_tls_by_an_authority_that_the_host_trusts() {
    let _room = room().await;
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let authority = Authority::new();
    let behind = format!("127.0.0.1:{}", valkey.port);
    let front = TlsFront::start(&authority, None, behind).await;
    let folder = tempfile::tempdir().unwrap();
    let trusted = crate::support::connections::file(folder.path(), "ca.pem", &authority.pem);
    let upstream = Upstream::start().await;
    let config = format!(
        "{}fleet: {{ store: \"rediss://localhost:{}\" }}\njournal: {{ store: memory }}\n",
        one_target(&upstream),
        front.port
    );
    let serve = |trusted: &str| Serve::on("127.0.0.1:0", &config).env("SSL_CERT_FILE", trusted);
    let trusting = serve(&trusted).start().await;
    until("reached", async || {
        status(&trusting).await.stores.iter().all(|it| it.reachable)
    })
    .await;
    let other = Authority::new();
    let untrusted = crate::support::connections::file(folder.path(), "other.pem", &other.pem);
    let wary = serve(&untrusted).start().await;
    until("refused", async || {
        status(&wary).await.stores.iter().any(|it| !it.reachable)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sentinels_put_in_the_place_of_another_is_found_and_used() {
    let _room = room().await;
    let Some(first) = Valkey::with(&["--repl-diskless-sync-delay", "0"]) else {
        return;
    };
    let port = first.port.to_string();
    let second = Valkey::with(&["--replicaof", "127.0.0.1", &port]).unwrap();
    until("replicated", || async {
        let state = second.ask("INFO replication").unwrap();
        state.contains("master_link_status:up")
    })
    .await;
    let sentinel = Valkey::sentinel(&first).unwrap();
    // It learns of the second one from the first.
    let known = || sentinel.ask("INFO sentinel").unwrap();
    let began = Instant::now();
    while !known().contains("slaves=1") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", known());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let store = ValkeyStore::at(&url).unwrap();
    let write = |epoch: u64| RecordWrite {
        subject: "word:1".to_owned(),
        owner: String::new(),
        epoch,
        value: Some(format!("word {epoch}")),
        lifetime: None,
    };
    store.publish(&[write(1)], true).await.unwrap();
    first.stop();
    let began = Instant::now();
    while let Err(error) = store.publish(&[write(2)], true).await {
        assert!(began.elapsed() < Duration::from_secs(30), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let records = store.snapshot().await.unwrap();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0].value, "word 2");
    assert!(
        second
            .ask("INFO replication")
            .unwrap()
            .contains("role:master")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_page_names_are_enough() {
    let _room = room().await;
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fleet.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rights = page.lines().find(|line| line.starts_with("ACL SETUSER"));
    assert_eq!(valkey.ask(rights.unwrap()).as_deref(), Some("+OK"));
    let url = format!("redis://relight:PASSWORD@127.0.0.1:{}/0", valkey.port);
    let settings = "circuit: { mode: consecutive, consecutive_failures: 3, consecutive_open: 1s }";
    let replicas = Replicas::at(FleetServer::Valkey(valkey), &url, settings).await;
    // A word, its hint, and a lease.
    replicas.upstream.otherwise(Reply::status(500));
    until("a probe", async || {
        failure(&replicas.all[0]).await;
        state_of(&target(&replicas.all[0]).await) == CircuitState::Open
    })
    .await;
    let is_open = |target: &Target| state_of(target) == CircuitState::Open;
    replicas.until_all(0, "open", is_open).await;
    replicas.upstream.otherwise(Reply::text("Well again."));
    until("an answer", async || is_answered(&replicas.all[1]).await).await;
    let FleetServer::Valkey(valkey) = &replicas.cluster else {
        unreachable!("it was made above");
    };
    let refused = valkey.ask("ACL LOG").unwrap();
    assert_eq!(refused, "*0", "it was refused something");
}
