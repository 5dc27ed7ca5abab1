//! The events that a watcher wants, compiled once so that each event costs a few look-ups.
//!
//! Which events a tenant may see is decided elsewhere, before this filter.

use std::collections::{BTreeMap, HashSet};

use super::{
    enums::IntoProto as _,
    event::event_type,
    violation::{Path, Violations},
};
use crate::{
    domain::{
        event::{Event, EventScope},
        ids::{TargetId, ThreadId},
    },
    grpc::v1,
};

/// A compiled filter; the default one matches every event of the contract.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    invocations: HashSet<String>,
    threads: HashSet<String>,
    routes: HashSet<String>,
    targets: HashSet<String>,
    operations: HashSet<String>,
    types: HashSet<v1::RecoveryEventType>,
    labels: BTreeMap<String, String>,
    min_severity: i32,
}

/// Compiles a filter.
pub(super) fn read_filter(
    at: &Path<'_>,
    wire: v1::RecoveryEventFilter,
    faults: &mut Violations,
) -> EventFilter {
    let mut types = HashSet::new();
    for (index, number) in wire.event_types.into_iter().enumerate() {
        match v1::RecoveryEventType::try_from(number) {
            Ok(v1::RecoveryEventType::Unspecified) => {
                faults.add(at.field("event_types").item(index), "is not set");
            }
            Ok(event_type) => {
                types.insert(event_type);
            }
            Err(_) => faults.add(
                at.field("event_types").item(index),
                format!("{number} is no type of event"),
            ),
        }
    }
    if v1::Severity::try_from(wire.min_severity).is_err() {
        faults.add(
            at.field("min_severity"),
            format!("{} is no severity", wire.min_severity),
        );
    }
    let names = [
        ("invocation_ids", wire.invocation_ids),
        ("thread_ids", wire.thread_ids),
        ("routes", wire.routes),
        ("targets", wire.targets),
        ("operations", wire.operations),
        // Which replicas are watched is decided elsewhere.
        ("replicas", wire.replicas),
    ];
    let [invocations, threads, routes, targets, operations, _] = names.map(|(field, names)| {
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() {
                faults.add(at.field(field).item(index), "is empty");
            }
        }
        names.into_iter().collect()
    });
    let labels = wire.labels.into_iter().collect();
    EventFilter {
        invocations,
        threads,
        routes,
        targets,
        operations,
        types,
        labels,
        min_severity: wire.min_severity,
    }
}

// === impl EventFilter ===

impl EventFilter {
    /// Returns the names of routes that it is about.
    pub fn routes(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().map(String::as_str)
    }

    /// Returns the ids of targets that it is about.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(String::as_str)
    }

    /// Returns whether the watcher wants this event; `false` for one that the contract does not
    /// include.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let Some(event_type) = event_type(&event.body) else {
            return false;
        };
        let severity = i32::from(event.body.severity().into_proto());
        severity >= self.min_severity
            && (self.types.is_empty() || self.types.contains(&event_type))
            && wanted(&self.targets, event.target.as_ref().map(TargetId::as_str))
            && self.wants_invocation(event.scope.as_deref())
    }

    /// Returns whether the filter wants an invocation; an event without one matches no filter on one.
    fn wants_invocation(&self, scope: Option<&EventScope>) -> bool {
        wanted(
            &self.invocations,
            scope.map(|scope| scope.invocation.as_str()),
        ) && wanted(
            &self.threads,
            scope
                .and_then(|scope| scope.thread.as_ref())
                .map(ThreadId::as_str),
        ) && wanted(&self.routes, scope.map(|scope| scope.route.as_str()))
            && wanted(
                &self.operations,
                scope.map(|scope| scope.operation.as_str()),
            )
            && self
                .labels
                .iter()
                .all(|(key, value)| scope.is_some_and(|scope| scope.labels.get(key) == Some(value)))
    }
}

fn wanted(names: &HashSet<String>, name: Option<&str>) -> bool {
    names.is_empty() || name.is_some_and(|name| names.contains(name))
}

#[cfg(test)]
mod tests;
