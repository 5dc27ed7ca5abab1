//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod provider_openai;
mod provider_transport;
mod recovery;
mod stream_live;
mod stream_resume;
mod support;
