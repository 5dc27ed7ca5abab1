//! The server of a fleet's store, `PostgreSQL` or Valkey, that belongs to one test.

#![expect(clippy::unwrap_used, reason = "a test ends where its world fails")]

use super::{cluster::Cluster, valkey::Valkey};

/// A private server, which can be stopped, frozen and emptied while replicas use it.
pub(crate) enum FleetServer {
    Postgres(Cluster),
    Valkey(Valkey),
}

// === impl FleetServer ===

impl FleetServer {
    /// Those that can be had here.
    pub(crate) fn all() -> Vec<Self> {
        let all = [Self::postgres(), Self::valkey()];
        all.into_iter().flatten().collect()
    }

    pub(crate) fn postgres() -> Option<Self> {
        Cluster::start().map(Self::Postgres)
    }

    pub(crate) fn valkey() -> Option<Self> {
        Valkey::start().map(Self::Valkey)
    }

    /// The name of its engine.
    pub(crate) fn engine(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgres",
            Self::Valkey(_) => "valkey",
        }
    }

    /// Its only database.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url().to_owned(),
            Self::Valkey(server) => server.url(),
        }
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        let url = self.url();
        let (_, rest) = url.rsplit_once(':').unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// Its only database, reached through another port of this host.
    pub(crate) fn url_through(&self, port: u16) -> String {
        let own = format!(":{}", self.port());
        self.url().replace(&own, &format!(":{port}"))
    }

    /// Stops its processes where they are: connections stay open and nothing is returned.
    pub(crate) fn freeze(&self) {
        match self {
            Self::Postgres(server) => server.freeze(),
            Self::Valkey(server) => server.freeze(),
        }
    }

    /// Lets its processes continue.
    pub(crate) fn thaw(&self) {
        match self {
            Self::Postgres(server) => server.thaw(),
            Self::Valkey(server) => server.thaw(),
        }
    }

    /// Ends it at once: connections break, and new ones are refused.
    pub(crate) fn stop(&self) {
        match self {
            Self::Postgres(server) => server.stop(),
            Self::Valkey(server) => server.stop(),
        }
    }

    /// Starts it again, on the same port; Valkey has forgotten everything.
    pub(crate) fn start_again(&self) {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::Valkey(server) => server.start_again(),
        }
    }
}
