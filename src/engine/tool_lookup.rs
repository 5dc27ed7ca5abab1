//! Resolves the name of a tool to the tool: in the lists of all servers, as far as they are known,
//! or at one server if the call names it (`server/tool`).
//!
//! A known name is resolved at once. A server that hangs or fails is waited for once at most, and
//! only by those who ask for a tool that no other server lists.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    tool_names::{ToolNames, reserved},
    tools::{NoSuchTool, ToolsInForce},
};
use crate::{
    call_error::{
        CallError, Violations,
        table::{TOOL_AMBIGUOUS, TOOL_NOT_FOUND, TOOLS_UNLISTED},
    },
    domain::{
        failure::{ProviderError, TransportFault},
        tool::{ToolList, ToolSpec},
    },
    policy::{redact::redact, secrets::Secrets, tool_recovery::similarity},
    tool::ListFreshness,
};

/// Time that a call waits for the list of a server that was never listed.
const LIST_WITHIN: Duration = Duration::from_secs(5);
/// Time to wait for others once a server listed the wanted tool.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);
/// Time that a call waits for a list that is old or was reported to have changed.
const CHANGE_WITHIN: Duration = Duration::from_millis(500);
/// Number of names that are proposed if one is unknown.
const MAX_PROPOSED: usize = 3;
/// Longest reason why a server lists no tools, in bytes.
const MAX_REASON_BYTES: usize = 240;
/// Longest list of such servers in an error, in bytes.
const MAX_SERVERS_BYTES: usize = 256;
/// Likeness from which a name is proposed, from 0 to 1.
const MIN_LIKENESS: f64 = 0.4;

/// A tool at a server.
pub(super) struct FoundTool {
    pub(super) server: Arc<str>,
    pub(super) spec: ToolSpec,
}

type ListedAt = (Arc<str>, Arc<ToolList>);
type Unlisted = (Arc<str>, ProviderError);

