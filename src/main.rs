//! Relight: relights failed model calls in flight.

fn main() {}
