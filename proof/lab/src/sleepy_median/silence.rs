//! What a server does when its traffic has stopped. It should do nothing. `strace` counts its
//! system calls, and the kernel its CPU time.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wakeful_load::Target;
use wakeful_load::internals::affinity;
use wakeful_load::internals::bench::{Bench, BenchError, Load, Undisturbed};
use wakeful_load::internals::procfs::ProcessCpu;
use wakeful_load::internals::servers::Server;

use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// The time after the last request.
const AFTER: Duration = Duration::from_secs(5);
/// How long nothing may happen.
const QUIET: Duration = Duration::from_secs(5);
/// `strace` interrupts each thread once when it attaches, so it is started this much earlier.
const TO_ATTACH: Duration = Duration::from_secs(1);

/// How long a server may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two checks whether the user has interrupted.
const POLL: Duration = Duration::from_millis(50);

/// What a server did without traffic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    /// The number of system calls that began.
    pub(super) calls: f64,
    /// The share of a CPU.
    pub(super) cpu: f64,
}

/// Tells the user how long the part will take.
pub(super) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], load: &Load, rounds: usize) {
    let each = lab.bench.expected_time(load) + AFTER + QUIET;
    lab.bench.progress.expect(rounds * contenders.len(), each);
}

/// Loads each contender, stops the load, and watches the contender. Other programs do not affect
/// the result.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[Contender],
    load: &Load,
    rounds: usize,
) -> Result<Measured<Silence>, LabError> {
    let names: Vec<_> = contenders.iter().map(|one| one.name.clone()).collect();
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        lab.bench.progress.begin(label);
        let value = listen(&mut lab.bench, &contenders[one], load)?;
        lab.bench.progress.end();
        Ok(Undisturbed { value, repeated: 0, spoilt: false })
    })
}

fn listen(bench: &mut Bench<'_>, contender: &Contender, load: &Load) -> Result<Silence, Failure> {
    let left_out = |error: io::Error| Failure::LeftOut(error.to_string());
    let cpus = contender.cpus.of(bench);
    let server = Server::start(&contender.server, cpus.as_deref(), READY_WITHIN);
    let server = server.map_err(BenchError::from)?;
    let target = server.addr().parse::<Target>().map_err(BenchError::from)?;
    let plan = load.plan.clone().target(target);
    let own_cpu = bench.cpu;
    // The load has its own thread, so that nothing that is started later inherits the pin.
    let loaded = thread::Builder::new().spawn(move || {
        own_cpu.map_or(Ok(()), |cpu| affinity::pin_current_thread(&[cpu]))?;
        plan.run()
    });
    let loaded = loaded.map_err(left_out)?;
    let loaded = loaded.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    loaded.map_err(|error| Failure::LeftOut(error.to_string()))?;
    let pid =
        server.pid().ok_or_else(|| Failure::LeftOut("its process is not known".to_owned()))?;
    let stopped = Instant::now();
    sleep_until(bench, stopped + AFTER - TO_ATTACH)?;
    let file = std::env::temp_dir().join(format!("wakeful-lab-strace-{}", std::process::id()));
    let mut strace = Strace::attach(pid, &file).map_err(left_out)?;
    sleep_until(bench, stopped + AFTER)?;
    let (from, before) = (now(), ProcessCpu::read(pid).map_err(left_out)?);
    sleep_until(bench, stopped + AFTER + QUIET)?;
    let (to, after) = (now(), ProcessCpu::read(pid).map_err(left_out)?);
    // If no calls are counted, it has to be shown that calls would have been counted.
    let answered = call(server.addr()).map(|()| now());
    let trace = strace.end().map_err(left_out)?;
    if calls_between(&trace, to, answered.map_err(left_out)?) == 0 {
        return Err(Failure::LeftOut("strace does not see what it does".to_owned()));
    }
    let calls = calls_between(&trace, from, to) as f64;
    Ok(Silence { calls, cpu: after.since(&before, to - from).share })
}

/// Sends one request of no bytes on its own connection.
fn call(addr: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(READY_WITHIN))?;
    stream.write_all(&[0; 4])?;
    stream.read_exact(&mut [0; 4])
}

fn sleep_until(bench: &mut Bench<'_>, at: Instant) -> Result<(), Failure> {
    while Instant::now() < at {
        if bench.is_interrupted() {
            return Err(Failure::Interrupted);
        }
        bench.progress.tick();
        thread::sleep(POLL.min(at.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Returns the seconds since 1970, in the form that `strace -ttt` uses.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

struct Strace<'a> {
    child: Child,
    file: &'a Path,
}

impl<'a> Strace<'a> {
    /// Attaches to all threads of a process.
    fn attach(pid: u32, file: &'a Path) -> io::Result<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-ttt", "-o"]).arg(file).args(["-p", &pid.to_string()]);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = strace.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("strace cannot be started: {error}"))
        })?;
        Ok(Self { child, file })
    }

    /// Returns what strace has written.
    fn end(&mut self) -> io::Result<String> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("strace may not watch it ({status})")));
        }
        let pid = self.child.id().to_string();
        // With SIGINT, strace releases the process and writes what it has. SIGKILL would lose that.
        Command::new("kill").args(["-INT", &pid]).status()?;
        self.child.wait()?;
        fs::read_to_string(self.file)
    }
}

impl Drop for Strace<'_> {
    fn drop(&mut self) {
        // All of these fail if strace has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.file);
    }
}

/// Counts the calls that began in that time. Lines are `PID TIME call(…`. A call that was resumed
/// began on an earlier line, and a signal is not a call.
fn calls_between(trace: &str, from: f64, to: f64) -> usize {
    let began = |line: &&str| {
        let mut words = line.split_whitespace();
        let at = words.nth(1).and_then(|time| time.parse::<f64>().ok());
        let is_call = words.next().is_some_and(|what| !what.starts_with(['<', '-', '+']));
        is_call && at.is_some_and(|at| (from..to).contains(&at))
    };
    trace.lines().filter(began).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_begin_in_the_time_count() {
        let trace = "\
17 1763750000.100000 epoll_pwait2(3, [], 64, NULL, NULL, 8) = -1 EINTR (Interrupted system call)
17 1763750000.200000 epoll_pwait2(3,  <unfinished ...>
18 1763750001.000000 futex(0x7f, FUTEX_WAIT, 0, NULL <unfinished ...>
17 1763750001.500000 <... epoll_pwait2 resumed>[], 64, NULL, NULL, 8) = 0
17 1763750001.600000 --- SIGINT {si_signo=SIGINT} ---
17 1763750001.700000 write(4, \"x\", 1) = 1
17 1763750002.000000 read(4, \"x\", 1) = 1
17 1763750002.100000 +++ exited with 0 +++
";
        assert_eq!(calls_between(trace, 1_763_750_001.0, 1_763_750_002.0), 2);
        assert_eq!(calls_between(trace, 1_763_750_000.3, 1_763_750_001.0), 0);
        assert_eq!(calls_between("", 0.0, 1.0), 0);
    }
}
