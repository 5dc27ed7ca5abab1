//! A pool of keys: a call goes on with the next good key of its target, whatever becomes of one.

use std::{collections::BTreeMap, fmt::Write as _};

use hyper::Method;
use relight::internals::{
    config::{GivenEnvironment, load_text},
    grpc::v1::{
        AttemptCause, Failure, GateKind, GetStatusRequest, GetStatusResponse, ListTargetsRequest,
        ServiceState, invoke_with_recovery_response::Outcome,
    },
};
use serde_json::json;

use crate::support::{
    front::Front,
    relight::Relight,
    reloaded::Reloaded,
    upstream::{Reply, Request, Upstream},
};

const REFUSED: &str = "sk-pool-0123456789-bad1";
const USED_UP: &str = "sk-pool-0123456789-bad2";
const LIMITED: &str = "sk-pool-0123456789-bad3";
const GOOD: [&str; 2] = ["sk-pool-0123456789-ok04", "sk-pool-0123456789-ok05"];

fn key_of(request: &Request) -> String {
    let header = request.header("authorization").unwrap();
    header.strip_prefix("Bearer ").unwrap().to_owned()
}

fn no(status: u16, code: &str, headers: &[(&str, &str)]) -> Reply {
    let body = json!({"error": {"message": "no", "code": code, "type": code}});
    Reply::refusal(status, headers, &body)
}

/// Replies by key: one is refused, one used up, one limited, the others answer.
fn by_key(request: &Request) -> Reply {
    match key_of(request).as_str() {
        REFUSED => no(401, "invalid_api_key", &[]),
        USED_UP => no(429, "insufficient_quota", &[]),
        LIMITED => no(429, "rate_limit_exceeded", &[("retry-after", "60")]),
        _ => Reply::text("Hello."),
    }
}

fn config(upstream: &Upstream, keys: &[&str], rest: &str) -> String {
    let mut text = format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{}\", allow_plaintext: true, api_keys: {} }}\n",
        upstream.base_url(),
        json!(keys),
    );
    text.push_str("targets:\n  main: { provider: p, model: m }\n");
    write!(text, "routes:\n  default: {{ targets: [main] }}\n{rest}").unwrap();
    text
}

fn all_five() -> [&'static str; 5] {
    [REFUSED, USED_UP, LIMITED, GOOD[0], GOOD[1]]
}

async fn status(relight: &Relight) -> GetStatusResponse {
    let status = relight
        .admin()
        .get_status(GetStatusRequest::default())
        .await;
    status.unwrap().into_inner()
}

fn used(upstream: &Upstream) -> BTreeMap<String, usize> {
    let mut used = BTreeMap::new();
    for request in upstream.requests() {
        *used.entry(key_of(&request)).or_default() += 1;
    }
    used
}

#[tokio::test]
async fn no_call_fails_while_one_key_of_five_is_refused_one_used_up_and_one_limited() {
    let upstream = Upstream::start().await;
    upstream.answering(by_key);
    // Not one retry is allowed: another key is none.
    let rest = "policies: { default: { retry: { max_retries: 0 } } }\n";
    let relight = Relight::start(&config(&upstream, &all_five(), rest)).await;
    let known = || {
        let used = used(&upstream);
        [REFUSED, USED_UP, LIMITED]
            .iter()
            .all(|bad| used.contains_key(*bad))
    };
    let mut calls = 0;
    while !known() {
        let response = relight.ask("Hello?").await;
        assert!(
            matches!(response.outcome, Some(Outcome::Completion(_))),
            "{response:?}"
        );
        calls += 1;
        assert!(calls <= 5, "each key has its turn: {:?}", used(&upstream));
    }
    let before = used(&upstream);
    for _ in 0..100 {
        let response = relight.ask("Hello?").await;
        assert!(
            matches!(response.outcome, Some(Outcome::Completion(_))),
            "{response:?}"
        );
        assert_eq!(response.attempts.len(), 1, "{:?}", response.attempts);
    }
    let after = used(&upstream);
    for bad in [REFUSED, USED_UP, LIMITED] {
        assert_eq!(after[bad], before[bad], "{bad} was known to be bad");
    }
    let count = |used: &BTreeMap<String, usize>, key| used.get(key).copied().unwrap_or(0);
    let shares = GOOD.map(|good| count(&after, good) - count(&before, good));
    assert_eq!(shares, [50, 50], "the good ones take turns");
    let seen = status(&relight).await;
    let named: Vec<_> = seen
        .reasons
        .iter()
        .map(|it| (it.key.as_str(), it.gate(), it.message.as_str()))
        .collect();
    let credential = |key, class| {
        format!("the credential of key {key} of main is in doubt: {class}, and no answer since")
    };
    assert_eq!(
        named,
        [
            (
                "…bad1",
                GateKind::Credential,
                credential("…bad1", "authentication").as_str()
            ),
            (
                "…bad2",
                GateKind::Credential,
                credential("…bad2", "quota_exceeded").as_str()
            ),
            (
                "…bad3",
                GateKind::Rate,
                "the limit of key …bad3 of main is reached: rate_limited, and no answer since"
            ),
        ]
    );
    let text = format!("{seen:?}");
    for key in all_five() {
        assert!(!text.contains(key), "no key is shown whole");
    }
}

