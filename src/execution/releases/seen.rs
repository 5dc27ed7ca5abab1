//! What events say of releases.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use crate::{
    config::Config,
    domain::event::{Event, EventBody},
    events::{BusItem, EventReader},
    policy::release::ReleaseOutcome,
};

/// Largest number of outcomes that wait for the book; further ones are not evidence.
pub(super) const MAX_WAITING: usize = 4096;

/// Event of a release, before it is in the book.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) subject: String,
    pub(super) target: String,
    /// Release of the target at that time, if it was judged while the journal was away; `None` for
    /// the one in force.
    pub(super) release: Option<String>,
    pub(super) outcome: ReleaseOutcome,
}

/// Reads what happened to releases since; returns whether there was a failure.
pub(super) fn read(reader: &mut EventReader, config: &Config, waiting: &mut Vec<Seen>) -> bool {
    let mut subjects: HashMap<&str, &str> = HashMap::new();
    for (subject, trial) in &config.releases.subjects {
        subjects.insert(subject, subject);
        subjects.insert(trial.candidate.as_str(), subject);
    }
    let mut failed = false;
    while let Some(item) = reader.try_next() {
        // A missed event is not evidence.
        let BusItem::Event(event) = item else {
            continue;
        };
        let Some(seen) = seen(&event, &subjects) else {
            continue;
        };
        failed |= seen.outcome.failure.is_some();
        if waiting.len() < MAX_WAITING {
            waiting.push(seen);
        }
    }
    failed
}

/// Returns the information of an event about a release; `None` if there is none.
fn seen(event: &Event, subjects: &HashMap<&str, &str>) -> Option<Seen> {
    let target = event.target.as_ref()?.as_str();
    // A tool is `server/tool`, and its server is what has releases.
    let server = || {
        target
            .split_once('/')
            .and_then(|(server, _)| Some((server, subjects.get(server)?)))
    };
    let (target, subject) = subjects
        .get(target)
        .map(|subject| (target, subject))
        .or_else(server)?;
    let subject = (*subject).to_owned();
    let unknown = ReleaseOutcome {
        at: event.at,
        failure: None,
        is_flawed: false,
        attempt: event.attempt,
        duration_ms: None,
        signature: String::new(),
        session: None,
    };
    let outcome = match &event.body {
        EventBody::AttemptSucceeded {
            duration_ms,
            is_flawed,
            ..
        } => ReleaseOutcome {
            is_flawed: *is_flawed,
            duration_ms: Some(*duration_ms),
            ..unknown
        },
        EventBody::AttemptFailed {
            class, signature, ..
        } => ReleaseOutcome {
            failure: Some(*class),
            signature: signature.clone(),
            ..unknown
        },
        _ => return None,
    };
    let scope = event.scope.as_ref()?;
    let session = scope.thread.as_ref().map(|thread| {
        let mut hasher = DefaultHasher::new();
        (scope.tenant.as_str(), thread.as_str()).hash(&mut hasher);
        hasher.finish()
    });
    Some(Seen {
        subject,
        target: target.to_owned(),
        release: None,
        outcome: ReleaseOutcome { session, ..outcome },
    })
}
