//! Results of tools pass word for word, errors too, through the MCP front and over gRPC.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use relight::internals::{
    grpc::v1::{
        InvokeWithRecoveryResponse, Message, Role, ToolContent, file_part, image_part,
        invoke_with_recovery_response::Outcome, part, tool_content::Content,
    },
    wire_server::mcp::{Executed, ScriptedTool},
};
use serde_json::{Value, json, value::RawValue};

use crate::support::{
    front::post,
    tool_stage::{Stage, echo, failed},
};

const FRONT: &str = "  mcp_front: { listen: \"127.0.0.1:0\" }\n  limits: { max_reply_bytes: 64KiB }\ncircuit: { mode: \"off\" }";
/// Generated results of a run.
const RESULTS: usize = 120;

type Members = BTreeMap<String, Box<RawValue>>;

// === what a server may send ===

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,20}",
        "\\PC{0,12}",
        Just("line one\nline two \u{1F680} \"quoted\" \\ \u{7}".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "0",
        "-0",
        "1.0",
        "1e400",
        "0.1",
        "-1E+2",
        "12345678901234567890123",
        "3.14159",
    ])
    .prop_map(str::to_owned)
}

fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::btree_map(text(), value, 0..4).prop_map(|members| {
        let members = members.iter();
        let members: Vec<String> = members
            .map(|(name, value)| format!("{}: {value}", quoted(name)))
            .collect();
        format!("{{{}}}", members.join(" , "))
    })
}

fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        text().prop_map(|text| quoted(&text)),
        number(),
        prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            list.prop_map(|items| format!("[{}]", items.join(","))),
            members(inner),
        ]
    })
}

fn bytes() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| quoted(&BASE64.encode(bytes)))
}

