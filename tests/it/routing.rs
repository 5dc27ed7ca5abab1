//! A call goes to the targets that the order of its route, or its caller, says: by weights, to the
//! less busy, by a chain of the caller's own; and to none that is not well.

use std::{collections::BTreeMap, fmt::Write as _, fs, sync::Arc, time::Duration};

use hyper::Method;
use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, Overrides, recovery_service_client::RecoveryServiceClient,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::{Code, transport::Channel};
use tonic_types::StatusExt as _;

use crate::support::{
    front::{Answer, Front, question},
    process::{key, with_key},
    relight::asking,
    upstream::{Reply, Upstream},
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/routing.md");

/// Providers and targets of these names, one for each upstream.
fn targets(named: &[(&str, &Upstream)]) -> String {
    let mut providers = String::new();
    let mut targets = String::new();
    for (name, upstream) in named {
        let url = upstream.base_url();
        writeln!(
            providers,
            "  p-{name}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true }}"
        )
        .unwrap();
        writeln!(
            targets,
            "  {name}: {{ provider: p-{name}, model: m-{name} }}"
        )
        .unwrap();
    }
    format!("providers:\n{providers}targets:\n{targets}")
}

/// The blocks of the page in this language.
fn on_the_page(language: &str) -> Vec<String> {
    let page = fs::read_to_string(PAGE).unwrap();
    let blocks = page.split("```").skip(1).step_by(2);
    let named = blocks.filter_map(|block| block.split_once('\n'));
    named
        .filter(|(name, _)| *name == language)
        .map(|(_, lines)| lines.to_owned())
        .collect()
}

/// The routes on the page that are chosen in this order.
fn routes_of_the_page(order: &str) -> String {
    let mut blocks = on_the_page("yaml").into_iter();
    blocks.find(|block| block.contains(order)).unwrap()
}

fn target(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-relight-target").unwrap().to_owned()
}

/// Sends so many calls by so many callers, each one after the other, and counts them by target.
async fn counted(front: &Arc<Front>, callers: usize, calls_each: usize) -> BTreeMap<String, usize> {
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let front = Arc::clone(front);
        running.spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..calls_each {
                seen.push(target(&front.ask("chat", false).await));
            }
            seen
        });
    }
    let mut counts = BTreeMap::new();
    for name in running.join_all().await.into_iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn the_weights_of_the_page_share_calls_three_to_one_and_all_go_to_one_when_the_other_is_out()
{
    let east = Upstream::start().await;
    let west = Upstream::start().await;
    let config = targets(&[("east", &east), ("west", &west)]) + &routes_of_the_page("weighted");
    let front = Arc::new(Front::start(&config).await);
    let counts = counted(&front, 4, 100).await;
    // Of 400 draws at three in four, the standard deviation is 8.7: five of them to either side.
    assert!((257..=343).contains(&counts["east"]), "{counts:?}");
    assert_eq!(
        (east.requests().len(), west.requests().len()),
        (counts["east"], counts["west"])
    );
    east.otherwise(Reply::status(503));
    // Until its circuit opens it still gets its share, and each of those calls falls back.
    let counts = counted(&front, 2, 30).await;
    assert_eq!(counts.get("west"), Some(&60), "{counts:?}");
}

#[tokio::test]
async fn a_slow_target_gets_little_of_the_calls_of_a_least_busy_route() {
    let east = Upstream::start().await;
    let west = Upstream::start().await;
    west.otherwise(Reply::text("Late.").slow_head(Duration::from_secs(3)));
    let config = targets(&[("east", &east), ("west", &west)]) + &routes_of_the_page("least_busy");
    let front = Arc::new(Front::start(&config).await);
    let callers = 8;
    let calls_each = 25;
    let counts = counted(&front, callers, calls_each).await;
    let slow = counts.get("west").copied().unwrap_or(0);
    // While its latency is not known, it gets no more than all callers at once; each of two equals
    // would get half.
    let tried = west.requests().len();
    assert!((1..=callers).contains(&tried), "{tried} of {counts:?}");
    assert!(slow <= tried, "{counts:?}");
}

/// Three routes: `chat` over `a`, `b`; `other` over `c`; `fixed` over `d`, whose callers choose
/// nothing.
struct Stage {
    front: Front,
    upstreams: BTreeMap<&'static str, Upstream>,
}

// === impl Stage ===

impl Stage {
    async fn start() -> Self {
        let mut upstreams = BTreeMap::new();
        for name in ["a", "b", "c", "d"] {
            upstreams.insert(name, Upstream::start().await);
        }
        let named: Vec<_> = upstreams.iter().map(|(name, one)| (*name, one)).collect();
        let routes = "routes:\n  chat: { targets: [a, b], select: { order: shuffled } }\n  other: { targets: [c] }\n  \
                      fixed: { targets: [d], allow_overrides: { targets: false } }\n";
        let keys = [
            key("acme", "all", ""),
            key("acme", "chat", ", routes: [chat, fixed]"),
        ];
        let server = format!("  keys: [{}]", keys.join(", "));
        let front = Front::start_with(&server, &(targets(&named) + routes)).await;
        Self { front, upstreams }
    }

    /// Returns the number of requests of each upstream.
    fn asked(&self) -> Vec<usize> {
        let upstreams = self.upstreams.values();
        upstreams.map(|one| one.requests().len()).collect()
    }

    /// A call over HTTP, with a header of targets.
    async fn post(&self, path: &str, key: &str, body: &Value, chain: &str) -> Answer {
        let key = format!("Bearer {key}");
        let headers = [
            ("authorization", key.as_str()),
            ("x-relight-targets", chain),
        ];
        self.front
            .send(Method::POST, path, &headers, body.to_string())
            .await
    }

