//! The tools of all servers as clients are shown them, and the servers that cannot list theirs.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{Engine, tool_lookup::reason, tool_progress::FollowedProgress};
use crate::{
    domain::{
        ids::InvocationId,
        tool::{LeftOutTool, ToolList, ToolSpec},
    },
    tool::{ListFreshness, ListTrouble},
};

/// Time that a list waits for servers whose tools are not known yet. A client waits for the list
/// before its agent may begin, and some give a request no more than 5 s.
const LISTED_WITHIN: Duration = Duration::from_millis(3_500);
/// Further time for which it waits as long as no server has any tool: an error is of no use to a
/// client that would wait for longer, and many wait 30 s for a server to start.
const FIRST_WITHIN: Duration = Duration::from_secs(20);

/// Tools that the tool servers list.
#[derive(Debug)]
pub struct ListedTools {
    /// Every tool with its server and the name by which it is called, which no other has.
    pub tools: Vec<(String, Arc<str>, ToolSpec)>,
    /// Tools that their servers list and that cannot be offered.
    pub left_out: Vec<(Arc<str>, LeftOutTool)>,
    /// The servers whose tools cannot be listed now; those that were listed before are offered.
    pub unavailable: Vec<UnavailableServer>,
}

/// A tool server whose tools cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableServer {
    /// Its name.
    pub server: Arc<str>,
    /// Reason, redacted.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

impl Engine {
    /// Returns the tools of all servers, as they were listed last. A server that never listed any
    /// is waited for a few seconds, once; and for longer if no other has any.
    pub async fn listed_tools(&self) -> ListedTools {
        let in_force = self.tools.in_force();
        let list = |within| in_force.list_all((ListFreshness::Cached, within), |_| false);
        let (mut lists, _) = list(LISTED_WITHIN).await;
        if lists.is_empty() && in_force.first_list(FIRST_WITHIN).await {
            (lists, _) = list(Duration::ZERO).await;
        }
        let names = self.tools.names();
        let servers = in_force.called();
        names.note_asked(&servers);
        names.learn(&servers, &lists);
        let named = |(server, list): &(Arc<str>, Arc<ToolList>)| {
            let tools = list.tools.iter().map(|spec| {
                let name = names.of(&servers, (server, list), &spec.name);
                (name, Arc::clone(server), spec.clone())
            });
            tools.collect::<Vec<_>>()
        };
        let left_out = |(server, list): &(Arc<str>, Arc<ToolList>)| {
            let tools = list.left_out.iter().cloned();
            tools
                .map(|tool| (Arc::clone(server), tool))
                .collect::<Vec<_>>()
        };
        ListedTools {
            tools: lists.iter().flat_map(named).collect(),
            left_out: lists.iter().flat_map(left_out).collect(),
            unavailable: self.unavailable_tool_servers(),
        }
    }

    /// Changes when what the tool servers list does, or which of them can; servers that nobody
    /// asked yet are not asked.
    pub async fn tools_listed(&self) -> Vec<(Arc<str>, u64, bool)> {
        let in_force = self.tools.in_force();
        let mut listed = Vec::new();
        for server in in_force.called() {
            let is_away = in_force.servers.trouble(&server).is_some();
            let generation = match in_force.servers.known(&server) {
                // One that is too old is fetched meanwhile.
                Some(_) => in_force.list_within(&server, ListFreshness::Cached).await,
                None => continue,
            };
            let generation = generation.map_or(0, |list| list.generation);
            listed.push((server, generation, is_away));
        }
        listed
    }

    /// Returns the progress that the tools of an invocation report from now on, if it runs here.
    pub fn follow_progress(&self, invocation: &InvocationId) -> FollowedProgress {
        self.tools.progress().follow(invocation)
    }

    /// Returns the tool servers whose tools cannot be listed, by name.
    pub fn unavailable_tool_servers(&self) -> Vec<UnavailableServer> {
        let in_force = self.tools.in_force();
        let secrets = self.in_force.secrets.load();
        let shown = |(server, trouble): (&str, ListTrouble)| UnavailableServer {
            server: Arc::from(server),
            reason: reason(trouble.error, &secrets),
            since: trouble.since,
        };
        let servers = in_force.servers.names();
        let in_trouble = servers.filter_map(|name| Some((name, in_force.servers.trouble(name)?)));
        in_trouble.map(shown).collect()
    }

    /// Returns whether each tool server lists its tools, for those that were asked.
    pub fn tool_servers_up(&self) -> Vec<(String, bool)> {
        let in_force = self.tools.in_force();
        let servers = in_force.servers.names();
        let up = servers.filter_map(|name| match in_force.servers.trouble(name) {
            Some(_) => Some((name.to_owned(), false)),
            None => in_force
                .servers
                .known(name)
                .map(|_| (name.to_owned(), true)),
        });
        up.collect()
    }
}
