//! The entries of the catalog. This file is a module of `proof/peers/peer-tests`, too, which is in
//! another workspace: it needs nothing but serde.

use serde::Deserialize;

/// One way to run a peer, as the catalog has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name in tables: the program, and the variant behind a `+`.
    pub name: String,
    /// The program.
    pub binary: String,
    /// What it is written in: this says how it is built.
    pub language: Language,
    /// What selects the variant.
    pub args: Vec<String>,
    /// With how many workers it is of interest.
    pub workers: Vec<usize>,
    /// What it serves.
    pub services: Vec<Service>,
    /// Whether it parks when there is nothing to do.
    pub idle: Idle,
    /// Whether quick runs have it.
    pub quick: bool,
    /// One sentence.
    pub about: String,
}

/// What a peer is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Built by cargo.
    Rust,
    /// Built by `proof/peers/c/build.sh`; C++ too.
    C,
}

/// What a peer serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Frames, echoed.
    Echo,
    /// `GET /`.
    Http,
}

impl Service {
    /// As the flag `--service` takes it.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }
}

/// What a peer does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// It sleeps in the kernel.
    Park,
    /// It takes a whole CPU.
    Spin,
}
