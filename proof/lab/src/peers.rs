//! The peers: the same services on other runtimes, built from source in their own workspace beside
//! wakeful.
//!
//! `proof/peers/catalog.json` lists them. Each is built by itself. A peer that cannot be built is
//! left out, with the reason. But nothing is measured without the probes that belong to no peer,
//! because they measure wakeful itself.

mod built;
mod entry;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub use self::built::Built;
pub use self::entry::{Idle, Language, Peer, Service};
pub use self::error::PeersError;
use crate::probe::{Probe, Source};

/// The catalog and its directory.
#[derive(Debug)]
pub struct Catalog {
    dir: PathBuf,
    /// The peers in the order of the file.
    pub peers: Vec<Peer>,
}

impl Catalog {
    /// Finds and reads the catalog: in `dir`, or in `peers` of the directories above the current
    /// one, or above the program.
    ///
    /// # Errors
    /// The catalog is missing or invalid.
    pub fn read(dir: Option<&Path>) -> Result<Self, PeersError> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => find().ok_or(PeersError::NotFound)?,
        };
        let path = dir.join("catalog.json");
        let peers = fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
        match peers {
            Ok(peers) => Ok(Self { dir, peers }),
            Err(error) => Err(PeersError::Catalog { path, error }),
        }
    }

    /// Keeps only the peers and probes with these names. A name without a variant stands for all
    /// variants. Probes that belong to no peer (wakeful's own and bare floors) stay.
    ///
    /// # Errors
    /// A name does not exist.
    pub fn select(&mut self, names: &[String], probes: &mut Vec<Probe>) -> Result<(), PeersError> {
        let is_named = |peer: &Peer, name: &String| {
            peer.name == *name || peer.binary == *name && !name.contains('+')
        };
        let is_known = |name: &&String| {
            self.peers.iter().any(|peer| is_named(peer, name))
                || probes.iter().any(|probe| probe.peer == Some(name.as_str()))
        };
        if let Some(name) = names.iter().find(|name| !is_known(name)) {
            let peers = self.peers.iter().map(|peer| peer.name.as_str());
            let mut known: Vec<&str> =
                peers.chain(probes.iter().filter_map(|probe| probe.peer)).collect();
            let mut seen = BTreeSet::new();
            known.retain(|name| seen.insert(*name));
            return Err(PeersError::Unknown { name: name.clone(), known: known.join(", ") });
        }
        self.peers.retain(|peer| names.iter().any(|name| is_named(peer, name)));
        probes.retain(|probe| {
            probe.peer.is_none_or(|peer| names.iter().any(|name| name.as_str() == peer))
        });
        Ok(())
    }

    /// Builds the programs that the peers and the probes need, beginning with those of the probes
    /// that belong to no peer. cargo's output goes to stderr. `say` gets a message for each step.
    ///
    /// # Errors
    /// The user set `interrupted` (Ctrl-C also ends a running build), or a probe that belongs to no
    /// peer cannot be built.
    pub fn build(
        &self,
        probes: &[Probe],
        interrupted: &AtomicBool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Built, PeersError> {
        let mut built = Built::default();
        let in_rust = self.programs_in_rust(probes);
        let in_c = self.programs_in_c(probes);
        // One script builds all programs in C.
        let count = in_rust.len() + usize::from(!in_c.is_empty());
        for (index, (program, flags)) in in_rust.iter().enumerate() {
            say(&format!("building {} of {count}: {program}", index + 1));
            let outcome = unless(interrupted, || self.build_rust(program, flags))?;
            built.record(program, probes, outcome)?;
        }
        if !in_c.is_empty() {
            say(&format!("building {count} of {count}: the peers in C and C++"));
            let reasons = unless(interrupted, || self.build_c())?;
            for program in in_c {
                let path = self.c_programs().join(program);
                let reason = match &reasons {
                    Ok(reasons) => reasons.get(program).cloned(),
                    Err(reason) => Some(reason.clone()),
                };
                let outcome = match reason {
                    None if path.is_file() => Ok(path),
                    None => Err("it was not built".to_owned()),
                    Some(reason) => Err(reason),
                };
                built.record(program, probes, outcome)?;
            }
        }
        let installed = probes.iter().filter_map(|probe| match probe.source {
            Source::Installed { package } => Some((probe.program, package)),
            Source::Cargo { .. } | Source::C => None,
        });
        for (program, package) in installed.collect::<BTreeMap<_, _>>() {
            let outcome = find_installed(program)
                .ok_or_else(|| format!("it is not installed; Debian's package is {package}"));
            built.record(program, probes, outcome)?;
        }
        Ok(built)
    }

    /// Returns the programs that cargo builds, each once, with its flags.
    fn programs_in_rust<'a>(&'a self, probes: &'a [Probe]) -> Vec<(&'a str, Vec<String>)> {
        let of_probe = |probe: &'a Probe| match probe.source {
            Source::Cargo { package, features } => {
                Some((probe.program, of_package(package, features)))
            }
            Source::C | Source::Installed { .. } => None,
        };
        let (own, others): (Vec<_>, Vec<_>) = probes.iter().partition(|probe| probe.peer.is_none());
        let peers = self.peers.iter().filter(|peer| peer.language == Language::Rust);
        let peers = peers.map(|peer| (peer.binary.as_str(), Vec::new()));
        let own = own.into_iter().filter_map(of_probe);
        let mut programs: Vec<_> =
            own.chain(peers).chain(others.into_iter().filter_map(of_probe)).collect();
        let mut seen = BTreeSet::new();
        programs.retain(|(program, _)| seen.insert(*program));
        programs
    }

    fn programs_in_c<'a>(&'a self, probes: &'a [Probe]) -> BTreeSet<&'a str> {
        let peers = self.peers.iter().filter(|peer| peer.language == Language::C);
        let probes_in_c = probes.iter().filter(|probe| probe.source == Source::C);
        peers
            .map(|peer| peer.binary.as_str())
            .chain(probes_in_c.map(|probe| probe.program))
            .collect()
    }

    fn build_rust(&self, program: &str, flags: &[String]) -> Result<PathBuf, String> {
        let target = self.dir.join("target");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--release", "--locked", "--bin", program])
            .args(flags)
            .arg("--manifest-path")
            .arg(self.dir.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            // Flags for the build of wakeful itself are not meant for the peers.
            .env_remove("RUSTFLAGS")
            .stdout(Stdio::null())
            .stdin(Stdio::null());
        match cargo.status() {
            Ok(status) if status.success() => Ok(target.join("release").join(program)),
            Ok(status) => Err(format!("cargo build: {status}; its reason is above")),
            Err(error) => Err(format!("cargo cannot be started: {error}")),
        }
    }

    fn c_programs(&self) -> PathBuf {
        self.dir.join("c").join("out")
    }

    /// Returns the programs that could not be built, with the reasons, or the reason why none
    /// could.
    fn build_c(&self) -> Result<BTreeMap<String, String>, String> {
        let mut script = Command::new(self.dir.join("c").join("build.sh"));
        let output = script
            .arg(self.c_programs())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("c/build.sh cannot be started: {error}"))?;
        if !output.status.success() {
            return Err(format!("c/build.sh: {}", output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let missing =
            text.lines().filter_map(|line| line.strip_prefix("missing: ")?.split_once(": "));
        Ok(missing.map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect())
    }
}

/// Builds, unless the user has interrupted. A build that Ctrl-C ends says nothing about the program
/// that it built.
fn unless<T>(interrupted: &AtomicBool, build: impl FnOnce() -> T) -> Result<T, PeersError> {
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    if is_interrupted() {
        return Err(PeersError::Interrupted);
    }
    let outcome = build();
    if is_interrupted() { Err(PeersError::Interrupted) } else { Ok(outcome) }
}

/// Returns the flags that select a package and the features that a program needs, so that another
/// program that cannot be built does not matter.
fn of_package(package: &str, features: &str) -> Vec<String> {
    ["--package", package, "--no-default-features", "--features", features]
        .map(str::to_owned)
        .to_vec()
}

/// Returns the path of a program of the distribution.
fn find_installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Returns the nearest `peers` with a catalog.
fn find() -> Option<PathBuf> {
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let starts = [here.as_deref(), program.as_deref().and_then(Path::parent)];
    starts
        .into_iter()
        .flatten()
        .flat_map(Path::ancestors)
        .map(|dir| dir.join("proof/peers"))
        .find(|dir| dir.join("catalog.json").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        Catalog::read(Some(&dir)).unwrap()
    }

    #[test]
    fn the_catalog_can_be_read_and_its_names_are_unique() {
        let catalog = catalog();
        let mut names: Vec<_> = catalog.peers.iter().map(|peer| &peer.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(
            catalog.peers.iter().all(|peer| peer.services.contains(&Service::Echo)
                || peer.services.contains(&Service::Http))
        );
    }

    #[test]
    fn peers_are_selected_by_name_or_by_program() {
        let mut catalog = catalog();
        catalog.select(&["epoll".to_owned()], &mut Vec::new()).unwrap();
        assert!(catalog.peers.len() > 1 && catalog.peers.iter().all(|peer| peer.binary == "epoll"));
        catalog.select(&["epoll+spin".to_owned()], &mut Vec::new()).unwrap();
        assert_eq!(catalog.peers.len(), 1);
        let error =
            catalog.select(&["nothing".to_owned()], &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("no peer nothing"), "{error}");
    }

    #[test]
    fn probes_are_selected_by_their_peer_and_nobodys_stay() {
        let probe = |peer| Probe { peer, ..Probe::default() };
        let all = [probe(None), probe(Some("libevent")), probe(Some("only-a-probe"))];
        let left = |name: &str| {
            let mut probes = all.to_vec();
            catalog().select(&[name.to_owned()], &mut probes).map(|()| probes.len())
        };
        assert_eq!(left("libevent").unwrap(), 2);
        assert_eq!(left("only-a-probe").unwrap(), 2);
        assert_eq!(left("epoll").unwrap(), 1);
        assert!(left("nothing").unwrap_err().to_string().contains("only-a-probe"));
    }

    #[test]
    fn a_probe_that_cannot_be_built_is_missing_with_a_reason() {
        let mut catalog = catalog();
        catalog.peers.clear();
        let source = Source::Cargo { package: "no-such-package", features: "" };
        let probe =
            Probe { program: "no-such-probe", peer: Some("peer"), source, ..Probe::default() };
        let built = build(&catalog, std::slice::from_ref(&probe)).unwrap();
        assert!(built.missing["no-such-probe"].contains("cargo build"));
        assert!(built.probe(&probe).is_none());
    }

    #[test]
    fn what_is_installed_is_found_and_what_is_not_names_its_package() {
        let mut catalog = catalog();
        catalog.peers.clear();
        let source = Source::Installed { package: "a-package" };
        let probe = |program| Probe { program, peer: Some("peer"), source, ..Probe::default() };
        let probes = [probe("sh"), probe("no-such-program")];
        let built = build(&catalog, &probes).unwrap();
        assert!(built.probe(&probes[0]).is_some_and(|ready| ready.path.is_absolute()));
        assert!(built.missing["no-such-program"].contains("a-package"));
    }

    fn build(catalog: &Catalog, probes: &[Probe]) -> Result<Built, PeersError> {
        catalog.build(probes, &AtomicBool::new(false), &mut |_| {})
    }

    #[test]
    fn without_wakefuls_own_probe_nothing_else_is_built() {
        let catalog = catalog();
        let source = Source::Cargo { package: "no-such-package", features: "" };
        let probe = Probe { program: "no-such-probe", source, ..Probe::default() };
        let mut said = Vec::new();
        let error = catalog
            .build(&[probe], &AtomicBool::new(false), &mut |what| said.push(what.to_owned()))
            .unwrap_err();
        assert!(matches!(error, PeersError::OwnProbe { .. }), "{error}");
        let programs: BTreeSet<&str> =
            catalog.peers.iter().map(|peer| peer.binary.as_str()).collect();
        let in_c = catalog.programs_in_c(&[]).len();
        let count = 1 + programs.len() - in_c + usize::from(in_c > 0);
        assert_eq!(said, [format!("building 1 of {count}: no-such-probe")]);
    }

    #[test]
    fn a_build_that_the_user_ends_is_the_last_and_makes_nothing_missing() {
        let mut catalog = catalog();
        catalog.peers.retain(|peer| peer.language == Language::Rust);
        for peer in &mut catalog.peers {
            peer.binary = format!("no-such-{}", peer.binary);
        }
        let interrupted = AtomicBool::new(false);
        let mut builds = 0;
        let outcome = catalog.build(&[], &interrupted, &mut |_| {
            builds += 1;
            interrupted.store(builds == 2, Ordering::Relaxed);
        });
        assert!(matches!(outcome, Err(PeersError::Interrupted)));
        assert_eq!(builds, 2);
        let during = unless(&interrupted, || unreachable!("it was interrupted before"));
        assert!(matches!(during, Err::<(), _>(PeersError::Interrupted)));
        interrupted.store(false, Ordering::Relaxed);
        let during = unless(&interrupted, || interrupted.store(true, Ordering::Relaxed));
        assert!(matches!(during, Err(PeersError::Interrupted)));
    }

    #[test]
    fn what_the_distribution_has_is_there_or_missing_with_its_package() {
        let installed = |program, package| Probe {
            peer: Some(program),
            program,
            source: Source::Installed { package },
            ..Probe::default()
        };
        let mut catalog = catalog();
        catalog.peers.clear();
        let probes = [installed("sh", "dash"), installed("no-such-program", "no-such-package")];
        let built = build(&catalog, &probes).unwrap();
        assert!(built.probe(&probes[0]).unwrap().path.ends_with("sh"));
        assert!(built.probe(&probes[1]).is_none());
        assert!(built.missing["no-such-program"].contains("no-such-package"));
    }

    #[test]
    fn a_peer_that_cannot_be_built_is_missing_with_a_reason() {
        let mut catalog = catalog();
        catalog.select(&["epoll".to_owned()], &mut Vec::new()).unwrap();
        for peer in &mut catalog.peers {
            peer.binary = "no-such-program".to_owned();
        }
        let built = build(&catalog, &[]).unwrap();
        assert!(built.missing["no-such-program"].contains("cargo build"));
        assert!(built.contender(&catalog.peers[0], Service::Echo, 1).is_none());
    }
}
