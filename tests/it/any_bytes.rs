//! No bytes from outside make a reader of them panic or hang; `fuzz/` runs the same functions for
//! longer.

use proptest::prelude::*;

mod inputs;

/// Pieces of what each reader knows, so that inputs get past the first byte.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"[..],
        b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n",
        b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n",
        b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n",
        b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
        b"\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb\x7d\x98\xc8\xff",
        b"providers: { p: { dialect: scripted } }\n",
        b"targets:\n  t: { provider: p, model: m }\n",
        b"\n\n",
        b"data: ",
        b"\"",
        b"{",
        b"}",
        b"\x0a\x04\x52\x02\x0a\x00",
    ]);
    let piece = prop_oneof![3 => known.prop_map(<[u8]>::to_vec), 1 => prop::collection::vec(any::<u8>(), 0..24)];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_message_of_the_grpc_api_panics(bytes in pieces()) {
        inputs::grpc_message(&bytes);
    }

    #[test]
    fn no_body_of_the_front_panics(bytes in pieces()) {
        inputs::front_body(&bytes);
    }

    #[test]
    fn no_configuration_panics(bytes in pieces()) {
        inputs::configuration(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_response_of_a_provider_panics_or_hangs(choice in any::<u8>(), bytes in pieces()) {
        inputs::provider_response(&[&[choice][..], &bytes].concat());
    }
}
