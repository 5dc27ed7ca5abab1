//! Why a model stopped reaches every protocol, and callers over gRPC, as what it is: only what its
//! provider calls a whole answer is told as one, and an unknown word never is.

use relight::internals::{
    domain::target::Dialect,
    grpc::v1::{
        Completion, FinishReason, Invocation, InvokeWithRecoveryRequest,
        invoke_with_recovery_response::Outcome, recovery_service_client::RecoveryServiceClient,
    },
    wire_server::answers::bedrock,
};
use serde_json::json;

use crate::support::{
    dialect::stream,
    every_front::{FRONTS, Protocol, asked, held},
    front::{Front, over},
    relight::asking,
    told::{Told, Words},
    upstream::{Reply, Upstream},
};

const TEXT: &str = "As far as it got.";

/// An answer that ended for this reason.
fn ended(dialect: Dialect, reason: &str) -> Reply {
    let words = Words {
        reasoning: Vec::new(),
        text: vec![TEXT.to_owned()],
        calls: Vec::new(),
        is_numbered: true,
    };
    let Told { mut events, .. } = Told::of(dialect, &words);
    if dialect == Dialect::Bedrock {
        let place = events.len() - 2;
        events[place] = bedrock::event("messageStop", &json!({"stopReason": reason}));
        return stream(&events.concat());
    }
    let body = String::from_utf8(events.concat()).unwrap_or_default();
    let body = match dialect {
        Dialect::OpenaiChat => body.replace("\"stop\"", &json!(reason).to_string()),
        Dialect::Anthropic => body.replace("\"end_turn\"", &json!(reason).to_string()),
        Dialect::Gemini => body.replace("\"STOP\"", &json!(reason).to_string()),
        _ => {
            let why = json!({"reason": reason});
            body.replace("response.completed", "response.incomplete")
                .replace(
                    "\"status\":\"completed\"",
                    &format!("\"status\":\"incomplete\",\"incomplete_details\":{why}"),
                )
        }
    };
    stream(body.as_bytes())
}

/// The completion as a caller over gRPC has it.
async fn completion(front: &Front) -> Completion {
    let address = format!("http://{}", front.grpc_address);
    let mut client = RecoveryServiceClient::connect(address).await.unwrap();
    let invocation = Some(Invocation {
        route: "chat".to_owned(),
        ..asking("Why?")
    });
    let request = InvokeWithRecoveryRequest { invocation };
    let response = client.invoke_with_recovery(request).await.unwrap();
    match response.into_inner().outcome {
        Some(Outcome::Completion(completion)) => completion,
        other => panic!("{other:?}"),
    }
}

/// Each reason of each dialect, and what callers are told in the three protocols.
const TABLE: [(Dialect, &str, [&str; 3]); 18] = {
    const CUT: [&str; 3] = ["length", "max_tokens", "incomplete max_output_tokens"];
    const NOT_WHOLE: [&str; 3] = ["content_filter", "refusal", "incomplete content_filter"];
    const WHOLE: [&str; 3] = ["stop", "end_turn", "completed"];
    [
        (Dialect::OpenaiChat, "stop", WHOLE),
        (Dialect::OpenaiChat, "length", CUT),
        (Dialect::OpenaiChat, "content_filter", NOT_WHOLE),
        (Dialect::OpenaiChat, "new_in_2027", NOT_WHOLE),
        (Dialect::OpenaiResponses, "max_output_tokens", CUT),
        (Dialect::OpenaiResponses, "new_in_2027", NOT_WHOLE),
        (Dialect::OpenaiResponses, "completed", NOT_WHOLE),
        (Dialect::Anthropic, "end_turn", WHOLE),
        (Dialect::Anthropic, "refusal", NOT_WHOLE),
        (Dialect::Anthropic, "new_in_2027", NOT_WHOLE),
        (Dialect::Gemini, "STOP", WHOLE),
        (Dialect::Gemini, "SAFETY", NOT_WHOLE),
        (Dialect::Gemini, "OTHER", NOT_WHOLE),
        (Dialect::Gemini, "LANGUAGE", NOT_WHOLE),
        (Dialect::Gemini, "NEW_IN_2027", NOT_WHOLE),
        (Dialect::Bedrock, "end_turn", WHOLE),
        (Dialect::Bedrock, "guardrail_intervened", NOT_WHOLE),
        (Dialect::Bedrock, "new_in_2027", NOT_WHOLE),
    ]
};

#[tokio::test]
async fn why_a_model_stopped_is_told_as_it_is_in_every_protocol() {
    for dialect in [
        Dialect::OpenaiChat,
        Dialect::OpenaiResponses,
        Dialect::Anthropic,
        Dialect::Gemini,
        Dialect::Bedrock,
    ] {
        let upstream = Upstream::start().await;
        let mut config = over("chat", &[(&upstream, dialect.as_str())]);
        if dialect == Dialect::Bedrock {
            config = config.replace("api_key: k", "api_key: k, region: eu-test-1");
        }
        let front = Front::start(&config).await;
        for (_, raw, expected) in TABLE.into_iter().filter(|(own, ..)| *own == dialect) {
            upstream.otherwise(ended(dialect, raw));
            let over_grpc = completion(&front).await;
            let is_whole = over_grpc.finish_reason() == FinishReason::Stop;
            assert_eq!(is_whole, expected[0] == "stop", "{dialect:?} {raw}");
            assert_eq!(over_grpc.raw_finish_reason, raw, "{dialect:?}");
            for way in FRONTS {
                let answer = asked(&front, way, "Why?", &[]).await;
                let told = held(way, &answer).map(|held| (held.text, held.stop));
                let place = match way.0 {
                    Protocol::Chat => 0,
                    Protocol::Messages => 1,
                    Protocol::Responses => 2,
                };
                let expected = (TEXT.to_owned(), expected[place].to_owned());
                assert_eq!(
                    told,
                    Some(expected),
                    "{dialect:?} {raw} {way:?}: {answer:?}"
                );
            }
        }
    }
}
