//! The command line of a peer.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::{self, ExitCode};
use std::{env, thread};

use anyhow::{Context, Result, bail};

use crate::listen::{Listen, Socket};
use crate::session::Service;

/// The most workers that a peer starts.
const MAX_WORKERS: usize = 1024;

/// The flags that all peers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// The address to listen on.
    pub listen: Listen,
    /// How many threads serve connections.
    pub workers: usize,
    /// What to serve.
    pub service: Service,
    /// The echo service that answers for a frontend. Only with [`parse_with_backend`].
    pub backend: Option<SocketAddr>,
}

/// What a loop does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Sleep in the kernel until something happens.
    Park,
    /// Ask the kernel again and again without sleeping.
    Spin,
}

impl Idle {
    /// The names of the variants of a peer.
    pub const VARIANTS: &[(&str, Self)] = &[("park", Self::Park), ("spin", Self::Spin)];
}

/// The variants of a peer that has only one.
pub const ONE_VARIANT: &[(&str, ())] = &[("default", ())];

/// Reads the command line. The first service and the first variant are the defaults. Any mistake
/// ends the process with a message.
///
/// It is hand-written, because linking a library for this into every peer took most of the peers'
/// build time.
#[must_use]
pub fn parse<V: Copy>(
    name: &str,
    version: &str,
    services: &[Service],
    variants: &[(&str, V)],
) -> (Args, V) {
    parse_as(name, version, services, variants, "")
}

/// Reads the command line of a peer that can be a frontend of another echo service.
#[must_use]
pub fn parse_with_backend<V: Copy>(
    name: &str,
    version: &str,
    services: &[Service],
    variants: &[(&str, V)],
) -> (Args, V) {
    parse_as(name, version, services, variants, " [--backend IP:PORT]")
}

fn parse_as<V: Copy>(
    name: &str,
    version: &str,
    services: &[Service],
    variants: &[(&str, V)],
    backend: &str,
) -> (Args, V) {
    match read(env::args_os().skip(1), services, variants) {
        Ok(Request::Run(Args { backend: Some(_), .. }, _)) if backend.is_empty() => {
            eprintln!("{name}: unexpected argument: --backend; see --help");
            process::exit(2);
        }
        Ok(Request::Run(args, variant)) => return (args, variant),
        Ok(Request::Version) => println!("{name} {version}"),
        Ok(Request::Help) => println!(
            "Usage: {name} [--listen IP:PORT|unix:PATH] [--workers N] [--service {}]\n       \
             [--variant {}]{backend} [--version]",
            service_names(services),
            variant_names(variants),
        ),
        Err(error) => {
            eprintln!("{name}: {error}; see --help");
            process::exit(2);
        }
    }
    process::exit(0);
}

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request<V> {
    Run(Args, V),
    Help,
    Version,
}

fn read<V: Copy>(
    words: impl Iterator<Item = OsString>,
    services: &[Service],
    variants: &[(&str, V)],
) -> Result<Request<V>, String> {
    let mut args = Args {
        listen: Listen::Tcp(([127, 0, 0, 1], 7001).into()),
        workers: 1,
        service: services[0],
        backend: None,
    };
    let mut variant = variants[0].1;
    let mut words =
        words.map(|word| word.into_string().map_err(|word| format!("no text: {}", word.display())));
    while let Some(word) = words.next() {
        let word = word?;
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        match flag {
            "--help" | "-h" => return Ok(Request::Help),
            "--version" | "-V" => return Ok(Request::Version),
            "--listen" | "--workers" | "--service" | "--variant" | "--backend" => {}
            _ => return Err(format!("unexpected argument: {word}")),
        }
        let value = match value {
            Some(value) => value,
            None => words.next().ok_or_else(|| format!("{flag} without a value"))??,
        };
        let wrong = |why: &str| format!("{flag} {value}: {why}");
        match flag {
            "--listen" => args.listen = value.parse().map_err(wrong)?,
            "--workers" => {
                let number = value.parse().ok().filter(|n| (1..=MAX_WORKERS).contains(n));
                args.workers = number.ok_or_else(|| wrong("no number from 1 to 1024"))?;
            }
            "--backend" => {
                args.backend = Some(value.parse().map_err(|_| wrong("no IP:PORT"))?);
            }
            "--service" => {
                let service = services.iter().find(|service| service.name() == value);
                args.service =
                    *service.ok_or_else(|| wrong(&format!("not {}", service_names(services))))?;
            }
            _ => {
                let found = variants.iter().find(|(name, _)| *name == value);
                variant =
                    found.ok_or_else(|| wrong(&format!("not {}", variant_names(variants))))?.1;
            }
        }
    }
    Ok(Request::Run(args, variant))
}

fn service_names(services: &[Service]) -> String {
    services.iter().map(|service| service.name()).collect::<Vec<_>>().join("|")
}

fn variant_names<V>(variants: &[(&str, V)]) -> String {
    variants.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|")
}

/// Turns an outcome into an exit code, and prints an error as one line on stderr.
#[must_use]
pub fn exit_code(name: &str, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Prints the address where the peer listens. Call it once the peer is ready.
pub fn announce(addr: &Listen) {
    eprintln!("listening on {addr}");
}

/// Runs `worker` on the requested number of threads, each with its own listening socket, and
/// announces the address once all of them are ready.
///
/// A worker calls the function that it gets when it is set up. A worker ends only by an error, and
/// this function returns the first error: a peer that lacks a worker would be measured as a slow
/// one.
pub fn run_workers<W>(args: &Args, worker: W) -> Result<()>
where
    W: Fn(Socket, &dyn Fn()) -> Result<()> + Send + Sync + Clone + 'static,
{
    enum Report {
        Ready,
        Ended(Result<()>),
    }
    let (addr, sockets) = args.listen.bind_many(args.workers)?;
    let (sender, reports) = std::sync::mpsc::channel();
    let mut awaited = sockets.len();
    for (index, socket) in sockets.into_iter().enumerate() {
        let (sender, worker) = (sender.clone(), worker.clone());
        thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                let outcome = worker(socket, &|| {
                    sender.send(Report::Ready).ok();
                });
                sender.send(Report::Ended(outcome)).ok();
            })
            .context("cannot start a thread")?;
    }
    drop(sender);
    while let Ok(report) = reports.recv() {
        match report {
            Report::Ready => {
                awaited -= 1;
                if awaited == 0 {
                    announce(&addr);
                }
            }
            Report::Ended(outcome) => return outcome.and_then(|()| bail!("a worker ended")),
        }
    }
    // Nobody can report any more, because every worker has panicked.
    bail!("the workers ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Request<Idle>, String> {
        read(line.split_ascii_whitespace().map(OsString::from), Service::ALL, Idle::VARIANTS)
    }

    #[test]
    fn flags_take_their_value_with_or_without_an_equals_sign() {
        let expected = Args {
            listen: Listen::Unix("a=b".into()),
            workers: 2,
            service: Service::Http,
            backend: None,
        };
        assert_eq!(
            of("--listen unix:a=b --workers=2 --service=http --variant spin"),
            Ok(Request::Run(expected, Idle::Spin))
        );
        assert!(matches!(of(""), Ok(Request::Run(_, Idle::Park))));
        assert_eq!(of("--workers 2 --version"), Ok(Request::Version));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for line in [
            "--workers 0",
            "--workers -1",
            "--backend unix:x",
            "--listen 7",
            "--variant x",
            "x",
            "--service",
        ] {
            let error = of(line).expect_err(line);
            assert!(error.contains(line), "{error}");
        }
    }
}
