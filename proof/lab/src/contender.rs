//! Programs that compete: how each one is started, and on which CPUs.

use std::path::Path;

use wakeful_load::internals::bench::Bench;
use wakeful_load::internals::servers::ServerSpec;

/// A program that competes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// The name in tables.
    pub name: String,
    /// How the program is started.
    pub server: ServerSpec,
    /// The CPUs that the program gets.
    pub cpus: Cpus,
}

/// The CPUs that a contender gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// The first one only, for a server of one thread.
    One,
    /// All CPUs, including the generator's if there are no more than two. A server of two threads
    /// needs that, and its effect on its neighbours is part of the result.
    All,
    /// All CPUs but the generator's.
    Others,
}

impl Cpus {
    /// Returns the numbers of the CPUs. `None` leaves the choice to the kernel.
    #[must_use]
    pub fn of(self, bench: &Bench<'_>) -> Option<Vec<usize>> {
        match self {
            Self::One => bench.server_cpus.as_ref().map(|cpus| vec![cpus[0]]),
            Self::All => Some(bench.machine_cpus.clone()),
            Self::Others => bench.server_cpus.clone(),
        }
    }
}

impl Contender {
    /// Makes a contender of a program with its arguments, in which `{addr}` stands for the address
    /// to listen on.
    #[must_use]
    pub fn new(name: &str, cpus: Cpus, program: &Path, arguments: &[&str]) -> Self {
        let program = program.to_string_lossy().into_owned();
        let argv = std::iter::once(program).chain(arguments.iter().map(|&word| word.to_owned()));
        let server = ServerSpec::Command { name: name.to_owned(), argv: argv.collect() };
        Self { name: name.to_owned(), server, cpus }
    }

    /// Runs the same program under `wakeful awake` of `program`, which holds CPUs while the
    /// contender has traffic.
    #[must_use]
    pub fn awake(mut self, program: &Path, name: &str) -> Self {
        name.clone_into(&mut self.name);
        if let ServerSpec::Command { name: of_command, argv } = &mut self.server {
            name.clone_into(of_command);
            let program = program.to_string_lossy();
            let before = [&*program, "awake", "--quiet", "--hold", "machine", "--"];
            argv.splice(0..0, before.map(str::to_owned));
        }
        self
    }
}

/// Makes a contender of a service of the program `wakeful`, on one loop, with an idle policy.
#[must_use]
pub fn wakeful(program: &Path, name: &str, service: &str, idle: &str) -> Contender {
    wakeful_with(program, name, service, idle, &[])
}

/// Like [`wakeful()`], but with more flags of `wakeful serve`.
#[must_use]
pub fn wakeful_with(
    program: &Path,
    name: &str,
    service: &str,
    idle: &str,
    flags: &[&str],
) -> Contender {
    let arguments = ["serve", service, "--loops", "1", "--idle", idle, "--listen", "{addr}"];
    Contender::new(name, Cpus::One, program, &[&arguments, flags].concat())
}
