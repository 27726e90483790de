//! Items that this project's own programs share: `wakeful load`, the lab and the simulator. They
//! are not stable.

/// CPUs and which thread may use them.
pub mod affinity {
    pub use crate::affinity::*;
}

/// Blocks: a quiet machine, a fresh server, its CPU time, again if other programs spoilt it.
pub mod bench {
    pub use crate::bench::*;
}

/// A against B, in interleaved pairs of blocks.
pub mod compare {
    pub use crate::compare::*;
}

/// The highest rate at which a promise is kept.
pub mod find_max {
    pub use crate::find_max::*;
}

/// What the generator and the kernel take by themselves.
pub mod floor {
    pub use crate::floor::*;
}

/// Figures as text.
pub mod format {
    pub use crate::format::*;
}

/// What a machine takes from a thread that spins.
pub mod gaps {
    pub use crate::gaps::*;
}

/// Logs in HdrHistogram's format.
pub mod intervals {
    pub use crate::intervals::*;
}

/// What the machine is.
pub mod machine {
    pub use crate::machine::*;
}

/// A server that is slow in a known way.
pub mod null_server {
    pub use crate::null_server::*;
}

/// CPU time of processes and threads.
pub mod procfs {
    pub use crate::procfs::*;
}

/// Programs that measure inside themselves.
pub mod program {
    pub use crate::program::*;
}

/// What goes on meanwhile, on stderr.
pub mod progress {
    pub use crate::progress::*;
}

/// Conversations without I/O.
pub mod protocol {
    pub use crate::protocol::*;
}

/// Who else uses the machine.
pub mod quiet {
    pub use crate::quiet::*;
}

/// Reports in HTML and SVG.
pub mod report {
    pub use crate::report::*;
}

/// What `--json` prints.
pub mod results {
    pub use crate::results::*;
}

/// Blocks as one line of the results.
pub mod series {
    pub use crate::series::*;
}

/// Servers that are started for a block.
pub mod servers {
    pub use crate::servers::*;
}

/// Medians, their intervals, and whether two differ.
pub mod statistics {
    pub use crate::statistics::*;
}

/// From histograms to figures.
pub mod summary {
    pub use crate::summary::*;
}

/// Results as text.
pub mod table {
    pub use crate::table::*;
}

/// Whether what was measured may be believed.
pub mod validity {
    pub use crate::validity::*;
}
