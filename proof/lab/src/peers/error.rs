//! Why there are no peers.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why there are no peers at all.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The sources are not there.
    #[error(
        "proof/peers/catalog.json is in none of the directories above this one or the program: the peers are built from \
         source; go into a checkout of wakeful, or say --peers-dir"
    )]
    NotFound,
    /// The catalog cannot be read.
    #[error("{}: {error}; --peers-dir is the directory proof/peers of a checkout of wakeful", path.display())]
    Catalog {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// Somebody asked for a peer that does not exist.
    #[error("there is no peer {name}; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A probe that is nobody's could not be built: without it, wakeful itself is not measured.
    #[error("{program}, which measures wakeful itself, cannot be built: {reason}")]
    OwnProbe {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// The user ended it while they were built.
    #[error("interrupted")]
    Interrupted,
}
