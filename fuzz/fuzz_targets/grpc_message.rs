//! No bytes in the place of a message of the gRPC API make its reader panic or hang.
//!
//! Run with
//! `cargo +nightly fuzz run grpc_message -- -max_len=65536 -timeout=30 -rss_limit_mb=2048`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/any_bytes/inputs.rs"]
#[expect(dead_code, reason = "each target runs one of the readers")]
mod inputs;

fuzz_target!(|bytes: &[u8]| inputs::grpc_message(bytes));
