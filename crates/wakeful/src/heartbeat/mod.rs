//! Heartbeats show a supervising process whether a loop of its workers is stuck. They distinguish a
//! sleeping loop from a loop that is stuck in a turn, without waking the sleeping loop.
//!
//! A process that forks workers has a [`Watchdog`]. Before each fork it gets [`Heartbeats`] from
//! the watchdog: a page of shared memory with a line for each loop of that worker. The worker
//! passes them to its group
//! ([`LoopGroupBuilder::heartbeats`](crate::LoopGroupBuilder::heartbeats)). From then on:
//!
//! * A loop writes one of two things to its line: that it sleeps, or the number of its current
//!   *beat*. It begins a new beat when it wakes, and at the end of a turn if the current beat is 10
//!   ms old.
//! * The watchdog reads the lines a few times per timeout, and only while some loop is awake. If a
//!   loop stays in one beat for the whole timeout, it is stuck.
//! * When all loops sleep, the watchdog notes in each page that it sleeps too, and sleeps until a
//!   loop wakes. The first loop of a page that wakes then wakes the watchdog, once. That is the
//!   only system call that heartbeats cost a loop.
//!
//! # What counts as a turn
//! A turn is all work of the loop between two waits: tasks, callbacks, closures, hooks, and the
//! work of a Tokio guest. Waiting for the kernel counts as sleep, and so does the endless spin of
//! [`IdlePolicy::Spin`](crate::IdlePolicy::Spin). The spin that
//! [`Adaptive`](crate::IdlePolicy::Adaptive) makes before a sleep is much shorter than any timeout.
//! Heartbeats do not show other threads of the worker.
//!
//! A loop that takes turns is never stuck, however busy it is. But a loop also counts as stuck if
//! it waits for a CPU in the middle of a turn for the whole timeout, or if its process (and not the
//! watchdog's) is stopped in the middle of a turn. The watchdog cannot distinguish this from a
//! computation.
//!
//! # What time counts
//! The loops write no times, so there are no clocks to compare. The watchdog adds up the time
//! between its own checks. If a check is late by more than half of the planned interval, the whole
//! system may have stood still (SIGSTOP of all its processes, a suspended machine), and that
//! interval does not count. So a worker gets the full timeout, measured in time in which the
//! watchdog itself has run. (The watchdog does not notice a stop that is over before the next check
//! is due.)
//!
//! # Deaths
//! The page contains no lock, so a worker may be killed at any instruction. Before another worker
//! uses the page, [`Watchdog::reset`] clears it. The watchdog follows no address in the page: a
//! damaged worker that writes to it can only cause a wrong verdict about itself.
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

// `protocol` says who rings and when, and `page` has the layout of the shared memory. In `places`
// and `work` a loop writes what the running task is. `watchdog` decides which loops are stuck.

mod beats;
mod page;
mod places;
mod protocol;
mod running;
mod watchdog;
mod work;

pub(crate) use self::beats::{EndOfBeats, Heartbeat};
pub use self::page::Heartbeats;
pub(crate) use self::page::Line;
pub(crate) use self::running::Running;
pub use self::watchdog::{Look, LoopState, StuckLoop, Watchdog};
pub use self::work::WorkText;
pub use crate::event_loop::working_on;
