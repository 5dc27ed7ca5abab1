//! No bytes in the place of a configuration file make its reader panic or hang.
//!
//! Run with
//! `cargo +nightly fuzz run configuration -- -max_len=65536 -timeout=30 -rss_limit_mb=2048`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/any_bytes/inputs.rs"]
#[expect(dead_code, reason = "each target runs one of the readers")]
mod inputs;

fuzz_target!(|bytes: &[u8]| inputs::configuration(bytes));
