//! Tokio's side of a loop that has Tokio as its guest: the runtime of the loop's thread, and the
//! loop's epoll within Tokio's.
//!
//! Tokio owns the sleep. No stable function of Tokio says whether it has runnable tasks, so only
//! Tokio can decide that the thread may sleep. The loop is one future, which `event_loop::as_guest`
//! polls. The other direction, from Tokio's tasks to the loop, is `task::hosted`.

mod choice;
#[cfg(feature = "test-util")]
mod clock;
mod runtime;
mod together;

pub(crate) use self::choice::Choice;
#[cfg(feature = "test-util")]
pub(crate) use self::clock::{GuestClock, advance};
pub(crate) use self::runtime::{Hooks, Runtime};