    async fn chat(&self, key: &str, model: &str, chain: &str) -> Answer {
        let body = question(model, false);
        self.post("/v1/chat/completions", key, &body, chain).await
    }

    async fn grpc(&self, key: &str, overrides: Overrides) -> Result<Vec<String>, tonic::Status> {
        let address = format!("http://{}", self.front.grpc_address);
        let channel = Channel::from_shared(address).unwrap();
        let mut client = RecoveryServiceClient::new(channel.connect().await.unwrap());
        let mut invocation = asking("Hello");
        "chat".clone_into(&mut invocation.route);
        invocation.overrides = Some(overrides);
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        let response = client.invoke_with_recovery(with_key(key, request)).await?;
        let attempts = response.into_inner().attempts.into_iter();
        Ok(attempts.map(|attempt| attempt.target).collect())
    }
}

fn chain(names: &[&str]) -> Overrides {
    Overrides {
        targets: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Overrides::default()
    }
}

#[tokio::test]
async fn a_callers_chain_is_called_in_its_order_over_every_front() {
    let stage = Stage::start().await;
    stage.upstreams["c"].otherwise(Reply::status(401));
    let message = json!([{"role": "user", "content": "Hello"}]);
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"model": "chat", "messages": message}),
        ),
        (
            "/v1/messages",
            json!({"model": "chat", "messages": message, "max_tokens": 16}),
        ),
        ("/v1/responses", json!({"model": "chat", "input": "Hello"})),
    ] {
        for (names, answers) in [("b, a", "b"), ("a,b", "a"), ("b", "b")] {
            let answer = stage.post(path, "all", &body, names).await;
            assert_eq!(target(&answer), answers, "{path}: {names}");
        }
    }
    let attempts = stage.grpc("all", chain(&["c", "b", "a"])).await.unwrap();
    assert_eq!(attempts, ["c", "b"], "the second of the chain takes over");
    assert_eq!(stage.asked(), [3, 7, 1, 0]);
}

#[tokio::test]
async fn a_chain_yields_to_health() {
    let stage = Stage::start().await;
    stage.upstreams["b"].otherwise(Reply::status(503));
    for _ in 0..30 {
        assert_eq!(target(&stage.chat("all", "chat", "b, a").await), "a");
    }
    let sent = stage.asked()[1];
    assert!(sent < 30, "its circuit is open to a chain, too: {sent}");
}

#[tokio::test]
async fn a_chain_holds_only_targets_that_its_key_may_use_and_bad_names_are_refused_by_their_place()
{
    let stage = Stage::start().await;
    for (key, model, names, fault, words) in [
        (
            "chat",
            "chat",
            "a, c",
            "x-relight-targets[1]",
            "no target that you may choose",
        ),
        (
            "all",
            "chat",
            "a, zz, b",
            "x-relight-targets[1]",
            "no target that you may choose",
        ),
        (
            "all",
            "chat",
            "d",
            "x-relight-targets[0]",
            "no target that you may choose",
        ),
        ("all", "chat", "a, b, a", "x-relight-targets[2]", "twice"),
        (
            "all",
            "fixed",
            "d",
            "x-relight-targets",
            "does not let callers choose",
        ),
        (
            "all",
            "a",
            "b, a",
            "x-relight-targets",
            "a model that is a target",
        ),
        ("all", "chat", "a,,b", "x-relight-targets", "empty name"),
    ] {
        let answer = stage.chat(key, model, names).await;
        assert_eq!(answer.status, 400, "{names}: {answer:?}");
        assert_eq!(answer.error()["param"], fault, "{names}: {answer:?}");
        assert!(answer.body.contains(words), "{names}: {answer:?}");
    }
    assert_eq!(target(&stage.chat("all", "chat", "c, a").await), "c");
    let both = Overrides {
        allowed_targets: vec!["a".to_owned()],
        ..chain(&["a"])
    };
    for (key, overrides, fault) in [
        (
            "chat",
            chain(&["b", "c"]),
            "invocation.overrides.targets[1]",
        ),
        ("all", chain(&["b", "b"]), "invocation.overrides.targets[1]"),
        ("all", chain(&[""]), "invocation.overrides.targets[0]"),
        ("all", both, "invocation.overrides.targets"),
    ] {
        let status = stage.grpc(key, overrides).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let faults = status.get_details_bad_request().unwrap().field_violations;
        assert!(
            faults.iter().any(|one| one.field == fault),
            "{fault}: {faults:?}"
        );
    }
    assert_eq!(
        stage.asked(),
        [0, 0, 1, 0],
        "nothing was called for a fault"
    );
}

/// Returns what `curl` would send: the value of each `-H`, and of `-d`.
fn sent_by(command: &str) -> (Vec<(&str, &str)>, &str) {
    let argument = |text: &'static str| {
        let pieces = command.split(text).skip(1);
        pieces.filter_map(|rest| rest.strip_prefix('\'')?.split('\'').next())
    };
    let headers = argument("-H ").map(|header| header.split_once(": ").unwrap());
    (headers.collect(), argument("-d ").next().unwrap())
}

#[tokio::test]
async fn the_call_of_the_page_goes_to_its_own_first_target() {
    let east = Upstream::start().await;
    let west = Upstream::start().await;
    let config = targets(&[("east", &east), ("west", &west)])
        + "routes: { chat: { targets: [east, west] } }\n";
    let front = Front::start(&config).await;
    let commands = on_the_page("sh");
    let (headers, body) = sent_by(&commands[0]);
    let answer = front
        .send(
            Method::POST,
            "/v1/chat/completions",
            &headers,
            body.to_owned(),
        )
        .await;
    assert_eq!(target(&answer), "west");
}
