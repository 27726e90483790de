//! The errors of finding and building peers.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why there are no peers at all.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The sources are missing.
    #[error(
        "proof/peers/catalog.json is in none of the directories above this one or the program: the peers are built from \
         source; go into a checkout of wakeful, or say --peers-dir"
    )]
    NotFound,
    /// The catalog cannot be read.
    #[error("{}: {error}; --peers-dir is the directory proof/peers of a checkout of wakeful", path.display())]
    Catalog {
        /// The path of the catalog.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The user asked for a peer that does not exist.
    #[error("there is no peer {name}; there are: {known}")]
    Unknown {
        /// The name that the user asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A probe that belongs to no peer could not be built. Without it, wakeful itself is not
    /// measured.
    #[error("{program}, which measures wakeful itself, cannot be built: {reason}")]
    OwnProbe {
        /// The name of the program.
        program: String,
        /// The reason.
        reason: String,
    },
    /// The user interrupted the build.
    #[error("interrupted")]
    Interrupted,
}
