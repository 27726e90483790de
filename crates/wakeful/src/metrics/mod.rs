//! What a loop did, and how it spent its time: [`LoopMetrics`]. Any thread can read them, without
//! stopping or slowing the loop.
//!
//! Metrics are always on. When requests are slow, look here first:
//!
//! | what you see | where to look |
//! |---|---|
//! | single requests are late, whatever the load | [`longest_poll`](LoopMetrics::longest_poll), [`slow_turns`](LoopMetrics::slow_turns): a task blocks the loop |
//! | all are late under load | [`queue_depth`](LoopMetrics::queue_depth), [`budget_exhaustions`](LoopMetrics::budget_exhaustions): there is more work than this loop can do |
//! | all are late without load | [`parks`](LoopMetrics::parks) beside [`spin_hits`](LoopMetrics::spin_hits): each request pays for a wake from sleep |
//! | messages of other threads are late | [`remote_latency`](LoopMetrics::remote_latency) |
//! | timers are late | [`timer_lateness`](LoopMetrics::timer_lateness) |
//!
//! A task is identified by the line that spawned it, and by its name, if it has one
//! ([`task::Builder`](crate::task::Builder)). A server's connection is identified by the line that
//! started the server. The streams of an HTTP/2 connection are tasks of `wakeful-http`, identified
//! by a line there. The report of a slow turn says more: the request's method and path, or what
//! [`name_slow_work`] was told. `longest_poll` covers the whole life of the loop.
//!
//! Times come from the CPU's time stamp counter if it runs at a steady rate (nearly everywhere),
//! else from `CLOCK_MONOTONIC`. They are wall time: if the kernel, a neighbour or a hypervisor
//! takes the CPU in the middle of a poll, that time counts in the poll.

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
/// [`LoopHandle::metrics`](crate::LoopHandle::metrics); the fields are read one after the other
/// while the loop runs, so they may be a few events apart. All counts wrap at 2^64; times of a
/// [`Histogram`] are in nanoseconds.
///
/// *Threads*: a copy: `Send` and `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// Turns begun.
    ///
    /// *Misleads*: many turns do not mean much load. An idle loop that wakes for each of 100
    /// requests takes 100 turns. In 100 turns a busy loop that finds 100 requests at a time does
    /// 100 times the work. *Do*: look at how much work a turn has:
    /// [`queue_depth`](Self::queue_depth), [`turn_time`](Self::turn_time).
    pub turns: u64,
    /// How often the loop asked the kernel for events; each is one system call. (The second call of
    /// a loop with [high-priority](crate::Priority) sockets is not counted. If the loop has Tokio
    /// as its guest, each poll of a spin is counted, but not Tokio's sleeps, nor Tokio's calls
    /// between tasks.)
    ///
    /// *Misleads*: a spinning loop asks all the time; that is not load either. *Do*: if it is much
    /// more than [`polls`](Self::polls) on a loop that does not spin, look for timers or posts that
    /// come one by one.
    pub waits: u64,
    /// How many of the [`waits`](Self::waits) were allowed to sleep: nothing was runnable, and no
    /// spin had met an event. If the loop has Tokio as its guest: Tokio's sleeps, which are not
    /// among the waits.
    ///
    /// *Misleads*: it is not the number of context switches, because under load most of these waits
    /// return at once with events; compare [`park_time`](Self::park_time). *Do*: if it is near the
    /// number of requests and their latency matters, let the loop spin
    /// ([`IdlePolicy`](crate::IdlePolicy)), or have fewer loops.
    pub parks: u64,
    /// Time in those waits. With [`spin_time`](Self::spin_time) and the sum of
    /// [`turn_time`](Self::turn_time) it makes up nearly all of the loop's time.
    ///
    /// *Misleads*: it is counted when the wait ends, so for a loop that sleeps now, the time since
    /// it fell asleep is missing. It includes the time in which the kernel wakes the thread; in
    /// that time the loop was not idle, but late. If another library's loop drives this one, it
    /// waits there, where nothing is counted. *Do*: if it is nearly zero, the loop is saturated,
    /// and needs help from another one.
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
    /// [`Silent`](HoldState::Silent). If a loop has lost its keeper and spins instead, it reports
    /// the lost keeper until the keeper is back. *Do*: the documentation of each state says what
    /// prevents the hold, and `wakeful awake --probe` says what would permit it.
    pub hold: HoldState,
    /// Time spent spinning: CPU time that was used to answer sooner.
    ///
    /// *Misleads*: it is wall time, so it includes a neighbour's share of the CPU. A spin that met
    /// an event at its first poll is not counted. *Do*: if it costs more than it is worth, set
    /// [`max_cpu`](crate::idle::Adaptive::max_cpu), or a lower
    /// [`hit_rate`](crate::idle::Adaptive::hit_rate).
    pub spin_time: Duration,
    /// Spins of [`IdlePolicy::Adaptive`](crate::IdlePolicy::Adaptive) that met an event: each would
    /// have been a sleep and a wake.
    ///
    /// *Misleads*: if events were there when the loop first asked, that is not a spin, so a busy
    /// loop has few. *Do*: compare with [`parks`](Self::parks): together they are the idle periods.
    pub spin_hits: u64,
    /// Spins without an event in their window; a sleep follows.
    ///
    /// *Misleads*: a few are needed to learn: one spin in 32 is longer than the others. *Do*: if
    /// there are many misses and few hits, the window costs CPU for nothing; set a shorter
    /// [`max_window`](crate::idle::Adaptive::max_window).
    pub spin_misses: u64,
    /// Spins that ended because the loop had lost its CPU to another thread. For some time after
    /// that it sleeps at once.
    ///
    /// *Misleads*: a loop that rarely spins rarely notices. *Do*: if there are more than a few a
    /// second, the loop shares its CPU, and the neighbour decides its latency. Pin one of them to
    /// another CPU.
    pub gave_way: u64,
    /// Events that the kernel reported for registered descriptors.
    ///
    /// *Misleads*: one event may be many requests (all that came since the last read), or none (the
    /// rest of a request). *Do*: read it beside [`polls`](Self::polls).
    pub events: u64,
    /// How many of these events came with one wait, for waits that brought any.
    ///
    /// *Misleads*: if all values are 1, that says nothing about how busy the loop is. *Do*: if many
    /// waits bring a full [`io_batch`](crate::EventLoopBuilder::io_batch), more were waiting in the
    /// kernel than a turn takes: the loop is saturated.
    pub events_per_wait: Histogram,
    /// Polls of tasks, and runs of closures that handles sent. (The future of `block_on` is no
    /// task.)
    ///
    /// *Misleads*: a poll may do much or nothing. *Do*: if it is several times the number of
    /// requests, tasks are woken in vain, or the work is split too finely.
    pub polls: u64,
    /// How long each of those polls took.
    ///
    /// *Misleads*: the first poll of a turn includes the few tens of nanoseconds in which its event
    /// was recorded; and wall time is not CPU time. *Do*: nothing else runs during a poll, so the
    /// longest poll that you allow is the latency that you allow. Above some 100 µs, split the work
    /// with [`yield_now`](crate::task::yield_now), or give it to
    /// [`spawn_blocking`](crate::task::spawn_blocking).
    pub poll_time: Histogram,
    /// The longest poll, including those of `block_on`'s future: its duration, the place where its
    /// task was spawned, and the task's name if it has one.
    ///
    /// *Misleads*: it covers the loop's whole life, so often it is the first poll, which met cold
    /// caches, or a poll in which the thread was off its CPU. If a library spawned the task, the
    /// place is a line of the library. *Do*: look for a blocking call, a lock, or a long
    /// computation in that task.
    pub longest_poll: Option<LongestPoll>,
    /// How long each turn took, from the end of its wait to its last poll or callback. A turn that
    /// did not sleep or spin includes its call to the kernel.
    ///
    /// *Misleads*: a turn without work counts as nearly zero, and while a loop spins for ever
    /// ([`IdlePolicy::Spin`](crate::IdlePolicy::Spin)) it takes no turns. *Do*: work that becomes
    /// ready in a turn waits for the turn's end. If turns are long because they have many polls,
    /// lower [`task_budget`](crate::EventLoopBuilder::task_budget) or
    /// [`turn_budget`](crate::EventLoopBuilder::turn_budget): the kernel is asked more often.
    pub turn_time: Histogram,
    /// Turns, and polls of `block_on`'s future, that took longer than
    /// [`slow_turn`](crate::EventLoopBuilder::slow_turn): 1 ms by default. At most one in a second
    /// is reported as a `tracing` event of level WARN, which names the task with the longest poll,
    /// and the slowest request in it.
    ///
    /// *Misleads*: on a machine without spare CPUs it counts the time slices of neighbours. *Do*:
    /// the same as for [`longest_poll`](Self::longest_poll).
    pub slow_turns: u64,
    /// How many tasks and closures waited behind the first one when each turn began to run them; 0
    /// also for a turn without any.
    ///
    /// *Misleads*: tasks that are woken meanwhile are not counted, and neither are events that are
    /// still in the kernel: see [`events_per_wait`](Self::events_per_wait). *Do*: the last task in
    /// the queue waits for all others; its delay is the depth times the mean of
    /// [`poll_time`](Self::poll_time). If that is too long, spread the work over more loops.
    pub queue_depth: Histogram,
    /// Times that a phase of a turn stopped at a bound (in number or in time) and left work over
    /// for the next turn.
    ///
    /// *Misleads*: these bounds keep a loop fair; reaching one is no fault by itself, and a burst
    /// does so, too. *Do*: if it grows all the time, the loop is saturated, or a task wakes itself
    /// endlessly.
    pub budget_exhaustions: u64,
    /// Operations on ready sockets, timers and handles that were postponed, because their task had
    /// used up its [`cooperative_budget`](crate::EventLoopBuilder::cooperative_budget) in one poll.
    ///
    /// *Misleads*: for a task that waits for several things at once, each of them counts. *Do*:
    /// nothing, as long as other tasks run in between: this keeps a connection that always has data
    /// from starving the others.
    pub forced_yields: u64,
    /// Nodes taken from the ready queue: wakes and closures from other threads.
    ///
    /// *Misleads*: a task that is woken five times before it runs is one node. Messages that the
    /// loop's own thread sends outside of a turn also count. *Do*: if it is most of
    /// [`polls`](Self::polls), the work might belong on another loop.
    pub remote: u64,
    /// The time from such a wake, or send, until the task or closure ran. Only nodes that were
    /// pushed onto an empty queue are measured: the oldest of each batch, which waits longest.
    ///
    /// *Misleads*: it is pessimistic under a flood, where few nodes are the oldest. A loop that
    /// nobody ran meanwhile counts as late. A plain [`wake`](crate::LoopHandle::wake), and a wake
    /// of `block_on`'s future, are not counted. *Do*: if it is tens of microseconds, the loop was
    /// asleep, see [`parks`](Self::parks). If it is more, the loop was busy, see
    /// [`turn_time`](Self::turn_time), or had no CPU.
    pub remote_latency: Histogram,
    /// Timers that expired.
    ///
    /// *Misleads*: cancelled timers (a timeout that was not needed) are not counted. *Do*: read it
    /// beside [`timer_lateness`](Self::timer_lateness).
    pub timers: u64,
    /// How long after its deadline the loop handled each of these timers.
    ///
    /// *Misleads*: the task of the timer runs later, after the work that is already ready: add
    /// [`queue_depth`](Self::queue_depth). *Do*: tens of microseconds are a wake from sleep. If it
    /// is more, see [`turn_time`](Self::turn_time). If it is always about a millisecond, the kernel
    /// has no `epoll_pwait2`.
    pub timer_lateness: Histogram,
    /// Callbacks run, of all four kinds.
    ///
    /// *Misleads*: their time is part of [`turn_time`](Self::turn_time), except for
    /// [`before_park`](crate::before_park), whose time is not counted. None of them is a poll.
    /// *Do*: if turns are long and polls short, look here.
    pub callbacks: u64,
    /// Panics that the loop contained because no code awaits the result: in closures, callbacks,
    /// handlers of wakeful-http (which answers 500), wakers of other executors, log subscribers,
    /// and drops of all these and of outputs that nobody takes. Each is counted once. (A destructor
    /// that panics while another panic unwinds aborts the process, as everywhere in Rust.)
    ///
    /// *Misleads*: a task's panic goes to its [`JoinHandle`](crate::JoinHandle) and is not counted
    /// here. *Do*: they are bugs; the panic hook has said where.
    pub panics: u64,
}
