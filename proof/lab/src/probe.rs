//! A way to run a probe: its program, how that is built, its arguments and its CPUs.
//!
//! [`probes`](crate::probes) runs them.

use std::path::PathBuf;
use std::time::Duration;

use crate::contender::Cpus;

/// A way to run a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Its name in tables; unique within its part.
    pub name: String,
    /// Which part of the experiment it belongs to.
    pub part: &'static str,
    /// By which name `--peers` selects it. Nothing for wakeful's own and for bare floors, which are
    /// always there.
    pub peer: Option<&'static str>,
    /// The program's file name.
    pub program: &'static str,
    /// How it is built.
    pub source: Source,
    /// Its arguments. `{first}` stands for the first CPU that may be used, and `{last}` for the
    /// last: threads pin themselves.
    pub arguments: Vec<String>,
    /// On which CPUs it is started.
    pub cpus: Cpus,
    /// How much longer than five times what is [expected](crate::probes::Part::each) it may take
    /// until it is killed.
    pub patience: Duration,
    /// Whether quick runs have it.
    pub quick: bool,
}

/// How a probe's program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By cargo, in `proof/peers/`.
    Cargo {
        /// The package.
        package: &'static str,
        /// Those of its features that the program needs, with commas between; the default ones are
        /// off.
        features: &'static str,
    },
    /// By `proof/peers/c/build.sh`; C++ too.
    C,
    /// Not at all: it is there, or it is missing.
    Installed {
        /// Debian's package that has it.
        package: &'static str,
    },
}

impl Default for Probe {
    /// A probe without a name, on all CPUs, that quick runs have.
    fn default() -> Self {
        Self {
            name: String::new(),
            part: "",
            peer: None,
            program: "",
            source: Source::C,
            arguments: Vec::new(),
            cpus: Cpus::All,
            patience: Duration::from_secs(10),
            quick: true,
        }
    }
}

/// A probe whose program was built.
#[derive(Debug, Clone)]
pub struct ReadyProbe {
    /// The probe.
    pub probe: Probe,
    /// Its program.
    pub path: PathBuf,
}
