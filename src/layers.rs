//! The tower layers of the recovery stack, one idea a file.

pub mod spans;
