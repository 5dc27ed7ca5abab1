//! How many attempts a target may have at once: additive increase, multiplicative decrease.
