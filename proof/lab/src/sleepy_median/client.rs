//! A client that spins on the server's own CPU. It calls, and asks for the answer again and again
//! without ever sleeping.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use wakeful_load::internals::affinity;
use wakeful_load::internals::bench::{Bench, BenchError};
use wakeful_load::internals::quiet::Baseline;
use wakeful_load::internals::servers::Server;

use super::loads::BYTES;
use crate::contender::{Contender, Cpus};
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// How long a server may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The times of the client's calls, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calls {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) most: f64,
    /// The number of calls.
    pub(super) count: f64,
}

/// Tells the user how long the calls will take.
pub(super) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], rounds: usize, times: Times) {
    let each = times.warm_up + times.measured + Duration::from_millis(200);
    lab.bench.progress.expect(rounds * contenders.len(), each);
}

/// How long the client calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// Calls each contender in interleaved rounds, with a fresh process each time.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[Contender],
    rounds: usize,
    times: Times,
) -> Result<Measured<Calls>, LabError> {
    let names: Vec<_> = contenders.iter().map(|one| one.name.clone()).collect();
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        lab.bench.undisturbed(label, |bench| call(bench, &contenders[one], times))
    })
}

fn call(bench: &Bench<'_>, contender: &Contender, times: Times) -> Result<(Calls, bool), Failure> {
    let cpus = Cpus::One.of(bench);
    let machine = Baseline::take(&[std::process::id()], &bench.machine_cpus).ok();
    let server = Server::start(&contender.server, cpus.as_deref(), READY_WITHIN);
    let server = server.map_err(BenchError::from)?;
    let addr = server.addr().to_owned();
    // The client has its own thread, so that nothing that is started later inherits the pin.
    let client = thread::Builder::new().spawn(move || {
        cpus.map_or(Ok(()), |cpus| affinity::pin_current_thread(&cpus))?;
        let stream = TcpStream::connect(addr)?;
        calls(stream, times)
    });
    let calls = client
        .and_then(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    // The server still runs here, so its own CPU use can be told from that of others.
    let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
    if bench.is_interrupted() {
        return Err(Failure::Interrupted);
    }
    let calls = calls
        .map_err(|error| Failure::LeftOut(server.died().unwrap_or_else(|| error.to_string())))?;
    Ok((calls, outside.exceeds(bench.limits.share)))
}

fn calls(mut stream: TcpStream, times: Times) -> io::Result<Calls> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let length = u32::try_from(BYTES).map_err(io::Error::other)?;
    let payload = (0..length).map(|byte| byte.to_le_bytes()[0]);
    let request: Vec<u8> = length.to_be_bytes().into_iter().chain(payload).collect();
    let mut answer = vec![0; request.len()];
    let (begin, mut took) = (Instant::now(), Vec::with_capacity(1 << 20));
    while begin.elapsed() < times.warm_up + times.measured {
        let sent = Instant::now();
        // A kilobyte always fits into an empty socket.
        stream.write_all(&request)?;
        let mut filled = 0;
        while filled < answer.len() {
            match stream.read(&mut answer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if sent.elapsed() > PATIENCE {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if answer != request {
            return Err(io::Error::new(ErrorKind::InvalidData, "it does not echo"));
        }
        if sent - begin >= times.warm_up {
            took.push(sent.elapsed().as_nanos() as f64);
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |quantile: f64| took.get((took.len() as f64 * quantile) as usize).copied();
    let found = at(0.5).zip(at(0.99)).zip(took.last());
    found
        .map(|((p50, p99), most)| Calls { p50, p99, most: *most, count: took.len() as f64 })
        .ok_or_else(|| io::Error::new(ErrorKind::TimedOut, "the warm-up took all the time"))
}
