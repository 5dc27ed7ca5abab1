//! How long an attempt may be silent.
