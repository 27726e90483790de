//! Compiles the service of docs/grpc.md as that page does.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/greeter.proto"], ["proto"])?;
    let descriptors = Path::new(&env::var("OUT_DIR")?).join("greeter.bin"); // for reflection
    fs::write(descriptors, files.encode_to_vec())?;
    // Without it the generated client needs tonic's own transport.
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
