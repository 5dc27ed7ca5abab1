//! Gates: bounds on measures, and whether they were met.

use serde::{Deserialize, Serialize};

use super::{GateBounds, Measures};

/// The bounds of a measure, both included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// At least.
    pub min: Option<f64>,
    /// At most.
    pub max: Option<f64>,
}

/// The result of one gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult {
    /// Name of the measure.
    pub measure: String,
    /// The measured value; `None` when it was not reached.
    pub value: Option<f64>,
    /// Bounds that it had to meet.
    pub bounds: Bounds,
    /// `true` if it met them.
    pub passed: bool,
    /// Reason why it is known not to be passed, if that is so.
    pub beyond: Option<String>,
}

// === impl GateResult ===

impl GateResult {
    /// Returns the gate as text, such as `success >= 0.22`.
    #[must_use]
    pub fn gate(&self) -> String {
        let measure = &self.measure;
        match (self.bounds.min, self.bounds.max) {
            (Some(min), Some(max)) if (min - max).abs() < f64::EPSILON => {
                format!("{measure} = {min}")
            }
            (Some(min), Some(max)) => format!("{min} <= {measure} <= {max}"),
            (Some(min), None) => format!("{measure} >= {min}"),
            (None, Some(max)) => format!("{measure} <= {max}"),
            (None, None) => format!("{measure} is reported"),
        }
    }

    /// Returns whether it was not passed without an exception, or passed with one, which is then to
    /// be removed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.passed == self.beyond.is_some()
    }

    /// Returns whether it was not passed, for a reason that is known.
    pub(super) fn is_open(&self) -> bool {
        !self.passed && self.beyond.is_some()
    }

    /// Returns the remark beside its value; empty for most.
    #[must_use]
    pub fn remark(&self) -> String {
        match &self.beyond {
            Some(_) if self.passed => ": it is passed, so its exception is to go".to_owned(),
            Some(reason) => format!(": {reason}"),
            None => String::new(),
        }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "gate": self.gate(),
            "value": self.value,
            "passed": self.passed,
            "beyond": self.beyond,
        })
    }
}

/// Checks measures against gates. A measure that was not reached (a missing detection) fails its
/// gate.
pub(super) fn judge(gates: &GateBounds, measures: &Measures) -> Vec<GateResult> {
    let verdict = |(measure, bounds): (&String, &Bounds)| {
        let value = measures.get(measure);
        let within = |value: f64| {
            bounds.min.is_none_or(|min| value >= min - 1e-9)
                && bounds.max.is_none_or(|max| value <= max + 1e-9)
        };
        GateResult {
            measure: measure.clone(),
            value,
            bounds: *bounds,
            passed: value.is_some_and(within),
            beyond: None,
        }
    };
    gates.iter().map(verdict).collect()
}
