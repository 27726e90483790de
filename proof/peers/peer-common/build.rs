//! Reads the lock file for the versions that `--version` prints, so that they are the versions that
//! were built.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The constant, the package of the peer, and the crate whose version it is.
const RUNTIMES: &[(&str, &str, &str)] = &[
    ("AXUM", "peer-axum", "axum"),
    ("COMPIO", "peer-compio", "compio"),
    ("GLOMMIO", "peer-glommio", "glommio"),
    ("IO_URING", "uring", "io-uring"),
    ("RUSTIX", "epoll", "rustix"),
    ("MONOIO", "peer-monoio", "monoio"),
    ("SMOL", "peer-smol", "smol"),
    ("TOKIO", "tokio-multi-thread", "tokio"),
    ("TONIC", "peer-tonic", "tonic"),
    ("WAKEFUL", "late-wake", "wakeful-rt"),
];

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let lock = Path::new(&root).join("../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let lock = fs::read_to_string(lock).expect("the workspace has a lock file");
    let mut code = String::new();
    for (constant, peer, runtime) in RUNTIMES {
        let version = version_of(&lock, peer, runtime).unwrap_or("unknown");
        writeln!(
            code,
            "/// The version of {runtime} in the lock file.\n\
             pub const {constant}: &str = \"{runtime} {version}\";"
        )
        .expect("a string takes everything");
    }
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("versions.rs"), code).expect("OUT_DIR is writable");
}

/// Returns the version of `runtime` that `peer` itself depends on. The lock file may have several
/// versions. Then the peer's list of dependencies says which one it is.
fn version_of<'a>(lock: &'a str, peer: &str, runtime: &str) -> Option<&'a str> {
    let package = |name: &str| {
        let line = format!("name = \"{name}\"");
        lock.split("[[package]]").filter(move |text| text.lines().any(|l| l == line))
    };
    let exact = format!("\"{runtime} ");
    if let Some(line) = package(peer).flat_map(str::lines).find(|l| l.trim().starts_with(&exact)) {
        let rest = line.trim().strip_prefix(&exact)?;
        return rest.split(['"', ' ']).next();
    }
    let version = package(runtime).flat_map(str::lines).find(|l| l.starts_with("version = "))?;
    version.split('"').nth(1)
}
