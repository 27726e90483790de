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
/// How long after a keeper was absent, or said no, it is asked again, in nanoseconds.
const ASK_AGAIN: u64 = 10_000_000_000;
/// How long after a connection to the keeper has ended, because the keeper may have been restarted.
const CONNECT_AGAIN: u64 = 1_000_000_000;

/// Why a loop that should hold CPUs does not.
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

/// Holds CPUs for one loop. See the [module](self). Times are nanoseconds on the loop's clock.
#[derive(Debug)]
pub(crate) struct Holder {
    silence: Duration,
    tolerated: Duration,
    process: Process,
    means: Means,
    state: State,
    /// Why the last attempt to hold failed.
    why_not: HoldState,
    /// Whether the machine should not be held at present. This is used with the device only,
    /// because a keeper checks by itself.
    machine: &'static Machine,
    foreign: Foreign,
    /// `None`: held time has no price.
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
    /// Events are too rare for the price of a hold.
    TooDear,
    /// Something has happened since the last silence, and no CPU is held (yet).
    Unheld,
    /// CPUs are held. `quiet_since`: nothing has happened since then.
    Held { quiet_since: Option<u64> },
    /// The keeper is absent, or said no. It is asked again after a pause, which ends at `ask_at` if
    /// that is known.
    Lost { pause: u64, ask_at: Option<u64> },
    /// A hold is of no use here.
    Useless,
}

impl Holder {
    /// Holds by the machine's keeper, if one runs, and otherwise by the device. Nothing is held
    /// yet.
    ///
    /// # Errors
    /// The process may not use the device, or the machine is so large that one process should not
    /// hold it.
    pub(crate) fn new(settings: Hold, process: Process) -> Result<Self, HoldError> {
        let means = match keeper_protocol::socket_path().map(connected) {
            Some(Ok(keeper)) => Means::Keeper(keeper),
            Some(Err(KeeperLost::Connect(KeeperError::Missing(_)))) | None => device(settings)?,
            // A keeper is there, and should be used, so its error is the one to return.
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

    /// Holds by the machine's keeper only, because a keeper means that the machine consents. It is
    /// not asked before there is a reason. `None`: the process may not use a keeper.
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

    /// Can the loop, which would spin for `window` from `now` on, sleep with its CPU held instead?
    /// It would sleep for as long, but not beyond the next tick.
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

    /// Called when the loop is about to sleep. Returns the longest time after which it must report
    /// what the sleep brought.
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

    /// The state, as the loop's metrics show it.
    #[inline]
    pub(crate) fn shown(&self) -> HoldState {
        match self.state {
            State::Held { .. } => HoldState::Held,
            State::Silent => HoldState::Silent,
            State::TooDear => HoldState::TooDear,
            State::Unheld | State::Lost { .. } | State::Useless => self.why_not,
        }
    }

    /// Is the keeper lost, so that it must be [asked again](Self::ask_again)?
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost { .. })
    }

    /// Does a hold have a price? Then the loop reports when it [sleeps](Self::weigh).
    #[inline]
    pub(crate) fn is_priced(&self) -> bool {
        self.price.is_some()
    }

    /// With a price: called when the loop is about to sleep, at `now`. Decides how long a hold is
    /// worth its price.
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

    /// Called when an event or a push has ended a sleep. The clock is read only if there is a
    /// price.
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

    /// Called when a timer or a signal has ended a sleep, at `now`. Checks whether the silence is
    /// over.
    pub(crate) fn found_nothing(&mut self, now: u64) {
        let State::Held { quiet_since } = &mut self.state else { return };
        let since = *quiet_since.get_or_insert(now);
        if u128::from(now.saturating_sub(since)) >= self.silence.as_nanos() {
            self.release();
        }
    }

    /// Called when another event loop starts to drive a turn of this loop. A hold from the turn
    /// before may have ended since.
    #[inline]
    pub(crate) fn enter_turn(&mut self) {
        if !self.foreign.enter_turn() {
            self.state = State::Silent;
        }
    }

    /// Called at the end of such a turn, because there may be no further turn. `done` is a counter
    /// that rises with whatever happens. The hold ends after a silence, even without another turn.
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

    /// Ends the hold, because the silence is over, or no turns come for a while.
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

    /// Connects to a lost keeper again, if it is time.
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
            // The next sleep tries to hold.
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
            // The next sleep tries to hold.
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
        if !self.is_held() {
            // What was held before is not.
            self.foreign.ended();
        }
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
