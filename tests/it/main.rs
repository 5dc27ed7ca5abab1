//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod architecture;
mod bad_input;
mod provider_openai;
mod provider_transport;
mod recovery;
mod shared_state;
mod support;
mod traces;
