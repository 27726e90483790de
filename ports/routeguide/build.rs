//! Without `protoc`: protox is a compiler of protocol buffers in Rust.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/routeguide.proto"], ["proto"])?;
    Ok(tonic_prost_build::configure().compile_fds(files)?)
}
