//! What a loop did, and where its time went: [`LoopMetrics`], read from any thread without stopping
//! or slowing the loop.
//!
//! Always on. Where to look first when requests are slow:
//!
//! | what you see | where to look |
//! |---|---|
//! | single requests are late, whatever the load | [`longest_poll`](LoopMetrics::longest_poll), [`slow_turns`](LoopMetrics::slow_turns): a task blocks the loop |
//! | all are late under load | [`queue_depth`](LoopMetrics::queue_depth), [`budget_exhaustions`](LoopMetrics::budget_exhaustions): there is more work than this loop can do |
//! | all are late without load | [`parks`](LoopMetrics::parks) beside [`spin_hits`](LoopMetrics::spin_hits): each request pays for a wake from sleep |
//! | what other threads send is late | [`remote_latency`](LoopMetrics::remote_latency) |
//! | timers are late | [`timer_lateness`](LoopMetrics::timer_lateness) |
//!
//! A task is named by the line that spawned it, and by a name of its own if it was given one
//! ([`task::Builder`](crate::task::Builder)). A server's connection is named by the line that
//! started the server. The streams of an HTTP/2 connection are tasks of `wakeful-http`, named by a
//! line there. The report of a slow turn says more: the request's method and path, or what
//! [`name_slow_work`] was told. `longest_poll` is of the loop's whole life.
//!
//! Times come from the CPU's time stamp counter where it runs at a steady rate (nearly everywhere),
//! else from `CLOCK_MONOTONIC`. They are wall time: what the kernel, a neighbour or a hypervisor
//! takes from the thread in the middle of a poll counts in that poll.

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
/// while the loop goes on, so they may be a few events apart. All counts wrap at 2^64; times of a
/// [`Histogram`] are in nanoseconds.
///
/// *Threads*: a copy: `Send` and `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// Turns begun.
    ///
    /// *Misleads*: many turns are no load. An idle loop that is woken for each of 100 requests
    /// takes as many as a busy one that finds 100 at a time takes of 100 times the work. *Do*: look
    /// at what a turn has to do: [`queue_depth`](Self::queue_depth),
    /// [`turn_time`](Self::turn_time).
    pub turns: u64,
    /// Times that the kernel was asked for events: one system call each. (The second question of a
    /// loop with [high](crate::Priority) sockets is not counted. Of a loop that has Tokio as its
    /// guest each look of a spin is, but neither Tokio's sleeps nor what it asks between tasks.)
    ///
    /// *Misleads*: a loop that spins asks all the time; that is no load either. *Do*: if it is much
    /// more than [`polls`](Self::polls) on a loop that does not spin, look for timers or posts that
    /// come one by one.
    pub waits: u64,
    /// Those of [`waits`](Self::waits) that were allowed to sleep: nothing was runnable, and no
    /// spin had met anything. Of a loop that has Tokio as its guest: Tokio's sleeps, which are not
    /// among the waits.
    ///
    /// *Misleads*: under load most of them return at once, because events are already there: it is
    /// not the number of context switches; compare [`park_time`](Self::park_time). *Do*: if it is
    /// near the number of requests and their latency matters, let the loop spin
    /// ([`IdlePolicy`](crate::IdlePolicy)), or have fewer loops.
    pub parks: u64,
    /// Time in those waits. With [`spin_time`](Self::spin_time) and the sum of
    /// [`turn_time`](Self::turn_time) it makes up nearly all of the loop's time.
    ///
    /// *Misleads*: it is counted when the wait ends: of a loop that sleeps at this moment, the time
    /// since it fell asleep is missing. It contains what the kernel took to wake the thread, in
    /// which the loop was not idle but late. A loop that somebody else's loop drives waits
    /// elsewhere, where nothing is counted. *Do*: next to nothing: the loop is saturated, and needs
    /// help from another one.
    pub park_time: Duration,
    /// That of [`park_time`](Self::park_time) in which this loop kept the machine's CPUs from
    /// halting ([`IdlePolicy::Hold`](crate::IdlePolicy::Hold)): it costs no CPU time, and power.
    ///
    /// *Misleads*: a CPU is held once, however many loops ask for it. *Do*: if it is most of the
    /// time at little load, set a shorter [`silence`](crate::idle::Hold::silence), or a
    /// [`hold_cost`](crate::idle::Hold::hold_cost).
    pub held_time: Duration,
    /// Does it keep CPUs from halting just now, and why not?
    ///
    /// *Misleads*: it is of this moment. Between two stretches of traffic it says
    /// [`Silent`](HoldState::Silent); a loop that spins while it has a keeper that is lost says so
    /// until the keeper is back. *Do*: the states' own documentation says what is in the way, and
    /// `wakeful awake --probe` what permits it.
    pub hold: HoldState,
    /// Time spent spinning: CPU that was used to answer sooner.
    ///
    /// *Misleads*: wall time, so that a neighbour's share of the CPU is in it; and a spin that met
    /// an event at its first look is not. *Do*: if it costs more than it is worth, set
    /// [`max_cpu`](crate::idle::Adaptive::max_cpu), or a lower
    /// [`hit_rate`](crate::idle::Adaptive::hit_rate).
    pub spin_time: Duration,
    /// Spins of [`IdlePolicy::Adaptive`](crate::IdlePolicy::Adaptive) that met an event: each would
    /// have been a sleep and a wake.
    ///
    /// *Misleads*: events that were there when the loop first asked are no spin and not counted, so
    /// a busy loop has few. *Do*: compare with [`parks`](Self::parks): together they are the idle
    /// periods.
    pub spin_hits: u64,
    /// Spins that nothing ended within their window; a sleep follows.
    ///
    /// *Misleads*: a few are the price of knowing: one spin in 32 looks further than the rest.
    /// *Do*: many beside few hits: the window costs CPU for nothing; set a shorter
    /// [`max_window`](crate::idle::Adaptive::max_window).
    pub spin_misses: u64,
    /// Spins that ended because the loop had lost its CPU to somebody else meanwhile; it sleeps at
    /// once for some time then.
    ///
    /// *Misleads*: a loop that rarely spins rarely notices. *Do*: more than a few a second: the
    /// loop has no CPU of its own, and its latency is the neighbour's to decide. Pin one of them
    /// elsewhere.
    pub gave_way: u64,
    /// Events that the kernel reported for registered descriptors.
    ///
    /// *Misleads*: one event may be many requests (what came since the last read), or none (the
    /// rest of one). *Do*: read it beside [`polls`](Self::polls).
    pub events: u64,
    /// How many of them came with one look at the kernel, of those looks that brought any.
    ///
    /// *Misleads*: ones alone say nothing of how busy the loop is. *Do*: if many bring a full
    /// [`io_batch`](crate::EventLoopBuilder::io_batch), more were waiting in the kernel than a turn
    /// takes: the loop is saturated.
    pub events_per_wait: Histogram,
    /// Polls of tasks, and runs of closures that handles sent. (The future of `block_on` is no
    /// task.)
    ///
    /// *Misleads*: a poll may do much or nothing. *Do*: if it is several times the number of
    /// requests, tasks are woken in vain, or work is cut too small.
    pub polls: u64,
    /// How long each of those polls took.
    ///
    /// *Misleads*: the first poll of a turn contains the few tens of nanoseconds in which its event
    /// was noted; and wall time is not CPU time. *Do*: nothing else runs meanwhile, so the largest
    /// that you allow is the latency that you allow. Above some 100 µs, split the work with
    /// [`yield_now`](crate::task::yield_now), or give it to
    /// [`spawn_blocking`](crate::task::spawn_blocking).
    pub poll_time: Histogram,
    /// The longest of them, the polls of `block_on`'s future included, where its task was spawned,
    /// and the task's name if it has one.
    ///
    /// *Misleads*: it is of the loop's whole life: often the first poll, which met cold caches, or
    /// one in which the thread was off its CPU. And a task that is spawned by a library is named by
    /// the library's line. *Do*: look at that task for a blocking call, a lock, a long computation.
    pub longest_poll: Option<LongestPoll>,
    /// How long each turn took, from the end of its wait to its last poll or callback. A turn that
    /// did not sleep or spin contains its look at the kernel.
    ///
    /// *Misleads*: a turn that had nothing to run counts as next to nothing, and a loop that spins
    /// for ever ([`IdlePolicy::Spin`](crate::IdlePolicy::Spin)) takes no turn meanwhile. *Do*: what
    /// becomes ready in a turn waits for its end. If it is long because it has many polls, lower
    /// [`task_budget`](crate::EventLoopBuilder::task_budget) or
    /// [`turn_budget`](crate::EventLoopBuilder::turn_budget): the kernel is asked more often.
    pub turn_time: Histogram,
    /// Turns, and polls of `block_on`'s future, that took longer than
    /// [`slow_turn`](crate::EventLoopBuilder::slow_turn): 1 ms by default. At most one in a second
    /// is reported as a `tracing` event of level WARN, which names the task with the longest poll,
    /// and the slowest request in it.
    ///
    /// *Misleads*: on a machine without CPUs to spare it counts the neighbours' slices. *Do*: as
    /// for [`longest_poll`](Self::longest_poll).
    pub slow_turns: u64,
    /// How many tasks and closures waited behind the first one when each turn came to them; 0 also
    /// for a turn that had none.
    ///
    /// *Misleads*: those that others wake meanwhile join the end unseen; and what is still in the
    /// kernel is not in it: see [`events_per_wait`](Self::events_per_wait). *Do*: the last one in
    /// the queue waits for all others: depth times the mean of [`poll_time`](Self::poll_time) is
    /// its delay. If that is too long, spread the work over more loops.
    pub queue_depth: Histogram,
    /// Times that a phase of a turn stopped at a bound (in number or in time) and left work over
    /// for the next turn.
    ///
    /// *Misleads*: it is what keeps a loop fair, no fault by itself; a burst does it too. *Do*: if
    /// it grows all the time, the loop is saturated, or a task wakes itself without end.
    pub budget_exhaustions: u64,
    /// Operations on ready sockets, timers and handles that were put off, because their task had
    /// used up its [`cooperative_budget`](crate::EventLoopBuilder::cooperative_budget) in one poll.
    ///
    /// *Misleads*: a task that waits for several things at once counts each of them. *Do*: as long
    /// as others run in between, nothing: this is how a connection that always has data is kept
    /// from starving the rest.
    pub forced_yields: u64,
    /// Nodes taken from the ready queue: wakes and closures from other threads.
    ///
    /// *Misleads*: a task that is woken five times before it runs is one node. What the loop's own
    /// thread sends from outside a turn counts as well. *Do*: if it is most of
    /// [`polls`](Self::polls), the work might belong on another loop.
    pub remote: u64,
    /// How long it took from such a wake, or send, until the task or closure ran. Of what was
    /// pushed onto an empty queue only: the oldest of each batch, which waits longest.
    ///
    /// *Misleads*: pessimistic under a flood, where few are the oldest. A loop that was not being
    /// run meanwhile counts as late. A mere [`wake`](crate::LoopHandle::wake), and one of
    /// `block_on`'s future, is not in it. *Do*: tens of microseconds: the loop was asleep, see
    /// [`parks`](Self::parks). More: it was busy, see [`turn_time`](Self::turn_time), or had no
    /// CPU.
    pub remote_latency: Histogram,
    /// Timers that expired.
    ///
    /// *Misleads*: cancelled ones (a timeout that was not needed) are not in it. *Do*: read it
    /// beside [`timer_lateness`](Self::timer_lateness).
    pub timers: u64,
    /// How long after its deadline the loop came to each of them.
    ///
    /// *Misleads*: the task behind it runs later, behind what is ready already: add
    /// [`queue_depth`](Self::queue_depth). *Do*: tens of microseconds: a wake from sleep. More: see
    /// [`turn_time`](Self::turn_time). A millisecond, always: the kernel has no `epoll_pwait2`.
    pub timer_lateness: Histogram,
    /// Callbacks run, of all four kinds.
    ///
    /// *Misleads*: their time is in [`turn_time`](Self::turn_time), but for
    /// [`before_park`](crate::before_park), whose time nobody counts; none is a poll. *Do*: if
    /// turns are long and polls short, look here.
    pub callbacks: u64,
    /// Panics that the loop contained because nobody awaits the code: in closures, callbacks,
    /// handlers of wakeful-http (which answers 500), wakers of other executors, log subscribers,
    /// and drops of all these and of outputs that nobody asked for. Each is counted once. (A
    /// destructor that panics while another panic unwinds aborts the process, as everywhere in
    /// Rust.)
    ///
    /// *Misleads*: a task's panic goes to its [`JoinHandle`](crate::JoinHandle) and is not counted
    /// here. *Do*: they are bugs; the panic hook has said where.
    pub panics: u64,
}
