//! Whether and when a second attempt starts beside a slow first.
