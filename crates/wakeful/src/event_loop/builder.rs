//! How a loop is built.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::num::NonZeroU64;
#[cfg(feature = "tokio")]
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
#[cfg(feature = "tokio")]
use super::as_guest::HOOKS;
use super::clock::Clock;
#[cfg(feature = "test-util")]
use super::clock::Source;
use super::current;
#[cfg(feature = "tokio")]
use super::guest_idle::GuestIdle;
use super::handle::LoopHandle;
use super::inner::Inner;
use super::loop_values::LoopValues;
use super::pulse::Pulse;
use super::settings::Settings;
use super::value::EventLoop;
use crate::driver::Driver;
#[cfg(all(feature = "test-util", feature = "tokio"))]
use crate::guest::GuestClock;
#[cfg(feature = "tokio")]
use crate::guest::{Choice, Runtime};
use crate::heartbeat::{Line, Running};
use crate::idle::{Hold, Holder, Idle, IdlePolicy, KeepWarm, Spinner};
use crate::metrics::{Counters, Stopwatch};
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_error;
use crate::sys::panics;
#[cfg(feature = "test-util")]
use crate::task::InFlight;
use crate::task::local::Local;
use crate::task::{Attempts, try_again_by};
use crate::timers::Timers;

impl EventLoop {
    /// Makes a loop with the default settings.
    ///
    /// # Errors
    /// The process has no file descriptors left (a loop needs two), or a seccomp filter forbids
    /// epoll or eventfd.
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder for a loop with other settings.
    pub fn builder() -> EventLoopBuilder {
        EventLoopBuilder::default()
    }

    fn with_settings(#[allow(unused_mut)] mut settings: Settings) -> io::Result<Self> {
        // The loop's epoch must be before the guest begins, because the guest's clock may stand
        // still from its beginning.
        let epoch = Instant::now();
        let process = Process::current()?;
        let (driver, bell) = Driver::new(process, settings.io_batch)?;
        // Only a seccomp filter refuses this call. Then timers are up to 50 µs late, which is no
        // reason to fail.
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            panics::log!(info, %error, "cannot set the timer slack: timers may be up to 50 µs late");
        }
        let handle = LoopHandle::new(process, bell);
        let counters = handle.counters().clone();
        let idle = match settings.idle {
            IdlePolicy::Adaptive(chosen) if chosen.may_spin() => {
                Idle::Adapt(Box::new(Spinner::new(chosen, process).into()))
            }
            IdlePolicy::Adaptive(_) | IdlePolicy::Park => Idle::Park(None),
            IdlePolicy::Spin => Idle::Spin,
            IdlePolicy::KernelBusyPoll(chosen) => {
                driver.busy_poll(chosen)?;
                Idle::Park(None)
            }
            IdlePolicy::KeepWarm => Idle::Park(Some(KeepWarm::begin(process)?)),
            IdlePolicy::Hold(chosen) => hold(chosen, process, &counters),
        };
        #[cfg(feature = "tokio")]
        let guest = match settings.tokio.take_guest()? {
            Some(chosen) => {
                #[cfg(feature = "test-util")]
                let chosen = chosen.start_paused(settings.start_paused);
                // The timer tells Tokio when the loop's timers are due.
                driver.make_timer()?;
                Some(Box::new(Runtime::new(chosen, HOOKS, driver.as_fd(), process)?))
            }
            None => None,
        };
        #[cfg(feature = "tokio")]
        let guest_idle = {
            let spins = matches!(idle, Idle::Adapt(_));
            GuestIdle::with(guest.as_ref().filter(|_| spins).and_then(|guest| guest.epoll()))
        };
        #[cfg(feature = "test-util")]
        let source = Source::own(settings.start_paused.then_some(epoch));
        #[cfg(all(feature = "test-util", feature = "tokio"))]
        let source =
            guest.as_ref().map_or(source, |guest| Source::Guest(GuestClock::new(guest.handle())));
        let line = settings.heartbeat.as_ref();
        #[cfg(feature = "tokio")]
        if let Some(question) = line.filter(|_| guest.is_some()).and_then(Line::watch_questions) {
            driver.watch_questions(question)?;
        }
        let told = line.map(Running::new);
        try_again_by(current::wake_after, current::with_attempts);
        let inner = Inner {
            local: Local::new(handle.queue().clone(), counters.clone(), told),
            clock: Clock::new(
                epoch,
                #[cfg(feature = "test-util")]
                source,
            ),
            #[cfg(feature = "test-util")]
            in_flight: InFlight::new(handle.queue().clone()),
            handle,
            driver: Rc::new(driver),
            timers: RefCell::new(Timers::new()),
            callbacks: Rc::default(),
            stopwatch: Stopwatch::new(counters.clone(), settings.slow_turn),
            counters,
            pulse: Pulse::new(),
            sleep_observer: OnceCell::new(),
            idle,
            #[cfg(feature = "tokio")]
            guest_idle,
            settings,
            skipped: Cell::new(false),
            normal_first_in: Cell::new(0),
            tasks_first_in: Cell::new(0),
            arrivals: Arrivals::default(),
            values: LoopValues::default(),
            attempts: Attempts::default(),
            turn_time: Cell::new(None),
        };
        Ok(Self {
            inner: Rc::new(inner),
            #[cfg(feature = "tokio")]
            guest,
        })
    }
}

