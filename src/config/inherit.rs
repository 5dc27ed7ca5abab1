//! Settings that are written in part are laid over what they inherit from, before anything is decoded.
//!
//! So `targets.gpt.circuit: { window: 20s }` means the circuit of `circuit`, with another window, and not the built-in
//! one; a policy is laid over the built-in of its name, or over `standard`.

use super::{
    policy::PolicyConfig,
    tree::{Node, Value, join},
};

/// Which section each member of which maps inherits from.
const INHERITED: [(&str, &str); 3] = [("routes", "timers"), ("targets", "circuit"), ("targets", "concurrency")];

/// Lays every partial setting over what it inherits from.
pub(super) fn lay_over(tree: &mut Node) {
    for (holders, section) in INHERITED {
        let Some(base) = tree.get(section).cloned() else { continue };
        let Some(Value::Map(members)) = tree.get_mut(holders).map(|node| &mut node.value) else { continue };
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
