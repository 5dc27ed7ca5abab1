//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod cli_binary;
mod cli_client;
mod cli_offline;
mod cli_serve;
mod provider_openai;
mod provider_transport;
mod recovery;
mod support;
