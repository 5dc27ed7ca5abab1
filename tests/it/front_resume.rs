//! A stream of the HTTP front survives its client: cut behind any event, its client comes back with
//! the id of the last one and holds what an uncut stream has, byte for byte.

use std::{net::SocketAddr, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use relight::internals::{
    domain::clock::wall_now,
    journal::{Journal as _, JournalMode, Limits, sqlite},
};
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, over},
    process::key,
    room::room,
    upstream::{Reply, Upstream, chunk, usage_chunk},
};

/// Longest time that one stream may take before the test fails.
const PATIENCE: Duration = Duration::from_mins(1);

const TEXT: &str = "It was the best of times, it was the worst of times, it was the age of wisdom.";

/// The protocols, by their paths.
const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

const RESUMABLE: (&str, &str) = ("x-relight-resumable", "true");

/// Reasoning, a text and a tool call, event by event.
fn whole() -> Reply {
    let mut events = vec![chunk(&json!({"reasoning_content": "Hm, "}), None)];
    events.push(chunk(&json!({"reasoning_content": "well."}), None));
    let words = TEXT.split_inclusive(' ');
    events.extend(words.map(|word| chunk(&json!({"content": word}), None)));
    let call = |function: Value| json!({"tool_calls": [{"index": 0, "id": "c-1", "type": "function", "function": function}]});
    events.push(chunk(
        &call(json!({"name": "add", "arguments": "{\"a\":"})),
        None,
    ));
    events.push(chunk(&call(json!({"arguments": "1}"})), None));
    events.push(chunk(&json!({}), Some("tool_calls")));
    events.push(usage_chunk(7, 30));
    events.push("[DONE]".to_owned());
    Reply::events(&events).paced(Duration::from_millis(1))
}

/// A request of this protocol for a stream.
fn request(path: &str) -> Value {
    let function = json!({"name": "add", "parameters": {"type": "object"}});
    let messages = json!([{"role": "user", "content": "Why?"}]);
    let mut body = match path {
        "/v1/chat/completions" => json!({
            "messages": messages, "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": function}],
        }),
        "/v1/messages" => json!({
            "messages": messages, "max_tokens": 4000, "tools": [{"name": "add", "input_schema": {"type": "object"}}],
        }),
        _ => json!({
            "input": "Why?", "temperature": 0.5,
            "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": false}],
        }),
    };
    (body["model"], body["stream"]) = (json!("chat"), json!(true));
    body
}

/// Reads a stream until its end, or until its client has this many events and leaves. Returns the
/// status and those events.
async fn read(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    (body, most): (&str, usize),
) -> (u16, Vec<String>) {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let read = async {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut response = client.request(request).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
            if events(&bytes).len() >= most {
                break;
            }
        }
        let mut events = events(&bytes);
        events.truncate(most);
        (response.status().as_u16(), events)
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("the stream hangs")
}

/// The whole events of a stream; comments are none.
fn events(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end + 2]);
    let without_comments = |event: &str| -> String {
        let lines = event.split_inclusive('\n');
        lines.filter(|line| !line.starts_with(':')).collect()
    };
    whole
        .split_inclusive("\n\n")
        .map(without_comments)
        .filter(|event| event != "\n")
        .collect()
}

/// The id of an event.
fn id(event: &str) -> &str {
    let line = event.lines().next().unwrap();
    line.strip_prefix("id: ")
        .unwrap_or_else(|| panic!("no id: {event}"))
}

/// The events without their ids.
fn without_ids(events: &[String]) -> Vec<String> {
    let rest = |event: &String| event.split_once('\n').unwrap().1.to_owned();
    events.iter().map(rest).collect()
}

async fn post(
    front: &Front,
    path: &str,
    headers: &[(&str, &str)],
    most: usize,
) -> (u16, Vec<String>) {
    let headers = [&[RESUMABLE], headers].concat();
    let body = request(path).to_string();
    read(front.address(), Method::POST, path, &headers, (&body, most)).await
}

