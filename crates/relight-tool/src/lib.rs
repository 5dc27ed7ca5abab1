//! Tool servers: one execution of a tool becomes exactly one request to exactly one server, and its
//! result a reply.
//!
//! MCP servers are reached over streamable HTTP or as child processes, through the official SDK;
//! plain HTTP tools with JSON are declared in the configuration. Like the providers, this crate
//! reports facts and nothing else: it never retries, never judges a failure and never limits how
//! long a tool may take (the timers above do). The time limits of its own are those for connecting,
//! initializing and listing. Nothing is connected or started before its first use.

mod body;
mod child;
pub mod child_guard;
mod child_line;
mod connector;
mod era;
mod errors;
mod facts;
mod lines;
mod list;
mod listing;
mod mcp_events;
mod mcp_http;
mod open_requests;
mod plain;
mod progress;
mod reply;
mod sent;
mod server;
mod session;
mod session_doubt;
mod spec;
mod stdio;
mod unsolicited;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture, future::join_all};

use relight_outbound as outbound;
use relight_policy::{domain, policy};

use self::server::ToolServer;
pub use self::{
    list::{ListFreshness, ListTrouble},
    listing::is_within,
    progress::OnProgress,
    spec::{
        ChildSpec, HttpPlace, HttpToolSpec, MAX_SCHEMA_DEPTH, ToolLimits, ToolServerPlace,
        ToolServerSpec,
    },
};
use domain::{
    failure::ProviderError,
    tool::{ToolList, ToolReply, ToolRequest},
};

/// Future of a tool call.
pub type ToolFuture = BoxFuture<'static, Result<ToolReply, ProviderError>>;

/// All configured tool servers; cheap to clone, shared by all attempts.
///
/// A clone keeps its servers alive: a server that a reload removed ends with the last call that
/// uses it.
#[derive(Clone, Default)]
pub struct ToolServers {
    servers: Arc<BTreeMap<Arc<str>, Arc<ToolServer>>>,
}

/// Error returned if the tool servers cannot be built from their specifications.
#[derive(Debug, thiserror::Error)]
pub enum ToolServersError {
    /// Two servers have the same name.
    #[error("tool server `{0}` is configured twice")]
    Twice(Arc<str>),
    /// The URL is not valid, or its scheme is not allowed.
    #[error("tool server `{server}`: `{}` is no usable URL: {why}", policy::shown_url::shown_url(.url))]
    Url {
        /// The server's name.
        server: Arc<str>,
        /// The URL as configured.
        url: String,
        /// Fault of the URL.
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
        /// Cause of the error.
        source: rustls::Error,
    },
}

// === impl ToolServers ===

impl ToolServers {
    /// Builds one client per specification; nothing is connected or started yet.
    ///
    /// # Errors
    /// Returns an error if a specification cannot work, whatever the server returns.
    pub fn build(specs: &[ToolServerSpec]) -> Result<Self, ToolServersError> {
        Self::default().rebuild(specs)
    }

    /// Builds from other specifications, and keeps each server whose specification is equal, with
    /// its connection or child and its list of tools. The others end once the last clone of `self`
    /// is gone.
    ///
    /// # Errors
    /// Returns an error if a specification cannot work, whatever the server returns.
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

    /// Returns the names of all servers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(AsRef::as_ref)
    }

    /// Returns the tools of a server, from memory as far as the freshness allows that. A list that
    /// was never fetched is waited for, unless it failed or hangs; those who wait at the same time
    /// share one fetch, which continues when they stop waiting. Cancel safe.
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

    /// Returns the tools of a server as last fetched; `None` before the first time, or if there is
    /// no such server.
    #[must_use]
    pub fn known(&self, server: &str) -> Option<Arc<ToolList>> {
        self.servers.get(server).and_then(|server| server.known())
    }

    /// Waits for the first list of a server, if that is on its way; `None` if it is not, or fails.
    pub async fn first_list(&self, server: &str) -> Option<Arc<ToolList>> {
        self.servers.get(server)?.first_list().await
    }

    /// Waits for the first list of a process that is being started, for as long as its start may
    /// take; `None` if it is not, or fails.
    pub async fn first_start(&self, server: &str) -> Option<Arc<ToolList>> {
        self.servers.get(server)?.first_start().await
    }

    /// Returns the reason for which the tools of a server cannot be listed; `None` if they can,
    /// nobody asked for them yet, or there is no such server. A server in trouble is tried again.
    #[must_use]
    pub fn trouble(&self, server: &str) -> Option<ListTrouble> {
        self.servers.get(server)?.trouble()
    }

    /// Executes a tool once. Dropping the future cancels the execution upstream, as far as the
    /// server listens to that.
    #[must_use]
    pub fn call(&self, server: &str, request: ToolRequest) -> ToolFuture {
        self.call_with_progress(server, request, None)
    }

    /// Returns the same; the progress that the server reports meanwhile is passed on.
    #[must_use]
    pub fn call_with_progress(
        &self,
        server: &str,
        request: ToolRequest,
        on_progress: Option<OnProgress>,
    ) -> ToolFuture {
        match self.find(server) {
            Ok(server) => async move { server.call(request, on_progress).await }.boxed(),
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
