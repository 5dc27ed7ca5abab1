//! Which target the next attempt asks.
