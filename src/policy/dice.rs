//! Randomness that can be replayed: drawn from a seed, the invocation and the attempt.
