//! The documentation, for tests that keep it true: its pages, their blocks of code, and the command
//! lines in them.
//!
//! What is checked where:
//! * Whole programs in Rust are doctests, here: [`PROGRAMS`] has their pages.
//! * Parts of programs stand in `tests/fragments/`, and the test `fragments` compares.
//! * Each command line of `wakeful` and `wakeful-sim`, and each option that a sentence names, is
//!   known to the parser of the program itself: tests in their crates. So are settings files.
//! * What `cargo` is told to build, and each dependency, is known to cargo: the test `cargo`.
//! * `docs/metrics.md` lists what `/metrics` has, and no page names another metric: the test
//!   `metrics` of wakeful-cli.
//! * Each other block by a test of its language, and each other program that a block starts: the
//!   test `kinds` has the list, also of what is not run, and fails for what is not in it.
//! * Links, and the README's servers as processes: `.ci/docs`.

mod command_lines;
mod pages;
mod shell;
mod tools;

pub use command_lines::{CommandLine, command_lines, options};
pub use pages::{Block, Page, Place, blocks, pages, root};
pub use tools::is_installed;

/// The blocks of a page are programs, each with a `main`.
macro_rules! programs {
    ($($name:ident: $page:literal),* $(,)?) => {
        /// The pages whose blocks in Rust are doctests.
        pub const PROGRAMS: &[&str] = &[$($page),*];

        #[cfg(doctest)]
        mod programs {
            $(#[doc = include_str!(concat!("../../../", $page))] struct $name;)*
        }
    };
}

programs! {
    Readme: "README.md",
    Wakeful: "crates/wakeful/README.md",
    // Also the documentation of its crate.
    WakefulAwake: "crates/wakeful-awake/README.md",
    WakefulHttp: "crates/wakeful-http/README.md",
    WakefulSpin: "crates/wakeful-spin/README.md",
}
