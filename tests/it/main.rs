//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod provider_openai;
mod provider_transport;
mod support;
