//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod provider_anthropic;
mod provider_bedrock;
mod provider_dialects;
mod provider_gemini;
mod provider_openai;
mod provider_responses;
mod provider_transport;
mod recovery;
mod support;
