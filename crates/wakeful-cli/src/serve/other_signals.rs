//! Signals that must not end a service without a drain, as they do by default: HUP, USR1, USR2, PWR
//! and XCPU.
//!
//! They are blocked before anything else happens, and caught when the command line has been read.
//! So they end nothing while the service starts and drains.
//!
//! TERM and INT have their default action until the server starts, and end the process. But the
//! kernel discards them for process 1 (of a container), while they have that action. So process 1
//! blocks them, too. It then drains as soon as the server has started.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal as Name};
use rustix::process::Signal;
use signal_hook::consts::SIGXCPU;
use signal_hook::flag;
use wakeful::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, unblock};

macro_rules! help_of_a_process {
    ($hup:literal) => {
        concat!(
            "\
Signals:
  TERM, INT   drain for up to --grace, then exit. A second one exits at once
  PWR, XCPU   drain as TERM does (XCPU: the limit of CPU time, ulimit -t, is reached)
  HUP         ",
            $hup,
            "
  USR1, USR2  no effect; logged
  QUIT        end at once, with a core dump
  ALRM, VTALRM, PROF, IO, STKFLT and real-time signals end it at once, without a drain
  TSTP, TTIN, TTOU  stop it, as STOP does, until CONT"
        )
    };
}

macro_rules! exit_codes {
    () => {
        "

Exit codes: 0 drained; 1 an error, for example an address in use or a file that cannot be read, or a
second signal; 2 wrong usage, also in the settings file."
    };
}

macro_rules! help {
    ($hup:literal, $usr1:literal) => {
        concat!(
            help_of_a_process!($hup),
            "

Signals of the master with --workers:
  TERM, INT, QUIT, PWR, XCPU  drain the workers, then exit. A second one ends all at once
  HUP         replace the workers, one after the other
  USR1        send HUP to each worker: ",
            $usr1,
            "
  USR2        upgrade: start the program again with the sockets, then drain the old workers
  TTIN, TTOU  one worker more, one worker fewer
  WINCH       drain the workers, and keep the master; HUP or TTIN starts them again",
            exit_codes!()
        )
    };
}

/// The text for `--help` of a service that has certificates and an access log.
pub(super) const HELP: &str = help!(
    "reload certificates (--tls-cert), reopen the access log (--access-log-file)",
    "it reloads certificates, and reopens its access log"
);
/// The text for a service that has certificates, and no access log.
pub(super) const HELP_WITHOUT_ACCESS_LOG: &str =
    help!("reload certificates (--tls-cert)", "it reloads certificates");
/// The text for a service that has nothing to reload.
pub(super) const HELP_WITHOUT_RELOAD: &str =
    help!("no effect; logged", "it has nothing to reload, and logs that");
/// The text for a service that has nothing to reload, and no workers.
pub(super) const HELP_WITHOUT_WORKERS: &str =
    concat!(help_of_a_process!("no effect; logged"), exit_codes!());

/// The signal of a power failure.
const SIGPWR: i32 = Signal::POWER.as_raw();
const CAUGHT: [i32; 5] = [SIGHUP, SIGUSR1, SIGUSR2, SIGPWR, SIGXCPU];

/// Blocks the signals until [`Caught`] or a master catches them. Before that they would end the
/// process. Process 1 blocks TERM and INT until [`unblock_term`] or a master.
pub(crate) fn put_off_signals() {
    let mut put_off: SigSet =
        [Name::SIGHUP, Name::SIGUSR1, Name::SIGUSR2, Name::SIGPWR].into_iter().collect();
    if is_process_1() {
        put_off.extend([Name::SIGTERM, Name::SIGINT]);
    }
    // This cannot fail for signals that exist.
    let _ = put_off.thread_block();
}

/// Call this when TERM and INT are caught.
///
/// # Errors
/// None that the kernel documents.
pub(super) fn unblock_term() -> io::Result<()> {
    unblock(&[SIGTERM, SIGINT])
}

/// Is this process the first one of its PID namespace?
fn is_process_1() -> bool {
    process::id() == 1
}

/// The signals that have arrived since the program started.
#[derive(Debug)]
pub(super) struct Caught {
    arrived: Vec<(i32, Arc<AtomicBool>)>,
    draining: Draining,
}

/// Whether the drain has begun. A second TERM would abort it.
#[derive(Debug, Clone, Default)]
pub(super) struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Notes that the drain begins. `false`: it had begun before.
    pub(super) fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl Caught {
    /// # Errors
    /// A line for the user.
    pub(super) fn from_now_on() -> Result<Self, String> {
        let catch = |signal| {
            let arrived = Arc::new(AtomicBool::new(false));
            flag::register(signal, arrived.clone()).map(|_| (signal, arrived))
        };
        // A supervisor that waits for signals itself may have left them blocked. A signal that has
        // come meanwhile arrives when it is unblocked.
        let caught: io::Result<_> = CAUGHT.into_iter().map(catch).collect();
        let caught = caught.and_then(|caught: Vec<_>| unblock(&CAUGHT).map(|()| caught)).and_then(
            |caught| match is_process_1() {
                true => Ok(caught),
                false => unblock_term().map(|()| caught),
            },
        );
        let arrived =
            caught.map_err(|error| format!("cannot serve: signals cannot be caught: {error}"))?;
        Ok(Self { arrived, draining: Draining::default() })
    }

    /// The flag to set when the drain begins.
    pub(super) fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// Logs each signal, including those that arrived before this call, for as long as this
    /// thread's loop runs. PWR and XCPU end the service as TERM does. `reloaded` names what HUP
    /// does: the code that reloads must catch HUP before this call.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub(super) fn log(self, reloaded: Vec<&'static str>) -> io::Result<()> {
        let mut signals = Signals::new(&CAUGHT)?;
        for (signal, arrived) in self.arrived {
            if arrived.load(Ordering::Relaxed) {
                signal_hook::low_level::raise(signal)?;
            }
        }
        let draining = self.draining;
        wakeful::spawn(async move {
            while let Ok(signal) = signals.recv().await {
                match signal {
                    SIGHUP if reloaded.is_empty() => tracing::info!("HUP: nothing to reload"),
                    SIGHUP => tracing::info!("HUP: {}", reloaded.join(" and ")),
                    SIGUSR1 => tracing::info!("USR1: no effect, except on a master (--workers)"),
                    SIGUSR2 => tracing::info!("USR2: no effect, except on a master (--workers)"),
                    _ => end_by(signal, &draining),
                }
            }
        })
        .detach();
        Ok(())
    }
}

/// Ends the service as TERM does. XCPU repeats with each second of CPU time, and must not count as
/// a second TERM.
fn end_by(signal: i32, draining: &Draining) {
    if !draining.begins() {
        return;
    }
    let name = if signal == SIGPWR { "PWR" } else { "XCPU" };
    match signal_hook::low_level::raise(SIGTERM) {
        Ok(()) => tracing::warn!("{name}: ending, as after TERM"),
        Err(error) => tracing::error!(%error, "{name}: cannot send TERM to this process"),
    }
}
