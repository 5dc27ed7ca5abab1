//! Faults of a file that do not invalidate it, if the file sets `on_invalid_setting: default`.
//!
//! Only recovery settings may be replaced by defaults: a wrong address, key or target is always an
//! error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    fault::Fault,
    tree::{Node, Value},
};

/// Treatment of an invalid recovery setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalidSetting {
    /// The configuration is refused, with all that is wrong.
    #[default]
    Refuse,
    /// The setting is ignored, so that its default is in force, and a warning reports it.
    Default,
}

/// The sections whose settings may fall back to their defaults.
const SECTIONS: [&str; 10] = [
    "policies",
    "operations",
    "timers",
    "circuit",
    "gates",
    "budget",
    "admission",
    "concurrency",
    "texts",
    "events",
];

/// Returns whether the file, or the preset that it names, wants invalid settings replaced.
pub(super) fn is_wanted(tree: &Node) -> bool {
    let setting = tree.get("on_invalid_setting").map(|node| &node.value);
    matches!(setting, Some(Value::Text(text)) if text == "default")
}

/// Returns whether all that is wrong can be left out; `left_out` was already, so that it would not
/// help.
pub(super) fn can_leave_out(faults: &[Fault], left_out: &[Fault]) -> bool {
    let section = |fault: &Fault| {
        fault
            .path
            .split(['.', '['])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    !faults.is_empty()
        && faults.iter().all(|fault| {
            SECTIONS.contains(&section(fault).as_str())
                && fault.path.contains('.')
                && left_out.iter().all(|before| before.path != fault.path)
        })
}
