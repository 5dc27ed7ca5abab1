//! Access that is taken away ends what it opened, and nothing that others did.

use std::time::Duration;

use jiff::ToSpan as _;
use relight::internals::{
    domain::{clock::wall_now, fold::hash_text},
    grpc::v1::{
        InvokeWithRecoveryRequest, RewindMode, StreamWithRecoveryRequest, WatchRecoveryRequest,
        stream_with_recovery_request::Start as StreamStart, watch_recovery_request::Start,
    },
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::{Code, Status, Streaming};

use super::{ISSUER, at, claims, signer::Signer, signer::set};
use crate::support::{
    front::{Answer, post_with},
    process::{Process, Serve, replace, with_key},
    relight::{asking, streaming},
    upstream::{Reply, Upstream},
};

/// How long the answer takes of which nothing may be left out.
const ANSWER_TAKES: Duration = Duration::from_secs(20);

/// Longest time from the end of an access to the end of what it opened, with room for a busy
/// machine; an answer takes longer.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// The one whose access stays.
const OTHER: &str = "the-other-key";

/// A process whose callers are changed while it streams.
struct World {
    process: Process,
    config: Value,
    _upstream: Upstream,
}

/// What one caller opened.
struct Opened {
    watch: JoinSet<Code>,
    stream: JoinSet<Code>,
    fronts: JoinSet<Answer>,
}

fn key(name: &str, settings: &Value) -> Value {
    let mut key = json!({ "tenant": "acme", "sha256": hash_text(name) });
    for (setting, value) in settings.as_object().unwrap() {
        key[setting] = value.clone();
    }
    key
}

// === impl World ===

impl World {
    /// A server with these keys beside the one that stays.
    async fn of(keys: &[Value], settings: &Value) -> Self {
        let upstream = Upstream::start().await;
        let words = (0..40).map(|word| format!("w{word} ")).collect::<String>();
        let pieces = Reply::text(&words);
        let bytes = pieces.body_bytes().len().div_ceil(40);
        upstream.otherwise(pieces.in_pieces_of(bytes).paced(ANSWER_TAKES / 40));
        let mut config = json!({
            "server": { "openai_front": { "listen": "127.0.0.1:0" } },
            "providers": { "p": { "dialect": "openai_chat", "base_url": upstream.base_url(), "api_key": "k" } },
            "targets": { "t": { "provider": "p", "model": "m" } },
            "routes": { "default": { "targets": ["t"] }, "another": { "targets": ["t"] } },
            "journal": { "store": "memory" },
        });
        for (setting, value) in settings.as_object().unwrap() {
            config["server"][setting] = value.clone();
        }
        config["server"]["keys"] = json!(with_other(keys));
        let process = Serve::on("127.0.0.1:0", &config.to_string()).start().await;
        Self {
            process,
            config,
            _upstream: upstream,
        }
    }

    /// Has these keys alone from now on, beside the one that stays.
    fn changed(&mut self, keys: &[Value]) {
        self.config["server"]["keys"] = json!(with_other(keys));
        replace(&self.process.file, &self.config.to_string());
    }

    async fn opened(&self, credential: &str) -> Opened {
        let mut watch = JoinSet::new();
        let mut stream = JoinSet::new();
        let mut fronts = JoinSet::new();
        let request = WatchRecoveryRequest {
            filter: None,
            start: Some(Start::Live(true)),
        };
        let mut client = self.process.recovery();
        let watching = client.watch_recovery(with_key(credential, request)).await;
        watch.spawn(code(watching.unwrap().into_inner()));
        let request = StreamWithRecoveryRequest {
            start: Some(StreamStart::Invocation(streaming(
                "Hello",
                RewindMode::Rewind,
            ))),
        };
        let streamed = client
            .stream_with_recovery(with_key(credential, request))
            .await;
        stream.spawn(code(streamed.unwrap().into_inner()));
        let messages = json!([{ "role": "user", "content": "Hello" }]);
        for (path, body) in [
            (
                "/v1/chat/completions",
                json!({ "model": "default", "stream": true, "messages": messages }),
            ),
            (
                "/v1/messages",
                json!({ "model": "default", "stream": true, "messages": messages, "max_tokens": 99 }),
            ),
            (
                "/v1/responses",
                json!({ "model": "default", "stream": true, "input": "Hello" }),
            ),
        ] {
            let address = self.process.front_address.clone();
            let bearer = format!("Bearer {credential}");
            fronts.spawn(async move {
                post_with(address, path, &[("authorization", bearer.as_str())], &body).await
            });
        }
        sleep(Duration::from_secs(1)).await;
        Opened {
            watch,
            stream,
            fronts,
        }
    }

    /// Waits until a token is accepted: the keys are fetched when the server starts.
    async fn accepts(&self, token: &str) {
        let asked = async {
            loop {
                let request = InvokeWithRecoveryRequest {
                    invocation: Some(asking("Hello")),
                };
                let mut client = self.process.recovery();
                let call = client.invoke_with_recovery(with_key(token, request));
                match timeout(Duration::from_millis(500), call).await {
                    Ok(Err(status)) if status.code() == Code::Unauthenticated => {
                        sleep(Duration::from_millis(50)).await;
                    }
                    Ok(_) | Err(_) => return,
                }
            }
        };
        timeout(ENDED_WITHIN, asked).await.expect("it is accepted");
    }
}

fn with_other(keys: &[Value]) -> Vec<Value> {
    let mut keys = keys.to_vec();
    keys.push(key(OTHER, &json!({})));
    keys
}

/// How a stream ends.
async fn code<T>(mut stream: Streaming<T>) -> Code {
    loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return Code::Ok,
            Err(status) => return Status::code(&status),
        }
    }
}

