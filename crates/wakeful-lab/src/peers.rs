//! The peers: the same services on other runtimes, built from source in a workspace of their own beside wakeful.
//!
//! `peers/catalog.json` lists them. Each is built by itself, so that one that cannot be built is only left out, with the reason.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use thiserror::Error;

use crate::contender::{Contender, Cpus};

/// One way to run a peer, as the catalog has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name in tables: the program, and the variant behind a `+`.
    pub name: String,
    /// The program.
    pub binary: String,
    /// What it is written in: this says how it is built.
    pub language: Language,
    /// What selects the variant.
    pub args: Vec<String>,
    /// With how many workers it is of interest.
    pub workers: Vec<usize>,
    /// `echo`, `http`.
    pub services: Vec<String>,
    /// Whether it parks when there is nothing to do.
    pub idle: Idle,
    /// Whether quick runs have it.
    pub quick: bool,
    /// One sentence.
    pub about: String,
}

/// What a peer is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Built by cargo.
    Rust,
    /// Built by `peers/c/build.sh`; C++ too.
    C,
}

/// What a peer does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// It sleeps in the kernel.
    Park,
    /// It takes a whole CPU.
    Spin,
}

/// Why there are no peers at all.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The sources are not there.
    #[error(
        "peers/catalog.json is in none of the directories above this one or the program: the peers are built from \
         source; go into a checkout of wakeful, or say --peers-dir"
    )]
    NotFound,
    /// The catalog cannot be read.
    #[error("{}: {error}", path.display())]
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
}

/// The catalog, and where it is.
#[derive(Debug)]
pub struct Catalog {
    dir: PathBuf,
    /// In the order of the file.
    pub peers: Vec<Peer>,
}

/// What came of building.
#[derive(Debug, Default)]
pub struct Built {
    /// Programs, by their name.
    programs: BTreeMap<String, PathBuf>,
    /// Programs that could not be built, and why.
    pub missing: BTreeMap<String, String>,
}

impl Catalog {
    /// Finds and reads the catalog: in `dir`, or in `peers` of the directories above the current one, or above the program.
    ///
    /// # Errors
    /// It is not there, or not as it should be.
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

    /// Only the peers of these names; a name without a variant stands for all of its variants.
    ///
    /// # Errors
    /// A name that does not exist.
    pub fn select(&mut self, names: &[String]) -> Result<(), PeersError> {
        let is_named = |peer: &Peer, name: &String| {
            peer.name == *name || peer.binary == *name && !name.contains('+')
        };
        if let Some(name) =
            names.iter().find(|name| !self.peers.iter().any(|peer| is_named(peer, name)))
        {
            let known =
                self.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(PeersError::Unknown { name: name.clone(), known });
        }
        self.peers.retain(|peer| names.iter().any(|name| is_named(peer, name)));
        Ok(())
    }

    /// Builds the programs that the peers need; cargo's output goes to stderr. `say` is told what is done.
    pub fn build(&self, say: &mut dyn FnMut(&str)) -> Built {
        let mut built = Built::default();
        let of = |language| self.peers.iter().filter(move |peer| peer.language == language);
        for peer in of(Language::Rust) {
            if built.programs.contains_key(&peer.binary) || built.missing.contains_key(&peer.binary)
            {
                continue;
            }
            say(&format!("building {}", peer.binary));
            built.record(&peer.binary, self.build_rust(&peer.binary));
        }
        if of(Language::C).next().is_some() {
            say("building the peers in C and C++");
            let reasons = self.build_c();
            for peer in of(Language::C) {
                let path = self.c_programs().join(&peer.binary);
                let reason = || match &reasons {
                    Ok(reasons) => reasons.get(&peer.binary).cloned(),
                    Err(reason) => Some(reason.clone()),
                };
                let outcome = match reason() {
                    None if path.is_file() => Ok(path),
                    None => Err("it was not built".to_owned()),
                    Some(reason) => Err(reason),
                };
                built.record(&peer.binary, outcome);
            }
        }
        built
    }

    fn build_rust(&self, program: &str) -> Result<PathBuf, String> {
        let target = self.dir.join("target");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--release", "--locked", "--bin", program])
            .arg("--manifest-path")
            .arg(self.dir.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            // What cargo sets for the build of wakeful itself is not meant for them.
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

    /// What could not be built, and why; or why nothing could.
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

/// The nearest `peers` with a catalog.
fn find() -> Option<PathBuf> {
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let starts = [here.as_deref(), program.as_deref().and_then(Path::parent)];
    starts
        .into_iter()
        .flatten()
        .flat_map(Path::ancestors)
        .map(|dir| dir.join("peers"))
        .find(|dir| dir.join("catalog.json").is_file())
}

impl Built {
    fn record(&mut self, program: &str, outcome: Result<PathBuf, String>) {
        match outcome {
            Ok(path) => drop(self.programs.insert(program.to_owned(), path)),
            Err(reason) => drop(self.missing.insert(program.to_owned(), reason)),
        }
    }

    /// The peer as a contender with so many workers, if its program was built.
    #[must_use]
    pub fn contender(&self, peer: &Peer, service: &str, workers: usize) -> Option<Contender> {
        let program = self.programs.get(&peer.binary)?;
        let (name, cpus) = match workers {
            1 => (peer.name.clone(), Cpus::One),
            more => (format!("{} ×{more}", peer.name), Cpus::All),
        };
        let workers = workers.to_string();
        let mut arguments = vec!["--service", service, "--workers", &workers, "--listen", "{addr}"];
        arguments.extend(peer.args.iter().map(String::as_str));
        Some(Contender::new(&name, cpus, program, &arguments))
    }

    /// What a program says of its version, one line.
    #[must_use]
    pub fn version(&self, program: &str) -> Option<String> {
        let output = Command::new(self.programs.get(program)?).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers");
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
        assert!(catalog.peers.iter().all(|peer| peer.services.contains(&"echo".to_owned())
            || peer.services.contains(&"http".to_owned())));
    }

    #[test]
    fn peers_are_selected_by_name_or_by_program() {
        let mut catalog = catalog();
        catalog.select(&["epoll".to_owned()]).unwrap();
        assert!(catalog.peers.len() > 1 && catalog.peers.iter().all(|peer| peer.binary == "epoll"));
        catalog.select(&["epoll+spin".to_owned()]).unwrap();
        assert_eq!(catalog.peers.len(), 1);
        let error = catalog.select(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no peer nothing"), "{error}");
    }

    #[test]
    fn a_peer_that_cannot_be_built_is_missing_with_a_reason() {
        let mut catalog = catalog();
        catalog.select(&["epoll".to_owned()]).unwrap();
        for peer in &mut catalog.peers {
            peer.binary = "no-such-program".to_owned();
        }
        let built = catalog.build(&mut |_| {});
        assert!(built.missing["no-such-program"].contains("cargo build"));
        assert!(built.contender(&catalog.peers[0], "echo", 1).is_none());
    }
}
