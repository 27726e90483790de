//! Signals as futures, and graceful shutdown on a signal.

mod signals;
mod until_terminated;

pub use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

pub use self::signals::{Signals, ctrl_c, unblock};
#[doc(hidden)]
pub use self::until_terminated::{
    GivesBack, run_until_terminated_in, second_signal, start_until_told,
};
pub use self::until_terminated::{run_until_terminated, run_until_terminated_or_failed};
