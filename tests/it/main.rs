//! All integration tests in one binary: each file is one promise, `support` is what they stand on.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod architecture;
mod bad_input;
mod cli_binary;
mod cli_client;
mod cli_offline;
mod cli_serve;
mod front_chat;
mod front_crash;
mod front_outage;
mod front_stream;
mod front_tls;
mod journal_spec;
mod provider_anthropic;
mod provider_bedrock;
mod provider_dialects;
mod provider_gemini;
mod provider_openai;
mod provider_responses;
mod provider_transport;
mod recovery;
mod resilience;
mod scenarios;
mod shared_state;
mod stream_crash;
mod stream_faults;
mod stream_live;
mod stream_resume;
mod support;
mod traces;
