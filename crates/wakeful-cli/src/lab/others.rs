//! The programs that wakeful is compared with: which peers and probes are wanted, and which can be
//! built.

use std::sync::atomic::AtomicBool;

use wakeful_lab::contender::Contender;
use wakeful_lab::peers::{Built, Catalog, Language, PeersError, Service};
use wakeful_lab::probe::{Probe, ReadyProbe, Source};
use wakeful_lab::{EXPERIMENTS, Experiment};

use super::arguments::{Arguments, Refusal};
use crate::load::{print, until_interrupted};
use crate::logging::say;

/// The peers of the catalog and the probes that are wanted.
pub(super) fn wanted(
    arguments: &Arguments,
    experiments: &[&dyn Experiment],
) -> Result<(Catalog, Vec<Probe>), PeersError> {
    let mut catalog = Catalog::read(arguments.peers_dir.as_deref())?;
    let mut probes: Vec<Probe> =
        experiments.iter().flat_map(|experiment| experiment.probes()).collect();
    match &arguments.peers {
        Some(names) if names.iter().all(|name| name == "none") => {
            catalog.peers.clear();
            probes.retain(|probe| probe.peer.is_none());
        }
        Some(names) => catalog.select(names, &mut probes)?,
        None if arguments.quick => {
            catalog.peers.retain(|peer| peer.quick && peer.language == Language::Rust);
        }
        None => {}
    }
    // Experiments differ in their parts and producers, whichever probes take part.
    if arguments.quick {
        probes.retain(|probe| probe.quick);
    }
    Ok((catalog, probes))
}

/// The programs that wakeful is compared with, as far as they could be built.
pub(super) struct Others {
    catalog: Catalog,
    built: Built,
    /// The probes of all experiments that are wanted.
    probes: Vec<Probe>,
    /// Which programs are missing, and the versions of the others.
    pub(super) notes: Vec<String>,
}

impl Others {
    /// Builds what these experiments need.
    pub(super) fn build(
        mut catalog: Catalog,
        probes: Vec<Probe>,
        experiments: &[&dyn Experiment],
        interrupted: &AtomicBool,
    ) -> Result<Self, PeersError> {
        let services: Vec<Service> =
            experiments.iter().filter_map(|experiment| experiment.service()).collect();
        catalog.peers.retain(|peer| serves(&peer.services, &services));
        let built = catalog.build(&probes, interrupted, &mut |what| say(what))?;
        let mut notes: Vec<String> = Vec::new();
        for (program, reason) in &built.missing {
            notes.push(format!("{program} is missing: {reason}"));
        }
        let peers = catalog.peers.iter().map(|peer| peer.binary.as_str());
        let others = probes.iter().filter(|probe| probe.peer.is_some());
        let mut versions: Vec<String> = peers
            .chain(others.map(|probe| probe.program))
            .filter_map(|program| built.version(program))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        versions.retain(|version| seen.insert(version.clone()));
        if !versions.is_empty() {
            notes.push(format!("Peers: {}.", versions.join(", ")));
        }
        Ok(Self { catalog, built, probes, notes })
    }

    /// The peers with this service.
    pub(super) fn peers(&self, service: Option<Service>) -> Vec<Contender> {
        let Some(service) = service else { return Vec::new() };
        let mut peers = Vec::new();
        for peer in self.catalog.peers.iter().filter(|peer| serves(&peer.services, &[service])) {
            peers.extend(self.built.contender(peer, service, 1));
            // With two threads only if one thread alone is not what the peer's users run.
            if peer.binary == "tokio-multi-thread" && peer.workers.contains(&2) {
                peers.extend(self.built.contender(peer, service, 2));
            }
        }
        peers
    }

    /// The probes of an experiment.
    pub(super) fn probes(&self, experiment: &dyn Experiment) -> Vec<ReadyProbe> {
        let wanted = experiment.probes();
        let wanted = self.probes.iter().filter(|probe| wanted.contains(probe));
        wanted.filter_map(|probe| self.built.probe(probe)).collect()
    }
}

fn serves(services: &[Service], one_of: &[Service]) -> bool {
    services.iter().any(|service| one_of.contains(service))
}

pub(super) fn print_peers(arguments: &Arguments) -> Result<(), Refusal> {
    let (catalog, probes) = wanted(arguments, EXPERIMENTS)?;
    let interrupted = until_interrupted()?;
    let built = catalog.build(&probes, &interrupted, &mut |what| say(what))?;
    for peer in &catalog.peers {
        let state = match (built.missing.get(&peer.binary), built.version(&peer.binary)) {
            (Some(reason), _) => format!("missing: {reason}"),
            (None, Some(version)) => version,
            (None, None) => "built; it does not say its version".to_owned(),
        };
        print(&format!("{:<28} {state}\n{:<28} {}\n", peer.name, "", peer.about))?;
    }
    let mut programs: Vec<&str> = probes.iter().map(|probe| probe.program).collect();
    programs.sort_unstable();
    programs.dedup();
    for program in &programs {
        let is_installed = probes.iter().any(|probe| {
            probe.program == *program && matches!(probe.source, Source::Installed { .. })
        });
        let state = match built.missing.get(*program) {
            Some(reason) => format!("missing: {reason}"),
            None if is_installed => "installed".to_owned(),
            None => "built".to_owned(),
        };
        print(&format!("{program:<28} {state}\n"))?;
    }
    if built.missing.is_empty() {
        let (peers, probes) = (catalog.peers.len(), programs.len());
        print(&format!("All {peers} peers and {probes} probes can be measured.\n"))?;
    } else {
        let missing = built.missing.len();
        print(&format!("{missing} programs are missing; experiments continue without them.\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn probes(flags: &[&str]) -> Vec<Probe> {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proof/peers");
        let words = [&["lab", "all", "--peers-dir", peers], flags].concat();
        let arguments = Program::parse_from(words).arguments;
        wanted(&arguments, EXPERIMENTS).unwrap().1
    }

    #[test]
    fn quick_leaves_parts_out_whoever_takes_part() {
        for peers in [&[][..], &["--peers", "none"], &["--peers", "asio,libevent"]] {
            assert!(probes(peers).iter().any(|probe| !probe.quick), "{peers:?}");
            let quick = probes(&[peers, &["--quick"]].concat());
            assert!(!quick.is_empty() && quick.iter().all(|probe| probe.quick), "{peers:?}");
        }
        let asio = probes(&["--quick", "--peers", "asio"]);
        assert!(asio.iter().any(|probe| probe.peer == Some("asio")), "a peer that is named stays");
    }
}
