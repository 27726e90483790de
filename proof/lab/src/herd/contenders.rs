//! The servers that `herd` measures, and how each is told where to listen and with how many
//! workers.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::parts::{LOOPS, PROCESSES};
use crate::lab::Lab;
use crate::probe::{Probe, Source};

pub(super) const SELECT: &str = "select-style (poll)";
pub(super) const EPOLL: &str = "plain epoll";
pub(super) const EXCLUSIVE: &str = "plain EPOLLEXCLUSIVE";
/// The same as [`EXCLUSIVE`]. The difference between the two is the noise.
pub(super) const AGAIN: &str = "plain EPOLLEXCLUSIVE (again)";
pub(super) const PARK: &str = "wakeful, parking";
pub(super) const ADAPTIVE: &str = "wakeful, adaptive";
const SERVE_PARK: &str = "wakeful serve, parking";
const SERVE_ADAPTIVE: &str = "wakeful serve, adaptive";
pub(super) const WORKERS_PARK: &str = "wakeful serve --workers, parking";
pub(super) const WORKERS_ADAPTIVE: &str = "wakeful serve --workers, adaptive";
const NGINX: &str = "nginx";
pub(super) const UNICORN: &str = "unicorn";

/// The name in tables, and the variant of the program `herd`.
const VARIANTS: [(&str, &str); 6] = [
    (SELECT, "select"),
    (EPOLL, "epoll"),
    (EXCLUSIVE, "exclusive"),
    (AGAIN, "exclusive"),
    (PARK, "wakeful-park"),
    (ADAPTIVE, "wakeful-adaptive"),
];

/// Programs of the distribution, and the packages that contain them.
const INSTALLED: [(&str, &str); 2] = [(NGINX, "nginx-light"), (UNICORN, "unicorn")];

/// Returns the programs that the lab has to build or find. They are servers, so none of them is run
/// as a probe.
pub(super) fn programs() -> Vec<Probe> {
    let herd = VARIANTS.iter().map(|(name, variant)| Probe {
        name: (*name).to_owned(),
        program: "herd",
        source: Source::Cargo { package: "herd", features: "" },
        arguments: ["--variant", variant].map(str::to_owned).to_vec(),
        ..Probe::default()
    });
    let installed = INSTALLED.iter().map(|&(program, package)| Probe {
        name: program.to_owned(),
        peer: Some(program),
        program,
        source: Source::Installed { package },
        ..Probe::default()
    });
    herd.chain(installed).collect()
}

/// The length of the body of an answer that takes no work, in bytes.
const BODY: usize = "hello world".len();

/// A server with several workers on one Unix socket.
#[derive(Debug, Clone)]
pub(super) struct Herd {
    pub(super) name: String,
    kind: Kind,
    /// The program, and the arguments that select the variant.
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `proof/peers/herd`.
    Plain,
    /// `wakeful serve http`.
    Serve,
    /// `wakeful serve http` with processes of one loop each.
    Workers,
    Nginx,
    Unicorn,
}

/// Returns all servers that are wanted and available, in the order of the table.
pub(super) fn all(lab: &Lab<'_>) -> Vec<Herd> {
    let mut all: Vec<Herd> = Vec::new();
    for ready in &lab.probes {
        let kind = match ready.probe.program {
            NGINX => Kind::Nginx,
            UNICORN => Kind::Unicorn,
            _ => Kind::Plain,
        };
        let program = ready.path.to_string_lossy().into_owned();
        let arguments = ready.probe.arguments.iter().cloned();
        let command = std::iter::once(program).chain(arguments).collect();
        all.push(Herd { name: ready.probe.name.clone(), kind, command });
    }
    let serve = |(name, kind, idle): (&str, Kind, &str)| {
        let program = lab.program.to_string_lossy().into_owned();
        // A warning about a slow turn would wake the thread of the log, without a connection.
        let words = ["env", "RUST_LOG=error", &program, "serve", "http", "--idle", idle];
        let command = words.map(str::to_owned).to_vec();
        Herd { name: name.to_owned(), kind, command }
    };
    let at = all.iter().position(|herd| herd.kind != Kind::Plain).unwrap_or(all.len());
    let ours = [
        (SERVE_PARK, Kind::Serve, "park"),
        (SERVE_ADAPTIVE, Kind::Serve, "adaptive"),
        (WORKERS_PARK, Kind::Workers, "park"),
        (WORKERS_ADAPTIVE, Kind::Workers, "adaptive"),
    ]
    .map(serve);
    all.splice(at..at, ours);
    all.retain(|herd| herd.parts().iter().any(|part| lab.is_wanted(part)));
    all
}

