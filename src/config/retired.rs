//! Settings of earlier versions: a renamed one is read under its old name, one without effect is
//! ignored, and both cause a warning. A file that worked keeps working.

use super::{
    fault::Fault,
    tree::{Node, Value, join},
};

/// The sections of each setting (`*` is any name), its old name, and what it is called now; `None`:
/// it does nothing.
const RETIRED: [(&[&str], &str, Option<&str>); 5] = [
    (&["circuit"], "first_token_timeout", None),
    (&["targets", "*", "circuit"], "first_token_timeout", None),
    (
        &["policies", "*", "retry"],
        "stay",
        Some("prefer_same_target"),
    ),
    (&["routes", "*", "select"], "wake_spread", None),
    (&[], "seed", None),
];

/// Renames or removes the retired settings of a file; returns a notice of each.
pub(super) fn replace(tree: &mut Node, faults: &mut Vec<Fault>) -> Vec<Fault> {
    let mut notices = Vec::new();
    for (sections, old, new) in RETIRED {
        replace_in(tree, sections, (old, new), &mut notices, faults);
    }
    notices
}

fn replace_in(
    node: &mut Node,
    sections: &[&str],
    (old, new): (&str, Option<&str>),
    notices: &mut Vec<Fault>,
    faults: &mut Vec<Fault>,
) {
    if let Some((section, inner)) = sections.split_first() {
        let Value::Map(members) = &mut node.value else {
            return;
        };
        for (_, member) in members
            .iter_mut()
            .filter(|(name, _)| *section == "*" || name == section)
        {
            replace_in(member, inner, (old, new), notices, faults);
        }
        return;
    }
    let Some(retired) = node.get(old) else { return };
    let at = retired.key_at;
    let fault = |reason: String| Fault::new(join(&node.path, old), reason).at(at);
    let Some(new) = new else {
        notices.push(fault("no longer has an effect; remove it".to_owned()));
        let path = join(&node.path, old);
        node.remove(&path);
        return;
    };
    if node.get(new).is_some() {
        faults.push(fault(format!(
            "is now called `{new}`, which is written, too; remove one of the two"
        )));
        return;
    }
    notices.push(fault(format!("is now called `{new}`")));
    let path = join(&node.path, new);
    if let Value::Map(members) = &mut node.value
        && let Some((name, member)) = members.iter_mut().find(|(name, _)| name == old)
    {
        new.clone_into(name);
        member.path = path;
    }
}
