//! CPUs that are held for somebody else, if that gains anything.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::back_off::{BackOff, Reluctance};
use crate::latency_device::{self, OpenError};
use crate::machine::{LargeMachine, check_share};
use crate::wake_cost::Gain;

/// A no is asked again behind this, and then behind twice as long, up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// How CPUs are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldSettings {
    tolerated: Duration,
    whole_machine: bool,
}

impl HoldSettings {
    /// CPUs do not sleep at all, and only where most of the machine is this process's
    /// ([`check_share`]).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a CPU may take to come back, in whole microseconds: from zero, the default, on. On
    /// a machine with shallow idle states a microsecond or two saves power.
    #[must_use]
    pub fn tolerated(mut self, latency: Duration) -> Self {
        self.tolerated = latency;
        self
    }

    /// Holds all CPUs, however many they are and whosesoever.
    #[must_use]
    pub fn whole_machine(mut self) -> Self {
        self.whole_machine = true;
        self
    }
}

/// Why CPUs are not held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The device may not be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The machine has CPUs that are not this process's.
    #[error("{0}. `--hold machine`, in code HoldSettings::whole_machine(), says so")]
    Large(#[from] LargeMachine),
}

/// See the [module](self). It ends with the value, and with the process.
#[derive(Debug)]
pub(crate) struct Hold {
    device: OwnedFd,
    tolerated: Duration,
    measured: Measured,
    back_off: BackOff,
    /// Why nothing was held when that was asked for last.
    reluctance: Option<Reluctance>,
    held_since: Option<Instant>,
    held: Duration,
}

#[derive(Debug)]
enum Measured {
    NotYet,
    Gains(Gain),
    /// And when it is asked again, and the pause behind that.
    Useless(Gain, Instant, Duration),
    /// Somebody else held the CPUs: to join costs nothing.
    Joins,
}

impl Hold {
    pub(crate) fn open(settings: HoldSettings) -> Result<Self, HoldError> {
        if !settings.whole_machine {
            check_share()?;
        }
        Ok(Self {
            device: latency_device::open()?,
            tolerated: settings.tolerated,
            measured: Measured::NotYet,
            back_off: BackOff::new(),
            reluctance: None,
            held_since: None,
            held: Duration::ZERO,
        })
    }

    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Holds from now on, unless that gains nothing, or others need the power or the time more. The
    /// first time it measures, for some 60 ms. To be called again and again while there is traffic.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.reluctance = self.back_off.look(Instant::now());
        if self.reluctance.is_some() {
            return self.end();
        }
        if self.is_held() {
            return Ok(());
        }
        self.measure()?;
        if !matches!(self.measured, Measured::Useless(..)) {
            latency_device::hold(&self.device, self.tolerated)?;
            self.held_since = Some(Instant::now());
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) -> io::Result<()> {
        if let Some(since) = self.held_since.take() {
            self.held += since.elapsed();
            latency_device::release(&self.device)?;
        }
        Ok(())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// In all.
    pub(crate) fn held_time(&self) -> Duration {
        self.held + self.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Why nothing is held although there is traffic.
    pub(crate) fn reluctance(&self) -> Option<Reluctance> {
        self.reluctance
    }

    /// What was measured last.
    pub(crate) fn gain(&self) -> Option<Gain> {
        match self.measured {
            Measured::Gains(gain) | Measured::Useless(gain, ..) => Some(gain),
            Measured::NotYet | Measured::Joins => None,
        }
    }

    fn measure(&mut self) -> io::Result<()> {
        let pause = match self.measured {
            Measured::NotYet => AGAIN.0,
            Measured::Useless(_, again, pause) if Instant::now() >= again => pause,
            _ => return Ok(()),
        };
        if latency_device::in_force(&self.device)? == Some(Duration::ZERO) {
            self.measured = Measured::Joins;
            return Ok(());
        }
        // A thread of its own: it stays pinned.
        let device = &self.device;
        let gain = thread::scope(|scope| {
            let measuring = thread::Builder::new().spawn_scoped(scope, || Gain::measure(device))?;
            measuring.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
        })?;
        self.measured = if gain.is_worth_it() {
            Measured::Gains(gain)
        } else {
            Measured::Useless(gain, Instant::now() + pause, (pause * 2).min(AGAIN.1))
        };
        Ok(())
    }
}
