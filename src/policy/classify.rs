//! The one place that judges failures: facts in, verdict out.
