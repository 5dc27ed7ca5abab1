//! Reasons why the circuit of a target is open: the last failures, or an operator.

use crate::{domain::failure::FailureClass, policy::circuit::Transition};

/// Longest reason of an operator that is kept, in characters.
const MAX_REASON_CHARS: usize = 200;

/// The last failures of a target, and the operator who forced its circuit.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// The failure that counted last against its circuit.
    reported: Option<FailureClass>,
    /// The failure that opened its circuit last.
    opened: Option<FailureClass>,
    /// Reason why an operator forced its circuit, in the operator's words.
    forced_for: String,
    /// Operator's name, if operators are authenticated.
    forced_by: Option<String>,
}

// === impl Causes ===

impl Causes {
    /// Remembers the failure that counted last.
    pub(super) fn report(&mut self, class: FailureClass) {
        self.reported = Some(class);
    }

    /// Returns the failure that opened the circuit last.
    pub(super) fn opened(&self) -> Option<FailureClass> {
        self.opened
    }

    /// Returns the failure that tripped the circuit: the failure that was just reported; if calls
    /// were silent, that; else the failure that was reported last, since evidence may have waited
    /// for the call before it. An operator is not a failure.
    pub(super) fn opened_by(
        &mut self,
        moved: &Transition,
        cause: Option<FailureClass>,
    ) -> Option<FailureClass> {
        self.opened = match cause {
            _ if moved.forced => None,
            Some(class) => Some(class),
            None if moved.silent => Some(FailureClass::Timeout),
            None => self.reported,
        };
        self.opened
    }

    /// Remembers the operator who forced the circuit, if known, and the reason.
    pub(super) fn force(&mut self, operator: Option<&str>, reason: &str) {
        self.forced_for = reason
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_REASON_CHARS)
            .collect();
        self.forced_by = operator.map(str::to_owned);
    }

    /// That an operator forced the circuit, and why.
    pub(super) fn forced_words(&self) -> String {
        forced_words(None, &self.forced_for)
    }

    /// That an operator forced the circuit, who it was, and why.
    pub(super) fn forced_by_words(&self) -> String {
        forced_words(self.forced_by.as_deref(), &self.forced_for)
    }
}

fn forced_words(operator: Option<&str>, reason: &str) -> String {
    let operator = operator
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    format!("forced open by an operator{operator}{reason}")
}
