//! Changes of prices: what a recovered call cost is shown as money, in the record, in the metrics
//! and by `relight explain`.

use relight::internals::grpc::v1::{Cost, GetInvocationRequest, get_invocation_request};
use serde_json::json;

use crate::support::{
    binary::run,
    http::metrics,
    reloaded::Reloaded,
    upstream::{Reply, chunk, usage_chunk},
};

/// A response of 1000 tokens for a prompt of 2000, after one that broke off at once.
fn recovered(server: &Reloaded) {
    let broken: Vec<String> = vec![chunk(&json!({ "content": "Hel" }), None)];
    let whole = vec![
        chunk(&json!({ "content": "Hello." }), None),
        chunk(&json!({}), Some("stop")),
        usage_chunk(2000, 1000),
        "[DONE]".to_owned(),
    ];
    server
        .upstream
        .push(Reply::events(&broken))
        .push(Reply::events(&whole));
}

async fn cost(server: &Reloaded, id: &str) -> Option<Cost> {
    let invocation = Some(get_invocation_request::Invocation::InvocationId(
        id.to_owned(),
    ));
    let found = server
        .recovery()
        .get_invocation(GetInvocationRequest { invocation })
        .await
        .unwrap();
    found.into_inner().invocation.unwrap().cost
}

#[tokio::test]
async fn what_calls_cost_is_shown_by_the_changed_prices() {
    let quick = json!({ "policies": { "standard": { "retry": { "backoff": { "base": "1ms", "cap": "1ms" } } } } });
    let mut server = Reloaded::start(quick).await;
    recovered(&server);
    let id = server.invoke().await.invocation_id;
    assert_eq!(cost(&server, &id).await, None, "the target has no price");
    let price = json!({
        "input_per_million": 3.0, "output_per_million": 15.0,
        "cached_input_per_million": 0.3, "cache_write_per_million": 3.75,
    });
    server
        .change(json!({ "currency": "EUR", "targets": { "main": { "price": price } } }))
        .await;
    let shown = cost(&server, &id).await.unwrap();
    // 2000 tokens at 3, and 1000 at 15 for a million.
    assert_eq!(
        (shown.currency.as_str(), shown.delivered_micros),
        ("EUR", 21_000)
    );
    let recovery = shown.spent_micros - shown.delivered_micros;
    assert!(
        (1..1000).contains(&recovery),
        "a short prompt and three letters: {recovery}"
    );
    recovered(&server);
    let id = server.invoke().await.invocation_id;
    let address = server.running.address.to_string();
    let explained = run(&["explain", "--address", &address, &id]).await.out;
    let line = explained
        .lines()
        .find(|line| line.starts_with("cost "))
        .unwrap_or_else(|| panic!("{explained}"));
    assert!(line.starts_with("cost about 0.021"), "{line}");
    assert!(
        line.contains("; for the response alone 0.021000 EUR; for recovery about 0.000"),
        "{line}"
    );
    let metrics = metrics(server.running.admin_address).await;
    let delivered = metrics
        .lines()
        .find(|line| line.starts_with("relight_cost_delivered_total{"))
        .unwrap();
    assert!(
        delivered.contains("currency=\"EUR\"") && delivered.ends_with(" 0.021"),
        "{delivered}"
    );
    let spent = metrics
        .lines()
        .find(|line| line.starts_with("relight_cost_spent_total{"))
        .unwrap();
    let spent: f64 = spent.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(spent > 0.021 && spent < 0.022, "{spent}");
}
