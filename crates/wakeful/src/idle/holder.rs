//! Keeps the machine's CPUs from halting while a loop meets events: [`Hold`].
//!
//! The loop takes the hold before it sleeps, if there was an event since the last silence, and
//! gives it back when a wait of the length of a silence has brought none. So a hold costs two
//! system calls for each stretch of traffic, none for each event, and the clock is read only when a
//! wait has brought nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use wakeful_awake::latency_device::{self, OpenError};
use wakeful_awake::{LargeMachine, check_share};

use super::hold_gain;
use super::policy::Hold;
use crate::sys::before_fork::{self, ForkCount};
use crate::sys::fork_check::Process;
use crate::sys::panics;

const SILENCE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Why a loop that was to hold CPUs does not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}; in code Hold::whole_machine() says so")]
    Large(#[from] LargeMachine),
    #[error(transparent)]
    Other(#[from] io::Error),
}

/// See the [module](self). Times are nanoseconds on the loop's clock.
#[derive(Debug)]
pub(crate) struct Holder {
    silence: Duration,
    tolerated: Duration,
    process: Process,
    device: Device,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing has happened since the last silence.
    Silent,
    /// Something has, and nothing is held (yet).
    Unheld,
    /// Held. Nothing has happened since the moment, if there is one.
    Held { quiet_since: Option<u64> },
    /// It is of no use here.
    Useless,
}

/// A descriptor that this process's children have no wish by.
#[derive(Debug)]
struct Device {
    fd: Arc<OwnedFd>,
    forks: ForkCount,
}

impl Device {
    fn open() -> Result<Self, HoldError> {
        // First the count: behind a fork in between the device is opened anew.
        let forks = Process::fork_count()?;
        Ok(Self { fd: Arc::new(latency_device::open()?), forks })
    }

    /// Until the next fork. `false`: this process has forked, so that a child may have a copy.
    fn hold(&self, tolerated: Duration) -> io::Result<bool> {
        let hold = |fd: &OwnedFd| latency_device::hold(fd, tolerated);
        before_fork::change_until_fork(self.forks, &self.fd, hold, |fd| {
            let _ = latency_device::release(fd);
        })
    }

    fn release(&self) {
        before_fork::undo(&Arc::downgrade(&self.fd));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.release();
    }
}

impl Holder {
    /// Nothing is held yet.
    ///
    /// # Errors
    /// The device may not be used, or the machine is larger than one process's.
    pub(crate) fn new(settings: Hold, process: Process) -> Result<Self, HoldError> {
        if !settings.whole_machine {
            check_share()?;
        }
        Ok(Self {
            silence: settings.silence.clamp(SILENCE.0, SILENCE.1),
            tolerated: settings.tolerated,
            process,
            device: Device::open()?,
            state: State::Silent,
        })
    }

    /// The loop is about to sleep. Returns how long at most, before it is to say what came of it.
    #[inline]
    pub(crate) fn before_sleep(&mut self) -> Option<Duration> {
        // A fork has released it.
        let is_due = match self.state {
            State::Unheld => true,
            State::Held { .. } => self.device.forks.is_past(),
            State::Silent | State::Useless => false,
        };
        if is_due {
            self.begin();
        }
        self.is_held().then_some(self.silence)
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// An event, or a push, has ended a sleep.
    #[inline]
    pub(crate) fn woken(&mut self) {
        match &mut self.state {
            State::Held { quiet_since } => *quiet_since = None,
            State::Silent => self.state = State::Unheld,
            State::Unheld | State::Useless => {}
        }
    }

    /// A timer or a signal has ended a sleep, at `now`: is it silent by now?
    pub(crate) fn found_nothing(&mut self, now: u64) {
        let State::Held { quiet_since } = &mut self.state else { return };
        let since = *quiet_since.get_or_insert(now);
        if u128::from(now.saturating_sub(since)) >= self.silence.as_nanos() {
            self.release();
        }
    }

    /// The silence is over, or nobody takes turns for a while.
    #[cold]
    pub(crate) fn release(&mut self) {
        if self.is_held() {
            self.device.release();
            self.state = State::Silent;
        }
    }

    #[cold]
    fn begin(&mut self) {
        match hold_gain::is_worth_it(self.process.stamp()) {
            None => return,
            Some(false) => {
                self.state = State::Useless;
                return;
            }
            Some(true) => {}
        }
        self.state = match self.hold() {
            Ok(()) => State::Held { quiet_since: None },
            Err(error) => {
                panics::log!(warn, %error, "cannot hold CPUs any more: this loop parks");
                State::Useless
            }
        };
    }

    fn hold(&mut self) -> Result<(), HoldError> {
        // A child may have a copy of the descriptor, and what is said by it is said for both.
        while !self.device.hold(self.tolerated)? {
            self.device = Device::open()?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
