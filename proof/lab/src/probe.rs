//! A way to run a probe: its program, how that is built, its arguments and its CPUs.
//!
//! [`probes`](crate::probes) runs them.

use std::path::PathBuf;
use std::time::Duration;

use crate::contender::Cpus;

/// A way to run a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The name in tables. It is unique within its part.
    pub name: String,
    /// The part of the experiment that the probe belongs to.
    pub part: &'static str,
    /// The name by which `--peers` selects the probe. `None` for wakeful's own probes and for bare
    /// floors, which are always run.
    pub peer: Option<&'static str>,
    /// The file name of the program.
    pub program: &'static str,
    /// How the program is built.
    pub source: Source,
    /// The arguments. `{first}` stands for the first CPU that may be used, and `{last}` for the
    /// last one, because threads pin themselves.
    pub arguments: Vec<String>,
    /// The CPUs on which the probe is started.
    pub cpus: Cpus,
    /// A probe is killed when it takes longer than five times the
    /// [expected](crate::probes::Part::each) time and this time together.
    pub patience: Duration,
    /// Whether quick runs include the probe.
    pub quick: bool,
}

/// How a probe's program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By cargo, in `proof/peers/`.
    Cargo {
        /// The package.
        package: &'static str,
        /// The features that the program needs, separated by commas. The default features are off.
        features: &'static str,
    },
    /// By `proof/peers/c/build.sh`, which also builds C++.
    C,
    /// Not built. The program is installed, or it is missing.
    Installed {
        /// The Debian package that contains the program.
        package: &'static str,
    },
}

impl Default for Probe {
    /// Returns a probe without a name, on all CPUs, that quick runs include.
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
    /// The path of the probe's program.
    pub path: PathBuf,
}