impl ToolsInForce {
    /// Returns the tools of all servers but those on trial, and the servers that did not list
    /// theirs within the time. Once `is_enough` says so of what is there, the others are not waited
    /// for much longer.
    pub(super) async fn list_all(
        &self,
        (freshness, within): (ListFreshness, Duration),
        is_enough: impl Fn(&[ListedAt]) -> bool,
    ) -> (Vec<ListedAt>, Vec<Unlisted>) {
        let names = self.called();
        let mut until = Instant::now() + within;
        let list = |name: &Arc<str>| {
            let name = Arc::clone(name);
            // One in trouble is tried again without anybody waiting for it.
            let freshness = match self.servers.trouble(&name) {
                Some(_) => ListFreshness::Cached,
                None => freshness,
            };
            async move {
                let list = self.servers.list(&name, freshness).await;
                (name, list)
            }
        };
        let mut listing: FuturesUnordered<_> = names.iter().map(list).collect();
        let mut listed = Vec::new();
        let mut unlisted = Vec::new();
        let mut was_enough = false;
        while let Ok(Some((name, list))) = timeout_at(until, listing.next()).await {
            match list {
                Ok(list) => listed.push((name, list)),
                Err(error) => unlisted.push((name, error)),
            }
            if !was_enough && is_enough(&listed) {
                was_enough = true;
                until = until.min(Instant::now() + OTHERS_WITHIN);
            }
        }
        for name in &names {
            let came = listed
                .iter()
                .map(|(name, _)| name)
                .chain(unlisted.iter().map(|(name, _)| name));
            if came.into_iter().any(|came| came == name) {
                continue;
            }
            match self.servers.known(name) {
                Some(list) => listed.push((Arc::clone(name), list)),
                None => unlisted.push((Arc::clone(name), late())),
            }
        }
        listed.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, list) in &listed {
            self.settings.look_at(name, list);
        }
        if unlisted.is_empty() {
            self.settings.look_at_all(&listed);
        }
        (listed, unlisted)
    }

    /// Waits until one of the servers that start has its first list; returns whether one has.
    pub(super) async fn first_list(&self, within: Duration) -> bool {
        let names = self.called();
        let first = |name| async move { self.servers.first_list(name).await.is_some() };
        let starting: FuturesUnordered<_> = names.iter().map(|name| first(name)).collect();
        timeout(within, starting.any(|came| async move { came }))
            .await
            .unwrap_or(false)
    }

    /// Waits until one of these processes that are being started has its first list, for as long as
    /// a start may take; returns whether one has.
    pub(super) async fn first_start(&self, servers: &[Arc<str>]) -> bool {
        let first = |name| async move { self.servers.first_start(name).await.is_some() };
        let starting: FuturesUnordered<_> = servers.iter().map(|name| first(name)).collect();
        starting.any(|came| async move { came }).await
    }

    /// Returns the list of a server within the bound of time, or the one that is known.
    pub(super) async fn list_within(
        &self,
        server: &str,
        freshness: ListFreshness,
    ) -> Result<Arc<ToolList>, ProviderError> {
        let known = self.servers.known(server);
        let within = match freshness {
            ListFreshness::Current if known.is_some() => CHANGE_WITHIN,
            _ => LIST_WITHIN,
        };
        match (
            timeout(within, self.servers.list(server, freshness)).await,
            known,
        ) {
            (Ok(Ok(list)), _) => {
                self.settings.look_at(server, &list);
                Ok(list)
            }
            // A server whose list cannot be had may still execute its tools.
            (Ok(Err(_)) | Err(_), Some(known)) if freshness != ListFreshness::Fresh => Ok(known),
            (Ok(Err(error)), _) => Err(error),
            (Err(_), Some(known)) => Ok(known),
            (Err(_), None) => Err(late()),
        }
    }

    /// Returns the one tool of this name.
    pub(super) async fn find(
        &self,
        names: &ToolNames,
        name: &str,
        secrets: &Secrets,
    ) -> Result<FoundTool, NoSuchTool> {
        let servers = self.called();
        if let Some((server, tool)) = name.split_once('/')
            && self.servers.names().any(|known| known == server)
        {
            return self.find_at((name, server), &[tool], secrets).await;
        }
        if let Some(reserved) = reserved(&servers, name) {
            let tools = names.meant(name, &reserved);
            return self.find_at((name, reserved.server), &tools, secrets).await;
        }
        let has_it = |listed: &[ListedAt]| listed.iter().any(|(_, list)| list.find(name).is_some());
        let mut last = (Vec::new(), Vec::new());
        for step in [
            None,
            Some(ListFreshness::Cached),
            Some(ListFreshness::Fresh),
        ] {
            last = match step {
                // Once all were asked, what they list is known without asking again.
                None if names.were_asked(&servers) => (self.known_lists(&servers), Vec::new()),
                None => continue,
                // It may have come since the lists were fetched.
                Some(freshness) => {
                    let listed = self.list_all((freshness, LIST_WITHIN), has_it).await;
                    names.note_asked(&servers);
                    listed
                }
            };
            let (listed, _) = &last;
            names.learn(&servers, listed);
            match &names.holders(name)[..] {
                [] => {}
                [server] => return self.find_at((name, server), &[name], secrets).await,
                _ => return Err(several(name, listed).into()),
            }
        }
        let (listed, failed) = last;
        Err(if failed.is_empty() {
            not_found(name, &listed).into()
        } else {
            unlisted(name, failed, secrets)
        })
    }

    /// Returns the first of these tools that a server has; one that its list does not have may have
    /// come since that was fetched.
    async fn find_at(
        &self,
        (name, server): (&str, &str),
        tools: &[&str],
        secrets: &Secrets,
    ) -> Result<FoundTool, NoSuchTool> {
        let refused = |error| unlisted(name, vec![(Arc::from(server), error)], secrets);
        let list = self
            .list_within(server, ListFreshness::Current)
            .await
            .map_err(refused)?;
        let found = |list: &ToolList| {
            let spec = tools.iter().find_map(|tool| list.find(tool))?;
            Some(FoundTool {
                server: Arc::from(server),
                spec: spec.clone(),
            })
        };
        if let Some(found) = found(&list) {
            return Ok(found);
        }
        let fresh = self
            .list_within(server, ListFreshness::Fresh)
            .await
            .unwrap_or(list);
        found(&fresh).ok_or_else(|| not_found(name, &[(Arc::from(server), fresh)]).into())
    }

    /// Returns the lists of these servers, as far as they are known.
    fn known_lists(&self, servers: &[Arc<str>]) -> Vec<ListedAt> {
        let known = |server: &Arc<str>| Some((Arc::clone(server), self.servers.known(server)?));
        servers.iter().filter_map(known).collect()
    }

    /// Returns the names of all servers whose tools are called by them.
    pub(super) fn called(&self) -> Vec<Arc<str>> {
        self.names().map(Arc::from).collect()
    }
}

