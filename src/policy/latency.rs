//! How fast a target answers: percentiles of its first tokens.
