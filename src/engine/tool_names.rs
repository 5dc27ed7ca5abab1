//! The names by which tools are called: made of the names of the configured servers and of what
//! these list, whichever was heard first, so that a restart and other replicas give the same ones.
//!
//! A tool is listed by its own name unless another server listed one of that name, too; else by
//! `server_tool`, by which it can always be called. A name that begins with a server's name and `_`
//! is that server's alone.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{domain::tool::ToolList, policy::tool_recovery::arguments::short_hash};

/// Most names of one server that are remembered; its other tools are called by `server_tool`.
const MAX_NAMES: usize = 10_000;
/// The letters of a hash in a name.
const HASH_LETTERS: usize = 8;

/// The lists of servers, as far as they are known.
pub(super) type KnownLists = [(Arc<str>, Arc<ToolList>)];

/// The servers that listed each name since the process started: one that is listed no more is no
/// other server's for that.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    heard: Mutex<HeardNames>,
}

#[derive(Debug, Default)]
struct HeardNames {
    /// The servers that listed a tool, by its own name.
    holders: HashMap<String, Vec<Arc<str>>>,
    servers: HashMap<Arc<str>, HeardServer>,
}

/// A server that was asked for its tools.
#[derive(Debug, Default)]
struct HeardServer {
    /// Its list that was learnt last.
    list: Option<Arc<ToolList>>,
    names: usize,
}

/// A name that is one server's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservedName<'a, 'n> {
    pub(super) server: &'a Arc<str>,
    /// The tool, unless the server lists one by the whole name.
    pub(super) tool: &'n str,
    /// Whether the name ends with a hash of server and tool: it is this tool's, whatever is listed.
    pub(super) is_hashed: bool,
}

// === impl ToolNames ===

impl ToolNames {
    /// Learns what servers list, and forgets those that are not among `servers` any more.
    pub(super) fn learn(&self, servers: &[Arc<str>], lists: &KnownLists) {
        let mut heard = self.heard();
        heard.keep_only(servers);
        for (server, list) in lists {
            heard.learn(server, list);
        }
    }

    /// Notes that these servers were asked for their tools, whether or not they listed any.
    pub(super) fn note_asked(&self, servers: &[Arc<str>]) {
        let mut heard = self.heard();
        for server in servers {
            heard.servers.entry(Arc::clone(server)).or_default();
        }
    }

    /// Whether all these servers were asked for their tools.
    pub(super) fn were_asked(&self, servers: &[Arc<str>]) -> bool {
        let heard = self.heard();
        servers
            .iter()
            .all(|server| heard.servers.contains_key(server))
    }

    /// Returns the servers that listed a tool by this name of its own.
    pub(super) fn holders(&self, name: &str) -> Vec<Arc<str>> {
        self.heard().holders.get(name).cloned().unwrap_or_default()
    }

    /// Returns the tools of its server that a name may be, the surer one first: a tool's own name may
    /// begin with that of its server, and once it did, the name is no other tool's.
    pub(super) fn meant<'n>(&self, name: &'n str, reserved: &ReservedName<'_, 'n>) -> Vec<&'n str> {
        if reserved.is_hashed {
            vec![reserved.tool]
        } else if self.holders(name).contains(reserved.server) {
            vec![name]
        } else {
            vec![name, reserved.tool]
        }
    }

    /// Returns the name by which a tool of a server with this list is called.
    pub(super) fn of(
        &self,
        servers: &[Arc<str>],
        (server, list): (&Arc<str>, &ToolList),
        tool: &str,
    ) -> String {
        let is_theirs = |name: &str| {
            let reserved = reserved(servers, name);
            reserved.map(|reserved| reserved.server == server && !reserved.is_hashed)
        };
        let is_alone = || *self.holders(tool) == [Arc::clone(server)];
        if is_theirs(tool).unwrap_or_else(is_alone) {
            return tool.to_owned();
        }
        let long = format!("{server}_{tool}");
        let is_other = || list.find(&long).is_some() || self.holders(&long).contains(server);
        if is_theirs(&long) == Some(true) && !is_other() {
            long
        } else {
            format!("{long}_{}", hash_of(server, tool))
        }
    }

    fn heard(&self) -> MutexGuard<'_, HeardNames> {
        self.heard.lock()
    }
}

// === impl HeardNames ===

impl HeardNames {
    fn learn(&mut self, server: &Arc<str>, list: &Arc<ToolList>) {
        let heard = self.servers.entry(Arc::clone(server)).or_default();
        if let Some(known) = &heard.list
            && Arc::ptr_eq(known, list)
        {
            return;
        }
        for tool in &list.tools {
            if heard.names == MAX_NAMES {
                break;
            }
            let holders = self.holders.entry(tool.name.clone()).or_default();
            if !holders.contains(server) {
                holders.push(Arc::clone(server));
                heard.names += 1;
            }
        }
        heard.list = Some(Arc::clone(list));
    }

