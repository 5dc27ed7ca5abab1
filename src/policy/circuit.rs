//! The circuit breaker's pure core: evidence in admission order, generations, probe leases, stages.
