//! Runs programs that measure inside themselves: alone on a quiet machine, to their end, within a
//! bounded time. Their output is the result.
//!
//! If other programs disturbed a run, it is repeated, as blocks are ([`Bench::undisturbed`]). Like
//! a server, the program leads a process group that ends with this process. It is reaped only after
//! its CPU time was read, so that its own work does not count as that of others.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::bench::{Bench, BenchError, Undisturbed};
use crate::quiet::Baseline;
use crate::servers::group::{Group, StartError, State};
use crate::servers::tail::Tail;
use crate::servers::{LAST_WORDS, with_last_words};
use crate::threads;

/// How often to check whether the program has ended. Each check takes some 10 µs of a CPU that may
/// be measured.
const POLL: Duration = Duration::from_millis(20);

/// At most this many bytes of the program's output are kept.
const MOST_PRINTED: u64 = 1 << 20;

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The CPUs on which it is started. `None` leaves the choice to the kernel. The program may pin
    /// its threads within these CPUs.
    pub cpus: Option<Vec<usize>>,
    /// The program is killed after this time.
    pub within: Duration,
}

/// The reason why there is no output.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The program may not run on its CPUs.
    #[error("it cannot have its CPUs: {0}")]
    Cpus(io::Error),
    /// The program could not be started.
    #[error("it cannot be started: {program:?}: {error}")]
    Spawn {
        /// The program.
        program: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// The program did not end with status 0.
    #[error("it {0}")]
    Failed(String),
    /// The program did not end in time, and was killed.
    #[error("it did not end within {after:?}{last_words}")]
    TooLong {
        /// How long it was waited for.
        after: Duration,
        /// The last lines of its stderr.
        last_words: String,
    },
    /// The user ended the program.
    #[error("interrupted")]
    Interrupted,
    /// The kernel or the machine is at fault.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

impl Bench<'_> {
    /// Runs a program to its end on a quiet machine, and again if other programs disturbed it.
    /// Returns at most 1 MiB of what it printed on stdout.
    ///
    /// # Errors
    /// The program cannot be started, fails, or does not end in time; or the user ended it.
    pub fn run_program(
        &mut self,
        program: &Program,
        label: &str,
    ) -> Result<Undisturbed<String>, ProgramError> {
        self.undisturbed(label, |bench| bench.try_program(program))
    }

    fn try_program(&mut self, program: &Program) -> Result<(String, bool), ProgramError> {
        let ours = [std::process::id()];
        let machine = Baseline::take(&ours, &self.machine_cpus).ok();
        let (first, arguments) = program.argv.split_first().ok_or_else(|| {
            ProgramError::Failed("has no name: there is nothing to start".to_owned())
        })?;
        let mut command = Command::new(first);
        command.args(arguments);
        let group = Group::start_printing(&mut command, program.cpus.as_deref(), Stdio::piped());
        let mut group = group.map_err(|error| match error {
            StartError::Cpus(error) => ProgramError::Cpus(error),
            StartError::Spawn(error) => ProgramError::Spawn { program: first.clone(), error },
        })?;
        let no_thread = |error| ProgramError::Spawn { program: first.clone(), error };
        let printed = group.stdout().map(collect).transpose().map_err(no_thread)?;
        let stderr = group.stderr().map(Tail::follow).transpose().map_err(no_thread)?;
        let last_words = || stderr.as_ref().map_or_else(String::new, |tail| tail.text(LAST_WORDS));
        let start = Instant::now();
        let how = loop {
            match group.state() {
                State::Runs => {}
                State::Ended(how) => break how,
                State::Gone => break "ended, and another process took its exit status".to_owned(),
            }
            if self.is_interrupted() {
                return Err(ProgramError::Interrupted);
            }
            if start.elapsed() >= program.within {
                group.stop();
                let last_words = with_last_words(String::new(), &last_words());
                return Err(ProgramError::TooLong { after: program.within, last_words });
            }
            self.progress.tick();
            thread::sleep(POLL);
        };
        // The kernel knows what the process used as long as nobody has waited for the process.
        let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
        group.stop();
        if how != SUCCESS {
            return Err(ProgramError::Failed(with_last_words(how, &last_words())));
        }
        let printed = printed.and_then(|printed| printed.recv_timeout(LAST_WORDS).ok());
        let printed = printed.ok_or_else(|| {
            ProgramError::Failed("ended, but left its stdout open to others".to_owned())
        })?;
        Ok((printed, outside.exceeds(self.limits.share)))
    }
}

/// How [`Group`] describes a success.
const SUCCESS: &str = "exited with status 0";

/// Reads to the end on a thread of its own, so that nobody blocks on a full pipe.
///
/// # Errors
/// No thread can be started.
fn collect(mut from: impl Read + Send + 'static) -> io::Result<Receiver<String>> {
    let (sender, printed) = mpsc::channel();
    threads::start("stdout", move || {
        let mut kept = Vec::new();
        let read = from.by_ref().take(MOST_PRINTED).read_to_end(&mut kept);
        if read.is_ok() {
            io::copy(&mut from, &mut io::sink()).ok();
        }
        sender.send(String::from_utf8_lossy(&kept).into_owned()).ok();
    })?;
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::progress::Progress;

    fn run(script: &str, within: Duration) -> Result<String, ProgramError> {
        let interrupted = AtomicBool::new(false);
        let mut bench = Bench::on_this_machine(&interrupted, Progress::silent()).unwrap();
        // This test is not about other programs.
        bench.limits.share = f64::INFINITY;
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let program = Program { argv, cpus: None, within };
        bench.run_program(&program, "test").map(|measured| measured.value)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_it_prints_is_the_result() {
        assert_eq!(run("echo one; echo two >&2; echo three", LONG).unwrap(), "one\nthree\n");
        let much = run("head -c 3000000 /dev/zero", LONG).unwrap();
        assert_eq!(much.len() as u64, MOST_PRINTED);
    }

    #[test]
    fn one_that_fails_says_how() {
        let error = run("echo why >&2; exit 3", LONG).unwrap_err().to_string();
        assert_eq!(error, "it exited with status 3: why");
        let error = run("kill -s KILL $$", LONG).unwrap_err().to_string();
        assert!(error.contains("signal 9"), "{error}");
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let within = Duration::from_millis(100);
        let error = run("echo stuck >&2; sleep 600", within).unwrap_err();
        assert!(matches!(error, ProgramError::TooLong { .. }), "{error}");
        assert!(error.to_string().contains("100ms"), "{error}");
    }

    #[test]
    fn one_that_is_not_there_is_named() {
        let interrupted = AtomicBool::new(false);
        let mut bench = Bench::on_this_machine(&interrupted, Progress::silent()).unwrap();
        bench.limits.share = f64::INFINITY;
        let argv = vec!["/no/such/program".to_owned()];
        let program = Program { argv, cpus: None, within: LONG };
        let error = bench.run_program(&program, "test").unwrap_err().to_string();
        assert!(error.contains("/no/such/program"), "{error}");
    }

    #[test]
    fn ctrl_c_ends_it() {
        let interrupted = AtomicBool::new(true);
        let mut bench = Bench::on_this_machine(&interrupted, Progress::silent()).unwrap();
        bench.limits.share = f64::INFINITY;
        let argv = ["sleep", "600"].map(str::to_owned).to_vec();
        let error = bench.run_program(&Program { argv, cpus: None, within: LONG }, "test");
        assert!(matches!(error, Err(ProgramError::Interrupted)), "{error:?}");
    }
}
