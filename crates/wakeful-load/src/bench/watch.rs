//! Observes a block from the generator's thread: reads the server's counters at both ends of the
//! measured time, and checks that the server is alive.
//!
//! A server may have a process for each connection, or start more of them under load. So its
//! processes are listed late in the warm-up, and once more at the end. If they have changed in
//! between, the CPU time is not known, and a figure without those processes would be wrong.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::companion::Companion;
use crate::generator::{Check, Watch};
use crate::procfs::ProcessCpu;
use crate::progress::Progress;
use crate::results::Cpu;
use crate::servers::Server;

/// How long before the end of the warm-up the processes are listed. That may take milliseconds, and
/// the generator has to catch up with its schedule before the measured time begins.
const LISTED_BEFORE: Duration = Duration::from_millis(100);

pub(super) struct BlockWatch<'a> {
    server: &'a Server,
    companion: &'a mut (dyn Companion + Send),
    interrupted: &'a AtomicBool,
    progress: &'a mut Progress,
    /// From when on the processes are listed, until the measured time begins.
    list_from: Instant,
    /// The processes of the server and of its companion. Nothing if they are not listed yet.
    pids: Option<Vec<u32>>,
    phase: Phase,
}

enum Phase {
    WarmUp,
    /// The measured time, with its beginning.
    Measured(Beginning),
    Over(MeasuredCpu),
}

struct Beginning {
    at: Instant,
    /// The processes, with those that have ended and that nobody has waited for.
    listed: Vec<u32>,
    /// The counters of those that run.
    counters: ProcessCpu,
}

/// The CPU time of a server in the measured time.
#[derive(Debug, Clone, Copy)]
pub(super) enum MeasuredCpu {
    Known(Cpu),
    /// Processes started or ended meanwhile.
    ProcessesChanged,
    /// The server's processes are not known, or the measured time has not ended.
    Unknown,
}

impl MeasuredCpu {
    pub(super) fn known(self) -> Option<Cpu> {
        match self {
            Self::Known(cpu) => Some(cpu),
            Self::ProcessesChanged | Self::Unknown => None,
        }
    }
}

impl<'a> BlockWatch<'a> {
    /// Makes a watch of a block that begins now.
    pub(super) fn new(
        server: &'a Server,
        companion: &'a mut (dyn Companion + Send),
        warm_up: Duration,
        interrupted: &'a AtomicBool,
        progress: &'a mut Progress,
    ) -> Self {
        Self {
            server,
            companion,
            interrupted,
            progress,
            list_from: Instant::now() + warm_up.saturating_sub(LISTED_BEFORE),
            pids: None,
            phase: Phase::WarmUp,
        }
    }

    pub(super) fn cpu(&self) -> MeasuredCpu {
        match self.phase {
            Phase::Over(cpu) => cpu,
            Phase::WarmUp | Phase::Measured(_) => MeasuredCpu::Unknown,
        }
    }

    fn processes(&self) -> Vec<u32> {
        [self.server.pids(), self.companion.pids()].concat()
    }
}

impl Watch for BlockWatch<'_> {
    fn window_begins(&mut self) {
        let listed = self.pids.take().unwrap_or_else(|| self.processes());
        let counters = read(&listed);
        self.phase = Phase::Measured(Beginning { at: Instant::now(), listed, counters });
        self.companion.window_begins();
    }

    fn window_ended(&mut self) {
        if let Phase::Measured(begin) = &self.phase {
            let before = &begin.counters;
            let after = read(&before.pids());
            let seconds = begin.at.elapsed().as_secs_f64();
            self.companion.window_ended();
            // Last, because it takes longer than to read the counters.
            let is_new = |pid: &u32| !begin.listed.contains(pid);
            let cpu = if after.pids() != before.pids() || self.processes().iter().any(is_new) {
                MeasuredCpu::ProcessesChanged
            } else if before.pids().is_empty() {
                MeasuredCpu::Unknown
            } else {
                MeasuredCpu::Known(after.since(before, seconds))
            };
            self.phase = Phase::Over(cpu);
        }
    }

    fn check(&mut self) -> Check {
        self.progress.tick();
        if self.interrupted.load(Ordering::Relaxed) {
            return Check::Interrupted;
        }
        let is_warm_up = matches!(self.phase, Phase::WarmUp);
        if is_warm_up && self.pids.is_none() && Instant::now() >= self.list_from {
            self.pids = Some(self.processes());
        }
        self.server.died().map_or(Check::GoOn, Check::ServerDied)
    }
}

