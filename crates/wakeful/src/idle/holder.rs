//! Keeps CPUs from halting while a loop meets events: [`Hold`]; or, in the place of a spin, for as
//! long as the spin would have lasted, or a tick ([`Adaptive`](super::Adaptive), if the machine's
//! keeper consents).
//!
//! The loop takes the hold before it sleeps, if there was an event since the last silence, and
//! gives it back when a wait of the length of a silence has brought none. So a hold costs two
//! system calls for each stretch of traffic, none for each event, and the clock is read only when a
//! wait has brought nothing.

mod device;
mod keeper;
mod leash;
mod recent_cpus;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wakeful_awake::{KeeperError, LargeMachine, check_share, keeper_protocol};

use self::device::{Device, DeviceError};
use self::keeper::{Keeper, KeeperLost};
use self::leash::{Leash, Release};
use super::hold_gain;
use super::policy::Hold;
use super::reluctance::{MACHINE, Machine};
use crate::metrics::HoldState;
use crate::sys::fork_check::Process;
use crate::sys::panics;

const SILENCE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
/// The time between two ticks of most kernels. A sleep that ends no earlier needs no timer
/// interrupt of its own, which in a virtual machine costs microseconds.
const TICK: Duration = Duration::from_millis(4);
/// A keeper that was not there, or said no, is asked again after this, in nanoseconds.
const ASK_AGAIN: u64 = 10_000_000_000;
/// And one whose connection has ended: it may have been started anew.
const CONNECT_AGAIN: u64 = 1_000_000_000;

/// Why a loop that was to hold CPUs does not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Keeper(#[from] KeeperLost),
    #[error("{0}; in code Hold::whole_machine() says so")]
    Large(#[from] LargeMachine),
}

impl Foreign {
    fn tie_to(&mut self, held: &Arc<impl Release + 'static>) -> Option<()> {
        if !self.leash.as_ref().is_some_and(|leash| leash.is_of(held)) {
            self.leash = Leash::new(held).ok();
        }
        self.leash.as_ref().map(|_| ())
    }
}

impl HoldError {
    pub(crate) fn shown(&self) -> HoldState {
        match self {
            Self::Device(error) => error.shown(),
            Self::Keeper(error) => error.shown(),
            Self::Large(_) => HoldState::LargeMachine,
        }
    }
}

/// See the [module](self). Times are nanoseconds on the loop's clock.
#[derive(Debug)]
pub(crate) struct Holder {
    silence: Duration,
    tolerated: Duration,
    process: Process,
    means: Means,
    state: State,
    /// Why it was not held when that was tried last.
    why_not: HoldState,
    /// Whether the machine would rather not, where the device holds. (A keeper looks by itself.)
    machine: &'static Machine,
    foreign: Foreign,
}

/// How somebody else's loop, which drives this one by turns, is kept from leaving CPUs held.
#[derive(Debug, Default)]
struct Foreign {
    leash: Option<Leash>,
    /// A turn is over, and the hold lasts.
    is_between: bool,
    /// How much the loop had done when it did something last, and until when it holds therefore.
    done: u64,
    deadline: Option<Instant>,
}

#[derive(Debug)]
enum Means {
    Device(Device),
    Keeper(Keeper),
}

#[derive(Debug)]
enum State {
    /// Nothing has happened since the last silence.
    Silent,
    /// Something has, and nothing is held (yet).
    Unheld,
    /// Held. Nothing has happened since the moment, if there is one.
    Held { quiet_since: Option<u64> },
    /// The keeper is not there, or said no: it is asked again after a pause, from the moment on if
    /// that is known.
    Lost { pause: u64, ask_at: Option<u64> },
    /// It is of no use here.
    Useless,
}

