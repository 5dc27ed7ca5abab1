//! Lays partly written settings over those they inherit from, before decoding.
//!
//! A file that names a preset is laid over all of the preset's settings.
//!
//! So `targets.gpt.circuit: { window: 20s }` means the circuit of `circuit`, with another window,
//! and not the built-in one; a policy is laid over the built-in of its name, or over `standard`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    policy::PolicyConfig,
    tree::{Node, Value, join},
};
use crate::{domain::units, policy::timers::TimersPolicy};

/// Members of maps whose sections inherit from other sections: which section of each member of
/// which map, and from which.
const INHERITED: [(&str, &str, &str); 6] = [
    ("routes", "timers", "timers"),
    ("targets", "circuit", "circuit"),
    ("targets", "concurrency", "concurrency"),
    ("tools.servers", "circuit", "circuit"),
    ("tools.servers", "concurrency", "concurrency"),
    ("tools.tools", "recovery", "tools.recovery"),
];

/// The settings of the preset `literal`.
const LITERAL: &str = include_str!("literal.yaml");

/// The settings that a file overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The defaults.
    #[default]
    Standard,
    /// The exact values of the documents that specified Relight.
    Literal,
}

/// Lays the file over the preset that it names; a name that does not exist is found when the file
/// is decoded.
pub(super) fn lay_over_preset(tree: &mut Node) {
    let is_literal = tree
        .get("preset")
        .is_some_and(|node| node.value == Value::Text("literal".to_owned()));
    let preset = is_literal
        .then(|| serde_saphyr::from_str::<serde_json::Value>(LITERAL).ok())
        .flatten();
    if let Some(preset) = preset {
        lay(tree, &Node::unwritten("", preset));
    }
}

/// Lays every partial setting over what it inherits from.
pub(super) fn lay_over(tree: &mut Node) {
    if let Some(timers) = tree.get_mut("timers") {
        fit_to_first_token(timers, None);
    }
    let timers = tree.get("timers").cloned();
    if let Some(Value::Map(routes)) = tree.get_mut("routes").map(|node| &mut node.value) {
        for own in routes
            .iter_mut()
            .filter_map(|(_, route)| route.get_mut("timers"))
        {
            fit_to_first_token(own, timers.as_ref());
        }
    }
    for (holders, section, base) in INHERITED {
        let Some(base) = base
            .split('.')
            .try_fold(&*tree, |node, name| node.get(name))
            .cloned()
        else {
            continue;
        };
        let holders = holders
            .split('.')
            .try_fold(&mut *tree, |node, name| node.get_mut(name));
        let Some(Value::Map(members)) = holders.map(|node| &mut node.value) else {
            continue;
        };
        for (_, holder) in members {
            if let Some(own) = holder.get_mut(section) {
                lay(own, &base);
            }
        }
    }
    if let Some(Value::Map(policies)) = tree.get_mut("policies").map(|node| &mut node.value) {
        for (name, own) in policies {
            if let Ok(built_in) = serde_json::to_value(PolicyConfig::built_in_or_standard(name)) {
                lay(own, &Node::unwritten(&join("policies", name), built_in));
            }
        }
    }
}

/// Adds to a `timers` section with `first_token` the timers that fit it, in place of inherited ones
/// that do not: the soft timer comes before it, and the one for a lone target not before it.
fn fit_to_first_token(own: &mut Node, base: Option<&Node>) {
    let default = TimersPolicy::default();
    let duration = |node: Option<&Node>| match &node?.value {
        Value::Text(text) => units::parse_duration(text).ok(),
        _ => None,
    };
    let Some(first_token) = duration(own.get("first_token")) else {
        return;
    };
    let inherited = |name: &str, default: Duration| {
        duration(base.and_then(|base| base.get(name))).unwrap_or(default)
    };
    let soft = inherited("soft_first_token", default.soft_first_token);
    let alone = inherited("first_token_alone", default.first_token_alone);
    for (name, inherited, fitting) in [
        (
            "soft_first_token",
            soft,
            if soft < first_token {
                soft
            } else {
                first_token / 3
            },
        ),
        ("first_token_alone", alone, alone.max(first_token)),
    ] {
        if fitting != inherited && own.get(name).is_none() {
            let written = serde_json::Value::String(units::format_duration(fitting));
            own.set(name, Node::unwritten(&join(&own.path, name), written));
        }
    }
}

/// Lays `own` over `base`: members of `base` that `own` does not have are added, deeply.
fn lay(own: &mut Node, base: &Node) {
    if own.value == Value::Null {
        own.value.clone_from(&base.value);
        return;
    }
    for (name, inherited) in base.members() {
        match own.get_mut(name) {
            Some(member) => lay(member, inherited),
            None => own.set(name, inherited.clone()),
        }
    }
}