// === impl Opened ===

impl Opened {
    /// Waits until all of it has ended with this, and with this name in the form of each front.
    async fn end(self, expected: Code, names: [&str; 3]) {
        let ended = async {
            (
                self.watch.join_all().await,
                self.stream.join_all().await,
                self.fronts.join_all().await,
            )
        };
        let (watch, stream, fronts) = timeout(ENDED_WITHIN, ended).await.expect("it all ends");
        assert_eq!((watch, stream), (vec![expected], vec![expected]));
        for answer in fronts {
            let last = answer.events().pop().unwrap_or_default().to_string();
            assert!(
                answer.status == 200 && names.iter().any(|name| last.contains(name)),
                "{answer:?}"
            );
            assert!(!answer.is_done(), "{answer:?}");
        }
    }

    /// Checks that none of it has ended.
    fn goes_on(&mut self) {
        assert!(self.watch.try_join_next().is_none());
        assert!(self.stream.try_join_next().is_none());
        assert!(self.fronts.try_join_next().is_none());
    }
}

const UNKNOWN: [&str; 3] = [
    "invalid_api_key",
    "authentication_error",
    "a valid credential is required",
];
const DENIED: [&str; 3] = [
    "access_withdrawn",
    "permission_error",
    "may no longer do what its stream does",
];

#[tokio::test]
async fn a_key_that_is_removed_ends_what_it_opened_and_nothing_of_another() {
    let mut world = World::of(&[key("gone", &json!({}))], &json!({})).await;
    let gone = world.opened("gone").await;
    let mut stays = world.opened(OTHER).await;
    world.changed(&[]);
    gone.end(Code::Unauthenticated, UNKNOWN).await;
    stays.goes_on();
}

#[tokio::test]
async fn a_key_that_expires_ends_what_it_opened() {
    let end = wall_now().checked_add(6.seconds()).unwrap();
    let keys = [key("short", &json!({ "expires": end.to_string() }))];
    let world = World::of(&keys, &json!({})).await;
    let mut short = world.opened("short").await;
    short.goes_on();
    short.end(Code::Unauthenticated, UNKNOWN).await;
}

#[tokio::test]
async fn a_key_that_may_only_look_from_now_on_ends_what_it_opened_with_more() {
    let admin = key("steers", &json!({ "role": "admin" }));
    let mut world = World::of(&[admin], &json!({})).await;
    let steers = world.opened("steers").await;
    let mut stays = world.opened(OTHER).await;
    world.changed(&[key("steers", &json!({ "role": "watcher" }))]);
    steers.end(Code::PermissionDenied, DENIED).await;
    stays.goes_on();
}

#[tokio::test]
async fn a_key_whose_route_is_taken_away_ends_what_it_opened_there() {
    let mut world = World::of(&[key("routed", &json!({}))], &json!({})).await;
    let routed = world.opened("routed").await;
    world.changed(&[key("routed", &json!({ "routes": ["another"] }))]);
    routed.end(Code::PermissionDenied, DENIED).await;
}

#[tokio::test]
async fn a_token_ends_what_it_opened_when_its_time_is_over() {
    let signer = Signer::ed25519("a");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    std::fs::write(&file, set(&[&signer])).unwrap();
    let jwt = json!({ "issuer": ISSUER, "audience": "relight", "jwks_file": file });
    let world = World::of(&[], &json!({ "jwt": jwt })).await;
    world.accepts(&signer.token(&claims(&json!({})))).await;
    // It is good for a minute longer, by which clocks may differ.
    let short = signer.token(&claims(&json!({ "exp": at(5 - 60) })));
    let mut opened = world.opened(&short).await;
    opened.goes_on();
    opened.end(Code::Unauthenticated, UNKNOWN).await;
}
