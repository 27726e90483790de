//! The entries of the catalog. This file is also a module of `proof/peers/peer-tests`, which is in
//! another workspace. So it needs only serde.

use serde::Deserialize;

/// One way to run a peer, as the catalog describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The name in tables: the program, and the variant after a `+`.
    pub name: String,
    /// The program.
    pub binary: String,
    /// The language of the program, which determines how it is built.
    pub language: Language,
    /// The arguments that select the variant.
    pub args: Vec<String>,
    /// The numbers of workers that are of interest.
    pub workers: Vec<usize>,
    /// The services of the program.
    pub services: Vec<Service>,
    /// What the program does when it has no work.
    pub idle: Idle,
    /// Whether quick runs include it.
    pub quick: bool,
    /// A description in one sentence.
    pub about: String,
}

/// The language in which a peer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Built by cargo.
    Rust,
    /// Built by `proof/peers/c/build.sh`, which also builds C++.
    C,
}

/// The service of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Echoes frames.
    Echo,
    /// Answers `GET /`.
    Http,
}

impl Service {
    /// Returns the name that the flag `--service` takes.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }
}

/// What a peer does when it has no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// It sleeps in the kernel.
    Park,
    /// It takes a whole CPU.
    Spin,
}
