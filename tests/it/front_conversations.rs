//! A conversation that `previous_response_id` continues is what the client of the Responses API
//! takes it for.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, over},
    postgres::Database,
    upstream::{Reply, Upstream},
};

const TEXT: &str = "One two three four five six.";

/// Sends a turn; `previous` is the id of the response that it continues.
async fn send(front: &Front, headers: &[(&str, &str)], previous: &Value, body: &Value) -> Answer {
    let mut body = body.clone();
    body["model"] = json!("chat");
    body["previous_response_id"] = previous.clone();
    front
        .send(Method::POST, "/v1/responses", headers, body.to_string())
        .await
}

/// The id of the response, which is whole.
fn id(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    if answer.header("content-type") == Some("application/json") {
        return answer.json()["id"].clone();
    }
    let last = answer.events().pop().unwrap();
    assert_eq!(last["type"], "response.completed", "{answer:?}");
    last["response"]["id"].clone()
}

/// Who speaks in a request to a provider of the chat dialect, and what.
fn said(request: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = request["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| (text(&message["role"]), text(&message["content"])))
        .collect()
}

#[tokio::test]
async fn each_turn_sends_its_own_instructions_and_none_of_an_earlier_one() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let (mut previous, mut conversation) = (Value::Null, Vec::new());
    for instructions in [
        Some("In English."),
        Some("In French."),
        Some("In English."),
        None,
        Some("In French."),
    ] {
        let body = json!({"input": "Why?", "instructions": instructions});
        previous = id(&send(&front, &[], &previous, &body).await);
        conversation.push(("user".to_owned(), "Why?".to_owned()));
        let own = instructions.map(|text| ("system".to_owned(), text.to_owned()));
        let expected: Vec<_> = own
            .into_iter()
            .chain(conversation.iter().cloned())
            .collect();
        assert_eq!(
            said(&upstream.requests().last().unwrap().body),
            expected,
            "{instructions:?}"
        );
        conversation.push(("assistant".to_owned(), TEXT.to_owned()));
    }
}

#[tokio::test]
async fn instructions_within_the_input_are_a_part_of_the_conversation() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let input =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]);
    let first = id(&send(&front, &[], &Value::Null, &json!({"input": input})).await);
    let body = json!({"input": "And then?", "instructions": "In French."});
    id(&send(&front, &[], &first, &body).await);
    let roles: Vec<String> = said(&upstream.requests()[1].body)
        .into_iter()
        .map(|(role, _)| role)
        .collect();
    assert_eq!(roles, ["system", "system", "user", "assistant", "user"]);
}

#[tokio::test]
async fn a_turn_that_is_sent_once_more_with_its_key_gets_its_response_once_more() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::text(TEXT));
        let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
        let body = json!({"input": "Why?", "instructions": "Be brief.", "stream": stream});
        let first = id(&send(&front, &[], &Value::Null, &body).await);
        let key = [("idempotency-key", "k-2")];
        let second = send(&front, &key, &first, &body).await;
        let again = send(&front, &key, &first, &body).await;
        assert_eq!(id(&again), id(&second));
        let third = id(&send(&front, &[], &id(&second), &body).await);
        let later = send(&front, &key, &first, &body).await;
        assert_eq!(
            id(&later),
            id(&second),
            "also where the conversation went on"
        );
        assert_eq!(upstream.requests().len(), 3, "stream: {stream}");

        let other = json!({"input": "How?", "instructions": "Be brief.", "stream": stream});
        let refused = send(&front, &key, &first, &other).await;
        assert_eq!(
            (refused.status, &refused.error()["code"]),
            (409, &json!("idempotency_key_reused")),
            "{refused:?}"
        );
        let (no_key, another_key) = ([], [("idempotency-key", "k-9")]);
        for headers in [&no_key[..], &another_key[..]] {
            let refused = send(&front, headers, &first, &body).await;
            assert_eq!(
                (refused.status, &refused.error()["param"]),
                (400, &json!("previous_response_id"))
            );
        }
        assert_eq!(upstream.requests().len(), 3, "stream: {stream}");
        id(&send(&front, &[], &third, &body).await);
    }
}

#[tokio::test]
async fn a_turn_that_is_sent_once_more_while_it_runs_joins_itself() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
        let body = json!({"input": "Why?", "instructions": "Be brief.", "stream": stream});
        let first = id(&send(&front, &[], &Value::Null, &body).await);
        upstream.push(Reply::text(TEXT).paced(Duration::from_millis(50)));
        let key = [("idempotency-key", "k-2")];
        let once_more = async {
            upstream.await_request(2).await;
            send(&front, &key, &first, &body).await
        };
        let (one, other) = tokio::join!(send(&front, &key, &first, &body), once_more);
        assert_eq!(id(&one), id(&other));
        assert_eq!(upstream.requests().len(), 2, "stream: {stream}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_comes_twice_at_once_is_one_turn() {
    let folder = tempfile::tempdir().unwrap();
    let mut stores = vec![format!(
        "sqlite:{}",
        folder.path().join("journal.db").display()
    )];
    let database = Database::create().await;
    stores.extend(database.iter().map(Database::url));
    for store in stores {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::text(TEXT).slow_head(Duration::from_millis(300)));
        let settings = over("chat", &[(&upstream, "openai_chat")]);
        let front = Front::start(&format!("{settings}journal: {{ store: \"{store}\" }}\n")).await;
        let turns = (0..40).map(async |n| {
            let (key, thread) = (format!("k-{n}"), format!("t-{n}"));
            let headers = [
                ("idempotency-key", key.as_str()),
                ("x-relight-thread", thread.as_str()),
            ];
            let body = json!({"input": "Why?"});
            let sending = || send(&front, &headers, &Value::Null, &body);
            let (one, other, third) = tokio::join!(sending(), sending(), sending());
            assert_eq!([id(&one), id(&other)], [id(&third), id(&third)], "{n}");
        });
        futures_util::future::join_all(turns).await;
        assert_eq!(upstream.requests().len(), 40, "{store}");
    }
}