#[tokio::test]
async fn a_call_rotates_at_once_and_names_its_keys_in_what_explains_it() {
    let upstream = Upstream::start().await;
    upstream.answering(by_key);
    let keys = [REFUSED, USED_UP, LIMITED, GOOD[0]];
    let relight = Relight::start(&config(&upstream, &keys, "")).await;
    let response = relight.ask("Hello?").await;
    let explained = relight.get(&response.invocation_id).await;
    let attempts: Vec<_> = explained
        .attempts
        .iter()
        .map(|attempt| {
            (
                attempt.key.as_str(),
                attempt.cause(),
                attempt.wait_before_ms,
            )
        })
        .collect();
    let (last, before) = attempts.split_last().unwrap();
    assert_eq!(last.0, "…ok04", "{attempts:?}");
    assert!(
        before.iter().all(|it| it.0.starts_with("…bad")),
        "{attempts:?}"
    );
    for (place, (key, cause, waited)) in attempts.iter().enumerate() {
        let of_key = attempts.iter().filter(|it| it.0 == *key);
        assert_eq!(of_key.count(), 1, "each key once: {attempts:?}");
        let expected = if place == 0 {
            AttemptCause::First
        } else {
            AttemptCause::Rotate
        };
        assert_eq!((*cause, *waited), (expected, 0), "{attempts:?}");
    }
    assert!(
        !before.is_empty(),
        "the first key is tried first: {attempts:?}"
    );
    assert_eq!(explained.attempts, response.attempts);
    assert!(
        explained
            .attempts
            .iter()
            .all(|attempt| attempt.target == "main")
    );
}

#[tokio::test]
async fn a_call_falls_back_only_when_no_key_of_the_pool_is_left() {
    let upstream = Upstream::start().await;
    upstream.answering(by_key);
    let spare = Upstream::start().await;
    let bad = [REFUSED, USED_UP];
    let text = config(&upstream, &bad, "").replace("[main]", "[main, spare]").replace(
        "targets:\n",
        "  q: { dialect: openai_chat, base_url: \"SPARE\", api_key: k, allow_plaintext: true }\n\
         targets:\n  spare: { provider: q, model: n }\n",
    );
    let text = text.replacen("SPARE", &spare.base_url(), 1);
    let relight = Relight::start(&text).await;
    let response = relight.ask("Hello?").await;
    let causes: Vec<_> = response
        .attempts
        .iter()
        .map(|it| (it.target.as_str(), it.cause()))
        .collect();
    assert_eq!(
        causes,
        [
            ("main", AttemptCause::First),
            ("main", AttemptCause::Rotate),
            ("spare", AttemptCause::Fallback),
        ]
    );
}

#[tokio::test]
async fn a_key_whose_gate_is_closed_is_named_and_a_pool_of_closed_keys_fails_as_one_key() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| match key_of(request).as_str() {
        REFUSED | USED_UP => no(401, "invalid_api_key", &[]),
        _ => Reply::text("Hello."),
    });
    let relight = Relight::start(&config(&upstream, &[REFUSED, USED_UP], "")).await;
    let mut failures: Vec<Failure> = Vec::new();
    for _ in 0..8 {
        match relight.ask("Hello?").await.outcome {
            Some(Outcome::Failure(failure)) => failures.push(failure),
            other => panic!("{other:?}"),
        }
    }
    let status = status(&relight).await;
    assert_eq!(status.state(), ServiceState::Degraded);
    let closed: Vec<_> = status
        .reasons
        .iter()
        .map(|reason| reason.message.clone())
        .collect();
    assert_eq!(
        closed,
        [
            "the credential gate of key …bad1 of main is closed: authentication",
            "the credential gate of key …bad2 of main is closed: authentication",
        ]
    );
    let sent = upstream.requests().len();
    assert!(
        sent <= 8 + 2,
        "four refusals of each key, and a probe: {sent}"
    );
    let listed = relight
        .admin()
        .list_targets(ListTargetsRequest::default())
        .await
        .unwrap();
    let gates = &listed.into_inner().targets[0].gates;
    let closed: Vec<_> = gates
        .iter()
        .filter(|gate| gate.closed)
        .map(|gate| gate.key.as_str())
        .collect();
    assert_eq!(closed, ["…bad1", "…bad2"]);
}

