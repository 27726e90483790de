//! Items that this project's own programs share: `wakeful load`, the lab and the simulator. They
//! are not stable.

/// CPUs, and which threads may use them.
pub mod affinity {
    pub use crate::affinity::*;
}

/// Measures blocks: each on a quiet machine, with a fresh server, and again if it was disturbed.
pub mod bench {
    pub use crate::bench::*;
}

/// Compares A with B in interleaved pairs of blocks.
pub mod compare {
    pub use crate::compare::*;
}

/// Finds the highest rate at which a promise is kept.
pub mod find_max {
    pub use crate::find_max::*;
}

/// Measures the time that the generator and the kernel themselves take.
pub mod floor {
    pub use crate::floor::*;
}

/// Formats figures as text.
pub mod format {
    pub use crate::format::*;
}

/// Measures the time that a machine takes from a thread that spins.
pub mod gaps {
    pub use crate::gaps::*;
}

/// Interval logs in HdrHistogram's format.
pub mod intervals {
    pub use crate::intervals::*;
}

/// Describes the machine.
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

/// Shows the progress of the work on stderr.
pub mod progress {
    pub use crate::progress::*;
}

/// Protocols without I/O.
pub mod protocol {
    pub use crate::protocol::*;
}

/// Finds out which other programs use the machine.
pub mod quiet {
    pub use crate::quiet::*;
}

/// Reports in HTML and SVG.
pub mod report {
    pub use crate::report::*;
}

/// The results, as `--json` prints them.
pub mod results {
    pub use crate::results::*;
}

/// Merges blocks into one line of the results.
pub mod series {
    pub use crate::series::*;
}

/// Servers to measure.
pub mod servers {
    pub use crate::servers::*;
}

/// Medians, their intervals, and the rule for when two figures differ.
pub mod statistics {
    pub use crate::statistics::*;
}

/// Turns histograms into figures.
pub mod summary {
    pub use crate::summary::*;
}

/// Formats results as text tables.
pub mod table {
    pub use crate::table::*;
}

/// Decides whether a measurement is valid.
pub mod validity {
    pub use crate::validity::*;
}
