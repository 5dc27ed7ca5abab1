//! What attempts beyond the first cost, so that retries cannot drown a sick provider.
