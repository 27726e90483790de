//! Keeps CPUs from halting: while a loop meets events ([`Hold`]), or instead of a spin, for as long
//! as the spin would have lasted, or a tick ([`Adaptive`](super::Adaptive), if the machine's keeper
//! consents).
//!
//! The loop takes the hold before it sleeps, if there was an event since the last silence, and
//! releases it when a wait as long as the silence period has brought no event. So a hold costs two
//! system calls for each period of traffic, and none for each event. The clock is read only when a
//! wait has brought nothing, or if held time has a `price`, which then determines the length of the
//! silence.

mod device;
mod foreign;
mod keeper;
mod leash;
mod price;
mod recent_cpus;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeful_awake::{KeeperError, LargeMachine, check_share, keeper_protocol};

use self::device::{Device, DeviceError};
use self::foreign::Foreign;
use self::keeper::{Keeper, KeeperLost};
use self::price::Price;
use super::governor::TICK;
use super::hold_gain;
use super::policy::Hold;
use super::reluctance::{MACHINE, Machine};
use crate::metrics::HoldState;
use crate::sys::fork_check::Process;
use crate::sys::panics;

const SILENCE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
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
    #[error("{0}. To hold them all, set Hold::whole_machine(); a keeper can hold single CPUs")]
    Large(#[from] LargeMachine),
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
    /// If held time costs anything.
    price: Option<Box<Price>>,
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
    /// What happens is too rare for the price of a hold.
    TooDear,
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
        let silence = settings.silence.clamp(SILENCE.0, SILENCE.1);
        Ok(Self {
            silence,
            tolerated: settings.tolerated,
            process,
            means,
            state: State::Silent,
            why_not: HoldState::Measuring,
            machine: &MACHINE,
            foreign: Foreign::default(),
            price: settings.cost().map(|cost| Box::new(Price::new(silence, cost, process))),
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
            price: None,
        })
    }

    /// The loop would spin for `window` from `now` on. Can it sleep with its CPU held for as long,
    /// and until the next tick at most?
    #[inline]
    pub(crate) fn replaces_spin(&mut self, now: u64, window: u64) -> bool {
        match &mut self.state {
            State::Held { quiet_since } => *quiet_since = None,
            State::Silent => self.state = State::Unheld,
            State::Unheld | State::TooDear => {}
            State::Lost { ask_at, .. } if ask_at.is_some_and(|at| now < at) => return false,
            State::Lost { .. } => {
                self.ask_again(now);
                return false;
            }
            State::Useless => return false,
        }
        self.silence = Duration::from_nanos(window.max(TICK));
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
            State::Silent | State::TooDear | State::Lost { .. } | State::Useless => false,
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
            State::TooDear => HoldState::TooDear,
            State::Unheld | State::Lost { .. } | State::Useless => self.why_not,
        }
    }

    /// The keeper has to be [asked again](Self::ask_again) when its time has come.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }

    /// Does a hold cost anything? Then the loop says when it [sleeps](Self::weigh).
    #[inline]
    pub(crate) fn is_priced(&self) -> bool {
        self.price.is_some()
    }

    /// With a price: the loop is about to sleep, at `now`. For how long is a hold worth it?
    pub(crate) fn weigh(&mut self, now: u64) {
        let Some(price) = &mut self.price else { return };
        match (price.limit_from(now), &self.state) {
            (None, State::Held { .. } | State::Silent | State::Unheld) => {
                self.release();
                self.state = State::TooDear;
            }
            (Some(limit), State::TooDear) => {
                self.silence = limit;
                self.state = State::Unheld;
            }
            (Some(limit), _) => self.silence = limit,
            (None, _) => {}
        }
    }

    /// An event, or a push, has ended a sleep. The clock is read if there is a price.
    #[inline]
    pub(crate) fn woken(&mut self, now: impl FnOnce() -> u64) {
        match &mut self.state {
            State::Held { quiet_since } => *quiet_since = None,
            State::Silent => self.state = State::Unheld,
            State::Unheld | State::TooDear | State::Lost { .. } | State::Useless => {}
        }
        if let Some(price) = &mut self.price {
            price.event(now());
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
        if !self.foreign.enter_turn() {
            self.state = State::Silent;
        }
    }

    /// Such a turn is over, and another one may not come. `done` rises with whatever happens. What
    /// is held ends after a silence, also without a turn.
    #[inline]
    pub(crate) fn leave_turn(&mut self, done: u64) {
        if !self.is_held() {
            return;
        }
        let (foreign, silence) = (&mut self.foreign, self.silence);
        let lasts = match &self.means {
            Means::Device(device) => foreign.leave_turn(done, silence, device.descriptor()),
            Means::Keeper(keeper) => foreign.leave_turn(done, silence, keeper.client()),
        };
        if !lasts {
            self.release();
        }
    }

    /// The silence is over, or nobody takes turns for a while.
    #[cold]
    pub(crate) fn release(&mut self) {
        self.enter_turn();
        if self.is_held() {
            self.foreign.ended();
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
        if !self.foreign.is_through() {
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
        if let Some(price) = &mut self.price
            && !price.knows_wakes()
        {
            self.why_not = HoldState::Measuring;
            return;
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
                panics::log!(warn, %error, "cannot hold CPUs any more: this loop parks from now on");
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
