//! Bodies: large, half-sent, compressed, deep, or made of very many small things.

use std::time::Duration;

use futures_util::future::join_all;
use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, Message, ModelCall, Part, Role, TextPart,
    ToolDefinition, invocation::Call, part::Content,
};

use super::{MIB, NOWHERE, chat, field, framed, gzip_of_zeros, invoke, post};
use crate::support::{
    limits::Limits,
    process::{KEY, with_key},
    room::room,
};

const LARGE: Limits = Limits {
    connections: 40,
    in_flight_mib: 48,
    requests: 24,
    answer_kib: 1024,
    journal_mib: 4,
    events: 64,
};

#[tokio::test]
async fn forty_large_messages_without_a_key_cost_nothing_and_are_refused() {
    let _room = room().await;
    let attacked = Limits {
        connections: 8,
        ..LARGE
    }
    .serve(NOWHERE, "", "")
    .await;
    let message = field(1, &field(6, &vec![b'x'; 30 * MIB]));
    let length = message.len();
    for _ in 0..8 {
        let calls = (0..5).map(|_| invoke(&attacked.server, None, message.clone(), length));
        for came in join_all(calls).await {
            // The response may be lost where the client continues writing; a message is not
            // accepted in any case.
            assert!(
                came.as_ref()
                    .map_or(true, |(_, code)| code.as_deref() == Some("16")),
                "{came:?}"
            );
        }
    }
    attacked.assert_bounded("messages without a key");
}

#[tokio::test]
async fn messages_that_do_not_end_hold_no_more_than_the_limit_and_end_by_themselves() {
    let attacked = LARGE.serve(NOWHERE, "", "").await;
    let message = field(1, &field(6, &vec![b'x'; 24 * MIB]));
    let calls = (0..16).map(|_| {
        invoke(
            &attacked.server,
            Some(KEY),
            message.clone(),
            message.len() + MIB,
        )
    });
    for came in join_all(calls).await {
        assert!(
            came.as_ref()
                .map_or(true, |(_, code)| code.as_deref() != Some("0")),
            "{came:?}"
        );
    }
    attacked.assert_bounded("half-sent messages");
    let came = invoke(&attacked.server, Some(KEY), Vec::new(), 0)
        .await
        .unwrap();
    assert_eq!(
        came.1.as_deref(),
        Some("3"),
        "the room is free again: an empty request is not valid"
    );
}

#[tokio::test]
async fn millions_of_empty_entries_are_refused_before_they_are_decoded() {
    let _room = room().await;
    let attacked = LARGE.serve(NOWHERE, "", "").await;
    // Messages of a call without anything in them, by the wire: two bytes each.
    let entries: Vec<u8> = [0x0a, 0x00].repeat(31 * MIB / 2);
    let message = field(1, &field(3, &entries));
    for _ in 0..3 {
        let length = message.len();
        let came = invoke(&attacked.server, Some(KEY), message.clone(), length)
            .await
            .unwrap();
        assert_eq!(came.1.as_deref(), Some("8"), "RESOURCE_EXHAUSTED");
    }
    let body = format!(
        "{{\"model\":\"default\",\"messages\":[{}0]}}",
        "0,".repeat(15 * MIB)
    );
    for _ in 0..3 {
        assert_eq!(
            chat(&attacked.server, body.clone().into_bytes(), &[])
                .await
                .unwrap()
                .0,
            413
        );
    }
    attacked.assert_bounded("empty entries");
}

#[tokio::test]
async fn calls_of_very_many_small_parts_and_tools_hold_no_more_than_the_limit() {
    let _room = room().await;
    // A provider that keeps all of them waiting, without a word.
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits {
        connections: 2,
        in_flight_mib: 8,
        requests: 60,
        answer_kib: 64,
        ..Limits::default()
    };
    let attacked = limits
        .serve(
            &format!("http://{}/v1", upstream.local_addr().unwrap()),
            "",
            "",
        )
        .await;
    let part = Part {
        content: Some(Content::Text(TextPart {
            text: "x".to_owned(),
        })),
        ..Part::default()
    };
    let message = Message {
        role: Role::User.into(),
        parts: vec![part; 8_000],
        ..Message::default()
    };
    let tools = (0..1000).map(|number| ToolDefinition {
        name: format!("t{number}"),
        input_schema_json: "{}".to_owned(),
        ..ToolDefinition::default()
    });
    let call = ModelCall {
        messages: vec![message],
        tools: tools.collect(),
        ..ModelCall::default()
    };
    let call = Invocation {
        operation: "executor".to_owned(),
        call: Some(Call::Model(call)),
        ..Invocation::default()
    };
    let client = attacked.server.recovery();
    let calls = (0..60).map(|_| {
        let (mut client, invocation) = (client.clone(), Some(call.clone()));
        async move {
            client
                .invoke_with_recovery(with_key(KEY, InvokeWithRecoveryRequest { invocation }))
                .await
        }
    });
    // None of them ends before its deadline.
    let _ = tokio::time::timeout(Duration::from_secs(10), join_all(calls)).await;
    attacked.assert_bounded("parts and tools");
}

#[tokio::test]
async fn deep_json_is_refused_however_deep_it_is() {
    let attacked = LARGE.serve(NOWHERE, "", "").await;
    for depth in [200, 100_000, 10 * MIB] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let body = format!(
            "{{\"model\":\"default\",\"messages\":[{{\"role\":\"user\",\"content\":{open}{close}}}]}}"
        );
        let came = chat(&attacked.server, body.into_bytes(), &[])
            .await
            .unwrap();
        assert!([400, 413].contains(&came.0), "{depth}: {came:?}");
        let deep = vec![0x12_u8; depth];
        let came = invoke(&attacked.server, Some(KEY), deep, depth)
            .await
            .unwrap();
        assert_ne!(came.1.as_deref(), Some("0"), "{depth}");
    }
    attacked.assert_bounded("deep JSON");
}

#[tokio::test]
async fn compressed_requests_are_refused_and_never_inflated() {
    let attacked = LARGE.serve(NOWHERE, "", "").await;
    let bomb = gzip_of_zeros(1 << 30);
    assert!(bomb.len() < 8 * MIB);
    let authorization = format!("Bearer {KEY}");
    for encoding in ["gzip", "deflate", "zstd", "identity"] {
        let headers = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("authorization", &authorization),
            ("grpc-encoding", encoding),
        ];
        let body = framed(1, &bomb, bomb.len());
        let came = post(
            &attacked.server.address,
            super::INVOKE,
            &headers,
            true,
            body,
        )
        .await
        .unwrap();
        assert!(
            !matches!(came.1.as_deref(), Some("0")),
            "{encoding}: {came:?}"
        );
        match chat(
            &attacked.server,
            bomb.clone(),
            &[("content-encoding", encoding)],
        )
        .await
        {
            Ok(came) => assert!((400..500).contains(&came.0), "{encoding}: {came:?}"),
            // Refused by its header, while its body was still being sent.
            Err(error) => assert_ne!(encoding, "identity", "{error}"),
        }
    }
    attacked.assert_bounded("compressed requests");
}
