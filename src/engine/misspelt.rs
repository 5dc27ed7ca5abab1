//! Names in the settings of tools that no server knows: found when the lists come, and reported
//! once.
//!
//! The existence of a tool or an argument is not known when a configuration is checked. A setting
//! for a name that nothing has changes nothing, which is worst if it was meant as a caution.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    config::{ToolsConfig, tools::ToolPolicyConfig},
    domain::tool::{ToolList, ToolSpec},
    policy::tool_recovery::similarity,
};

/// Likeness from which a name is taken for the one that was meant, from 0 to 1.
const MIN_LIKENESS: f64 = 0.4;

/// The lists that were looked at, by server: their generations.
#[derive(Debug, Default)]
pub(super) struct Misspelt {
    seen: Mutex<BTreeMap<String, u64>>,
}

/// A setting that names what is not there.
#[derive(Debug, PartialEq, Eq)]
struct UnknownName {
    /// The path of the setting.
    setting: String,
    /// Reason why it has no effect.
    why: String,
}

// === impl Misspelt ===

impl Misspelt {
    /// Looks at the list of a server, unless it did before.
    pub(super) fn look_at(&self, config: &ToolsConfig, server: &str, list: &ToolList) {
        if self.is_new(server, list.generation) {
            report(&of_server(config, server, list));
        }
    }

    /// Looks at the lists of all servers together: a tool that is named alone is one of any server.
    pub(super) fn look_at_all(&self, config: &ToolsConfig, lists: &[(Arc<str>, Arc<ToolList>)]) {
        let generations = lists.iter().map(|(_, list)| list.generation).sum();
        if self.is_new("", generations) {
            let names = lists.iter().flat_map(|(_, list)| &list.tools);
            let names: Vec<&str> = names.map(|tool| tool.name.as_str()).collect();
            report(&of_all(config, &names));
        }
    }

    fn is_new(&self, server: &str, generation: u64) -> bool {
        let mut seen = self.seen.lock();
        seen.insert(server.to_owned(), generation) != Some(generation)
    }
}

fn report(unknown: &[UnknownName]) {
    for UnknownName { setting, why } in unknown {
        tracing::warn!("{setting} has no effect: {why}");
    }
}

/// Returns the settings for a server's tools that name a tool or an argument that its list does not
/// have.
fn of_server(config: &ToolsConfig, server: &str, list: &ToolList) -> Vec<UnknownName> {
    let own = |name: &'_ str| -> Option<String> {
        let (named, tool) = name.split_once('/')?;
        (named == server).then(|| tool.to_owned())
    };
    let names: Vec<&str> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
    let missing = |setting: String, tool: &str| UnknownName {
        setting,
        why: format!(
            "tool server `{server}` lists no tool `{tool}`{}",
            meant(tool, &names)
        ),
    };
    let mut unknown = Vec::new();
    for (key, policy) in &config.tools {
        let tool = own(key);
        let is_own = tool.is_some();
        let tool = tool.unwrap_or_else(|| key.clone());
        match list.find(&tool) {
            Some(spec) => unknown.extend(of_arguments(key, policy, spec)),
            None if is_own => unknown.push(missing(format!("tools.tools.{key}"), &tool)),
            None => {}
        }
    }
    for (group, members) in &config.groups {
        let gone = members.iter().filter_map(|member| own(member));
        let gone = gone.filter(|tool| list.find(tool).is_none());
        unknown.extend(gone.map(|tool| missing(format!("tools.groups.{group}"), &tool)));
    }
    unknown
}

/// Returns the settings for a tool that is named alone, if no server has one of that name.
fn of_all(config: &ToolsConfig, names: &[&str]) -> Vec<UnknownName> {
    let alone = config.tools.keys().filter(|key| !key.contains('/'));
    let gone = alone.filter(|key| !names.contains(&key.as_str()));
    gone.map(|key| UnknownName {
        setting: format!("tools.tools.{key}"),
        why: format!("no tool server lists a tool `{key}`{}", meant(key, names)),
    })
    .collect()
}

