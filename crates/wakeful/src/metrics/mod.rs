//! What a loop did, and how it spent its time: [`LoopMetrics`]. Any thread can read the metrics,
//! without stopping or slowing the loop.
//!
//! Metrics are always on. When requests are slow, look here first:
//!
//! | what you see | where to look |
//! |---|---|
//! | some requests are late, whatever the load | [`longest_poll`](LoopMetrics::longest_poll), [`slow_turns`](LoopMetrics::slow_turns): a task blocks the loop |
//! | all requests are late under load | [`queue_depth`](LoopMetrics::queue_depth), [`budget_exhaustions`](LoopMetrics::budget_exhaustions): there is more work than this loop can do |
//! | all requests are late without load | [`parks`](LoopMetrics::parks) compared with [`spin_hits`](LoopMetrics::spin_hits): each request pays for a wake from sleep |
//! | messages of other threads are late | [`remote_latency`](LoopMetrics::remote_latency) |
//! | timers are late | [`timer_lateness`](LoopMetrics::timer_lateness) |
//!
//! A task is identified by the line that spawned it, and by its name, if it has one
//! ([`task::Builder`](crate::task::Builder)). A server's connection is identified by the line that
//! started the server. The streams of an HTTP/2 connection are tasks of `wakeful-http`, identified
//! by a line there. The report of a slow turn says more: the request's method and path, or the name
//! given to [`name_slow_work`].
//!
//! Times come from the CPU's time stamp counter if it runs at a steady rate (on nearly all
//! machines), otherwise from `CLOCK_MONOTONIC`. They are wall time: if the kernel, another program
//! or a hypervisor takes the CPU in the middle of a poll, that time counts in the poll.
//!
//! The documentation of each metric says what it counts, how it may mislead (*Misleads*), and what
//! to do about it (*Do*).

mod counters;
mod histogram;
mod hold_state;
mod longest;
mod stopwatch;
mod task_names;

use std::time::Duration;

pub use crate::event_loop::name_slow_work;
pub(crate) use counters::{Counter, Counters};
pub use histogram::Histogram;
pub use hold_state::HoldState;
pub use longest::LongestPoll;
pub(crate) use stopwatch::{Polls, SlowWork, Stopwatch};
pub(crate) use task_names::{name_of, named};

