//! An invocation as a caller requests it, checked against the contract; the operator's bounds are
//! checked elsewhere.
//!
//! The same bounds are comments in `proto/relight/v1/invocation.proto` and `tool.proto`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    enums::IntoDomain as _,
    model::{check_json_object, read_model_call},
    violation::{Path, Violations},
};
use crate::{
    domain::{
        ids::{MAX_ID_BYTES, RequestId, RouteName, TargetId, ThreadId},
        invocation::{Call, DEFAULT_OPERATION, Overrides, RewindMode, SideEffects, ToolInvocation},
        tool::passed_on_meta,
    },
    engine::{Arrival, ConversationNames, InvocationRequest, RequestedLifetime},
    grpc::v1,
};

/// Most attempts after the first that a caller may request.
pub const MAX_RETRIES: u32 = 5;

/// Longest name of an operation, in bytes.
pub const MAX_OPERATION_BYTES: usize = 64;
/// Longest request id, and longest id of a thread, in bytes.
pub const MAX_KEY_ID_BYTES: usize = 128;
const MAX_LABELS: usize = 16;
const MAX_LABEL_KEY_BYTES: usize = 64;
const MAX_LABEL_VALUE_BYTES: usize = 256;
const MAX_GOAL_BYTES: usize = 1024;
const MAX_META_BYTES: usize = 16 << 10;

/// Returns the request that a message makes, which arrived in this way.
///
/// # Errors
/// Returns every fault, by paths that start with `invocation`.
pub fn request(wire: v1::Invocation, arrival: Arrival) -> Result<InvocationRequest, Violations> {
    let mut faults = Violations::default();
    let at = Path::Root("invocation");
    check_id(at.field("route"), &wire.route, MAX_ID_BYTES, &mut faults);
    check_id(
        at.field("operation"),
        &wire.operation,
        MAX_OPERATION_BYTES,
        &mut faults,
    );
    check_id(
        at.field("request_id"),
        &wire.request_id,
        MAX_KEY_ID_BYTES,
        &mut faults,
    );
    check_id(
        at.field("thread_id"),
        &wire.thread_id,
        MAX_KEY_ID_BYTES,
        &mut faults,
    );
    let on_thread = !wire.thread_id.is_empty();
    let call =
        match wire.call {
            Some(v1::invocation::Call::Model(model)) => Some(Call::Model(Arc::new(
                read_model_call(&at.field("model"), model, on_thread, &mut faults),
            ))),
            Some(v1::invocation::Call::Tool(tool)) => {
                Some(Call::Tool(tool_call(&at.field("tool"), tool, &mut faults)))
            }
            None => {
                faults.add(at, "calls nothing; one of model, tool is required");
                None
            }
        };
    let labels = labels(&at.field("labels"), wire.labels, &mut faults);
    let wire_overrides = wire.overrides.unwrap_or_default();
    let lifetime = RequestedLifetime {
        deadline: wire_overrides.deadline_ms.map(Duration::from_millis),
        resumable: wire_overrides.resumable.is_some(),
    };
    let overrides = overrides(&at.field("overrides"), wire_overrides, &mut faults);
    let operation = if wire.operation.is_empty() {
        DEFAULT_OPERATION.into()
    } else {
        wire.operation.into()
    };
    let requested = call.map(|call| InvocationRequest {
        arrival,
        route: named(wire.route).map(RouteName::from),
        operation,
        call,
        request_id: named(wire.request_id).map(RequestId::from),
        thread: named(wire.thread_id).map(ThreadId::from),
        names: ConversationNames::default(),
        labels,
        overrides,
        lifetime,
    });
    faults.or_some(requested)
}

/// Checks a name from outside; an empty one is not a fault here.
pub fn check_id(at: impl std::fmt::Display, id: &str, max_bytes: usize, faults: &mut Violations) {
    if id.len() > max_bytes {
        faults.add(at, format!("is longer than {max_bytes} bytes"));
    } else if id.chars().any(char::is_control) {
        faults.add(at, "holds control characters");
    }
}

/// Returns the name, if there is one.
pub fn named(name: String) -> Option<String> {
    (!name.is_empty()).then_some(name)
}

