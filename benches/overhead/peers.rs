//! Other gateways that are measured beside Relight.

use std::net::SocketAddr;

use tokio::process::Command;

use crate::process::Process;

/// Their names and commands, `NAME=COMMAND; NAME=COMMAND`.
const PEERS: &str = "RELIGHT_PEERS";

/// A gateway and how it is started.
pub(crate) struct Peer {
    pub(crate) name: String,
    command: String,
}

impl Peer {
    /// Those that the environment names.
    pub(crate) fn all() -> Vec<Self> {
        let given = std::env::var(PEERS).unwrap_or_default();
        let peers = given
            .split(';')
            .filter_map(|peer| peer.trim().split_once('='));
        peers
            .map(|(name, command)| Self {
                name: name.to_owned(),
                command: command.to_owned(),
            })
            .collect()
    }

    pub(crate) async fn start(&self, upstream: SocketAddr) -> Process {
        let mut words = self.command.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        Process::announced(command, upstream).await
    }
}
