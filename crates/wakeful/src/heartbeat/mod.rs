//! Heartbeats that a supervising process shares with the loops of its workers: it tells a loop that
//! sleeps from one that is stuck in a turn, and never wakes the former to find out.
//!
//! A process that forks workers has a [`Watchdog`]. Before each fork it asks it for [`Heartbeats`],
//! a page of shared memory with a line for each loop of that worker, and the worker gives them to
//! its group ([`LoopGroupBuilder::heartbeats`](crate::LoopGroupBuilder::heartbeats)). From then on:
//!
//! * A loop says on its line that it sleeps, or which *beat* it is in. It begins a new beat when it
//!   wakes, and at the end of a turn, if the last one is 10 ms old.
//! * The watchdog looks at the lines a few times in a time-out, and only while some loop is awake.
//!   A loop that it has seen in one beat for the time-out is stuck.
//! * When all loops sleep, the watchdog says so in each page, and sleeps as well, for as long as
//!   they do. The first loop of a page that wakes then rings it, once: that is the only system call
//!   that heartbeats cost a loop.
//!
//! # What counts as a turn
//! All that the loop does between two waits: tasks, callbacks, closures, hooks, and what Tokio does
//! as its guest. Waiting for the kernel is sleep, and so is the endless spin of
//! [`IdlePolicy::Spin`](crate::IdlePolicy::Spin). The spin that
//! [`Adaptive`](crate::IdlePolicy::Adaptive) puts in front of a sleep is over long before any
//! time-out is. What other threads of the worker do is not seen.
//!
//! A loop that takes turns, however busy it is, is never stuck. One that waits for its CPU in the
//! middle of a turn is, for the whole time-out, and one whose process alone was stopped there:
//! nobody can tell it from one that computes.
//!
//! # What time counts
//! The loops say no time, so there are no clocks to compare. The watchdog adds up the time between
//! its own looks. When it comes late to one by more than half of the distance that it had planned,
//! the whole system may have stood still (SIGSTOP of all its processes, a suspended machine), and
//! that distance does not count at all. So a worker is given the full time-out of time in which the
//! watchdog itself has run. (A stop that is over before the next look is due is not seen.)
//!
//! # Deaths
//! No lock is in the page, and a worker may be killed at any instruction. Before another one uses
//! its page, [`Watchdog::reset`] clears it. Nothing in the page is an address that the watchdog
//! would follow: whatever a damaged worker writes there can only lead to a wrong verdict about that
//! worker.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use wakeful::LoopGroup;
//! use wakeful::heartbeat::Watchdog;
//!
//! # fn main() -> std::io::Result<()> {
//! let group = LoopGroup::builder().loops(2);
//! let mut watchdog = Watchdog::new(Duration::from_secs(30))?;
//! let heartbeats = watchdog.heartbeats_for(&group)?;
//! // Here the process forks, and the child does this:
//! let group = group.heartbeats(heartbeats).build()?;
//! // The parent waits until `watchdog` is readable (it is `AsFd`), or until `next`, and looks:
//! let look = watchdog.look(Instant::now());
//! assert!(look.stuck.is_empty());
//! # drop(group);
//! # Ok(())
//! # }
//! ```

mod beats;
mod page;
mod places;
mod protocol;
mod running;
mod watchdog;

pub(crate) use self::beats::{EndOfBeats, Heartbeat};
pub use self::page::Heartbeats;
pub(crate) use self::page::Line;
pub(crate) use self::running::Running;
pub use self::watchdog::{Look, LoopState, StuckLoop, Watchdog};