fn tool_call(at: &Path<'_>, wire: v1::ToolCall, faults: &mut Violations) -> ToolInvocation {
    if wire.name.is_empty() {
        faults.add(at.field("name"), "is empty");
    }
    check_id(at.field("name"), &wire.name, MAX_ID_BYTES, faults);
    check_id(at.field("call_id"), &wire.call_id, MAX_KEY_ID_BYTES, faults);
    if wire.goal.len() > MAX_GOAL_BYTES {
        faults.add(
            at.field("goal"),
            format!("is longer than {MAX_GOAL_BYTES} bytes"),
        );
    }
    let arguments = named(wire.arguments_json).unwrap_or_else(|| "{}".to_owned());
    check_json_object(at.field("arguments_json"), &arguments, faults);
    let meta = named(wire.meta_json);
    if let Some(meta) = &meta {
        if meta.len() > MAX_META_BYTES {
            let fault = format!("is longer than {MAX_META_BYTES} bytes");
            faults.add(at.field("meta_json"), fault);
        }
        check_json_object(at.field("meta_json"), meta, faults);
    }
    let meta = meta.as_deref().and_then(passed_on_meta);
    let side_effects = wire.side_effects.map(|stated| SideEffects {
        read_only: stated.read_only,
        idempotent: stated.idempotent,
        destructive: stated.destructive,
        open_world: stated.open_world,
    });
    ToolInvocation {
        name: wire.name,
        arguments,
        goal: wire.goal,
        call_id: named(wire.call_id),
        side_effects,
        meta,
    }
}

fn labels(
    at: &Path<'_>,
    wire: HashMap<String, String>,
    faults: &mut Violations,
) -> BTreeMap<String, String> {
    if wire.len() > MAX_LABELS {
        faults.add(
            at,
            format!(
                "holds {} labels; at most {MAX_LABELS} are allowed",
                wire.len()
            ),
        );
    }
    let labels: BTreeMap<String, String> = wire.into_iter().collect();
    for (key, value) in &labels {
        let at = at.key(key);
        if key.is_empty() {
            faults.add(at, "has an empty key");
        }
        if key.len() > MAX_LABEL_KEY_BYTES {
            faults.add(
                at,
                format!("has a key longer than {MAX_LABEL_KEY_BYTES} bytes"),
            );
        }
        if value.len() > MAX_LABEL_VALUE_BYTES {
            faults.add(at, format!("is longer than {MAX_LABEL_VALUE_BYTES} bytes"));
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            faults.add(at, "holds control characters");
        }
    }
    labels
}

fn overrides(at: &Path<'_>, wire: v1::Overrides, faults: &mut Violations) -> Overrides {
    if wire
        .max_retries
        .is_some_and(|retries| retries > MAX_RETRIES)
    {
        faults.add(
            at.field("max_retries"),
            format!("is out of range: 0 to {MAX_RETRIES}"),
        );
    }
    for (name, value) in [
        ("deadline_ms", wire.deadline_ms),
        ("hold_back_bytes", wire.hold_back_bytes),
    ] {
        if value == Some(0) {
            faults.add(at.field(name), "is 0; the least is 1");
        }
    }
    let grace_ms = wire.resumable.and_then(|resumable| resumable.grace_ms);
    if grace_ms == Some(0) {
        faults.add(
            at.field("resumable").field("grace_ms"),
            "is 0; the least is 1",
        );
    }
    for (name, targets) in [
        ("allowed_targets", &wire.allowed_targets),
        ("targets", &wire.targets),
    ] {
        for (index, target) in targets.iter().enumerate() {
            let targets_at = at.field(name);
            if target.is_empty() {
                faults.add(targets_at.item(index), "is empty");
            }
            check_id(targets_at.item(index), target, MAX_ID_BYTES, faults);
        }
    }
    check_id(at.field("preset"), &wire.preset, MAX_ID_BYTES, faults);
    let injection = if let Ok(mode) = v1::InjectionMode::try_from(wire.injection_mode) {
        mode.into_domain().ok()
    } else {
        faults.add(
            at.field("injection_mode"),
            format!("{} is no mode", wire.injection_mode),
        );
        None
    };
    Overrides {
        max_retries: wire.max_retries,
        injection,
        allowed_targets: wire
            .allowed_targets
            .into_iter()
            .map(TargetId::from)
            .collect(),
        targets: wire.targets.into_iter().map(TargetId::from).collect(),
        preset: named(wire.preset),
        rewind_mode: rewind_mode(
            &at.field("rewind_mode"),
            wire.rewind_mode,
            wire.hold_back_bytes,
            faults,
        ),
        resumable_grace: grace_ms.map(Duration::from_millis),
        allow_continuation_prompt: wire.allow_continuation_prompt,
    }
}

/// `None` is the contract's meaning of an unset mode: the client does not declare that it
/// understands rewinds.
fn rewind_mode(
    at: &Path<'_>,
    wire: i32,
    hold_back: Option<u64>,
    faults: &mut Violations,
) -> Option<RewindMode> {
    let Ok(mode) = v1::RewindMode::try_from(wire) else {
        faults.add(at, format!("{wire} is no mode"));
        return None;
    };
    match mode {
        v1::RewindMode::Unspecified => None,
        v1::RewindMode::Rewind => Some(RewindMode::Rewind),
        v1::RewindMode::Holdback => Some(RewindMode::HoldBack {
            bytes: hold_back.unwrap_or(0),
        }),
        v1::RewindMode::Atomic => Some(RewindMode::Atomic),
    }
}

#[cfg(test)]
mod tests;
