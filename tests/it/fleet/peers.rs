//! Replicas prove to each other that they are some; callers cannot, and a fleet's key calls no
//! model.

use std::fs;

use jiff::SignedDuration;
use rcgen::ExtendedKeyUsagePurpose;
use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::clock::wall_now,
    grpc::{
        auth::Identity,
        peers::{PEER_CLOCK_HEADER, PEER_HEADER, PeerKey},
        v1::{WatchRecoveryRequest, recovery_event::Body},
    },
};
use relight_fleet::{FleetStore as _, PostgresStore};
use tonic::{Code, Request};

use super::*;
use crate::support::{
    authority::Authority,
    binary::run,
    process::{key, with_key},
};

/// Three replicas with keys of callers; the third one has another key of the fleet.
async fn three_with_keys() -> Option<Replicas> {
    let keys = [
        key("ops", "ops-key", ", role: admin"),
        key("acme", "acme-key", ""),
        key("other", "other-key", ""),
    ];
    let settings = format!("server: {{ keys: [{}] }}", keys.join(", "));
    let mut replicas = Replicas::none(&settings)?.await;
    replicas.config = replicas
        .config
        .replace("fleet: {", "fleet: { key: the-key-of-this-fleet,");
    for third in [false, false, true] {
        if third {
            let other = "the-key-of-another-fleet";
            replicas.config = replicas.config.replace("the-key-of-this-fleet", other);
        }
        replicas.start_another().await;
    }
    for replica in &replicas.all {
        known_to_live(replica, 3).await;
    }
    Some(replicas)
}

