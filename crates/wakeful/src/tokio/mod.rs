//! Tokio as a guest of a loop: code that needs a Tokio runtime works in the loop's tasks, on the
//! loop's own thread.
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
//! sockets, timers and tasks work beside them, even from Tokio's tasks. There are four ways to use
//! it:
//!
//! * [`block_on`], or `#[wakeful::main(tokio)]`;
//! * [`EventLoopBuilder::tokio`](crate::EventLoopBuilder::tokio) for a loop with its own settings;
//! * [`LoopGroupBuilder::tokio`](crate::LoopGroupBuilder::tokio) for each loop of a group;
//! * `wakeful_http::Server::tokio`.
//!
//! `docs/from-tokio.md` in the repository explains how to move a service from Tokio to wakeful.
//!
//! # How it works
//! Each loop's thread has a [`LocalRuntime`](::tokio::runtime::LocalRuntime). The thread sleeps in
//! Tokio, whose epoll watches the loop's epoll. A turn of the loop is a poll of the runtime's root
//! future. Turns and Tokio's tasks alternate: after each turn that leaves work, up to 61 of Tokio's
//! tasks run, and Tokio checks its sockets and timers. After 61 of Tokio's tasks comes a turn.
//!
//! # What is different
//! * Before the loop sleeps, it follows its [idle policy](crate::IdlePolicy), both for its own
//!   events and for Tokio's. [`Adaptive`](crate::IdlePolicy::Adaptive) needs `/proc` to find
//!   Tokio's epoll, and parks without it. [`Hold`](crate::IdlePolicy::Hold) counts Tokio's timers
//!   as events. [`KernelBusyPoll`](crate::IdlePolicy::KernelBusyPoll) parks.
//! * Tokio lets 128 of its operations succeed before it postpones one. All tasks of a turn share
//!   these 128. The task that uses the last one ends the turn.
//! * Tokio's timers fire only at whole milliseconds, as always in Tokio. The loop's own timers stay
//!   exact.
//! * The loop cannot be driven by another loop: [`turn`](crate::EventLoop::turn) and
//!   [`prepare_to_park`](crate::EventLoop::prepare_to_park) return an error.
//!
//! Code that needs Tokio's multi-thread scheduler does not work: `block_in_place` panics.
//!
//! A `LocalSet` is not needed, because `spawn_local` works everywhere. `LocalSet::block_on` panics,
//! as within any Tokio runtime. `LocalSet::run_until` works in a task, and so does awaiting the
//! set. But the function `tokio::task::spawn_local` spawns its task on the loop's runtime, even
//! within `run_until`: the set neither waits for that task nor cancels it. Only tasks of the method
//! `LocalSet::spawn_local` belong to the set.
//!
//! # Panics
//! A panic in a task ends that task. wakeful's [`JoinHandle`](crate::JoinHandle) reports it for the
//! loop's tasks, and Tokio's for Tokio's tasks. A panic in the future of `block_on` unwinds out of
//! `block_on`, and the loop can be used again.
//!
//! Tokio calls wakers when its timers fire and its sockets become ready. A waker that panics there
//! breaks Tokio's timers and sockets, and therefore the loop: [`run`](crate::EventLoop::run) then
//! returns an error, and `block_on` panics. (The waker of a task never panics. The waker of another
//! executor that polls Tokio's types may panic.)
//!
//! # Cancellation
//! When the loop ends, its own tasks are dropped first, within the runtime, and then Tokio's tasks.
//! Work in `spawn_blocking` continues, and the loop does not wait for it.
//!
//! In a group of several loops, the Tokio tasks of a loop that has ended continue until all loops
//! have ended, for half a second at most. They can no longer use their own loop: its timers never
//! fire, its sockets return errors, its tasks are cancelled, and `wakeful::spawn` panics.
//!
//! # Fork
//! In a forked child, `run` and `block_on` return errors, as for every loop. The child's copy of
//! the runtime is leaked: Tokio's tasks and sockets stay in memory until the child ends or calls
//! `exec`. Tokio itself does not handle forks: if a child drops one of Tokio's sockets, this
//! removes it from the parent's epoll. A child that was forked within one of *Tokio's* tasks should
//! call `exec` or `_exit` at once.

use std::future::Future;

use crate::event_loop::EventLoop;

/// Like [`wakeful::block_on`](crate::block_on), with Tokio as the loop's guest.
///
/// # Panics
/// If the future panics, if a loop or a Tokio runtime already runs on this thread, or if no loop or
/// runtime can be built (for example, no descriptors are left). [`EventLoop::block_on`] returns
/// errors instead, except if a Tokio runtime already runs.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // This is no closure, because a closure would be the caller that a panic names.
    let built = EventLoop::builder().tokio().build();
    let mut event_loop = built.unwrap_or_else(|error| panic!("wakeful::tokio::block_on: {error}"));
    match event_loop.block_on(future) {
        Ok(output) => output,
        Err(error) => panic!("wakeful::tokio::block_on: {error}"),
    }
}
