//! The event loop: it owns one thread's work and puts the rooms below it together.
//!
//! [`EventLoop`] is the loop as a value (`value`). It can run its thread, or another library's loop
//! can drive it turn by turn. [`LoopHandle`] is how other threads reach it, and `posted_call` a
//! call for whose result one of them waits. `inner` has the parts of a loop. [`turn`] has the
//! phases of a turn, and [`wait`] the first of them. [`may_park`] is the one predicate that lets a
//! loop sleep. [`clock`] has the time of its timers, and [`callbacks`] the work without a task.
//! [`current`] is the loop of this thread, [`functions`] are what code can ask of that loop, and
//! [`loop_values`] are the values of each [`PerLoop`](crate::PerLoop) there. [`join_set`] spawns
//! the tasks of a set, and [`task_builder`] a named task or those of a scope. [`shutdown`] ends a
//! loop within a grace period, and [`end`] is what happens when it is dropped.

mod arrivals;
#[cfg(feature = "tokio")]
mod as_guest;
mod builder;
mod callbacks;
mod clock;
mod current;
mod end;
mod functions;
#[cfg(all(feature = "test-util", feature = "tokio"))]
mod guest_clock;
#[cfg(feature = "tokio")]
mod guest_idle;
mod handle;
mod inner;
mod join_set;
mod loop_values;
mod may_park;
#[cfg(feature = "test-util")]
mod paused;
mod posted_call;
mod pulse;
mod root;
mod settings;
mod shutdown;
mod sleep_observer;
mod task_builder;
mod turn;
mod value;
mod wait;

pub use self::builder::EventLoopBuilder;
pub use self::callbacks::Hook;
pub use self::current::{name_slow_work, working_on};
pub use self::functions::{
    TryCurrentError, after_turn, before_park, block_on, run_next_turn, run_this_turn, spawn,
    spawn_with,
};
pub use self::handle::{LoopHandle, PanicPayload, PostAndWaitError, SendError};
pub use self::value::EventLoop;

pub(crate) use self::current::{current, explain_missing, guest_goes_on, of_current};
pub(crate) use self::functions::spawn_at;
pub(crate) use self::inner::Inner;
pub(crate) use self::loop_values::Refused;
pub(crate) use self::pulse::Spent;
pub(crate) use self::sleep_observer::SleepObserver;