impl Holder {
    /// By the machine's keeper, if one runs, and else by the device. Nothing is held yet.
    ///
    /// # Errors
    /// The device may not be used, or the machine is larger than one process's.
    pub(crate) fn new(settings: Hold, process: Process) -> Result<Self, HoldError> {
        let means = match keeper_protocol::socket_path().map(connected) {
            Some(Ok(keeper)) => Means::Keeper(keeper),
            Some(Err(KeeperLost::Connect(KeeperError::Missing(_)))) | None => device(settings)?,
            // It is there, and should be used.
            Some(Err(error)) => device(settings).map_err(|_| error)?,
        };
        Ok(Self {
            silence: settings.silence.clamp(SILENCE.0, SILENCE.1),
            tolerated: settings.tolerated,
            process,
            means,
            state: State::Silent,
            why_not: HoldState::Measuring,
            machine: &MACHINE,
            foreign: Foreign::default(),
        })
    }

    /// By the machine's keeper only, which is the machine's consent. It is not asked before there
    /// is a reason. `None`: the process may not use one.
    pub(crate) fn by_keeper(process: Process) -> Option<Self> {
        Some(Self {
            silence: SILENCE.0,
            tolerated: Duration::ZERO,
            process,
            means: Means::Keeper(Keeper::new(keeper_protocol::socket_path()?)),
            state: State::Lost { pause: ASK_AGAIN, ask_at: Some(0) },
            why_not: HoldState::NotAsked,
            machine: &MACHINE,
            foreign: Foreign::default(),
        })
    }

    /// The loop would spin for `window` from `now` on. Can it sleep with its CPU held for as long,
    /// and until the next tick at most?
    #[inline]
    pub(crate) fn replaces_spin(&mut self, now: u64, window: u64) -> bool {
        match &mut self.state {
            State::Held { quiet_since } => *quiet_since = None,
            State::Silent => self.state = State::Unheld,
            State::Unheld => {}
            State::Lost { ask_at, .. } if ask_at.is_some_and(|at| now < at) => return false,
            State::Lost { .. } => {
                self.ask_again(now);
                return false;
            }
            State::Useless => return false,
        }
        self.silence = Duration::from_nanos(window).max(TICK);
        true
    }

