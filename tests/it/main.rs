//! All integration tests in one binary: each file is one promise, `support` is what they stand on.

mod support;
