//! Tests of `message`, one for each guarantee.

use proptest::prelude::*;

use super::*;

fn messages(wire: Vec<v1::Message>) -> Result<Vec<Message>, Violations> {
    let mut faults = Violations::default();
    let messages = read_messages(&Path::Root("messages"), wire, &mut faults);
    faults.or(messages)
}

fn user(parts: Vec<v1::Part>) -> v1::Message {
    v1::Message {
        role: v1::Role::User.into(),
        parts,
        ..v1::Message::default()
    }
}

fn part(content: Content) -> v1::Part {
    v1::Part {
        content: Some(content),
        ..v1::Part::default()
    }
}

fn text(text: &str) -> v1::Part {
    part(Content::Text(v1::TextPart {
        text: text.to_owned(),
    }))
}

fn result(call: &str, content: &str) -> v1::Part {
    let content = Content::ToolResult(v1::ToolResultPart {
        call_id: call.to_owned(),
        content: text_content(content),
        ..v1::ToolResultPart::default()
    });
    part(content)
}

fn call(id: &str, name: &str) -> v1::Part {
    let call = v1::ToolCallPart {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments_json: "{".to_owned(),
    };
    part(Content::ToolCall(call))
}

fn turn(role: v1::Role, parts: Vec<v1::Part>) -> v1::Message {
    v1::Message {
        role: role.into(),
        parts,
        ..v1::Message::default()
    }
}

fn faults(wire: Vec<v1::Message>) -> Vec<(String, String)> {
    let faults = messages(wire).unwrap_err();
    faults
        .kept()
        .iter()
        .map(|fault| (fault.field.clone(), fault.reason.clone()))
        .collect()
}

#[test]
fn every_fault_of_a_conversation_is_reported_with_its_path() {
    let image = |source, mime: &str| {
        part(Content::Image(v1::ImagePart {
            mime_type: mime.to_owned(),
            detail: String::new(),
            source,
        }))
    };
    let file = v1::FilePart {
        source: Some(v1::file_part::Source::FileId("file-1".to_owned())),
        ..v1::FilePart::default()
    };
    let opaque = v1::Opaque {
        kind: "gemini.thought_signature".to_owned(),
        ..v1::Opaque::default()
    };
    let wire = vec![
        v1::Message {
            role: 0,
            parts: vec![text("hi")],
            ..v1::Message::default()
        },
        v1::Message {
            role: 9,
            parts: vec![text("hi")],
            name: "n".repeat(65),
            ..v1::Message::default()
        },
        user(vec![]),
        user(vec![v1::Part::default(), text("")]),
        user(vec![
            image(None, ""),
            image(Some(v1::image_part::Source::Data(vec![1])), ""),
            image(
                Some(v1::image_part::Source::Url("ftp://host/x.png".to_owned())),
                "",
            ),
            part(Content::File(file)),
        ]),
        turn(
            v1::Role::Assistant,
            vec![call("", ""), call("c1", "f"), call("c1", "f")],
        ),
        turn(v1::Role::Tool, vec![result("", "x")]),
        user(vec![v1::Part {
            opaque: vec![opaque.clone()],
            ..text("signed")
        }]),
        turn(
            v1::Role::Assistant,
            vec![v1::Part {
                opaque: vec![opaque.clone(), v1::Opaque::default()],
                ..call("c2", "f")
            }],
        ),
        v1::Message {
            opaque: vec![opaque.clone()],
            ..user(vec![part(Content::ProviderItem(opaque))])
        },
        v1::Message {
            text: "in short".to_owned(),
            ..user(vec![text("and at length")])
        },
    ];
    let found = faults(wire);
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "messages[0].role",
            "messages[1].role",
            "messages[1].name",
            "messages[2].parts",
            "messages[3].parts[0]",
            "messages[3].parts[1].text.text",
            "messages[4].parts[0].image",
            "messages[4].parts[1].image.mime_type",
            "messages[4].parts[2].image.url",
            "messages[4].parts[3].file.file_id",
            "messages[5].parts[0].tool_call.id",
            "messages[5].parts[0].tool_call.name",
            "messages[5].parts[2].tool_call.id",
            "messages[6].parts[0].tool_result.call_id",
            "messages[7].parts[0].opaque",
            "messages[8].parts[0].opaque[1].kind",
            "messages[8].parts[0].opaque",
            "messages[9].opaque",
            "messages[9].parts[0].provider_item",
            "messages[10].text",
        ]
    );
    assert_eq!(
        (found[0].1.as_str(), found[1].1.as_str()),
        ("is not set", "9 is no role")
    );
}

#[test]
fn media_in_a_tool_s_result_is_refused_and_not_lost() {
    let image = v1::ToolContent {
        content: Some(v1::tool_content::Content::Image(v1::ImagePart::default())),
        mcp_json: None,
    };
    let answer = v1::ToolResultPart {
        call_id: "c1".to_owned(),
        content: vec![image, v1::ToolContent::default()],
        ..v1::ToolResultPart::default()
    };
    let found = faults(vec![turn(
        v1::Role::Tool,
        vec![part(Content::ToolResult(answer))],
    )]);
    assert_eq!(found[0].0, "messages[0].parts[0].tool_result.content[0]");
    assert_eq!(found[1].0, "messages[0].parts[0].tool_result.content[1]");
}

