//! Tasks: futures that run on a loop, and their handles, sets, scopes and budgets.
//!
//! **A future is polled and dropped only on its loop's thread**, even after the loop's end, and
//! even if other threads hold wakers. The loop knows its tasks, and drops their futures when it
//! ends. Wakers and handles then hold only an empty shell. `async-task` does not guarantee this:
//! its last waker may drop the future on any thread. So wakeful has its own task type. A wake
//! allocates nothing.

// `local` knows the tasks of a loop. `raw` is the shell that wakers and handles hold. Its header
// starts with the node of `ready_queue`, which carries nodes between threads. `event_loop` decides
// when tasks run.

// * A task: `header` is what is the same in each, `state` its life in one word, `raw` its memory
//   and lifetime, `waker` how it is woken. `local` is what a loop knows of its tasks, `ready` which
//   can run.
// * How tasks begin and end: `spawn`, `builder`, `lazy`; `join`, `abort_handle`. `join_set`, with
//   `finished`, and `scope` have tasks that end together. `late` is what is added while a loop
//   ends.
// * In a poll: `running` is the task that runs, `coop` the budget (`budgeted` for other libraries'
//   futures), `task_local` has values that a future carries along.
// * Wakers of other libraries: `registration` (a clone may panic), `safe_waker` and `held_back` (a
//   lock is held). `hosted`: wakes on a thread that the loop shares with another runtime.
// * `lock_home`: another library's lock that must be free in a forked child.
// * `blocking`: blocking work, its threads, of which one stays, and their queue.
#[allow(unsafe_code)]
mod abort_handle;
mod blocking;
mod budgeted;
mod builder;
#[allow(unsafe_code)]
mod closure;
pub(crate) mod coop;
#[allow(unsafe_code)]
mod finished;
#[allow(unsafe_code)]
mod header;
mod held_back;
#[cfg(feature = "tokio")]
mod hosted;
mod id;
#[allow(unsafe_code)]
mod join;
mod join_error;
mod join_set;
pub(crate) mod late;
#[allow(unsafe_code)]
mod lazy;
#[allow(unsafe_code)]
pub(crate) mod local;
mod lock_home;
#[allow(unsafe_code)]
mod queued;
#[allow(unsafe_code)]
mod raw;
#[allow(unsafe_code)]
mod ready;
#[allow(unsafe_code)]
mod registration;
mod running;
mod safe_waker;
mod scope;
#[cfg(debug_assertions)]
mod shuffle;
#[allow(unsafe_code)]
mod spawn;
mod state;
#[allow(unsafe_code)]
mod task_local;
#[cfg(feature = "tokio")]
mod tokio_budget;
mod unconstrained;
#[allow(unsafe_code)]
mod waker;
mod yield_now;

pub use self::abort_handle::AbortHandle;
#[doc(hidden)]
pub use self::blocking::spawn_without_signals;
pub use self::blocking::{BlockingHandle, spawn_blocking};
pub use self::budgeted::{Budgeted, BudgetedStream, budgeted, budgeted_stream};
pub use self::builder::Builder;
pub use self::coop::{consume_budget, has_budget_remaining};
#[doc(hidden)]
pub use self::held_back::{Locking, hold_back_wakers};
pub use self::id::Id;
pub use self::join::JoinHandle;
pub use self::join_error::JoinError;
pub use self::join_set::JoinSet;
#[doc(hidden)]
pub use self::lock_home::LockHome;
pub use self::running::{id, try_id};
#[doc(hidden)]
pub use self::safe_waker::SafeWaker;
pub use self::scope::{Scope, Spawner};
pub use self::task_local::{AccessError, LocalKey, TaskLocalFuture, TaskLocalSlot};
pub use self::unconstrained::{Unconstrained, unconstrained};
pub use self::yield_now::{YieldNow, yield_now};

pub(crate) use self::blocking::{
    AbortsOnDrop, Attempts, end_main_of_child, keep_a_thread, look_after_errands, on_errand,
    on_own_thread, run_errands, try_again_by,
};
#[cfg(feature = "test-util")]
pub(crate) use self::blocking::{InFlight, InFlightHere};
pub(crate) use self::closure::send;
pub(crate) use self::lazy::spawn_remote;
pub(crate) use self::local::ready_here;
pub(crate) use self::ready::Share;
pub(crate) use self::scope::InScope;

/// The ready queue with the bell of a running loop.
pub(crate) type Queue = crate::ready_queue::ReadyQueue<crate::driver::bell::LoopBell>;