#[tokio::test]
async fn a_conversation_stays_with_one_key_and_conversations_are_shared_out() {
    let upstream = Upstream::start().await;
    let front = Front::start(&config(&upstream, &all_five(), "")).await;
    let mut keys = BTreeMap::new();
    for round in 0..3 {
        for number in 0..30 {
            let name = format!("talk-{number}");
            let body = json!({"model": "default", "messages": [{"role": "user", "content": "Hi"}]});
            let headers = [("x-relight-affinity", name.as_str())];
            let path = "/v1/chat/completions";
            let answer = front
                .send(Method::POST, path, &headers, body.to_string())
                .await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let key = key_of(upstream.requests().last().unwrap());
            let known = keys.entry(name).or_insert_with(|| key.clone());
            assert_eq!(*known, key, "round {round}");
        }
    }
    let distinct: std::collections::BTreeSet<_> = keys.values().collect();
    assert!(distinct.len() >= 4, "{distinct:?}");
}

#[tokio::test]
async fn what_is_known_of_a_key_that_stays_is_kept_when_others_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, format!("# the pool\n{REFUSED}\n\n{USED_UP}\n")).unwrap();
    let pool = json!({ "api_key": null, "api_keys_file": file });
    let mut server = Reloaded::start(json!({ "providers": { "p": pool } })).await;
    server
        .upstream
        .answering(|request| match key_of(request).as_str() {
            REFUSED | USED_UP => no(401, "invalid_api_key", &[]),
            _ => Reply::text("Hello."),
        });
    let closed = async |server: &Reloaded| -> Vec<String> {
        let gates = server.target().await.gates.into_iter();
        gates
            .filter(|gate| gate.closed)
            .map(|gate| gate.key)
            .collect()
    };
    while closed(&server).await.len() < 2 {
        server.invoke().await;
    }
    std::fs::write(&file, format!("{}\n{REFUSED}\n", GOOD[0])).unwrap();
    server.accepted().await;
    assert_eq!(closed(&server).await, ["…bad1"]);
    let before = server.upstream.requests().len();
    for _ in 0..10 {
        let response = server.invoke().await;
        assert!(
            matches!(response.outcome, Some(Outcome::Completion(_))),
            "{response:?}"
        );
    }
    let requests = server.upstream.requests();
    assert!(
        requests[before..]
            .iter()
            .all(|request| key_of(request) == GOOD[0])
    );
}

#[test]
fn faults_of_a_pool_are_told_with_their_place() {
    let faults = |provider: &str| {
        let text = format!(
            "providers:\n  p: {{ dialect: openai_chat, {provider} }}\ntargets: {{ t: {{ provider: p, model: m }} }}\n\
             routes: {{ default: {{ targets: [t] }} }}\n"
        );
        let error = load_text(&text, None, &GivenEnvironment::new()).unwrap_err();
        error.to_string()
    };
    for (provider, expected) in [
        (
            "api_keys: []",
            "providers.p.api_keys: is empty; a pool has at least one key",
        ),
        (
            "api_key: a, api_keys: [b]",
            "providers.p.api_keys: is given beside api_key; keep one of them",
        ),
        (
            "api_keys: [secret-a, b, secret-a]",
            "providers.p.api_keys[2]: is the same key as api_keys[0]",
        ),
        ("api_keys: [a, \"\"]", "providers.p.api_keys[1]: is empty"),
        (
            "api_keys: [a], credentials: { default: { api_key: b } }",
            "is what api_keys beside it means already",
        ),
    ] {
        let told = faults(provider);
        assert!(told.contains(expected), "{provider}: {told}");
        assert!(!told.contains("secret-a"), "{told}");
    }
}

#[tokio::test]
async fn the_settings_of_the_page_hold_as_they_are_written() {
    let page = include_str!("../../docs/pools.md");
    let settings = page
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let upstream = Upstream::start().await;
    upstream.answering(|request| match key_of(request).as_str() {
        "sk-2" => Reply::text("Hello."),
        _ => no(401, "invalid_api_key", &[]),
    });
    let base = format!(
        "    base_url: \"{}\"\n    allow_plaintext: true\n",
        upstream.base_url()
    );
    let text = format!(
        "{settings}{base}targets:\n  main: {{ provider: openai, model: m }}\nroutes:\n  default: {{ targets: [main] }}\n"
    );
    let given = (1..=3).map(|number| (format!("OPENAI_KEY_{number}"), format!("sk-{number}")));
    let environment: GivenEnvironment = given.collect();
    let pool = load_text(&text, None, &environment).unwrap();
    assert_eq!(pool.config.providers["openai"].api_keys.len(), 3);
    let written = (1..=3).fold(text, |text, number| {
        text.replace(
            &format!("${{OPENAI_KEY_{number}}}"),
            &format!("sk-{number}"),
        )
    });
    let relight = Relight::start(&written).await;
    let response = relight.ask("Hello?").await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    assert_eq!(response.attempts.last().unwrap().key, "#2");
}
