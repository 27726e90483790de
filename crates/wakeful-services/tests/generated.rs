//! What is generated from `proto/` is committed, so that a build needs no protoc. This compiles it
//! anew, without one, and compares.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use prost::Message as _;
use protox::Compiler;

const PROTO: &str = "wakeful/echo/v1/echo.proto";

/// `WAKEFUL_GENERATE=1` writes them instead.
#[test]
fn the_generated_code_is_that_of_the_proto_file() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = |with_comments: bool| -> Result<_, Box<dyn Error>> {
        let mut compiler = Compiler::new([root.join("proto")])?;
        compiler.include_imports(true).include_source_info(with_comments).open_file(PROTO)?;
        Ok(compiler.file_descriptor_set())
    };
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    fs::create_dir_all(&out)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .out_dir(&out)
        .compile_fds(compiled(true)?)?;
    let code = fs::read(out.join("wakeful.echo.v1.rs"))?;
    let descriptors = compiled(false)?.encode_to_vec();
    let committed = root.join("src/rpc/generated");
    for (name, current) in [("wakeful.echo.v1.rs", code), ("wakeful.echo.v1.bin", descriptors)] {
        let path = committed.join(name);
        if env::var_os("WAKEFUL_GENERATE").is_some() {
            fs::create_dir_all(&committed)?;
            fs::write(&path, &current)?;
        }
        let same = fs::read(&path)? == current;
        assert!(
            same,
            "{name} is out of date: WAKEFUL_GENERATE=1 cargo test -p wakeful-services --test generated"
        );
    }
    Ok(())
}
