//! Tokio as a guest of a loop: what needs a Tokio runtime works in the loop's tasks, on the loop's
//! own thread.
//!
//! ```
//! use std::time::Duration;
//!
//! wakeful::tokio::block_on(async {
//!     // A task of the loop, which uses Tokio's timers and tasks.
//!     let answer = wakeful::spawn(async {
//!         tokio::time::sleep(Duration::from_millis(1)).await;
//!         tokio::spawn(async { 42 }).await.expect("no panic")
//!     });
//!     assert_eq!(answer.await.expect("no panic"), 42);
//! });
//! ```
//!
//! `tokio::spawn`, `spawn_local`, `spawn_blocking`, `tokio::time`, `tokio::net` and crates that use
//! them (sqlx, reqwest, tonic's channels, tower-http's timeouts) find a runtime, and wakeful's own
//! sockets, timers and tasks work beside them, also from Tokio's tasks. There are four ways in:
//!
//! * [`block_on`], or `#[wakeful::main(tokio)]`;
//! * [`EventLoopBuilder::tokio`](crate::EventLoopBuilder::tokio) for a loop with its own settings;
//! * [`LoopGroupBuilder::tokio`](crate::LoopGroupBuilder::tokio) for each loop of a group;
//! * `wakeful_http::Server::tokio`.
//!
//! `docs/from-tokio.md` in the repository says how to move a service here.
//!
//! # How it works
//! Each loop's thread has a [`LocalRuntime`](::tokio::runtime::LocalRuntime). Tokio owns the sleep:
//! the loop's epoll is in Tokio's, and a turn of the loop is a poll of the runtime's root future.
//! Turns and Tokio's tasks alternate: behind each turn that leaves something over, up to 61 of
//! Tokio's tasks run, and Tokio looks at its sockets and timers; behind 61 of its tasks comes a
//! turn.
//!
//! # What is different
//! * The loop sleeps in Tokio's wait, and does before what its [idle policy](crate::IdlePolicy)
//!   says, for events of both. [`Adaptive`](crate::IdlePolicy::Adaptive) needs `/proc` for that, by
//!   which it finds Tokio's epoll, and parks without. A hold takes Tokio's timers for events.
//!   [`KernelBusyPoll`](crate::IdlePolicy::KernelBusyPoll) parks.
//! * Tokio lets 128 of its operations succeed before it puts one off. The tasks of a turn share
//!   these, and what has used the last one ends the turn.
//! * A wait ends by Tokio's timer only on a whole millisecond, as everywhere in Tokio. The loop's
//!   own timers are as exact as ever.
//! * The loop cannot be driven by another loop: [`turn`](crate::EventLoop::turn) and
//!   [`prepare_to_park`](crate::EventLoop::prepare_to_park) are errors.
//!
//! What needs Tokio's other scheduler does not work: `block_in_place` panics. A `LocalSet` is not
//! needed, because `spawn_local` works everywhere, and cannot run here.
//!
//! # Panics
//! A panic in a task ends that task: one of the loop's is reported by its
//! [`JoinHandle`](crate::JoinHandle) and one of Tokio's by Tokio's. A panic in the future of
//! `block_on` unwinds out of that, and the loop can be used again.
//!
//! Tokio itself calls wakers as its timers fire and its sockets become ready. One that panics there
//! (of a task never does; of an executor of your own that polls Tokio's types it may) takes Tokio's
//! timers and sockets with it, and so the loop: [`run`](crate::EventLoop::run) is an error then,
//! and `block_on` panics.
//!
//! # Cancellation
//! When the loop ends, its own tasks are dropped first, within the runtime, and then Tokio's. What
//! runs in `spawn_blocking` goes on, and nobody waits for it.
//!
//! In a group of several loops Tokio's tasks go on in between, until all loops have ended. What
//! they need of their loop is gone then: its timers never fire, its sockets give errors, its tasks
//! are cancelled, and `wakeful::spawn` panics.
//!
//! # Fork
//! In a forked child, `run` and `block_on` are errors, as for every loop. The child's copy of the
//! runtime is leaked: Tokio's tasks and sockets stay as they are until the child ends or calls
//! `exec`. Tokio itself does not know forks: a child that drops one of Tokio's sockets takes it off
//! the parent's epoll, and one that was forked within one of *Tokio's* tasks should call `exec` or
//! `_exit` at once.

use std::future::Future;

use crate::event_loop::EventLoop;

/// Like [`wakeful::block_on`](crate::block_on), with Tokio as the loop's guest.
///
/// # Panics
/// When the future does; when a loop, or a Tokio runtime, already runs on this thread; when a loop
/// or a runtime cannot be built (no descriptors left). [`EventLoop::block_on`] gives errors
/// instead, but for the runtime that runs already.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // No closure here: it would be the caller.
    let built = EventLoop::builder().tokio().build();
    let mut event_loop = built.unwrap_or_else(|error| panic!("wakeful::tokio::block_on: {error}"));
    match event_loop.block_on(future) {
        Ok(output) => output,
        Err(error) => panic!("wakeful::tokio::block_on: {error}"),
    }
}
