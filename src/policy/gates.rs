//! Until when a target must not be asked: rate, credential and configuration gates.
