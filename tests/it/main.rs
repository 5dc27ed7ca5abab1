//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod front_chat;
mod front_crash;
mod front_outage;
mod front_stream;
mod provider_openai;
mod provider_transport;
mod support;
