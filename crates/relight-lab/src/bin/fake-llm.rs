//! A model provider that fails on demand, at an address of its own, until it is ended.
//!
//! `fake-llm [address]`; its script is set by `PUT /fake/script`, and what was asked since is read
//! by `GET /fake/script`.

use std::{
    error::Error,
    io::{Write as _, stdout},
};

use relight_lab::fake_llm::FakeLlm;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:9100").parse()?;
    let provider = FakeLlm::start(address).await?;
    writeln!(
        stdout(),
        "fake-llm listens on http://{}",
        provider.address()
    )?;
    // The first process of a container ends at SIGTERM only if it listens to it.
    let mut ended = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = ended.recv() => {}
    }
    Ok(())
}