/// A piece of content, with or without what may be beside.
fn piece() -> impl Strategy<Value = String> {
    let uri = || text().prop_map(|text| quoted(&format!("note://{text}")));
    let form = prop_oneof![
        text().prop_map(|text| format!(r#""type":"text","text":{}"#, quoted(&text))),
        bytes().prop_map(|data| format!(r#""type":"image","data":{data},"mimeType":"image/png""#)),
        bytes().prop_map(|data| format!(r#""type":"audio","mimeType":"audio/wav","data":{data}"#)),
        (uri(), text()).prop_map(|(uri, text)| format!(
            r#""type":"resource","resource":{{"uri":{uri},"title":"T","text":{},"_meta":{{"n":1.0}}}}"#, quoted(&text)
        )),
        (uri(), bytes()).prop_map(|(uri, blob)| format!(
            r#""type":"resource","resource":{{"uri":{uri},"mimeType":"x/y","blob":{blob}}}"#
        )),
        uri().prop_map(|uri| format!(
            r#""type":"resource_link","uri":{uri},"name":"n","title":"T","size":12345678901,"description":"d""#
        )),
        // Kinds that nobody knows yet, and known ones that are written wrongly.
        any_value().prop_map(|value| format!(r#""type":"hologram","depth":{value}"#)),
        any_value().prop_map(|value| format!(r#""type":"text","text":[{value}]"#)),
        Just(r#""type":"image","data":"no base64!","mimeType":"image/png""#.to_owned()),
    ];
    let beside = prop_oneof![
        Just(String::new()),
        any_value().prop_map(|value| format!(r#","_meta":{{"x/y":{value}}}"#)),
        Just(
            r#","annotations":{"audience":["user"],"priority":0.70,"lastModified":"2026-01-01"}"#
                .to_owned()
        ),
        any_value().prop_map(|value| format!(r#","later":{value}"#)),
    ];
    (form, beside).prop_map(|(form, beside)| format!("{{{form}{beside}}}"))
}

/// A whole result, and its pieces.
fn any_result() -> impl Strategy<Value = (String, Vec<String>)> {
    let optional = |name: &'static str, value: BoxedStrategy<String>| {
        prop::option::of(value.prop_map(move |value| format!(r#","{name}":{value}"#)))
            .prop_map(Option::unwrap_or_default)
    };
    let structured = optional("structuredContent", members(any_value()).boxed());
    let meta = optional("_meta", members(any_value()).boxed());
    let later = optional("later", any_value().boxed());
    let mark = optional(
        "isError",
        prop::sample::select(vec!["false", "true"])
            .prop_map(str::to_owned)
            .boxed(),
    );
    let content = prop::collection::vec(piece(), 0..4);
    (content, structured, meta, later, mark).prop_map(|(content, structured, meta, later, mark)| {
        let pieces = content.join(",");
        let result = format!(r#"{{"content":[{pieces}]{structured}{meta}{later}{mark}}}"#);
        (result, content)
    })
}

fn generated() -> Vec<(String, Vec<String>)> {
    let mut runner = TestRunner::new(Config::default());
    let results = any_result();
    let one = || results.new_tree(&mut runner).unwrap().current();
    std::iter::repeat_with(one).take(RESULTS).collect()
}

// === what comes out ===

fn parsed(text: &str) -> Members {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn texts(members: &Members) -> BTreeMap<&str, &str> {
    let texts = members.iter();
    texts
        .map(|(name, value)| (name.as_str(), value.get()))
        .collect()
}

/// The result of a call through the MCP front, as text.
async fn through_front(stage: &Stage, params: Value) -> String {
    let address = stage.relight.running.mcp_front_address.unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let response = post(address, "/mcp", &request).await;
    assert_eq!(response.status, 200, "{response:?}");
    let message = parsed(&response.body);
    let result = message.get("result");
    result
        .unwrap_or_else(|| panic!("{}", response.body))
        .get()
        .to_owned()
}

fn is_error(members: &Members) -> bool {
    members
        .get("isError")
        .is_some_and(|mark| mark.get() == "true")
}

/// Compares a result with what came of it; only what Relight says of itself may be more.
fn assert_unchanged(sent: &str, pieces: &[String], came: &str) {
    let (mut sent, mut came) = (parsed(sent), parsed(came));
    let is_error = is_error(&sent);
    let metas = [&sent, &came].map(|members| members.get("_meta").map(|meta| parsed(meta.get())));
    let [meta, with_own] = metas.map(Option::unwrap_or_default);
    let others: BTreeMap<&str, &str> = texts(&with_own)
        .into_iter()
        .filter(|(name, _)| !name.starts_with("relight/"))
        .collect();
    assert_eq!(texts(&meta), others);
    assert!(with_own.contains_key("relight/invocation"));
    let content: Vec<Box<RawValue>> = serde_json::from_str(came["content"].get()).unwrap();
    let mut content: Vec<&str> = content.iter().map(|piece| piece.get()).collect();
    if is_error {
        let explanation: Value = serde_json::from_str(content.pop().unwrap()).unwrap();
        assert_eq!(explanation["_meta"]["relight/explanation"], true);
    }
    assert_eq!(content, pieces);
    for members in [&mut sent, &mut came] {
        members.retain(|name, _| name != "_meta" && name != "content");
    }
    assert_eq!(texts(&sent), texts(&came));
}

/// A piece as it was sent, put together again from the contract's.
fn put_together(piece: &ToolContent) -> String {
    let beside = piece.mcp_json.as_deref();
    let mut members = beside.map(parsed).unwrap_or_default();
    let raw = |text: String| RawValue::from_string(text).unwrap();
    let (kind, mime_type, name, payload) = match piece.content.as_ref() {
        None => return beside.unwrap().to_owned(),
        Some(Content::Text(text)) => ("text", None, "text", quoted(&text.text)),
        Some(Content::Image(image)) => match image.source.as_ref().unwrap() {
            image_part::Source::Data(data) => (
                "image",
                Some(&image.mime_type),
                "data",
                quoted(&BASE64.encode(data)),
            ),
            image_part::Source::Url(_) => unreachable!(),
        },
        Some(Content::File(file)) => match file.source.as_ref().unwrap() {
            file_part::Source::Data(data) => (
                "audio",
                Some(&file.mime_type),
                "data",
                quoted(&BASE64.encode(data)),
            ),
            // A link is all in what is beside.
            file_part::Source::Url(_) | file_part::Source::FileId(_) => {
                return beside.unwrap().to_owned();
            }
        },
    };
    if let Some(resource) = members.get("resource") {
        let mut inner = parsed(resource.get());
        let name = if name == "text" { "text" } else { "blob" };
        inner.insert(name.to_owned(), raw(payload));
        members.insert("resource".to_owned(), raw(canonical(&inner)));
        return canonical(&members);
    }
    members.insert(name.to_owned(), raw(payload));
    members
        .entry("type".to_owned())
        .or_insert_with(|| raw(quoted(kind)));
    if let Some(mime_type) = mime_type {
        members
            .entry("mimeType".to_owned())
            .or_insert_with(|| raw(quoted(mime_type)));
    }
    canonical(&members)
}

/// The members in the order of their names.
fn canonical(members: &Members) -> String {
    serde_json::to_string(members).unwrap()
}

fn canonical_piece(piece: &str) -> String {
    let mut members = parsed(piece);
    if let Some(resource) = members.get("resource") {
        let inner = canonical(&parsed(resource.get()));
        members.insert("resource".to_owned(), RawValue::from_string(inner).unwrap());
    }
    canonical(&members)
}

/// The same for a call over gRPC.
fn assert_complete(sent: &str, pieces: &[String], came: &InvokeWithRecoveryResponse) {
    let mut sent = parsed(sent);
    let (content, structured, beside) = match came.outcome.as_ref().unwrap() {
        Outcome::Completion(completion) => {
            let output = completion.tool_output.as_ref().unwrap();
            (&output.content, &output.structured_json, &output.mcp_json)
        }
        Outcome::Failure(failure) => {
            let result = failure.tool_result.as_ref().unwrap();
            assert!(result.is_error && is_error(&sent));
            (&result.content, &result.structured_json, &result.mcp_json)
        }
    };
    let expected: Vec<String> = pieces.iter().map(|piece| canonical_piece(piece)).collect();
    let put_together: Vec<String> = content
        .iter()
        .map(|piece| canonical_piece(&put_together(piece)))
        .collect();
    assert_eq!(put_together, expected);
    let structured_sent = sent.remove("structuredContent");
    assert_eq!(
        structured.as_deref(),
        structured_sent.as_ref().map(|value| value.get())
    );
    sent.retain(|name, _| name != "content" && name != "isError");
    let beside = beside.as_deref().map(parsed).unwrap_or_default();
    assert_eq!(texts(&beside), texts(&sent));
}

async fn stage_of(results: Vec<(String, Vec<String>)>) -> Stage {
    let tool = ScriptedTool::new("get", &json!({"type": "object"}), move |arguments| {
        let number = usize::try_from(arguments["n"].as_u64().unwrap()).unwrap();
        Executed::Whole(results[number].0.clone())
    });
    Stage::with(vec![tool], FRONT).await
}

#[tokio::test]
async fn whatever_a_tool_returns_comes_out_as_it_went_in() {
    let results = generated();
    let stage = stage_of(results.clone()).await;
    for (number, (sent, pieces)) in results.iter().enumerate() {
        let arguments = json!({"n": number});
        let params = json!({"name": "get", "arguments": arguments});
        let came = through_front(&stage, params).await;
        assert_unchanged(sent, pieces, &came);
        let came = stage.call("get", arguments).await;
        assert_complete(sent, pieces, &came);
    }
    assert_eq!(
        stage.script.calls().len(),
        2 * RESULTS,
        "each is executed once"
    );
}

#[tokio::test]
async fn what_was_returned_can_be_looked_up_as_it_was() {
    use relight::internals::grpc::v1::invocation_record::Outcome as Kept;

    let results = generated();
    let stage = stage_of(results.clone()).await;
    for (number, (sent, pieces)) in results.iter().enumerate().take(12) {
        let came = stage.call("get", json!({"n": number})).await;
        let record = stage.relight.get(&came.invocation_id).await;
        let kept = InvokeWithRecoveryResponse {
            outcome: record.outcome.map(|outcome| match outcome {
                Kept::Completion(completion) => Outcome::Completion(completion),
                Kept::Failure(failure) => Outcome::Failure(failure),
            }),
            ..came
        };
        assert_complete(sent, pieces, &kept);
    }
}

#[tokio::test]
async fn the_requests_meta_reaches_the_server_without_what_belongs_to_the_connection() {
    let stage = Stage::with(vec![echo("look")], FRONT).await;
    let meta = json!({"progressToken": 7, "relight/goal": "g", "io.modelcontextprotocol/clientInfo": {"name": "c"},
        "example.com/trace": {"deep": [1, null, "ü"]}, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    let params = json!({"name": "look", "arguments": {}, "_meta": meta});
    through_front(&stage, params).await;
    let mut seen = stage.script.metas().remove(0);
    let own = seen.as_object_mut().unwrap();
    assert_ne!(own.remove("progressToken"), Some(json!(7)));
    own.retain(|name, _| !name.starts_with("io.modelcontextprotocol/"));
    assert_eq!(
        seen,
        json!({"example.com/trace": {"deep": [1, null, "ü"]}, "traceparent": meta["traceparent"]})
    );
    through_front(&stage, json!({"name": "look", "arguments": {}})).await;
    let bare = stage.script.metas().remove(1);
    assert_eq!(bare.get("relight/goal"), None);
}

#[tokio::test]
async fn a_tools_own_words_reach_the_model_before_relights_and_each_sentence_once() {
    let words = [
        "date must be YYYY-MM-DD",
        "File not found: /srv/a.txt. Did you mean /srv/b.txt?",
        "permission denied: repository is archived",
        "Rate limit exceeded. Try again in 2 seconds",
        "Query timed out after 30s; add a WHERE clause",
        "duplicate key value violates unique constraint users_pkey",
        "401 Unauthorized",
        "model overloaded",
    ];
    // Each has tools of its own: what one refuses closes its gate.
    let saying = |name: String, words: &'static str| {
        ScriptedTool::new(&name, &json!({"type": "object"}), move |_| {
            Executed::Error(words.to_owned())
        })
    };
    let mut tools = Vec::new();
    for (number, words) in words.iter().enumerate() {
        tools.extend(["ask", "tell"].map(|name| saying(format!("{name}_{number}"), words)));
    }
    let stage = Stage::with(tools, FRONT).await;
    for (number, words) in words.iter().enumerate() {
        let params = json!({"name": format!("ask_{number}"), "arguments": {}});
        let result: Value = serde_json::from_str(&through_front(&stage, params).await).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"][0], json!({"type": "text", "text": words}));
        let explanation = result["content"][1]["text"].as_str().unwrap();
        assert_said_once(explanation);
        assert_eq!(result["content"].as_array().unwrap().len(), 2);
        let response = stage.call(&format!("tell_{number}"), json!({})).await;
        let patch = &response.history_patch;
        let roles: Vec<Role> = patch.iter().map(Message::role).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool], "{words}");
        let Some(part::Content::ToolResult(told)) = &patch[1].parts[0].content else {
            panic!("{patch:?}")
        };
        assert!(told.is_error);
        let Some(Content::Text(text)) = &told.content[0].content else {
            panic!("{told:?}")
        };
        assert!(text.text.starts_with(words), "{text:?}");
        assert_said_once(&text.text);
    }
}

/// No sentence is in a text twice, and none speaks of models where a tool failed.
fn assert_said_once(text: &str) {
    let mut sentences: Vec<&str> = text
        .split(['.', '\n', ':', ';'])
        .map(str::trim)
        .filter(|sentence| sentence.len() > 12)
        .collect();
    let all = sentences.len();
    sentences.sort_unstable();
    sentences.dedup();
    assert_eq!(sentences.len(), all, "{text}");
}

#[tokio::test]
async fn the_words_of_a_refusal_by_the_protocol_reach_the_caller() {
    let refused = ScriptedTool::new("ask", &json!({"type": "object"}), |_| {
        Executed::Refused(-32602, "q must not be bad".to_owned())
    });
    let stage = Stage::with(vec![refused], FRONT).await;
    let params = json!({"name": "ask", "arguments": {}});
    let result: Value = serde_json::from_str(&through_front(&stage, params).await).unwrap();
    assert_eq!(
        result["content"][0]["text"], "q must not be bad",
        "{result}"
    );
    assert_eq!(
        result["_meta"]["relight/error"],
        json!({"code": -32602, "message": "q must not be bad"})
    );
}

#[tokio::test]
async fn structured_data_of_an_error_is_left_out_where_a_client_would_refuse_it() {
    let error = r#"{"isError":true,"content":[{"type":"text","text":"Authentication failed for origin"}],"structuredContent":{"code":401}}"#;
    let tool = |name: &str| {
        ScriptedTool::new(name, &json!({"type": "object"}), move |_| {
            Executed::Whole(error.to_owned())
        })
    };
    let schema =
        json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
    let stage = Stage::with(
        vec![tool("push").with("outputSchema", schema), tool("pull")],
        FRONT,
    )
    .await;
    let get = async |name: &str| -> Value {
        let params = json!({"name": name, "arguments": {}});
        serde_json::from_str(&through_front(&stage, params).await).unwrap()
    };
    let result = get("push").await;
    assert_eq!(
        result["content"][0]["text"],
        "Authentication failed for origin"
    );
    assert_eq!(result.get("structuredContent"), None);
    assert_eq!(
        result["_meta"]["relight/structuredContent"],
        json!({"code": 401})
    );
    assert_eq!(get("pull").await["structuredContent"], json!({"code": 401}));
}

#[tokio::test]
async fn a_result_above_the_limit_says_so() {
    let large = ScriptedTool::new("get", &json!({"type": "object"}), |_| {
        Executed::Result(Value::from("x".repeat(70_000)))
    });
    let stage = Stage::with(vec![large], FRONT).await;
    let params = json!({"name": "get", "arguments": {}});
    let result: Value = serde_json::from_str(&through_front(&stage, params).await).unwrap();
    assert_eq!(result["isError"], true);
    let told = result["content"].to_string();
    assert!(
        told.contains("64KiB") && told.contains("tools.limits.max_reply_bytes"),
        "{told}"
    );
    let response = stage.call("get", json!({})).await;
    assert!(failed(&response).message.contains("64KiB"), "{response:?}");
}
