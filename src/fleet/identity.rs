//! Identities of targets and accounts, as replicas of different configurations share them.
//!
//! A target is known by its base URL, model, credential, and dialect, and not by its name in one
//! configuration. Credentials are hashed: no key leaves this process.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use relight_fleet::FactSubject;

use super::FleetHost;
use crate::{
    config::Config,
    domain::{circuit::GateKind, fold::hash_text, ids::TargetId, target::Target},
};

/// Subjects of the facts about one target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TargetSubjects {
    /// Its circuit.
    pub(super) circuit: FactSubject,
    /// Words of operators about it.
    pub(super) word: FactSubject,
    /// Its gates, in the order of `GateKind::ALL`.
    pub(super) gates: [FactSubject; 3],
}

/// The identities of the targets in force; computed once for each configuration.
pub(crate) struct Identities {
    host: Arc<dyn FleetHost>,
    known: Mutex<KnownIdentities>,
}

/// Part of a target that a fact is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubjectPart {
    /// The target.
    pub(super) target: TargetId,
    /// Name of the credential, as the target's key has it.
    pub(super) credential: Arc<str>,
    /// The gate of that key; `None` if the fact is about the circuit.
    pub(super) gate: Option<GateKind>,
}

#[derive(Debug, Default)]
struct KnownIdentities {
    config: Option<Arc<Config>>,
    by_target: HashMap<(TargetId, Arc<str>), Option<Arc<TargetSubjects>>>,
    targets: HashMap<FactSubject, Vec<SubjectPart>>,
}

// === impl Identities ===

impl Identities {
    pub(super) fn new(host: Arc<dyn FleetHost>) -> Self {
        Self {
            host,
            known: Mutex::default(),
        }
    }

    /// Returns what facts about a target are about; `None` if nothing of it is shared, as of what
    /// runs in or beside this process.
    pub(super) fn of(&self, target: &Target) -> Option<Arc<TargetSubjects>> {
        let config = self.host.config();
        let mut known = self.known.lock();
        if !known
            .config
            .as_ref()
            .is_some_and(|at| Arc::ptr_eq(at, &config))
        {
            *known = KnownIdentities {
                config: Some(Arc::clone(&config)),
                ..KnownIdentities::default()
            };
        }
        let key = (target.id.clone(), Arc::clone(&target.credential));
        if let Some(subjects) = known.by_target.get(&key) {
            return subjects.clone();
        }
        let subjects = subjects_of(&config, target).map(Arc::new);
        known.by_target.insert(key, subjects.clone());
        for (subject, gate) in subjects.iter().flat_map(|it| it.all()) {
            let parts = known.targets.entry(subject.clone()).or_default();
            let is_known = |part: &SubjectPart| part.target == target.id && part.gate.is_none();
            // All keys of a pool have one circuit.
            if gate.is_some() || !parts.iter().any(is_known) {
                parts.push(SubjectPart {
                    target: target.id.clone(),
                    credential: Arc::clone(&target.credential),
                    gate,
                });
            }
        }
        subjects
    }

    /// Returns the targets that a fact is about, and the gates if it is about some.
    pub(super) fn targets(&self, subject: &FactSubject) -> Vec<SubjectPart> {
        for state in self.host.targets().all() {
            for key in state.keys().iter() {
                let _ = self.of(&key.target);
            }
        }
        let known = self.known.lock();
        known.targets.get(subject).cloned().unwrap_or_default()
    }
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}

// === impl TargetSubjects ===

impl TargetSubjects {
    fn all(&self) -> impl Iterator<Item = (&FactSubject, Option<GateKind>)> {
        let gates = GateKind::ALL.into_iter().map(Some).zip(&self.gates);
        let gates = gates.map(|(kind, subject)| (subject, kind));
        [(&self.circuit, None), (&self.word, None)]
            .into_iter()
            .chain(gates)
    }
}

fn subjects_of(config: &Config, target: &Target) -> Option<TargetSubjects> {
    if !target.endpoint.starts_with("http") {
        return None;
    }
    let account = account_of(config, target, true);
    let place = account_of(config, target, false);
    let dialect = format!("{:?}", target.dialect);
    let tool = target.tool().unwrap_or_default();
    let whole = [&*account, &dialect, &target.model, tool];
    let circuit = [&*place, &dialect, &target.model, tool];
    let rate = [&*account, &target.model, tool];
    let subject = |kind: &str, parts: &[&str]| {
        let hash = hash_text(&parts.join("\u{1f}"));
        FactSubject(format!("{kind}:{}", hash.get(..32).unwrap_or(&hash)))
    };
    Some(TargetSubjects {
        circuit: subject("circuit", &circuit),
        word: subject("word", &circuit),
        gates: GateKind::ALL.map(|kind| {
            let parts = match kind {
                GateKind::Rate => &rate[..],
                GateKind::Credential => &whole[..1],
                GateKind::Configuration => &circuit[..],
            };
            subject(kind.as_str(), parts)
        }),
    })
}

/// Returns what a provider knows an account by: its URL, the hash of its key, and what is sent with
/// each call. What the keys of a pool share is known without a key of the pool (`of_key` false).
fn account_of(config: &Config, target: &Target, of_key: bool) -> String {
    let Some(provider) = config.providers.get(&*target.provider) else {
        return target.endpoint.to_string();
    };
    let key = provider
        .key(&target.credential)
        .filter(|_| of_key || !provider.has_pool_key(&target.credential))
        .map(|key| hash_text(key.expose()));
    let headers = provider
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={}", hash_text(value.expose())));
    let headers: Vec<String> = headers.collect();
    format!(
        "{}\u{1e}{}\u{1e}{:?}\u{1e}{}",
        target.endpoint,
        key.unwrap_or_default(),
        provider.region,
        headers.join("\u{1e}")
    )
}