/// Reads the counters of those processes that run. If they cannot be read, it returns none.
fn read(pids: &[u32]) -> ProcessCpu {
    let mut all = ProcessCpu::default();
    for pid in pids {
        match ProcessCpu::read(*pid) {
            Ok(process) => all.merge(process),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return ProcessCpu::default(),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use super::*;
    use crate::bench::{Bench, Load};
    use crate::generator::Plan;
    use crate::protocol::{Protocol, Requests, Template};
    use crate::servers::ServerSpec;

    const LONG: Duration = Duration::from_secs(60);

    /// This test program, as a server with a process for each connection.
    fn forking() -> ServerSpec {
        let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let test = "bench::watch::tests::a_forking_server";
        let argv = [&program, "--ignored", "--exact", "--nocapture", test, "{addr}"];
        let argv = argv.map(str::to_owned).to_vec();
        ServerSpec::Command { name: "forking".to_owned(), argv }
    }

    #[test]
    #[ignore = "other tests start it as their server"]
    fn a_forking_server() {
        let addr = std::env::args().next_back().unwrap_or_default();
        let Ok(addr) = addr.parse::<std::net::SocketAddr>() else { return };
        for stream in TcpListener::bind(addr).unwrap().incoming() {
            let stream = stream.unwrap();
            let input = OwnedFd::from(stream.try_clone().unwrap());
            let mut process = Command::new("cat");
            process.stdin(input).stdout(OwnedFd::from(stream));
            let mut process = process.spawn().unwrap();
            std::thread::spawn(move || process.wait());
        }
    }

    /// A client whose process runs.
    fn client(server: &Server) -> TcpStream {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    }

    /// The processes that are measured.
    fn running(watch: &BlockWatch<'_>) -> Vec<u32> {
        let Phase::Measured(begin) = &watch.phase else { panic!("it has begun") };
        begin.counters.pids()
    }

    fn watched(during: impl FnOnce(&Server, &mut BlockWatch<'_>)) -> MeasuredCpu {
        let server = Server::start(&forking(), None, LONG).unwrap();
        let (mut alone, interrupted, mut progress) =
            ((), AtomicBool::new(false), Progress::silent());
        let mut watch =
            BlockWatch::new(&server, &mut alone, Duration::ZERO, &interrupted, &mut progress);
        during(&server, &mut watch);
        watch.cpu()
    }

    #[test]
    fn processes_that_start_in_the_warm_up_count() {
        let cpu = watched(|server, watch| {
            let _client = client(server);
            assert!(matches!(watch.check(), Check::GoOn));
            watch.window_begins();
            assert!(running(watch).len() >= 2);
            watch.window_ended();
        });
        assert!(cpu.known().is_some(), "{cpu:?}");
    }

    #[test]
    fn processes_that_start_in_the_measured_time_leave_it_unknown() {
        let cpu = watched(|server, watch| {
            watch.check();
            watch.window_begins();
            let _client = client(server);
            watch.window_ended();
        });
        assert!(matches!(cpu, MeasuredCpu::ProcessesChanged), "{cpu:?}");
    }

    #[test]
    fn processes_that_end_in_the_measured_time_leave_it_unknown() {
        let cpu = watched(|server, watch| {
            let client = client(server);
            watch.check();
            watch.window_begins();
            let pids = running(watch);
            drop(client);
            let deadline = Instant::now() + LONG;
            while read(&pids).pids() == pids {
                assert!(Instant::now() < deadline, "it ends");
                std::thread::sleep(Duration::from_millis(1));
            }
            watch.window_ended();
        });
        assert!(matches!(cpu, MeasuredCpu::ProcessesChanged), "{cpu:?}");
    }

    #[test]
    fn the_cpu_time_of_a_process_for_each_connection_is_known() {
        let interrupted = AtomicBool::new(false);
        let mut bench = Bench::on_this_machine(&interrupted, Progress::silent()).unwrap();
        bench.limits.patience = Duration::ZERO;
        bench.most_repeats = 0;
        let plan = Plan::new("127.0.0.1:1".parse().unwrap())
            .requests(Requests::new(Protocol::Frames, &Template::of_size(16)).unwrap())
            .rate(500.0)
            .connections(4)
            .warm_up(Duration::from_millis(500))
            .duration(Duration::from_millis(200));
        let load = Load { plan, slow_clients: 0 };
        // On a machine that is busy, the processes may start too late for a block.
        let is_known = (0..10).any(|_| {
            let block = bench.block(&forking(), &load, "forking").unwrap();
            assert_eq!(block.processes_changed, block.cpu.is_none());
            block.cpu.is_some()
        });
        assert!(is_known);
    }
}