fn late() -> ProviderError {
    let words = "the list of tools did not come in time";
    ProviderError::transport("mcp", TransportFault::FirstTokenTimeout, words)
}

/// Returns the refusal of a name that several servers listed, by what they list now.
fn several(name: &str, listed: &[ListedAt]) -> CallError {
    let holders = listed.iter().filter(|(_, list)| list.find(name).is_some());
    let candidates: Vec<String> = holders
        .map(|(server, _)| format!("`{server}/{name}`"))
        .collect();
    if candidates.len() < 2 {
        return not_found(name, listed);
    }
    let candidates = candidates.join(", ");
    let reason = format!("is the name of several tools; name one of {candidates}");
    CallError::new(TOOL_AMBIGUOUS)
        .with_violations(Violations::of("invocation.tool.name", reason))
        .word("name", name)
        .word("candidates", candidates)
}

fn not_found(name: &str, listed: &[(Arc<str>, Arc<ToolList>)]) -> CallError {
    let asked = name.split_once('/').map_or(name, |(_, tool)| tool);
    let mut near: Vec<(i64, String)> = Vec::new();
    for (server, list) in listed {
        for spec in &list.tools {
            let likeness = similarity::of_names(asked, &spec.name);
            if likeness >= MIN_LIKENESS {
                #[expect(clippy::cast_possible_truncation, reason = "from 0 to 1,000")]
                near.push((
                    (likeness * 1_000.0) as i64,
                    format!("{server}/{}", spec.name),
                ));
            }
        }
    }
    near.sort_by_key(|(likeness, _)| Reverse(*likeness));
    let nearest = near.into_iter().take(MAX_PROPOSED);
    let nearest: Vec<String> = nearest.map(|(_, name)| name).collect();
    CallError::not_found_of_several(TOOL_NOT_FOUND, name, &nearest)
}

/// Says which servers list no tools, and why: a server may repeat the key that it was sent.
fn unlisted(name: &str, failed: Vec<Unlisted>, secrets: &Secrets) -> NoSuchTool {
    let unlisted = failed
        .iter()
        .map(|(server, _)| Arc::clone(server))
        .collect();
    let servers: Vec<String> = failed
        .into_iter()
        .map(|(server, error)| {
            let reason = reason(error, secrets);
            format!("{server} ({reason})")
        })
        .collect();
    let servers = servers.join(", ");
    let servers = &servers[..servers.floor_char_boundary(MAX_SERVERS_BYTES)];
    let error = CallError::new(TOOLS_UNLISTED)
        .fact("name", name)
        .word("servers", servers);
    NoSuchTool { error, unlisted }
}

/// Returns the reason for which a server lists no tools, in words that may be shown.
pub(super) fn reason(error: ProviderError, secrets: &Secrets) -> String {
    let facts = secrets.take_out_of(error);
    let words = facts.text();
    let words = words.map_or_else(|| facts.to_string(), str::to_owned);
    let words = match facts.status {
        Some(status) => format!("{status}: {words}"),
        None => words,
    };
    redact(&words, MAX_REASON_BYTES)
}
