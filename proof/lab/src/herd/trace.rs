//! The kernel's own trace of a server: an instance of tracefs that no other program uses. It is
//! removed when this is dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use super::woken::{Reader, Woken};

const TRACEFS: &str = "/sys/kernel/tracing";

/// The trace is spread over at most this many CPUs, and not evenly.
const BUSY_CPUS: usize = 8;

const WAKEUP: &str = "events/sched/sched_wakeup";

/// The system calls by which a connection, or data on one, arrives.
const CALLS: [&str; 6] = ["accept", "accept4", "read", "readv", "recvfrom", "recvmsg"];

#[derive(Debug)]
pub(super) struct Trace {
    dir: PathBuf,
    /// Whether this program has mounted tracefs.
    mounted: bool,
}

impl Trace {
    /// # Errors
    /// The reason why there can be no trace, as a text for the user.
    pub(super) fn open() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounted = !Path::new(TRACEFS).join("instances").is_dir();
        if mounted {
            mount()?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("instances/wakeful-lab-{}-{number}", std::process::id());
        let dir = Path::new(TRACEFS).join(name);
        // From here on, dropping this undoes it.
        let trace = Self { dir, mounted };
        let prepared = fs::create_dir(&trace.dir).and_then(|()| trace.prepare());
        prepared.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => "run it as root".to_owned(),
            _ => format!("{}: {error}", trace.dir.display()),
        })?;
        Ok(trace)
    }

    fn prepare(&self) -> io::Result<()> {
        self.put("tracing_on", "0")?;
        // All CPUs have the same clock, because events of several CPUs are merged by their time.
        self.put("trace_clock", "mono")?;
        for call in CALLS {
            self.put(&format!("events/syscalls/sys_exit_{call}/enable"), "1")?;
        }
        self.put(&format!("{WAKEUP}/enable"), "1")
    }

    fn put(&self, file: &str, text: &str) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
        fs::write(self.dir.join(file), text).map_err(named)
    }

    /// Begins to trace these threads, with room for `bytes` bytes.
    pub(super) fn aim_at(&self, threads: &[u32], bytes: usize) -> io::Result<()> {
        let numbers: Vec<String> = threads.iter().map(u32::to_string).collect();
        let woken: Vec<String> = numbers.iter().map(|tid| format!("pid == {tid}")).collect();
        // Each CPU has its own buffer. Few clients wake, and few workers run at a time, however
        // many CPUs there are.
        let cpus = thread::available_parallelism()?.get().min(BUSY_CPUS);
        self.put("buffer_size_kb", &(2 * bytes / cpus).div_ceil(1024).to_string())?;
        // Traces all calls of these threads. Of the wakes, it traces those of these threads, not
        // those by them.
        self.put("set_event_pid", &numbers.join(" "))?;
        self.put(&format!("{WAKEUP}/filter"), &woken.join(" || "))
    }

    /// Starts to record.
    pub(super) fn start(&self) -> io::Result<()> {
        self.put("trace", "")?;
        self.put("tracing_on", "1")
    }

    pub(super) fn stop(&self) -> io::Result<()> {
        self.put("tracing_on", "0")
    }

    /// Returns what happened to these threads since the start.
    pub(super) fn read(&self, threads: &[u32]) -> io::Result<BTreeMap<u32, Woken>> {
        if self.overruns()? {
            return Err(io::Error::other("the trace did not fit into its buffer"));
        }
        let mut reader = Reader::of(threads);
        let mut trace = BufReader::with_capacity(1 << 20, File::open(self.dir.join("trace"))?);
        let mut line = Vec::new();
        while trace.read_until(b'\n', &mut line)? > 0 {
            // A thread's name may have any bytes.
            reader.line(&String::from_utf8_lossy(&line));
            line.clear();
        }
        Ok(reader.finish())
    }

    fn overruns(&self) -> io::Result<bool> {
        for cpu in fs::read_dir(self.dir.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            let lost = |line: &str| {
                let lost = line.strip_prefix("overrun: ").or(line.strip_prefix("dropped events: "));
                lost.is_some_and(|count| count.trim() != "0")
            };
            if stats.lines().any(lost) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If something cannot be undone, its name shows that it belongs to this program, and it
        // traces nothing.
        let _ = self.stop();
        let _ = fs::remove_dir(&self.dir);
        if self.mounted {
            let _ = quietly("umount", &[TRACEFS]);
        }
    }
}

/// Mounts tracefs where it belongs.
fn mount() -> Result<(), String> {
    match quietly("mount", &["-t", "tracefs", "tracefs", TRACEFS]) {
        Ok(true) => Ok(()),
        _ => Err(format!("{TRACEFS} is not to be had: run it as root")),
    }
}

fn quietly(program: &str, arguments: &[&str]) -> io::Result<bool> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc;

    use wakeful_load::internals::procfs::threads_of;

    use super::*;

    fn current_thread() -> u32 {
        let own = fs::read_link("/proc/thread-self").unwrap();
        own.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_that_accepts_is_seen_to_and_what_does_not_fit_is_no_trace() {
        let trace = match Trace::open() {
            Ok(trace) => trace,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let path = std::env::temp_dir().join(format!("wakeful-herd-trace-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, numbers) = mpsc::channel();
        let server = thread::spawn(move || {
            sender.send(current_thread()).unwrap();
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
            }
        });
        let tid = numbers.recv().unwrap();
        // One list may lack a thread: see `threads_of`.
        while !threads_of(std::process::id()).contains(&tid) {
            thread::yield_now();
        }
        trace.aim_at(&[tid], 1 << 20).unwrap();
        trace.start().unwrap();
        for _ in 0..20 {
            drop(UnixStream::connect(&path).unwrap());
        }
        server.join().unwrap();
        trace.stop().unwrap();
        let found = trace.read(&[tid]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[&tid].accepts, found[&tid].refused), (20, 0), "{found:?}");
        let _ = fs::remove_file(path);

        trace.aim_at(&[current_thread()], 1).unwrap();
        trace.start().unwrap();
        let mut nothing = File::open("/dev/null").unwrap();
        for _ in 0..20_000 {
            assert_eq!(nothing.read(&mut [0]).unwrap(), 0);
        }
        trace.stop().unwrap();
        let error = trace.read(&[]).unwrap_err().to_string();
        assert!(error.contains("did not fit"), "{error}");

        let dir = trace.dir.clone();
        drop(trace);
        assert!(!dir.exists());
    }
}