async fn asked(replica: &Process, key: &str) -> InvokeWithRecoveryResponse {
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    };
    let called = replica
        .recovery()
        .invoke_with_recovery(with_key(key, request))
        .await;
    called.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_sees_its_own_at_all_replicas_and_one_with_another_key_is_named() {
    let _room = room().await;
    let Some(replicas) = three_with_keys().await else {
        return;
    };
    let first = &replicas.all[0];
    let request = with_key("acme-key", WatchRecoveryRequest::default());
    let mut watch = first
        .recovery()
        .watch_recovery(request)
        .await
        .unwrap()
        .into_inner();
    let mut events = Vec::new();
    let bookmark = watch.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(bookmark.body, Some(Body::Bookmark(_))));
    asked(&replicas.all[1], "other-key").await;
    let own = asked(&replicas.all[1], "acme-key").await;
    while !events.iter().any(|(id, _)| *id == own.invocation_id) {
        let event = watch.message().await.unwrap().unwrap().event.unwrap();
        events.push((event.invocation_id, event.tenant));
    }
    assert!(
        events
            .iter()
            .all(|(_, tenant)| tenant.is_empty() || tenant == "acme"),
        "{events:?}"
    );
    let request = with_key("ops-key", GetStatusRequest::default());
    let status = first
        .admin()
        .get_status(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.others.len(), 1, "{status:?}");
    let reason = &status.silent[0].reason;
    assert!(reason.contains("fleet.key"), "{reason}");
    let named = format!("replica:{}", status.silent[0].replica);
    assert!(
        status.reasons.iter().any(|it| it.component == named),
        "{status:?}"
    );
    let request = with_key("acme-key", GetStatusRequest::default());
    let refused = first.admin().get_status(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_speaks_for_a_replica_without_the_key_of_the_fleet() {
    let _room = room().await;
    let Some(replicas) = three_with_keys().await else {
        return;
    };
    let first = &replicas.all[0];
    for (key, token) in [("", "x"), ("acme-key", "eyJ0byI6ImEifQ"), ("ops-key", "")] {
        let mut request: Request<_> = with_key(key, GetStatusRequest::default());
        request
            .metadata_mut()
            .insert("relight-peer", token.parse().unwrap());
        let refused = first.admin().get_status(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{key} {token}");
    }
}

/// The key of the fleet, as a replica holds it.
fn fleet_key(key: &str) -> PeerKey {
    let text = format!("fleet: {{ key: {key} }}\n");
    let loaded = load_text(&text, None, &GivenEnvironment::new()).unwrap();
    PeerKey::new(&loaded.config, "the one that asks")
}

/// Returns the id by which the others know the only replica of this store.
async fn only_id(server: &FleetServer) -> String {
    let store = PostgresStore::at(&server.url()).unwrap();
    let mut id = None;
    until("a sign of life", async || {
        let records = store.snapshot().await.unwrap();
        let mut members = records.into_iter().filter(|it| it.subject == "member");
        id = members.next().map(|it| it.owner);
        id.is_some()
    })
    .await;
    id.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_time_is_refused_with_the_clock_for_those_who_hold_the_key() {
    const METHOD: &str = "/relight.v1.AdminService/GetStatus";
    let _room = room().await;
    let Some(replicas) = Replicas::none("") else {
        return;
    };
    let mut replicas = replicas.await;
    replicas.config = replicas
        .config
        .replace("fleet: {", "fleet: { key: the-key-of-this-fleet,");
    replicas.start_another().await;
    let replica = &replicas.all[0];
    let ask = async |token: &str| {
        let mut request = Request::new(GetStatusRequest::default());
        let metadata = request.metadata_mut();
        metadata.insert(PEER_HEADER, token.parse().unwrap());
        replica.admin().get_status(request).await
    };
    let key = fleet_key("the-key-of-this-fleet");
    let nobody = Identity::of_replica();
    let id = only_id(&replicas.cluster).await;
    let now = wall_now();
    for hours in [-5, 5] {
        let then = now + SignedDuration::from_hours(hours);
        let token = key.write(&id, METHOD, &nobody, then);
        let refused = ask(&token).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
        let clock = refused.metadata().get(PEER_CLOCK_HEADER).unwrap();
        let clock = key.read_clock(clock.to_str().unwrap(), &token).unwrap();
        assert!(clock.duration_since(now).abs() < SignedDuration::from_mins(1));
        let again = key.write(&id, METHOD, &nobody, clock);
        assert!(ask(&again).await.is_ok());
        assert!(
            ask(&token).await.is_err(),
            "it is good at no time but its own"
        );
    }
    let forged = fleet_key("the-key-of-another-fleet").write(&id, METHOD, &nobody, now);
    let refused = ask(&forged).await.unwrap_err();
    assert!(refused.metadata().get(PEER_CLOCK_HEADER).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_ask_each_other_also_where_operators_call_elsewhere() {
    let _room = room().await;
    let settings = "server: { admin_service: { listen: \"127.0.0.1:0\" } }";
    let Some(replicas) = Replicas::none(settings) else {
        return;
    };
    let mut replicas = replicas.await;
    replicas.config = replicas
        .config
        .replace("fleet: {", "fleet: { key: the-key-of-this-fleet,");
    for _ in 0..2 {
        replicas.start_another().await;
    }
    let first = &replicas.all[0];
    known_to_live(first, 2).await;
    let refused = first
        .admin()
        .get_status(GetStatusRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let lines = first.log();
    let listening = lines
        .iter()
        .find(|line| line["event"] == "listening")
        .unwrap();
    let address = listening["admin_service_address"].as_str().unwrap();
    let ran = run(&["status", "--address", &format!("http://{address}")]).await;
    assert_eq!(
        ran.out.matches(" is healthy").count(),
        2,
        "{}{}",
        ran.out,
        ran.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_verify_each_other_by_the_authority_of_their_certificate() {
    let _room = room().await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let authority = Authority::new();
    let (certificate, private) = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    fs::write(file("ca.pem"), &authority.pem).unwrap();
    fs::write(file("other.pem"), Authority::new().pem).unwrap();
    fs::write(file("cert.pem"), certificate.pem()).unwrap();
    fs::write(file("key.pem"), private.serialize_pem()).unwrap();
    let tls = format!(
        "server: {{ tls: {{ cert_file: \"{}\", key_file: \"{}\" }} }}",
        file("cert.pem"),
        file("key.pem")
    );
    let Some(replicas) = Replicas::none(&tls) else {
        return;
    };
    let mut replicas = replicas.await;
    let bare = replicas.config.clone();
    for trusted in ["ca.pem", "other.pem"] {
        let with_authority = format!("fleet: {{ ca_file: \"{}\",", file(trusted));
        replicas.config = bare.replace("fleet: {", &with_authority);
        replicas.start_another().await;
    }
    let shown = async |replica: &Process| {
        known_to_live(replica, 2).await;
        let port = replica.address.rsplit_once(':').unwrap().1;
        let address = format!("https://localhost:{port}");
        let ca = file("ca.pem");
        run(&["status", "--address", &address, "--ca-file", &ca]).await
    };
    let ran = shown(&replicas.all[0]).await;
    assert!(
        !ran.out.contains("does not respond"),
        "{}{}",
        ran.out,
        ran.err
    );
    let ran = shown(&replicas.all[1]).await;
    assert!(
        ran.out.contains("does not respond"),
        "{}{}",
        ran.out,
        ran.err
    );
}