    fn keep_only(&mut self, servers: &[Arc<str>]) {
        if self.servers.keys().all(|server| servers.contains(server)) {
            return;
        }
        self.servers.retain(|server, _| servers.contains(server));
        self.holders.retain(|_, holders| {
            holders.retain(|holder| servers.contains(holder));
            !holders.is_empty()
        });
    }
}

/// Returns the server whose name a tool's starts with, and the rest behind the `_`.
pub(super) fn reserved<'a, 'n>(
    servers: &'a [Arc<str>],
    name: &'n str,
) -> Option<ReservedName<'a, 'n>> {
    let behind = |server: &'a Arc<str>| {
        let tool = name.strip_prefix(&**server)?.strip_prefix('_')?;
        let hashed = tool
            .rsplit_once('_')
            .filter(|(tool, hash)| hash.len() == HASH_LETTERS && *hash == hash_of(server, tool));
        let tool = hashed.map_or(tool, |(tool, _)| tool);
        (!tool.is_empty()).then_some(ReservedName {
            server,
            tool,
            is_hashed: hashed.is_some(),
        })
    };
    servers
        .iter()
        .filter_map(behind)
        .max_by_key(|reserved| (reserved.is_hashed, reserved.server.len()))
}

fn hash_of(server: &str, tool: &str) -> String {
    let mut hash = short_hash([server, tool]);
    hash.truncate(HASH_LETTERS);
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::domain::{invocation::SideEffects, tool::ToolSpec};

    type ServerTools<'a> = BTreeMap<&'a str, Vec<&'a str>>;

    fn servers(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn lists(listed: &ServerTools<'_>) -> Vec<(Arc<str>, Arc<ToolList>)> {
        let spec = |name: &&str| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: Arc::new(json!({})),
            output_schema: None,
            annotations: SideEffects::default(),
            sent: None,
        };
        let list = |(server, tools): (&&str, &Vec<&str>)| {
            let tools = tools.iter().map(spec).collect();
            let list = ToolList {
                tools,
                ..ToolList::default()
            };
            (Arc::from(*server), Arc::new(list))
        };
        listed.iter().map(list).collect()
    }

    /// Returns the name of each tool (`server/tool`) of these lists.
    fn named(names: &ToolNames, all: &[Arc<str>], lists: &KnownLists) -> Vec<(String, String)> {
        let of = |(server, list): &(Arc<str>, Arc<ToolList>)| {
            let tools = list.tools.iter().map(|tool| {
                let name = names.of(all, (server, list), &tool.name);
                (name, format!("{server}/{}", tool.name))
            });
            tools.collect::<Vec<_>>()
        };
        lists.iter().flat_map(of).collect()
    }

    /// Returns the tool that a name leads to: the way in which a call finds it.
    fn led_to(
        names: &ToolNames,
        all: &[Arc<str>],
        lists: &KnownLists,
        name: &str,
    ) -> Option<String> {
        let lists_it = |server: &Arc<str>, tool: &str| {
            let list = lists.iter().find(|(at, _)| at == server);
            list.is_some_and(|(_, list)| list.find(tool).is_some())
        };
        match reserved(all, name) {
            Some(it) => {
                let meant = names.meant(name, &it);
                let found = meant.into_iter().find(|tool| lists_it(it.server, tool))?;
                Some(format!("{}/{found}", it.server))
            }
            None => match &names.holders(name)[..] {
                [server] => Some(format!("{server}/{name}")),
                _ => None,
            },
        }
    }

    #[test]
    fn a_name_that_was_one_servers_is_never_anothers() {
        let names = ToolNames::default();
        let all = servers(&["bank", "evil", "shop"]);
        let pair = |name: &str, tool: &str| (name.to_owned(), tool.to_owned());
        let honest = lists(&ServerTools::from([
            ("bank", vec!["pay", "balance"]),
            ("shop", vec!["pay"]),
        ]));
        names.learn(&all, &honest);
        assert_eq!(
            named(&names, &all, &honest),
            [
                pair("bank_pay", "bank/pay"),
                pair("balance", "bank/balance"),
                pair("shop_pay", "shop/pay"),
            ]
        );
        // The bank forgets its tools, and another server lists all their names.
        let evil = lists(&ServerTools::from([
            ("bank", vec![]),
            ("evil", vec!["bank_pay", "balance", "pay"]),
        ]));
        names.learn(&all, &evil);
        assert_eq!(
            named(&names, &all, &evil),
            [
                pair("evil_bank_pay", "evil/bank_pay"),
                pair("evil_balance", "evil/balance"),
                pair("evil_pay", "evil/pay"),
            ]
        );
        assert_eq!(led_to(&names, &all, &evil, "bank_pay"), None);
        assert_eq!(led_to(&names, &all, &evil, "balance"), None);
        let without_bank = servers(&["evil", "shop"]);
        names.learn(&without_bank, &evil[1..]);
        assert_eq!(
            named(&names, &without_bank, &evil[1..])[1],
            pair("balance", "evil/balance"),
            "a server that is configured no more holds nothing"
        );
    }

    #[test]
    fn a_server_whose_tools_begin_with_its_own_name_keeps_them() {
        let names = ToolNames::default();
        let all = servers(&["slack", "other"]);
        let lists = lists(&ServerTools::from([
            ("other", vec!["slack_post", "post"]),
            ("slack", vec!["slack_post", "post"]),
        ]));
        names.learn(&all, &lists);
        let hashed = format!("slack_post_{}", hash_of("slack", "post"));
        let named: Vec<String> = named(&names, &all, &lists)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "other_slack_post",
            "other_post",
            "slack_post",
            hashed.as_str(),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_name_that_was_a_tools_own_is_never_another_tool_of_its_server() {
        let names = ToolNames::default();
        let all = servers(&["slack"]);
        let both = lists(&ServerTools::from([("slack", vec!["slack_post", "post"])]));
        names.learn(&all, &both);
        let one = lists(&ServerTools::from([("slack", vec!["post"])]));
        names.learn(&all, &one);
        assert_eq!(led_to(&names, &all, &one, "slack_post"), None);
        let hashed = names.of(&all, (&one[0].0, &one[0].1), "post");
        assert_eq!(
            led_to(&names, &all, &one, &hashed).as_deref(),
            Some("slack/post")
        );
    }

    #[test]
    fn a_server_without_end_of_names_takes_no_more_than_its_share() {
        let names = ToolNames::default();
        let all = servers(&["a", "b"]);
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| format!("t{number}")).collect();
        let many = ServerTools::from([("a", many.iter().map(String::as_str).collect())]);
        let many = lists(&many);
        names.learn(&all, &many);
        let last = format!("t{MAX_NAMES}");
        assert!(names.holders(&last).is_empty());
        assert_eq!(
            names.of(&all, (&many[0].0, &many[0].1), &last),
            format!("a_{last}")
        );
    }

    proptest! {
        #[test]
        fn each_name_is_one_tool_whichever_server_was_heard_first(
            listed in prop::collection::btree_map(
                prop::sample::select(vec!["a", "a_b", "b", "b_c"]),
                prop::sample::subsequence(
                    vec!["x", "b_x", "a_x", "a_b_x", "c_x", "b_c_x", "x_x"], 0..7),
                0..4),
            before in prop::collection::btree_map(
                prop::sample::select(vec!["a", "a_b", "b", "b_c"]),
                prop::sample::subsequence(vec!["x", "b_x", "a_x", "x_x"], 0..4),
                0..4),
            order in Just(vec![0, 1, 2, 3]).prop_shuffle(),
        ) {
            let all = servers(&["a", "a_b", "b", "b_c"]);
            let now = lists(&listed);
            let before = lists(&before);
            let one = ToolNames::default();
            let other = ToolNames::default();
            one.learn(&all, &before);
            let first = named(&one, &all, &before);
            one.learn(&all, &now);
            for at in order {
                for lists in [&now, &before] {
                    other.learn(&all, lists.get(at..=at).unwrap_or_default());
                }
            }
            let named_now = named(&one, &all, &now);
            prop_assert_eq!(&named_now, &named(&other, &all, &now));
            let distinct: HashSet<&String> = named_now.iter().map(|(name, _)| name).collect();
            prop_assert_eq!(distinct.len(), named_now.len(), "{:?}", named_now);
            for (name, tool) in &named_now {
                let led = led_to(&one, &all, &now, name);
                prop_assert_eq!(led.as_ref(), Some(tool), "{}", name);
            }
            // What another server lists later takes no name, and neither does one that goes away.
            for (name, tool) in first {
                let later = led_to(&one, &all, &now, &name);
                let server = format!("{}/", tool.split_once('/').unwrap().0);
                prop_assert!(
                    later.as_ref().is_none_or(|later| later.starts_with(&server)),
                    "{} was {} and is {:?}", name, tool, later
                );
            }
        }
    }
}
