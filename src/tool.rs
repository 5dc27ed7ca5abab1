//! Tool servers: one execution of a tool becomes exactly one request to exactly one server, and its
//! result a reply.
//!
//! MCP servers are reached over streamable HTTP or as child processes, through the official SDK;
//! plain HTTP tools with JSON are declared in the configuration. Like `provider`, this module
//! reports facts and nothing else: it never retries, never judges a failure and never limits how
//! long a tool may take (the timers above do). The one time limit of its own is that for connecting
//! and initializing. Nothing is connected or started before its first use.

mod child;
mod configured;
mod connector;
mod errors;
mod facts;
mod list;
mod mcp_events;
mod mcp_http;
mod plain;
mod reply;
mod server;
mod session;
mod spec;
mod stdio;
mod unsolicited;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture, future::join_all};

use self::server::ToolServer;
pub use self::{configured::configured, list::ListFreshness, spec::ToolServerSpec};
use crate::domain::{
    failure::ProviderError,
    tool::{ToolList, ToolReply, ToolRequest},
};

/// What a call of a tool resolves to.
pub type ToolFuture = BoxFuture<'static, Result<ToolReply, ProviderError>>;

/// All configured tool servers; cheap to clone, shared by all attempts.
///
/// A clone keeps its servers alive: a server that a reload removed ends with the last call that
/// uses it.
#[derive(Clone, Default)]
pub struct ToolServers {
    servers: Arc<BTreeMap<Arc<str>, Arc<ToolServer>>>,
}

/// Why the tool servers cannot be built from their specifications.
#[derive(Debug, thiserror::Error)]
pub enum ToolServersError {
    /// Two servers have the same name.
    #[error("tool server `{0}` is configured twice")]
    Twice(Arc<str>),
    /// The URL is none, or its scheme is not allowed.
    #[error("tool server `{server}`: `{url}` is no usable URL: {why}")]
    Url {
        /// The server's name.
        server: Arc<str>,
        /// The URL as configured.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header is not what HTTP allows.
    #[error("tool server `{server}`: header `{header}` is not allowed in HTTP")]
    Header {
        /// The server's name.
        server: Arc<str>,
        /// The header's name; never its value.
        header: String,
    },
    /// TLS cannot be set up.
    #[error("tool server `{server}`: TLS cannot be set up")]
    Tls {
        /// The server's name.
        server: Arc<str>,
        /// Why.
        source: rustls::Error,
    },
}

// === impl ToolServers ===

impl ToolServers {
    /// Builds one client per specification; nothing is connected or started yet.
    ///
    /// # Errors
    /// When a specification cannot work, whatever the server answers.
    pub fn build(specs: &[ToolServerSpec]) -> Result<Self, ToolServersError> {
        Self::default().rebuild(specs)
    }

    /// Builds from other specifications, and keeps each server whose specification is equal, with
    /// its connection or child and its list of tools. The others end once the last clone of `self`
    /// is gone.
    ///
    /// # Errors
    /// When a specification cannot work, whatever the server answers.
    pub fn rebuild(&self, specs: &[ToolServerSpec]) -> Result<Self, ToolServersError> {
        let mut servers = BTreeMap::new();
        for spec in specs {
            let kept = self
                .servers
                .get(&spec.name)
                .filter(|server| server.spec() == spec);
            let server = match kept {
                Some(server) => Arc::clone(server),
                None => Arc::new(ToolServer::build(spec)?),
            };
            if servers.insert(Arc::clone(&spec.name), server).is_some() {
                return Err(ToolServersError::Twice(Arc::clone(&spec.name)));
            }
        }
        Ok(Self {
            servers: Arc::new(servers),
        })
    }

    /// The names of all servers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(AsRef::as_ref)
    }

    /// The tools of a server: from memory, unless they are to be fresh, were never fetched, are
    /// older than the server's `refresh`, or the server reported since then that they changed.
    /// Those who wait at the same time share one fetch, which continues when they stop waiting.
    /// Cancel safe.
    ///
    /// # Errors
    /// When the server cannot be reached or started, or does not return a list within the bounds.
    pub async fn list(
        &self,
        server: &str,
        freshness: ListFreshness,
    ) -> Result<Arc<ToolList>, ProviderError> {
        self.find(server)?.list(freshness).await
    }

    /// The tools of a server as they were fetched last; `None` before the first time, or where
    /// there is no such server.
    #[must_use]
    pub fn known(&self, server: &str) -> Option<Arc<ToolList>> {
        self.servers.get(server).and_then(|server| server.known())
    }

    /// Executes a tool once. Dropping the future cancels the execution upstream, as far as the
    /// server listens to that.
    #[must_use]
    pub fn call(&self, server: &str, request: ToolRequest) -> ToolFuture {
        match self.find(server) {
            Ok(server) => async move { server.call(request).await }.boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    /// Closes every connection and ends every child, each with its grace; calls in flight fail. A
    /// server that is used again afterwards starts anew.
    pub async fn close(&self) {
        join_all(self.servers.values().map(|server| server.close())).await;
    }

    fn find(&self, server: &str) -> Result<Arc<ToolServer>, ProviderError> {
        self.servers
            .get(server)
            .cloned()
            .ok_or_else(|| errors::no_server(server))
    }
}

impl fmt::Debug for ToolServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.servers.keys()).finish()
    }
}
