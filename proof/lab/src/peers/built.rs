//! The programs that were built, and how they are run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use super::entry::{Peer, Service};
use super::error::PeersError;
use crate::contender::{Contender, Cpus};
use crate::probe::{Probe, ReadyProbe};

/// What came of building.
#[derive(Debug, Default)]
pub struct Built {
    /// Programs, by their name.
    programs: BTreeMap<String, PathBuf>,
    /// Programs that could not be built, and why.
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

    /// The peer as a contender with so many workers, if its program was built.
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

    /// The probe, if its program was built.
    #[must_use]
    pub fn probe(&self, probe: &Probe) -> Option<ReadyProbe> {
        let path = self.programs.get(probe.program)?.clone();
        Some(ReadyProbe { probe: probe.clone(), path })
    }

    /// What a program says of its version, one line.
    #[must_use]
    pub fn version(&self, program: &str) -> Option<String> {
        let path = self.programs.get(program)?;
        // nginx knows only the short flag, and answers on stderr.
        let asked = if program == "nginx" { "-v" } else { "--version" };
        let output = Command::new(path).arg(asked).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next()?.to_owned();
        // Node says its number alone.
        Some(if line.starts_with('v') { format!("{program} {line}") } else { line })
    }
}