impl Herd {
    /// Returns the parts of the experiment to which the server belongs.
    fn parts(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Plain if matches!(&self.name[..], PARK | ADAPTIVE) => &[LOOPS],
            Kind::Plain => &[LOOPS, PROCESSES],
            Kind::Serve => &[LOOPS],
            Kind::Workers | Kind::Nginx | Kind::Unicorn => &[PROCESSES],
        }
    }

    /// Whether the server is one of `proof/peers/herd`. These count by themselves.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == Kind::Plain
    }

    /// Whether a request can cost more CPU time than its answer takes.
    pub(super) fn can_compute(&self) -> bool {
        matches!(self.kind, Kind::Plain | Kind::Serve | Kind::Workers)
    }

    /// Returns the path of a request that uses `work` of CPU time, and the length of its answer's
    /// body. Without work, every body has 11 bytes.
    pub(super) fn asked(&self, work: Duration) -> (String, usize) {
        let us = work.as_micros();
        match self.kind {
            // All servers that can do this give the same answer.
            _ if us > 0 => (format!("/cpu/{us}"), format!("used {us} µs of CPU time\n").len()),
            Kind::Serve | Kind::Workers => ("/bytes/11".to_owned(), BODY),
            Kind::Plain | Kind::Nginx | Kind::Unicorn => ("/".to_owned(), BODY),
        }
    }

    /// Returns the command that starts the server so that it listens on `socket`. Writes the files
    /// that the server reads into `dir`.
    pub(super) fn argv(
        &self,
        workers: usize,
        socket: &Path,
        dir: &Path,
    ) -> io::Result<Vec<String>> {
        let mut argv = self.command.clone();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let number = workers.to_string();
        let more = match self.kind {
            Kind::Plain => ["--listen", "{addr}", "--workers", &number].map(str::to_owned).to_vec(),
            Kind::Serve => ["--listen", "{addr}", "--loops", &number].map(str::to_owned).to_vec(),
            Kind::Workers => ["--listen", "{addr}", "--loops", "1", "--workers", &number]
                .map(str::to_owned)
                .to_vec(),
            Kind::Nginx => {
                let file = dir.join("nginx.conf");
                fs::write(&file, nginx(workers, socket, dir))?;
                vec!["-p".to_owned(), text(dir), "-c".to_owned(), text(&file)]
            }
            Kind::Unicorn => {
                let (file, app) = (dir.join("unicorn.rb"), dir.join("config.ru"));
                let socket = socket.display();
                let settings =
                    format!("worker_processes {workers}\nlisten '{socket}', backlog: 1024\n");
                fs::write(&file, settings)?;
                fs::write(&app, APP)?;
                // The environment `none` has no middleware.
                ["-E", "none", "-c"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([text(&file), text(&app)])
                    .collect()
            }
        };
        argv.extend(more);
        Ok(argv)
    }
}

/// Returns nginx's settings as its documentation has them for many workers without `reuseport`.
/// nginx then watches the listener with EPOLLEXCLUSIVE.
fn nginx(workers: usize, socket: &Path, dir: &Path) -> String {
    let (socket, dir) = (socket.display(), dir.display());
    let directories: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {dir}/{what};"))
        .collect();
    format!(
        "daemon off; worker_processes {workers}; pid {dir}/pid; error_log stderr;
events {{ worker_connections 1024; accept_mutex off; multi_accept off; }}
http {{ access_log off; {directories}
  server {{ listen unix:{socket} backlog=1024; location / {{ return 200 \"hello world\"; }} }} }}
"
    )
}

const APP: &str = "\
run lambda { |_| [200, { 'Content-Type' => 'text/plain', 'Content-Length' => '11' }, ['hello world']] }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_only_what_is_not_ours_can_be_missing() {
        let programs = programs();
        let mut names: Vec<_> = programs.iter().map(|probe| probe.name.clone()).collect();
        names.extend(
            [SERVE_PARK, SERVE_ADAPTIVE, WORKERS_PARK, WORKERS_ADAPTIVE].map(str::to_owned),
        );
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        let missing = programs.iter().filter(|probe| probe.peer.is_some());
        assert_eq!(missing.map(|probe| &probe.name[..]).collect::<Vec<_>>(), [NGINX, UNICORN]);
    }

    #[test]
    fn settings_name_the_socket_and_how_many_workers() {
        let dir =
            std::env::temp_dir().join(format!("wakeful-herd-settings-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (kind, file, workers) in [
            (Kind::Nginx, "nginx.conf", "worker_processes 5;"),
            (Kind::Unicorn, "unicorn.rb", "worker_processes 5\n"),
        ] {
            let herd = Herd { name: String::new(), kind, command: vec!["server".to_owned()] };
            let argv = herd.argv(5, Path::new("/a/socket"), &dir).unwrap();
            assert!(argv.contains(&dir.join(file).to_string_lossy().into_owned()), "{argv:?}");
            let settings = fs::read_to_string(dir.join(file)).unwrap();
            assert!(settings.contains(workers) && settings.contains("/a/socket"), "{settings}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
