//! The event loop: it owns one thread's work and puts the rooms below it together.
//!
//! [`EventLoop`] is the loop as a value (`value`); it can run its thread, or be driven by somebody
//! else's loop turn by turn. [`LoopHandle`] is how other threads reach it. `inner` says what it
//! consists of. [`turn`] has the phases of a turn, [`wait`] the first of them, [`may_park`] the one
//! predicate that lets a loop sleep, [`clock`] the time that its timers go by, [`callbacks`] the
//! work without a task, [`current`] the loop of this thread, [`loop_values`] what each
//! [`PerLoop`](crate::PerLoop) has there, [`functions`] what code asks of that one, [`join_set`]
//! how a set of tasks spawns there, [`task_builder`] how a named task and a scope do, [`shutdown`]
//! the end within a grace period, [`end`] what happens when it is dropped.

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
