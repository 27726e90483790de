//! Programs that would share a socket, or use one that is on no loop, do not compile, nor do
//! attributes with arguments that mean nothing, and for the reason that is pinned beside each of
//! them: one line for each error, without the compiler's explanations, which name private types and
//! differ from version to version.
//!
//! After a change that these lines should follow:
//! `TRYBUILD=overwrite cargo test -p wakeful-rt --test compile_fail`.

#![allow(unsafe_code)] // How a process's environment is changed.

#[test]
fn what_would_share_a_socket_does_not_compile() {
    let short = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compile_fail/short-errors");
    // SAFETY: the only test of its process: no other thread looks at the environment meanwhile.
    unsafe { std::env::set_var("RUSTC_WORKSPACE_WRAPPER", short) };
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
