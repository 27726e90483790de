//! The programs that were built, and how to run them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use super::entry::{Peer, Service};
use super::error::PeersError;
use crate::contender::{Contender, Cpus};
use crate::probe::{Probe, ReadyProbe};

/// The result of building.
#[derive(Debug, Default)]
pub struct Built {
    /// The paths of programs, by their names.
    programs: BTreeMap<String, PathBuf>,
    /// The programs that could not be built, and the reasons.
    pub missing: BTreeMap<String, String>,
}

impl Built {
    pub(super) fn record(
        &mut self,
        program: &str,
        probes: &[Probe],
        outcome: Result<PathBuf, String>,
    ) -> Result<(), PeersError> {
        let is_own = probes.iter().any(|probe| probe.peer.is_none() && probe.program == program);
        let program = program.to_owned();
        match outcome {
            Ok(path) => drop(self.programs.insert(program, path)),
            Err(reason) if is_own => return Err(PeersError::OwnProbe { program, reason }),
            Err(reason) => drop(self.missing.insert(program, reason)),
        }
        Ok(())
    }

    /// Returns the peer as a contender with `workers` workers, if its program was built.
    #[must_use]
    pub fn contender(&self, peer: &Peer, service: Service, workers: usize) -> Option<Contender> {
        let program = self.programs.get(&peer.binary)?;
        let (name, cpus) = match workers {
            1 => (peer.name.clone(), Cpus::One),
            more => (format!("{} ×{more}", peer.name), Cpus::All),
        };
        let workers = workers.to_string();
        let service = service.flag();
        let mut arguments = vec!["--service", service, "--workers", &workers, "--listen", "{addr}"];
        arguments.extend(peer.args.iter().map(String::as_str));
        Some(Contender::new(&name, cpus, program, &arguments))
    }

    /// Returns the probe, if its program was built.
    #[must_use]
    pub fn probe(&self, probe: &Probe) -> Option<ReadyProbe> {
        let path = self.programs.get(probe.program)?.clone();
        Some(ReadyProbe { probe: probe.clone(), path })
    }

    /// Returns what a program prints as its version, in one line.
    #[must_use]
    pub fn version(&self, program: &str) -> Option<String> {
        let path = self.programs.get(program)?;
        // nginx knows only the short flag, and prints to stderr.
        let asked = if program == "nginx" { "-v" } else { "--version" };
        let output = Command::new(path).arg(asked).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next()?.to_owned();
        // Node prints only its number.
        Some(if line.starts_with('v') { format!("{program} {line}") } else { line })
    }
}
