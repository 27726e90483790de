//! A report on what a hold gains on this machine.

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use crate::cpuidle::IdleDriver;
use crate::keeper_client::{KeeperClient, KeeperError};
use crate::keeper_protocol::{SOCKET_VARIABLE, socket_path};
use crate::latency_device::{self, OpenError};
use crate::machine::{LargeMachine, check_share, online_cpus};
use crate::wake_cost::{Gain, wake_cost};

/// A report on how idle CPUs sleep on this machine, whether this process may hold them, and what a
/// hold gains. `Display` shows the report in a few lines.
#[derive(Debug)]
pub struct Probe {
    driver: IdleDriver,
    cpus: Option<usize>,
    share: Result<(), LargeMachine>,
    /// Whether the machine's keeper accepts this process. `None`: the process may not use a keeper.
    keeper: Option<Result<(), KeeperError>>,
    /// The latency that the machine has already, whichever program requested it.
    in_force: Option<Duration>,
    measured: Measured,
}

#[derive(Debug)]
enum Measured {
    /// The costs of a wake with and without a hold.
    Both(Gain),
    /// A hold is not permitted, so this is the cost without one.
    Unheld(OpenError, io::Result<Duration>),
    Failed(io::Error),
}

impl Probe {
    /// Makes the report. It measures on two extra threads for about 60 ms, and holds CPUs during
    /// that time.
    #[must_use]
    pub fn run() -> Self {
        let on_own_thread = || match latency_device::open() {
            Err(error) => (None, Measured::Unheld(error, wake_cost())),
            Ok(device) => {
                let in_force = latency_device::in_force(&device).ok().flatten();
                let gain = Gain::measure(&device);
                (in_force, gain.map_or_else(Measured::Failed, Measured::Both))
            }
        };
        let panicked =
            || (None, Measured::Failed(io::Error::other("the thread that measures has panicked")));
        let (in_force, measured) = match thread::Builder::new().spawn(on_own_thread) {
            Ok(measuring) => measuring.join().unwrap_or_else(|_| panicked()),
            Err(error) => (None, Measured::Failed(error)),
        };
        Self {
            driver: IdleDriver::read(),
            cpus: online_cpus().ok().map(|cpus| cpus.len()),
            share: check_share(),
            keeper: socket_path().map(|path| KeeperClient::connect(&path).map(drop)),
            in_force,
            measured,
        }
    }

    /// Returns whether CPUs may be held and a hold is worth its cost. If only a keeper may hold
    /// them, the result is `true`, because the keeper measures the gain itself.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        match &self.measured {
            Measured::Both(gain) => gain.is_worth_it(),
            Measured::Unheld(..) => self.may_use_keeper() && self.driver.driver.is_some(),
            Measured::Failed(_) => false,
        }
    }

    fn may_use_keeper(&self) -> bool {
        matches!(self.keeper, Some(Ok(())))
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdleDriver { driver, governor, states, guest_halt_poll } = &self.driver;
        let unknown = || "none".to_owned();
        writeln!(f, "idle driver      {}", driver.clone().unwrap_or_else(unknown))?;
        writeln!(f, "governor         {}", governor.clone().unwrap_or_else(unknown))?;
        for state in states {
            let off = if state.is_disabled { ", switched off" } else { "" };
            let latency = state.exit_latency;
            writeln!(f, "state            {}: back in {latency:?}{off}", state.name)?;
        }
        if let Some(poll) = guest_halt_poll {
            writeln!(f, "guest halt poll  {poll:?}")?;
        }
        if let Some(cpus) = self.cpus {
            writeln!(f, "CPUs             {cpus}")?;
        }
        if let Some(latency) = self.in_force {
            writeln!(
                f,
                "held already     by another process, to {latency:?}: the times below include that"
            )?;
        }
        match &self.keeper {
            Some(Ok(())) => writeln!(f, "keeper           yes: it is asked first")?,
            Some(Err(error)) => writeln!(f, "keeper           no: {error}")?,
            None => writeln!(f, "keeper           no: {SOCKET_VARIABLE} is empty")?,
        }
        match &self.measured {
            Measured::Both(gain) => {
                writeln!(f, "a wake           {:.1?}", gain.unheld)?;
                writeln!(f, "a wake, held     {:.1?}", gain.held)?;
            }
            Measured::Unheld(error, cost) => {
                match cost {
                    Ok(cost) => writeln!(f, "a wake           {cost:.1?}")?,
                    Err(error) => writeln!(f, "a wake           not measured: {error}")?,
                }
                if !self.may_use_keeper() {
                    return writeln!(f, "permitted        no: {error}");
                }
            }
            Measured::Failed(error) => {
                return writeln!(f, "a wake           not measured: {error}");
            }
        }
        match &self.share {
            _ if self.may_use_keeper() => writeln!(f, "permitted        yes: by the keeper")?,
            Ok(()) => writeln!(f, "permitted        yes: {}", latency_device::PATH)?,
            Err(large) => writeln!(f, "permitted        only with --hold machine: {large}")?,
        }
        let verdict = match (self.is_worth_it(), driver.is_some()) {
            (true, _) if matches!(self.measured, Measured::Unheld(..)) => {
                "worth it         the keeper measures it at the first hold"
            }
            (true, _) => "worth it         yes",
            (false, true) => "worth it         no: a wake is hardly shorter with CPUs held",
            (false, false) => {
                "worth it         no: without an idle driver, a hold does not keep CPUs from \
                 halting. A KVM guest may get one: \
                 modprobe cpuidle-haltpoll force=1"
            }
        };
        writeln!(f, "{verdict}")
    }
}