    /// The loop is about to sleep. Returns how long at most, before it is to say what came of it.
    #[inline]
    pub(crate) fn before_sleep(&mut self) -> Option<Duration> {
        let is_due = match self.state {
            State::Unheld => true,
            State::Held { .. } => match &mut self.means {
                Means::Device(_) => {
                    if self.machine.why_not().is_some() {
                        self.release();
                        self.state = State::Unheld;
                    }
                    !self.is_held()
                }
                Means::Keeper(keeper) => keeper.has_to_ask_anew(),
            },
            State::Silent | State::Lost { .. } | State::Useless => false,
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

    /// What it does, for whoever reads the loop's metrics.
    #[inline]
    pub(crate) fn shown(&self) -> HoldState {
        match self.state {
            State::Held { .. } => HoldState::Held,
            State::Silent => HoldState::Silent,
            State::Unheld | State::Lost { .. } | State::Useless => self.why_not,
        }
    }

    /// The keeper has to be [asked again](Self::ask_again) when its time has come.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }

    /// An event, or a push, has ended a sleep.
    #[inline]
    pub(crate) fn woken(&mut self) {
        match &mut self.state {
            State::Held { quiet_since } => *quiet_since = None,
            State::Silent => self.state = State::Unheld,
            State::Unheld | State::Lost { .. } | State::Useless => {}
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

    /// Somebody else's loop takes a turn of this one. A hold from the turn before may have ended
    /// since.
    #[inline]
    pub(crate) fn enter_turn(&mut self) {
        if std::mem::take(&mut self.foreign.is_between)
            && self.foreign.leash.as_ref().is_some_and(|leash| !leash.enter_turn())
        {
            self.foreign.deadline = None;
            self.state = State::Silent;
        }
    }

    /// Such a turn is over, and another one may not come. `done` rises with whatever happens. What
    /// is held ends after a silence, also without a turn.
    #[inline]
    pub(crate) fn leave_turn(&mut self, done: u64) {
        if self.is_held() {
            self.leave_turn_held(done);
        }
    }

    fn leave_turn_held(&mut self, done: u64) {
        let now = Instant::now();
        let deadline = match self.foreign.deadline {
            Some(deadline) if done == self.foreign.done => deadline,
            _ => now + self.silence,
        };
        (self.foreign.done, self.foreign.deadline) = (done, Some(deadline));
        if now >= deadline || self.leash().is_none() {
            return self.release();
        }
        if let Some(leash) = &self.foreign.leash {
            leash.leave_turn(deadline);
            self.foreign.is_between = true;
        }
    }

    /// `None`: no thread can be started, or there is nothing that it could end.
    fn leash(&mut self) -> Option<()> {
        match &self.means {
            Means::Device(device) => self.foreign.tie_to(device.descriptor()?),
            Means::Keeper(keeper) => self.foreign.tie_to(keeper.client()?),
        }
    }

    /// The silence is over, or nobody takes turns for a while.
    #[cold]
    pub(crate) fn release(&mut self) {
        self.enter_turn();
        if self.is_held() {
            self.foreign.deadline = None;
            if let Some(leash) = &self.foreign.leash {
                leash.ended();
            }
            match &mut self.means {
                Means::Device(device) => device.release(),
                Means::Keeper(keeper) => keeper.release(),
            }
            self.state = State::Silent;
        }
    }

    /// A keeper that was lost: connects to it, if it is time.
    #[cold]
    pub(crate) fn ask_again(&mut self, now: u64) {
        let (State::Lost { pause, ask_at }, Means::Keeper(keeper)) =
            (&mut self.state, &mut self.means)
        else {
            return;
        };
        if now < *ask_at.get_or_insert(now + *pause) {
            return;
        }
        self.state = match keeper.connect() {
            Ok(()) => State::Unheld,
            Err(error) => {
                self.why_not = error.shown();
                State::Lost { pause: ASK_AGAIN, ask_at: Some(now + ASK_AGAIN) }
            }
        };
    }

    #[cold]
    fn begin(&mut self) {
        if self.foreign.leash.as_ref().is_some_and(|leash| !leash.is_through()) {
            // With the next sleep.
            return;
        }
        if matches!(self.means, Means::Device(_)) {
            let why_not = hold_gain::why_not(self.process.stamp());
            if let Some(why_not) = why_not.or_else(|| self.machine.why_not()) {
                self.why_not = why_not;
                return;
            }
        }
        let quiet_since = match self.state {
            State::Held { quiet_since } => quiet_since,
            _ => None,
        };
        self.state = match self.hold() {
            Ok(true) => State::Held { quiet_since },
            // With the next sleep.
            Ok(false) => State::Unheld,
            Err(HoldError::Keeper(error)) => {
                static TOLD: AtomicBool = AtomicBool::new(false);
                if !TOLD.swap(true, Ordering::Relaxed) {
                    panics::log!(warn, %error, "CPUs are not held; the keeper is asked again every 10 s");
                }
                let is_gone = matches!(error, KeeperLost::Gone(_));
                self.why_not = error.shown();
                let pause = if is_gone { CONNECT_AGAIN } else { ASK_AGAIN };
                State::Lost { pause, ask_at: None }
            }
            Err(error) => {
                panics::log!(warn, %error, "cannot hold CPUs any more: this loop parks");
                self.why_not = error.shown();
                State::Useless
            }
        };
    }

    fn hold(&mut self) -> Result<bool, HoldError> {
        Ok(match &mut self.means {
            Means::Device(device) => device.hold(self.tolerated)?,
            Means::Keeper(keeper) => keeper.hold(self.tolerated)?,
        })
    }
}

fn device(settings: Hold) -> Result<Means, HoldError> {
    if !settings.whole_machine {
        check_share()?;
    }
    Ok(Means::Device(Device::open()?))
}

fn connected(path: PathBuf) -> Result<Keeper, KeeperLost> {
    let mut keeper = Keeper::new(path);
    keeper.connect()?;
    Ok(keeper)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
