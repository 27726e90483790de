//! One synchronous call to a server that has never been called. The server is a fresh process, and
//! has had no connection before.
//!
//! The client is a thread that blocks, as a synchronous caller does. It has its own CPU. No other
//! client connects before it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_load::internals::affinity;
use wakeful_load::internals::bench::Bench;
use wakeful_load::internals::quiet::Baseline;
use wakeful_load::internals::servers::Server;

use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// The number of bytes in a frame of the echo service.
const BYTES: u32 = 64;

/// The number of calls on the one connection.
const CALLS: usize = 100;

/// How long a server listens before it is called, so that it has gone to sleep.
const ASLEEP: Duration = Duration::from_millis(50);

/// How long a server may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The longest wait for an answer. In the public case, a call took six and a half seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The approximate time to start a server, call it and stop it.
const EXPECTED: Duration = Duration::from_millis(200);

/// The times of one client's calls, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cold {
    /// The time until the connection was established.
    pub(crate) connect: f64,
    /// The time from the first request until its answer.
    pub(crate) first: f64,
    /// The time from the last request until its answer.
    pub(crate) hundredth: f64,
}

/// Tells the user how long the measurement will take.
pub(crate) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], rounds: usize) {
    lab.bench.progress.expect(rounds * contenders.len(), EXPECTED);
}

/// Calls each contender's echo service on `::1` in interleaved rounds, with a fresh process each
/// time.
///
/// # Errors
/// The machine is at fault.
pub(crate) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[Contender],
    rounds: usize,
) -> Result<Measured<Cold>, LabError> {
    let names: Vec<_> = contenders.iter().map(|one| one.name.clone()).collect();
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        lab.bench.undisturbed(label, |bench| call_fresh(bench, &contenders[one]))
    })
}

fn call_fresh(bench: &Bench<'_>, contender: &Contender) -> Result<(Cold, bool), Failure> {
    let left_out = |error: &dyn std::fmt::Display| Failure::LeftOut(error.to_string());
    let cpus = contender.cpus.of(bench);
    let machine = Baseline::take(&[std::process::id()], &bench.machine_cpus).ok();
    let ip = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let server = Server::start_untouched(&contender.server, ip, cpus.as_deref(), READY_WITHIN)?;
    thread::sleep(ASLEEP);
    let addr: SocketAddr = server.addr().parse().map_err(|error| left_out(&error))?;
    let own_cpu = bench.cpu;
    // The client has its own thread, so that nothing that is started later inherits the pin.
    let client = thread::Builder::new().spawn(move || {
        own_cpu.map_or(Ok(()), |cpu| affinity::pin_current_thread(&[cpu]))?;
        call(addr)
    });
    let outcome = client
        .and_then(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    // The server still runs here, so its own CPU use can be told from that of others.
    let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
    if bench.is_interrupted() {
        return Err(Failure::Interrupted);
    }
    let cold = outcome.map_err(|error| match server.died() {
        Some(how) => Failure::LeftOut(how),
        None => left_out(&error),
    })?;
    Ok((cold, outside.exceeds(bench.limits.share)))
}

fn call(addr: SocketAddr) -> io::Result<Cold> {
    let request: Vec<u8> = BYTES
        .to_be_bytes()
        .into_iter()
        .chain((0..BYTES).map(|byte| byte.to_le_bytes()[0]))
        .collect();
    let mut answer = vec![0; request.len()];
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    let connect = start.elapsed();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let sent = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut answer)?;
        times.push(sent.elapsed());
        if answer != request {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not echo"));
        }
    }
    let nanoseconds = |time: Duration| time.as_nanos() as f64;
    Ok(Cold {
        connect: nanoseconds(connect),
        first: nanoseconds(times[0]),
        hundredth: nanoseconds(times[CALLS - 1]),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Starts an echo server on a thread. It takes one connection.
    fn echo(change: u8) -> SocketAddr {
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                bytes[count - 1] ^= change;
                stream.write_all(&bytes[..count]).unwrap();
            }
        });
        addr
    }

    #[test]
    fn the_calls_of_a_server_that_echoes_are_timed() {
        let cold = call(echo(0)).unwrap();
        assert!(cold.connect > 0.0 && cold.first > 0.0 && cold.hundredth > 0.0, "{cold:?}");
    }

    #[test]
    fn one_that_answers_something_else_is_an_error() {
        assert_eq!(call(echo(1)).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