/// Returns the settings of a tool that name an argument which its schema does not have.
fn of_arguments(key: &str, policy: &ToolPolicyConfig, spec: &ToolSpec) -> Vec<UnknownName> {
    let Some(properties) = spec.input_schema["properties"].as_object() else {
        return Vec::new();
    };
    let chunk = policy.chunk.iter().flat_map(|rule| {
        let arguments = [
            &rule.argument,
            &rule.from,
            &rule.to,
            &rule.limit,
            &rule.offset,
            &rule.page,
        ];
        arguments.into_iter().flatten().map(|name| ("chunk", name))
    });
    let key_argument = policy.idempotency_key.iter();
    let key_argument = key_argument.map(|name| ("idempotency_key", name));
    let redact = policy.redact.iter().map(|name| ("redact", name));
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    let all = chunk.chain(key_argument).chain(redact);
    all.filter_map(|(field, name)| {
        let argument = first_name(name);
        let is_open = argument.is_empty() || argument == "*" || leaves_open(&spec.input_schema);
        (!is_open && !properties.contains_key(&argument)).then(|| UnknownName {
            setting: format!("tools.tools.{key}.{field}"),
            why: format!(
                "tool `{}` has no argument `{argument}`{}",
                spec.name,
                meant(&argument, &names)
            ),
        })
    })
    .collect()
}

/// Returns the argument that a name or a JSON pointer is about.
fn first_name(name: &str) -> String {
    let Some(pointer) = name.strip_prefix('/') else {
        return name.to_owned();
    };
    let first = pointer.split('/').next().unwrap_or_default();
    first.replace("~1", "/").replace("~0", "~")
}

/// Returns whether a schema names arguments elsewhere, too.
fn leaves_open(schema: &Value) -> bool {
    ["allOf", "anyOf", "oneOf", "$ref", "patternProperties"]
        .iter()
        .any(|key| schema.get(*key).is_some())
}

/// Returns the name that was meant, perhaps.
fn meant(name: &str, names: &[&str]) -> String {
    let likest = names
        .iter()
        .map(|known| (similarity::of_names(name, known), known))
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    likest.map_or(String::new(), |(_, known)| {
        format!("; did you mean `{known}`?")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        config::{GivenEnvironment, load_text},
        domain::invocation::SideEffects,
    };

    fn config(tools: &str) -> ToolsConfig {
        let text = format!(
            "tools:\n  servers: {{ bank: {{ url: \"https://bank.example/mcp\" }} }}\n{tools}"
        );
        load_text(&text, None, &GivenEnvironment::new())
            .unwrap_or_else(|faults| panic!("{faults}"))
            .config
            .tools
    }

    fn list() -> ToolList {
        let schema = json!({"type": "object", "properties": {"amount": {}, "request_id": {}}});
        let tool = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input_schema: Arc::new(schema.clone()),
            output_schema: None,
            annotations: SideEffects::default(),
            sent: None,
        };
        ToolList {
            tools: vec![tool("pay"), tool("get_balance")],
            left_out: Vec::new(),
            generation: 1,
        }
    }

    #[test]
    fn each_name_that_is_not_there_is_reported_with_the_one_that_was_meant() {
        let config = config(
            "  tools:\n    bank/pays: { read_only: false }\n    get_balanse: { read_only: true }\n    \
             pay: { idempotency_key: requestid, redact: [/amount, /secret], chunk: [{ page: amount, limit: amounts }] }\n  \
             groups: { money: [bank/pay, bank/get_balances] }\n",
        );
        let found = of_server(&config, "bank", &list());
        let settings: Vec<&str> = found.iter().map(|it| it.setting.as_str()).collect();
        assert_eq!(
            settings,
            [
                "tools.tools.bank/pays",
                "tools.tools.pay.chunk",
                "tools.tools.pay.idempotency_key",
                "tools.tools.pay.redact",
                "tools.groups.money"
            ],
            "{found:?}"
        );
        assert!(found[0].why.contains("did you mean `pay`?"), "{found:?}");
        assert!(found[2].why.contains("`request_id`"), "{found:?}");
        let alone = of_all(&config, &["pay", "get_balance"]);
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert!(
            alone[0].why.ends_with("did you mean `get_balance`?"),
            "{alone:?}"
        );
        assert_eq!(
            of_server(&config, "other", &list()).len(),
            3,
            "of `pay`, which it has too"
        );
    }

    #[test]
    fn a_list_is_looked_at_once_and_again_when_it_has_changed() {
        let misspelt = Misspelt::default();
        let looks = [1, 1, 2].map(|generation| misspelt.is_new("bank", generation));
        assert_eq!(looks, [true, false, true]);
        assert!(misspelt.is_new("other", 1));
    }
}
