//! A broken answer is revoked also where its target must be waited for before it is called again.

use crate::support::{
    front::Front,
    upstream::{Reply, Upstream},
};

const TEXT: &str = "One two three four five six seven eight nine ten.";

#[tokio::test]
async fn a_cut_answer_is_given_once_although_its_target_is_paced_after_a_rate_limit() {
    let upstream = Upstream::start().await;
    let body = b"{\"error\":{\"message\":\"Too many requests.\",\"code\":\"rate_limit_exceeded\"}}";
    upstream
        .push(Reply::body(429, &[("retry-after", "1")], body))
        .push(Reply::text(TEXT));
    upstream.push(Reply::text(TEXT).cut_in_the_middle());
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n\
         targets:\n  main: {{ provider: p, model: m }}\nroutes:\n  r: {{ targets: [main] }}\n",
        upstream.base_url()
    ))
    .await;
    for stream in [false, false, true] {
        let answer = front.ask("r", stream).await;
        assert!(answer.succeeded_with(TEXT), "{answer:?}");
    }
    assert_eq!(upstream.requests().len(), 5);
}