/// Without the permission the loop parks.
fn hold(chosen: Hold, process: Process, counters: &Counters) -> Idle {
    match Holder::new(chosen, process) {
        Ok(holder) => {
            counters.hold.set(holder.shown());
            Idle::Hold(Box::new(holder.into()))
        }
        Err(error) => {
            counters.hold.set(error.shown());
            static TOLD: AtomicBool = AtomicBool::new(false);
            if !TOLD.swap(true, Ordering::Relaxed) {
                panics::log!(warn, %error, "CPUs cannot be held here: loops park instead");
            }
            Idle::Park(None)
        }
    }
}

/// The settings of an [`EventLoop`].
///
/// | setting | default | range | what it bounds |
/// |---|---|---|---|
/// | [`idle`](Self::idle) | `Adaptive` | | what the loop does when nothing is runnable |
/// | [`io_batch`](Self::io_batch) | 64 | 1 to 65,536 | events fetched at a time |
/// | [`task_budget`](Self::task_budget) | 64 | 2 to 2³²−1 | polls between two requests for events |
/// | [`turn_budget`](Self::turn_budget) | 500 µs | any; with 0, a phase stops after 8 items | time between two requests for events |
/// | [`timer_budget`](Self::timer_budget) | 256 | 1 to 2³²−1 | timers expired in a turn |
/// | [`callback_budget`](Self::callback_budget) | 256 | 1 to 2³²−1 | callbacks run in a phase |
/// | [`cooperative_budget`](Self::cooperative_budget) | 128 | 1 to 2³²−1 | operations that a task may complete in a poll |
/// | [`slow_turn`](Self::slow_turn) | 1 ms | any; `Duration::MAX` disables it | nothing: longer turns are counted and reported |
///
/// A number outside its range becomes the nearest number in the range.
/// `proof/benches/benches/turn_bounds.rs` measures what `io_batch`, `task_budget` and `turn_budget`
/// cost. At 64 events and 64 polls per turn, the system call costs about 2 ns per event or poll,
/// and a turn of short polls takes tens of microseconds. `turn_budget` limits turns of long polls:
/// 64 polls of 20 µs would take 1.3 ms.
#[derive(Debug, Clone, Default)]
#[must_use = "call `build`"]
pub struct EventLoopBuilder {
    settings: Settings,
}