#[test]
fn a_text_in_short_is_one_text_part_of_any_role() {
    for role in [v1::Role::System, v1::Role::User, v1::Role::Assistant] {
        let short = v1::Message {
            text: "hi".to_owned(),
            ..turn(role, Vec::new())
        };
        assert_eq!(
            messages(vec![short]),
            messages(vec![turn(role, vec![text("hi")])]),
            "{role:?}"
        );
    }
}

#[test]
fn an_assistants_message_may_be_empty() {
    let read = messages(vec![
        turn(v1::Role::Assistant, vec![]),
        turn(v1::Role::Assistant, vec![text("")]),
    ])
    .unwrap();
    assert_eq!(read[0].parts, []);
    assert_eq!(read[1].parts, [Part::Text(String::new())]);
}

#[test]
fn a_result_without_a_name_takes_that_of_its_call() {
    let read = messages(vec![
        turn(v1::Role::Assistant, vec![call("c1", "search")]),
        turn(
            v1::Role::Tool,
            vec![result("c1", "found"), result("kept", "older")],
        ),
    ])
    .unwrap();
    let names: Vec<&str> = read[1]
        .parts
        .iter()
        .filter_map(|part| {
            if let Part::ToolResult(result) = part {
                Some(result.name.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(names, ["search", ""]);
}

#[test]
fn structured_data_replaces_a_result_without_text() {
    let answer = |content| {
        part(Content::ToolResult(v1::ToolResultPart {
            call_id: "c1".to_owned(),
            content,
            structured_json: Some("[1]".to_owned()),
            ..v1::ToolResultPart::default()
        }))
    };
    let read = messages(vec![turn(
        v1::Role::Tool,
        vec![answer(vec![]), answer(text_content("one"))],
    )])
    .unwrap();
    let contents: Vec<&str> = read[0]
        .parts
        .iter()
        .filter_map(|part| {
            if let Part::ToolResult(result) = part {
                Some(result.content.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(contents, ["[1]", "one"]);
}

fn opaques() -> impl Strategy<Value = Option<Opaque>> {
    let one = (
        "[a-z]{1,9}\\.[a-z_]{1,9}",
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(|(kind, bytes)| Opaque { kind, bytes });
    prop::option::of(one)
}

fn media(named: bool) -> impl Strategy<Value = Media> {
    let bytes = (
        prop::collection::vec(any::<u8>(), 1..40),
        "[a-z]{1,5}/[a-z]{1,5}",
    )
        .prop_map(|(bytes, mime_type)| (MediaSource::Bytes(bytes), mime_type));
    let url = (
        "(https://|HTTPS://|data:)\\PC{0,20}",
        "([a-z]{1,5}/[a-z]{1,5})?",
    )
        .prop_map(|(url, mime_type)| (MediaSource::Url(url), mime_type));
    let word = prop::option::of("\\PC{1,12}");
    (prop_oneof![bytes, url], word).prop_map(move |((source, mime_type), word)| {
        let (name, detail) = if named { (word, None) } else { (None, word) };
        Media {
            mime_type,
            source,
            name,
            detail,
        }
    })
}

/// Parts as the domain can hold them; call ids are made unique afterwards.
fn parts() -> impl Strategy<Value = Part> {
    prop_oneof![
        "\\PC{1,40}".prop_map(Part::Text),
        media(false).prop_map(Part::Image),
        media(true).prop_map(Part::File),
        (any::<String>(), opaques())
            .prop_map(|(text, opaque)| Part::Reasoning(Reasoning { text, opaque })),
        ("[a-z]{1,9}", any::<String>(), opaques()).prop_map(|(name, arguments, opaque)| {
            Part::ToolCall(ToolCall {
                id: String::new(),
                name,
                arguments,
                opaque,
            })
        }),
        ("[a-z]{1,9}", "[a-z]{1,9}", any::<String>(), any::<bool>()).prop_map(
            |(call_id, name, content, is_error)| {
                Part::ToolResult(ToolResult {
                    call_id,
                    name,
                    content,
                    is_error,
                })
            }
        ),
        any::<String>().prop_map(Part::Refusal),
    ]
}

fn conversations() -> impl Strategy<Value = Vec<Message>> {
    let role = prop_oneof![
        Just(Role::System),
        Just(Role::Developer),
        Just(Role::User),
        Just(Role::Assistant),
        Just(Role::Tool)
    ];
    let message = (
        role,
        prop::collection::vec(parts(), 1..5),
        prop::option::of("\\PC{1,12}"),
    );
    let message = message.prop_map(|(role, parts, name)| Message {
        name,
        ..Message::new(role, parts)
    });
    prop::collection::vec(message, 0..6).prop_map(|mut conversation| {
        let all = conversation
            .iter_mut()
            .flat_map(|message| message.parts.iter_mut());
        for (index, part) in all.enumerate() {
            if let Part::ToolCall(call) = part {
                call.id = format!("call-{index}");
            }
        }
        conversation
    })
}

proptest! {
    #[test]
    fn a_conversation_comes_back_from_the_wire_as_it_was(conversation in conversations()) {
        use prost::Message as _;
        let wire: Vec<v1::Message> = conversation.iter().map(|message| wire_message(message, false)).collect();
        let sent = v1::ModelCall { messages: wire, ..v1::ModelCall::default() }.encode_to_vec();
        let received = v1::ModelCall::decode(sent.as_slice()).unwrap().messages;
        prop_assert_eq!(messages(received).unwrap(), conversation);
    }
}
