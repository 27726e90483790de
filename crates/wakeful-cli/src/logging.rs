//! The program's log: `tracing` lines, panics and messages, all by one writer that never waits. See
//! [`wakeful::log`].

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use wakeful::log::{LossyWriter, report_panics};

/// The log of this process. A worker's own log replaces its master's.
static LOG: RwLock<Option<LossyWriter>> = RwLock::new(None);

/// How long the end of the program waits for a slow standard error. For one that nobody reads it is
/// a quarter of that.
const AT_THE_END: Duration = Duration::from_secs(1);

/// Writes the last lines when it is dropped, even after a panic in `main`.
pub(crate) struct Logging(());

impl Drop for Logging {
    fn drop(&mut self) {
        flush();
    }
}

/// The prefix of a line: the time and, if several processes write to one log, the process id.
struct Stamp {
    with_process: bool,
}

impl FormatTime for Stamp {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(w)?;
        if self.with_process { write!(w, " [{}]", process::id()) } else { Ok(()) }
    }
}

/// Logs to standard error what `RUST_LOG` says, by default everything from `info` on except h2's
/// warnings. h2 warns of what single clients do, which could fill a disk;
/// `wakeful_http_refused_total` counts that.
///
/// A master writes the lines itself, because it must not have a thread: see [`of_worker`].
pub(crate) fn start(is_master: bool) -> Logging {
    let stderr = io::stderr();
    set(if is_master { LossyWriter::without_thread(stderr) } else { LossyWriter::new(stderr) });
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|error| {
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|value| !value.is_empty()) {
            say(format_args!("wakeful: ignoring RUST_LOG, because it is invalid (examples: info; debug,h2=error): {error}"));
        }
        EnvFilter::new("info,h2=error")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| writer().unwrap_or_else(|| LossyWriter::without_thread(io::stderr())))
        .with_timer(Stamp { with_process: is_master })
        .with_ansi(io::stderr().is_terminal())
        // Such errors would be printed by `eprintln!`.
        .log_internal_errors(false)
        .init();
    Logging(())
}

/// Called in a worker that was just forked: from now on a separate thread writes the lines.
pub(crate) fn of_worker() {
    set(LossyWriter::new(io::stderr()));
}

fn set(log: LossyWriter) {
    report_panics(&log);
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = Some(log);
}

/// Writes a line to standard error. Unlike `eprintln!` it neither waits nor panics.
pub(crate) fn say(line: impl Display) {
    let text = format!("{line}\n");
    match writer() {
        Some(log) => log.write_lines(text.into_bytes(), 1),
        // This is a test of a part of the program, without a log.
        None => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Waits for a limited time until what was logged is written. Call this before another program
/// replaces this one.
pub(crate) fn flush() {
    if let Some(log) = writer() {
        log.flush_within(AT_THE_END);
    }
}

/// The writer, for code that reads its counters.
pub(crate) fn writer() -> Option<LossyWriter> {
    LOG.read().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::panic::catch_unwind;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::{env, thread};

    use super::*;

    const ROLE: &str = "WAKEFUL_TEST_ROLE";
    const GUARD: Duration = Duration::from_secs(20);
    const SURVIVED: &str = "survived";

    /// Panics while nobody reads the log, and ends when the other end reads it.
    fn panic_by_the_log(is_master: bool) {
        let _logging = start(is_master);
        for _ in 0..100 {
            assert!(catch_unwind(|| panic!("on purpose")).is_err());
        }
        println!("{SURVIVED}");
        let _ = io::stdin().read_line(&mut String::new());
        assert!(writer().unwrap().flush_within(GUARD));
    }

    /// In a process of its own, because the panic hook is the process's. No command can be made to
    /// panic from outside.
    #[test]
    fn a_panic_waits_for_nobody_who_reads_the_log() {
        if let Ok(role) = env::var(ROLE) {
            return panic_by_the_log(role == "master");
        }
        for role in ["master", "worker"] {
            // A pipe without room for another byte.
            let (mut reader, mut writer) = io::pipe().unwrap();
            rustix::io::ioctl_fionbio(&writer, true).unwrap();
            while writer.write(&[b'\n'; 4096]).is_ok() {}
            rustix::io::ioctl_fionbio(&writer, false).unwrap();
            let test = "logging::tests::a_panic_waits_for_nobody_who_reads_the_log";
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
            let mut child = command.spawn().unwrap();
            // It has the only other copy of the pipe.
            drop(command);
            let stdout = BufReader::new(child.stdout.take().unwrap());
            let (tell, told) = mpsc::channel();
            let listening = thread::spawn(move || {
                let lines = stdout.lines().map_while(Result::ok);
                lines.filter(|line| line.contains(SURVIVED)).for_each(|_| _ = tell.send(()));
            });
            let survived = told.recv_timeout(GUARD);
            if survived.is_err() {
                child.kill().unwrap();
            }
            drop(child.stdin.take());
            let mut said = String::new();
            reader.read_to_string(&mut said).unwrap();
            let status = child.wait().unwrap();
            listening.join().unwrap();
            assert!(survived.is_ok(), "{role}: it waits");
            assert!(status.success(), "{role}: {status}: {said}");
            assert!(
                said.contains(" panicked at ") && said.contains("on purpose"),
                "{role}: {said}"
            );
        }
    }
}
