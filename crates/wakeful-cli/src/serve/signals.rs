//! Signals that must not end a service: by default, HUP, USR1 and USR2 do, without a drain.
//!
//! They are caught before anything else happens, so also while the service starts and drains.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::flag;
use wakeful::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, unblock};

/// For `--help`.
pub(super) const HELP: &str = "\
Signals:
  TERM, INT   drain for up to --grace, then exit. A second one exits at once
  HUP         reload certificates (--tls-cert), reopen the access log (--access-log-file)
  USR1, USR2  no effect; logged
  QUIT        end at once, with a core dump";

const CAUGHT: [i32; 3] = [SIGHUP, SIGUSR1, SIGUSR2];

/// The signals that have arrived since the program started.
#[derive(Debug)]
pub(super) struct Caught(Vec<(i32, Arc<AtomicBool>)>);

impl Caught {
    /// # Errors
    /// A line for the user.
    pub(super) fn from_now_on() -> Result<Self, String> {
        let catch = |signal| {
            let arrived = Arc::new(AtomicBool::new(false));
            flag::register(signal, arrived.clone()).map(|_| (signal, arrived))
        };
        // A supervisor that waits for signals itself may have left them blocked.
        let caught: io::Result<_> = unblock(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .and_then(|()| CAUGHT.into_iter().map(catch).collect());
        caught.map(Self).map_err(|error| format!("cannot serve: signals cannot be caught: {error}"))
    }

    /// Logs each arrival, also the earlier ones, for as long as this thread's loop runs. HUP reloads
    /// `reloaded`, whose own code has caught it by now.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub(super) fn log(self, reloaded: Vec<&'static str>) -> io::Result<()> {
        let mut signals = Signals::new(&CAUGHT)?;
        for (signal, arrived) in self.0 {
            if arrived.load(Ordering::Relaxed) {
                signal_hook::low_level::raise(signal)?;
            }
        }
        wakeful::spawn(async move {
            while let Ok(signal) = signals.recv().await {
                match signal {
                    SIGHUP if reloaded.is_empty() => tracing::info!("HUP: nothing to reload"),
                    SIGHUP => tracing::info!("HUP: reloading {}", reloaded.join(" and ")),
                    SIGUSR1 => tracing::info!("USR1: no effect"),
                    _ => tracing::info!("USR2: no effect"),
                }
            }
        })
        .detach();
        Ok(())
    }
}