impl EventLoopBuilder {
    /// Sets what the loop does when nothing is runnable.
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.settings.idle = policy;
        self
    }

    /// Sets the maximum number of events that a turn fetches. A turn may also fetch up to the same
    /// number of events of [high-priority](crate::Priority) sockets. Small batches keep the order
    /// fair. The next turn fetches the remaining events.
    pub fn io_batch(mut self, events: usize) -> Self {
        self.settings.io_batch = events.clamp(1, 65_536);
        self
    }

    /// Sets the maximum number of tasks and closures that a turn runs, counted together: each poll
    /// of a task counts, and so does each closure that a handle sent. The minimum is 2, one for
    /// each [`Priority`](crate::Priority).
    pub fn task_budget(mut self, polls: u32) -> Self {
        // At least one poll for each class: see `Share`.
        self.settings.task_budget = polls.max(2);
        self
    }

    /// Sets the time after which a turn leaves its remaining timers, tasks and callbacks to the
    /// next turn. The loop reads the clock after every eighth item, and counts the time from the
    /// first reading. So a turn may exceed its budget by the time of up to sixteen items.
    pub fn turn_budget(mut self, time: Duration) -> Self {
        self.settings.turn_budget = time;
        self
    }

    /// Sets the maximum number of timers that a turn expires.
    pub fn timer_budget(mut self, timers: u32) -> Self {
        self.settings.timer_budget = timers.max(1);
        self
    }

    /// Sets the maximum number of callbacks in each of a turn's two callback phases.
    pub fn callback_budget(mut self, callbacks: u32) -> Self {
        self.settings.callback_budget = callbacks.max(1);
        self
    }

    /// Sets how many operations on ready sockets, timers and handles a task may complete in one
    /// poll before it has to let others run.
    ///
    /// Each further operation is postponed: it returns pending, although it is ready, and wakes its
    /// task at once. If the task does not return to the loop, one operation completes after every
    /// 36 that were postponed. So a `block_on` of another library inside a task completes in the
    /// end. For the same reason a future that polls many others in one poll may complete a few
    /// operations more than the budget.
    ///
    /// In a task of Tokio (feature `tokio`) Tokio's budget applies instead.
    pub fn cooperative_budget(mut self, operations: u32) -> Self {
        self.settings.cooperative_budget = operations.max(1);
        self
    }

    /// Sets the threshold of a slow turn. A longer turn is counted in
    /// [`LoopMetrics::slow_turns`](crate::LoopMetrics::slow_turns), and reported as a `tracing`
    /// event of level WARN, at most once a second. The event has the duration of the turn (`turn`),
    /// the number of `polls`, and the number of slow turns since the last report (`unreported`). If
    /// the longest poll took an eighth of the setting or more, the event also has its duration
    /// (`longest_poll`), the place where its task was spawned (`spawned_at`; for a server's
    /// connection, the place where the server was started), and the task's name (`task`), if it
    /// [has one](crate::task::Builder::name).
    ///
    /// Parts of a poll may have names. If a named part of that poll took an eighth of the setting
    /// or more, the event has the name of the slowest such part (`slowest`) and its duration
    /// (`slowest_took`). `wakeful-http` names each request: `GET /reports/7`. This name does not
    /// appear in the metrics, because it comes from the client. Give names of your own with
    /// [`name_slow_work`](crate::metrics::name_slow_work).
    ///
    /// A poll that blocks or computes is slow: use [`spawn_blocking`](crate::task::spawn_blocking).
    /// So is a task that is never pending, for example because it awaits a channel that is never
    /// empty: use [`budgeted`](crate::task::budgeted).
    pub fn slow_turn(mut self, time: Duration) -> Self {
        self.settings.slow_turn = time;
        self
    }

    /// Runs Tokio as a guest of this loop: see [`wakeful::tokio`](crate::tokio). By default the
    /// loop has no guest.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio(mut self) -> Self {
        self.settings.tokio = Choice::guest();
        self
    }

    /// Uses an existing Tokio runtime beside this loop: see
    /// [`LoopGroupBuilder::tokio_handle`](crate::LoopGroupBuilder::tokio_handle). The runtime must
    /// have threads of its own, or [`build`](Self::build) fails.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio_handle(mut self, handle: ::tokio::runtime::Handle) -> Self {
        self.settings.tokio = Choice::Beside(handle);
        self
    }

    /// Returns whether the loops have Tokio as a guest.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_guest(&self) -> bool {
        self.settings.tokio.is_guest()
    }

    /// Adapts the settings to the loops of one group. `chosen` replaces the `tokio` setting. Guests
    /// share what a process has, and end together.
    #[cfg(feature = "tokio")]
    pub(crate) fn for_each_of(mut self, loops: usize, chosen: Option<Choice>) -> Self {
        let choice = chosen.unwrap_or(self.settings.tokio);
        self.settings.tokio = choice.for_each_of(loops);
        self
    }

    /// Has the loop write on this line, if there is one, which task it runs.
    pub(crate) fn heartbeat(mut self, line: Option<Line>) -> Self {
        self.settings.heartbeat = line;
        self
    }

    /// Sets whether the clock of the loop's timers is paused from the start, as by
    /// [`time::pause`](crate::time::pause). The default is `false`. A guest (`tokio`) has the same
    /// clock. Each loop of a group has its own clock.
    ///
    /// Create sleeps and other timers on the loop, as below. A timer that is created where no loop
    /// runs uses the machine's clock.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wakeful::time::{now, sleep};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let mut event_loop = wakeful::EventLoop::builder().start_paused(true).build()?;
    /// event_loop.block_on(async {
    ///     let start = now();
    ///     sleep(Duration::from_secs(3600)).await; // takes no time
    ///     assert_eq!(now() - start, Duration::from_secs(3600));
    /// })
    /// # }
    /// ```
    #[cfg(feature = "test-util")]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn start_paused(mut self, is_paused: bool) -> Self {
        self.settings.start_paused = is_paused;
        self
    }

    /// Builds the loop, on the thread that it will run on.
    ///
    /// # Errors
    /// The same as for [`EventLoop::new`]. The kernel does not support
    /// [`IdlePolicy::KernelBusyPoll`] or refuses its settings; a thread of [`IdlePolicy::KeepWarm`]
    /// cannot be started; the runtime of a Tokio guest cannot be built; or the runtime of
    /// `tokio_handle` has no threads of its own.
    pub fn build(self) -> io::Result<EventLoop> {
        EventLoop::with_settings(self.settings).map_err(explain_error)
    }
}