/// What a loop has done since it was built. Read it from any thread with
/// [`LoopHandle::metrics`](crate::LoopHandle::metrics). The call reads the fields one after the
/// other while the loop runs, so they may be a few events apart. All counts wrap at 2^64. Times of
/// a [`Histogram`] are in nanoseconds.
///
/// # Threads
/// It is a copy: `Send` and `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// Turns begun.
    ///
    /// *Misleads*: many turns do not mean much load. An idle loop that wakes for each of 100
    /// requests takes 100 turns. A busy loop that finds 100 requests at a time handles 10,000
    /// requests in 100 turns. *Do*: look at how much work a turn has:
    /// [`queue_depth`](Self::queue_depth), [`turn_time`](Self::turn_time).
    pub turns: u64,
    /// How often the loop asked the kernel for events. Each time costs one system call. (The second
    /// call of a loop with [high-priority](crate::Priority) sockets is not counted. If the loop has
    /// Tokio as its guest, each poll of a spin is counted, but not Tokio's sleeps, nor Tokio's
    /// calls between tasks.)
    ///
    /// *Misleads*: a spinning loop asks all the time, even without load. *Do*: if it is much more
    /// than [`polls`](Self::polls) on a loop that does not spin, look for timers or posts that
    /// arrive one by one.
    pub waits: u64,
    /// How many of the [`waits`](Self::waits) were allowed to sleep, because nothing was runnable
    /// and no spin had found an event. If the loop has Tokio as its guest, it counts Tokio's
    /// sleeps, which are not among the waits.
    ///
    /// *Misleads*: it is not the number of context switches, because under load most of these waits
    /// return at once with events. Compare [`park_time`](Self::park_time). *Do*: if it is near the
    /// number of requests and their latency matters, let the loop spin
    /// ([`IdlePolicy`](crate::IdlePolicy)), or use fewer loops.
    pub parks: u64,
    /// The time spent in [`parks`](Self::parks). With [`spin_time`](Self::spin_time) and the sum of
    /// [`turn_time`](Self::turn_time) it makes up nearly all of the loop's time.
    ///
    /// *Misleads*: it is counted when the wait ends, so the time of a running sleep is missing. It
    /// includes the time that the kernel takes to wake the thread. In that time the loop is not
    /// idle, but late. If another library's loop drives this one, the wait happens there and is not
    /// counted. *Do*: if it is nearly zero, the loop is saturated. Give some of its work to another
    /// loop.
    pub park_time: Duration,
    /// The part of [`park_time`](Self::park_time) in which this loop kept the machine's CPUs from
    /// halting ([`IdlePolicy::Hold`](crate::IdlePolicy::Hold)). It costs power, but no CPU time.
    ///
    /// *Misleads*: several loops may hold the same CPU, which costs only once. *Do*: if it is most
    /// of the time at light load, set a shorter [`silence`](crate::idle::Hold::silence), or a
    /// [`hold_cost`](crate::idle::Hold::hold_cost).
    pub held_time: Duration,
    /// Whether the loop keeps CPUs from halting now, and if not, why.
    ///
    /// *Misleads*: it describes only this moment. Between two periods of traffic it is
    /// [`Silent`](HoldState::Silent). If a loop has lost its keeper and spins instead, the state is
    /// [`NoKeeper`](HoldState::NoKeeper) until the keeper is back. *Do*: the documentation of each
    /// state says what prevents the hold, and `wakeful awake --probe` says what would permit it.
    pub hold: HoldState,
    /// The time spent spinning: CPU time that was used to answer sooner.
    ///
    /// *Misleads*: it is wall time, so it includes time in which other threads used the CPU. A spin
    /// that found an event at its first poll is not counted. *Do*: if it costs more than it is
    /// worth, set [`max_cpu`](crate::idle::Adaptive::max_cpu), or a lower
    /// [`hit_rate`](crate::idle::Adaptive::hit_rate).
    pub spin_time: Duration,
    /// Spins of [`IdlePolicy::Adaptive`](crate::IdlePolicy::Adaptive) that found an event. Each
    /// saved a sleep and a wake.
    ///
    /// *Misleads*: a busy loop has few, because it finds events without a spin. *Do*: compare with
    /// [`parks`](Self::parks): together they are the idle periods.
    pub spin_hits: u64,
    /// Spins that found no event in their window. A sleep follows each.
    ///
    /// *Misleads*: the loop needs a few misses to learn the window. For this, one spin in 32 is
    /// longer than the others. *Do*: if there are many misses and few hits, the spins waste CPU
    /// time. Set a shorter [`max_window`](crate::idle::Adaptive::max_window).
    pub spin_misses: u64,
    /// Spins that ended because the loop had lost its CPU to another thread. For some time after
    /// that the loop sleeps at once.
    ///
    /// *Misleads*: a loop that rarely spins rarely notices. *Do*: if there are more than a few per
    /// second, another thread uses the same CPU and determines the loop's latency. Pin one of them
    /// to another CPU.
    pub gave_way: u64,
    /// Events that the kernel reported for registered descriptors.
    ///
    /// *Misleads*: one event may stand for many requests (all that arrived since the last read), or
    /// for none (the rest of a request). *Do*: compare with [`polls`](Self::polls).
    pub events: u64,
    /// How many [`events`](Self::events) each wait returned. Waits without events are not counted.
    ///
    /// *Misleads*: if all values are 1, the loop may still be busy. *Do*: if many waits return a
    /// full [`io_batch`](crate::EventLoopBuilder::io_batch), more events are ready than a turn
    /// takes: the loop is saturated.
    pub events_per_wait: Histogram,
    /// Polls of tasks, and runs of closures that handles sent. (The future of `block_on` is not a
    /// task.)
    ///
    /// *Misleads*: a poll may do much or nothing. *Do*: if it is several times the number of
    /// requests, tasks are woken without need, or the work is split too finely.
    pub polls: u64,
    /// How long each of the [`polls`](Self::polls) took.
    ///
    /// *Misleads*: the first poll of a turn includes the few tens of nanoseconds in which its event
    /// was recorded. It is wall time, not CPU time. *Do*: nothing else runs during a poll, so the
    /// longest poll determines the latency. If polls take more than about 100 µs, split the work
    /// with [`yield_now`](crate::task::yield_now), or give it to
    /// [`spawn_blocking`](crate::task::spawn_blocking).
    pub poll_time: Histogram,
    /// The longest poll, including those of `block_on`'s future: its duration, the place where its
    /// task was spawned, and the task's name if it has one.
    ///
    /// *Misleads*: it covers all the time since the loop was built. Often it is the first poll,
    /// which ran with cold caches, or a poll in which the thread lost its CPU. If a library spawned
    /// the task, the place is a line of the library. *Do*: look for a blocking call, a lock, or a
    /// long computation in that task.
    pub longest_poll: Option<LongestPoll>,
    /// How long each turn took, from the end of its wait to its last poll or callback. A turn that
    /// did not sleep or spin includes its call to the kernel.
    ///
    /// *Misleads*: a turn without work counts as nearly zero. While a loop spins without end
    /// ([`IdlePolicy::Spin`](crate::IdlePolicy::Spin)), it takes no turns. *Do*: work that becomes
    /// ready during a turn waits for the turn's end. If turns are long because they have many
    /// polls, lower [`task_budget`](crate::EventLoopBuilder::task_budget) or
    /// [`turn_budget`](crate::EventLoopBuilder::turn_budget). Then the loop asks the kernel more
    /// often.
    pub turn_time: Histogram,
    /// Turns, and polls of `block_on`'s future, that took longer than
    /// [`slow_turn`](crate::EventLoopBuilder::slow_turn): 1 ms by default. At most one in a second
    /// is reported as a `tracing` event of level WARN, which names the task with the longest poll,
    /// and the slowest request in it.
    ///
    /// *Misleads*: on a machine without spare CPUs it includes the time slices of other threads.
    /// *Do*: the same as for [`longest_poll`](Self::longest_poll).
    pub slow_turns: u64,
    /// How many tasks and closures were ready when a turn began to run them, not counting the first
    /// one. A turn without any counts as 0.
    ///
    /// *Misleads*: tasks that are woken during the turn are not counted, nor are events that are
    /// still in the kernel (see [`events_per_wait`](Self::events_per_wait)). *Do*: the last task in
    /// the queue waits for all others. Its delay is the depth times the mean of
    /// [`poll_time`](Self::poll_time). If that is too long, spread the work over more loops.
    pub queue_depth: Histogram,
    /// How often a phase of a turn stopped at a bound (in number or in time) and left work for the
    /// next turn.
    ///
    /// *Misleads*: these bounds keep a loop fair. Reaching one is not a fault, and every burst does
    /// so. *Do*: if it grows all the time, the loop is saturated, or a task wakes itself endlessly.
    pub budget_exhaustions: u64,
    /// Operations on ready sockets, timers and handles that were postponed, because their task had
    /// used up its [`cooperative_budget`](crate::EventLoopBuilder::cooperative_budget) in one poll.
    ///
    /// *Misleads*: if a task waits for several things at once, each of them counts. *Do*: nothing.
    /// Postponed operations keep a connection that always has data from starving the others.
    pub forced_yields: u64,
    /// Wakes and closures that arrived from other threads.
    ///
    /// *Misleads*: a task that is woken five times before it runs counts once. Messages that the
    /// loop's own thread sends outside a turn also count. *Do*: if it is most of
    /// [`polls`](Self::polls), the work might belong on another loop.
    pub remote: u64,
    /// The time from a wake or closure of another thread until the task or closure ran. Only those
    /// that arrived in an empty queue are measured: the oldest of each batch, which waits longest.
    ///
    /// *Misleads*: it is pessimistic under a flood, because the oldest of a batch is not typical.
    /// The time in which the program did not run the loop also counts. A plain
    /// [`wake`](crate::LoopHandle::wake), and a wake of `block_on`'s future, are not counted. *Do*:
    /// if it is tens of microseconds, the loop was asleep: see [`parks`](Self::parks). If it is
    /// more, the loop was busy (see [`turn_time`](Self::turn_time)) or had no CPU.
    pub remote_latency: Histogram,
    /// Timers that expired.
    ///
    /// *Misleads*: cancelled timers (a timeout that was not needed) are not counted. *Do*: compare
    /// with [`timer_lateness`](Self::timer_lateness).
    pub timers: u64,
    /// How late the loop handled each of the [`timers`](Self::timers): the time since the timer's
    /// deadline.
    ///
    /// *Misleads*: the task of the timer runs even later, after the work that is already ready: see
    /// [`queue_depth`](Self::queue_depth). *Do*: if it is tens of microseconds, that is the wake
    /// from sleep. If it is more, see [`turn_time`](Self::turn_time). If it is always about a
    /// millisecond, the kernel has no `epoll_pwait2`.
    pub timer_lateness: Histogram,
    /// Callbacks run, of all four kinds.
    ///
    /// *Misleads*: their time is part of [`turn_time`](Self::turn_time), except for
    /// [`before_park`](crate::before_park), whose time is not counted. None of them is a poll.
    /// *Do*: if turns are long and polls short, look here.
    pub callbacks: u64,
    /// Panics that the loop caught because no code awaits the result: in closures, callbacks, log
    /// subscribers, wakers of other executors, and handlers of wakeful-http (which answers 500).
    /// Panics in drops of all these, and of unused outputs, also count. Each is counted once. (A
    /// destructor that panics while another panic unwinds aborts the process, as always in Rust.)
    ///
    /// *Misleads*: a task's panic goes to its [`JoinHandle`](crate::JoinHandle) and is not counted
    /// here. *Do*: fix the code. Each panic is a bug, and the panic hook has reported its place.
    pub panics: u64,
}