/// Reads a stream whose client leaves behind the first `first` events, and comes back after every
/// `next` ones.
async fn cut(front: &Front, path: &str, key: &str, (first, next): (usize, usize)) -> Vec<String> {
    let key = ("idempotency-key", key);
    let (status, mut held) = post(front, path, &[key], first).await;
    assert_eq!((status, held.len()), (200, first), "{held:?}");
    loop {
        let last = id(held.last().unwrap()).to_owned();
        let (status, more) = post(front, path, &[key, ("last-event-id", &last)], next).await;
        held.extend(more);
        if status == 204 {
            return held;
        }
        assert_eq!(status, 200, "behind {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_at_any_event_holds_what_an_uncut_one_does() {
    let _room = room().await;
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(whole());
    second.otherwise(whole());
    let front = Front::start(&over(
        "chat",
        &[(&first, "openai_chat"), (&second, "openai_chat")],
    ))
    .await;
    let bytes = whole().body_bytes().len();
    for path in PATHS {
        let (_, all) = post(&front, path, &[], usize::MAX).await;
        for (index, next) in (1..all.len()).zip([1, 2, 3, 5, 8].into_iter().cycle()) {
            if index % 2 == 0 {
                // What breaks above is no matter for who comes back below.
                first.push(whole().cut_after(bytes * index / all.len()));
            }
            let key = format!("{path}-{index}");
            let held = cut(&front, path, &key, (index, next)).await;
            let uncut = post(&front, path, &[("idempotency-key", &key)], usize::MAX).await;
            assert_eq!(uncut, (200, held), "{path}, cut behind {index} events");
            assert_eq!(uncut.1.len(), all.len());
        }
    }
}

#[tokio::test]
async fn behind_any_event_of_a_finished_stream_the_rest_follows_and_behind_the_last_nothing() {
    let upstream = Upstream::start().await;
    upstream.otherwise(whole());
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for path in PATHS {
        let (_, all) = post(&front, path, &[], usize::MAX).await;
        for (index, event) in all.iter().enumerate() {
            let rest = post(&front, path, &[("last-event-id", id(event))], usize::MAX).await;
            let status = if index + 1 == all.len() { 204 } else { 200 };
            assert_eq!(rest, (status, all[index + 1..].to_vec()), "behind {event}");
        }
    }
    assert_eq!(upstream.requests().len(), PATHS.len());
}

#[tokio::test]
async fn a_stream_that_is_not_to_be_resumed_has_no_ids_and_is_the_same_without_them() {
    let upstream = Upstream::start().await;
    upstream.otherwise(whole());
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for path in PATHS {
        let body = request(path).to_string();
        let plain = read(
            front.address(),
            Method::POST,
            path,
            &[],
            (&body, usize::MAX),
        )
        .await;
        let (_, with_ids) = post(&front, path, &[], usize::MAX).await;
        assert_eq!(
            of_any_call(&plain.1),
            of_any_call(&without_ids(&with_ids)),
            "{path}"
        );
    }
}

/// The data of a stream's events without what differs from call to call.
fn of_any_call(events: &[String]) -> Vec<Value> {
    let own = invocation(&events[0]);
    let data = events.iter().filter_map(|event| {
        let data = event.split_once("data: ").unwrap().1;
        serde_json::from_str(&data.replace(&own, "I")).ok()
    });
    data.map(|mut event: Value| {
        for place in ["/created", "/response/created_at"] {
            if let Some(second) = event.pointer_mut(place) {
                *second = Value::Null;
            }
        }
        event
    })
    .collect()
}

/// The id of the invocation that an event of a stream's beginning names.
fn invocation(event: &str) -> String {
    let data = event.split_once("data: ").unwrap().1;
    let event: Value = serde_json::from_str(data).unwrap();
    let id = ["/id", "/response/id", "/message/id"]
        .into_iter()
        .find_map(|place| event.pointer(place)?.as_str());
    id.unwrap().split_once(['-', '_']).unwrap().1.to_owned()
}

#[tokio::test]
async fn a_response_is_streamed_once_more_from_any_event_by_number_and_by_id() {
    let upstream = Upstream::start().await;
    upstream.otherwise(whole());
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let (_, all) = post(&front, "/v1/responses", &[], usize::MAX).await;
    let response = invocation(&all[0]);
    let get = async |query: String, headers: &[(&str, &str)]| {
        let path = format!("/v1/responses/resp_{response}?stream=true{query}");
        read(
            front.address(),
            Method::GET,
            &path,
            headers,
            ("", usize::MAX),
        )
        .await
    };
    assert_eq!(get(String::new(), &[]).await, (200, all.clone()));
    for (number, event) in all.iter().enumerate() {
        let rest = all[number + 1..].to_vec();
        let status = if rest.is_empty() { 204 } else { 200 };
        let by_number = get(format!("&starting_after={number}"), &[]).await;
        assert_eq!(by_number, (status, rest.clone()), "behind number {number}");
        let by_id = get(String::new(), &[("last-event-id", id(event))]).await;
        assert_eq!(by_id, (status, rest), "behind {event}");
    }
    let beyond = format!(
        "/v1/responses/resp_{response}?stream=true&starting_after={}",
        all.len()
    );
    let refused = front.send(Method::GET, &beyond, &[], "").await;
    assert_eq!(
        (refused.status, &refused.error()["param"]),
        (400, &json!("starting_after")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_response_that_still_runs_is_followed_by_number() {
    let upstream = Upstream::start().await;
    upstream.otherwise(whole().paced(Duration::from_millis(40)));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let (_, held) = post(&front, "/v1/responses", &[], 9).await;
    let path = format!(
        "/v1/responses/resp_{}?stream=true&starting_after=8",
        invocation(&held[0])
    );
    let (status, rest) = read(front.address(), Method::GET, &path, &[], ("", usize::MAX)).await;
    let last = rest.last().unwrap();
    assert!(
        status == 200 && last.contains("response.completed"),
        "{last}"
    );
    let whole = path.replace("&starting_after=8", "");
    let whole = read(front.address(), Method::GET, &whole, &[], ("", usize::MAX)).await;
    assert_eq!(whole.1, [held, rest].concat());
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn the_failure_that_ends_a_stream_is_its_last_event_for_who_comes_back_too() {
    let _room = room().await;
    let upstream = Upstream::start().await;
    let bytes = whole().body_bytes().len();
    upstream.otherwise(Reply::text("Another answer altogether."));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for path in PATHS {
        upstream.push(whole().cut_after(bytes / 2));
        let (_, all) = post(&front, path, &[], usize::MAX).await;
        assert!(
            all.last().unwrap().contains("stream_interrupted"),
            "{all:?}"
        );
        for (index, event) in all.iter().enumerate() {
            let rest = post(&front, path, &[("last-event-id", id(event))], usize::MAX).await;
            let status = if index + 1 == all.len() { 204 } else { 200 };
            assert_eq!(rest, (status, all[index + 1..].to_vec()), "behind {event}");
        }
    }
}

/// The error object of each protocol.
fn refused(path: &str, answer: &Answer) -> (u16, Value, Value) {
    let body = answer.json();
    assert_eq!(
        body["type"] == "error",
        path == "/v1/messages",
        "in the protocol's own form: {body}"
    );
    let error = &body["error"];
    (answer.status, error["code"].clone(), error["param"].clone())
}

#[tokio::test]
async fn an_id_that_is_no_event_of_the_request_is_refused_in_each_protocol() {
    let upstream = Upstream::start().await;
    upstream.otherwise(whole());
    let keys = [key("acme", "acme-key", ""), key("other", "other-key", "")].join(", ");
    let route = over("chat", &[(&upstream, "openai_chat")]);
    let front = Front::start_with(&format!("  keys: [{keys}]\n"), &route).await;
    let acme = ("authorization", "Bearer acme-key");
    for path in PATHS {
        let body = request(path);
        let send = async |headers: &[(&str, &str)], body: &Value| {
            let answer = front
                .send(Method::POST, path, headers, body.to_string())
                .await;
            refused(path, &answer)
        };
        let (_, all) = post(&front, path, &[acme], usize::MAX).await;
        let last = id(&all[3]);
        let (step, _) = last.rsplit_once('.').unwrap();
        let field = json!("last-event-id");
        let [beyond, replaced] = ["99", "-"].map(|number| format!("{step}.{number}"));
        let unknown = last.replace(&last[..8], "00000000");
        for (header, status, code) in [
            ("nonsense", 400, "invalid_request"),
            (beyond.as_str(), 400, "invalid_request"),
            (replaced.as_str(), 410, "events_not_kept"),
        ] {
            let refused = send(&[acme, RESUMABLE, ("last-event-id", header)], &body).await;
            assert_eq!(refused, (status, json!(code), field.clone()), "{header}");
        }
        let returns = ("last-event-id", last);
        let foreign = ("authorization", "Bearer other-key");
        for (who, header) in [(foreign, returns), (acme, ("last-event-id", &unknown))] {
            let refused = send(&[who, RESUMABLE, header], &body).await;
            assert_eq!(
                (refused.0, &refused.1),
                (404, &json!("invocation_not_found"))
            );
        }
        let mut another = body.clone();
        another["model"] = json!("chat");
        another["temperature"] = json!(0.25);
        let other_key = ("idempotency-key", "k-9");
        for (headers, body) in [
            (&[acme, RESUMABLE, returns][..], &another),
            (&[acme, returns], &body),
            (&[acme, RESUMABLE, returns, other_key], &body),
        ] {
            let refused = send(headers, body).await;
            let wanted = (409, json!("event_of_another_request"), field.clone());
            assert_eq!(refused, wanted, "{headers:?}");
        }
        let mut document = body.clone();
        document["stream"] = json!(false);
        let refused = send(&[acme, RESUMABLE, returns], &document).await;
        assert_eq!(refused, (400, json!("invalid_request"), field));
    }
    assert_eq!(
        upstream.requests().len(),
        PATHS.len(),
        "no refusal calls a target"
    );
}

#[tokio::test]
async fn a_server_that_keeps_no_answers_refuses_what_could_not_be_resumed() {
    let upstream = Upstream::start().await;
    let route = over("chat", &[(&upstream, "openai_chat")]);
    let front = Front::start(&format!("{route}journal: {{ payloads: none }}\n")).await;
    for path in PATHS {
        let body = request(path).to_string();
        let answer = front.send(Method::POST, path, &[RESUMABLE], body).await;
        let (status, code, _) = refused(path, &answer);
        assert_eq!((status, code), (400, json!("payloads_not_kept")));
    }
    assert!(upstream.requests().is_empty());
}

/// A front whose journal is in this file.
async fn front_on(file: &std::path::Path, upstream: &Upstream, server: &str) -> Front {
    let route = over("chat", &[(upstream, "openai_chat")]);
    let journal = format!("journal: {{ store: \"sqlite:{}\" }}\n", file.display());
    Front::start_with(server, &format!("{route}{journal}")).await
}

#[tokio::test]
async fn events_whose_time_is_over_are_gone_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let upstream = Upstream::start().await;
    upstream.otherwise(whole());
    let front = front_on(&file, &upstream, "").await;
    for path in PATHS {
        let (_, all) = post(&front, path, &[], usize::MAX).await;
        let journal = sqlite::open(&file, JournalMode::Fast, Limits::default())
            .await
            .unwrap();
        let later = wall_now().checked_add(Duration::from_hours(1)).unwrap();
        journal.compact(later).await.unwrap();
        let returns = ("last-event-id", id(&all[3]));
        let body = request(path).to_string();
        let answer = front
            .send(Method::POST, path, &[RESUMABLE, returns], body)
            .await;
        let (status, code, param) = refused(path, &answer);
        assert_eq!(
            (status, code, param),
            (410, json!("events_not_kept"), json!("last-event-id"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_resumed_at_the_server_that_took_it_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    let upstream = Upstream::start().await;
    upstream.otherwise(whole().paced(Duration::from_millis(60)));
    for path in PATHS {
        let mut front = front_on(&file, &upstream, "  drain_timeout: 0s\n").await;
        let (_, mut held) = post(&front, path, &[], 6).await;
        front.take_running().shutdown().await;
        let front = front_on(&file, &upstream, "").await;
        let first = held[0].clone();
        while !["[DONE]", "response.completed", "message_stop"]
            .iter()
            .any(|end| held.last().unwrap().contains(end))
        {
            let last = id(held.last().unwrap()).to_owned();
            let (status, more) = post(&front, path, &[("last-event-id", &last)], 7).await;
            assert!(status == 200 && !more.is_empty(), "{status} behind {last}");
            held.extend(more);
        }
        let (_, uncut) = post(&front, path, &[("last-event-id", id(&first))], usize::MAX).await;
        assert_eq!(uncut, held[1..], "{path}");
        front_ended(front).await;
    }
}

async fn front_ended(mut front: Front) {
    front.take_running().shutdown().await;
}
