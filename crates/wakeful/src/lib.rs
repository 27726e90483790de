//! **wakeful**: an event-loop runtime for Linux servers, with one promise: *a ready event never
//! waits.*
//!
//! Work becomes ready when bytes arrive in a socket, a timer is due, another thread wakes a task,
//! or a new connection arrives. From that moment until its code runs, the loop runs only work that
//! was ready earlier or in the same turn, and, within a bound, work of a higher [`Priority`].
//!
//! ```
//! use wakeful::net::{TcpListener, TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! wakeful::block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let addr = listener.local_addr()?;
//!     let server = wakeful::spawn(async move {
//!         let (mut stream, _) = listener.accept().await?;
//!         let mut buf = [0; 64];
//!         let read = stream.read(&mut buf).await?;
//!         stream.write_all(&buf[..read]).await
//!     });
//!     let mut client = TcpStream::connect(addr).await?;
//!     client.write_all(b"echo").await?;
//!     let mut buf = [0; 64];
//!     assert_eq!(client.read(&mut buf).await?, 4);
//!     server.await?
//! })
//! # }
//! ```
//!
//! # Where things are
//! * [`block_on`], [`spawn`], [`main`](macro@main), [`test`](macro@test): what every program needs.
//! * [`EventLoop`] is the loop as a value; its documentation has the phases of a turn. Other
//!   threads reach a loop by its [`LoopHandle`]. A [`LoopGroup`] runs one loop per CPU.
//! * [`net`]: sockets. [`time`]: timers. [`signal`]: signals. [`task`]: tasks, and work that
//!   blocks.
//! * [`fs`]: files. [`process`]: child processes.
//! * [`readiness`]: any other descriptor, for code that makes its own system calls.
//! * [`accept`]: how a server's connections reach its loops.
//! * [`Priority`]: work that runs first, such as health checks.
//! * [`IdlePolicy`]: what a loop does when it has nothing to do.
//! * [`metrics`]: what a loop did and how it spent its time. Look here when requests are slow.
//! * [`io`]: the traits of futures, tokio and hyper on sockets, pipes and files; standard input.
//! * [`heartbeat`]: how a supervising process detects that a loop of a worker is stuck.
//! * [`log`]: how to log without blocking a loop. **Read this before you write a server**: a
//!   subscriber that writes to standard error can block a loop, and a standard error that fails can
//!   end the program.
//!
//! # Futures need not be `Send`
//! A loop's tasks stay on its thread. Sockets are neither `Send` nor `Sync`: code that shares a
//! socket between two threads does not compile. From another thread, [`LoopHandle::spawn`] takes a
//! closure that makes the future on the loop.
//!
//! For a framework that requires `Send` futures, [`on_this_loop`] wraps a future that is not
//! `Send`. [`PerLoop`] holds one value for each loop, such as a client with its connections.
//! [`LoopBound`] holds a single value of one loop. Both types are `Send`.
//!
//! # Which channel, which select
//! This crate has neither channels nor a `select`. Any crate that needs no runtime works, because
//! such crates need only a [`Waker`](std::task::Waker). We use and test these:
//!
//! * [`async-channel`](https://docs.rs/async-channel) for channels between tasks and threads;
//! * [`event-listener`](https://docs.rs/event-listener) for notifications;
//! * [`async-lock`](https://docs.rs/async-lock) for locks and semaphores;
//! * [`futures-util`](https://docs.rs/futures-util) or
//!   [`futures-lite`](https://docs.rs/futures-lite) for `select`, `join` and the extension traits;
//! * tokio's `sync` module and `tokio::select!`. (tokio's `time`, `net` and `spawn` need a tokio
//!   runtime: see the feature `tokio`.)
//!
//! `examples/channels.rs` and `examples/select.rs` show how to use them. `examples/join_set.rs`
//! combines a channel and `select!` with a set of tasks.
//!
//! None of these crates knows the loop's cooperative budget. If a task awaits a channel that is
//! never empty, or a lock that is always free, the task is never pending, and blocks the loop. Wrap
//! the await in [`task::budgeted`], as in `budgeted(receiver.recv()).await`, or the stream in
//! [`task::budgeted_stream`]. Then the task yields after 128 messages.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `macros` | yes | the attributes `#[wakeful::main]` and `#[wakeful::test]` |
//! | `tokio-io` | no | tokio's `AsyncRead` and `AsyncWrite` for streams, pipes and files; only the traits, no runtime |
//! | `hyper` | no | hyper's I/O traits for streams, pipes and files, `io::LoopExecutor` and `io::LoopTimer` |
//! | `tokio` | no | Tokio's runtime as a guest of a loop: the module `wakeful::tokio` |
//! | `quinn-udp` | no | `net::BatchUdpSocket`, for QUIC |
//! | `test-util` | no | a clock that tests control: `time::pause`, `time::advance`, `time::resume`, and `start_paused` |

// With `--cfg wakeful_loom` only the models are used. The rest of the crate is compiled and unused.
#![cfg_attr(wakeful_loom, allow(dead_code, unused_imports))]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod accept;
mod balance;
mod driver;
mod event_loop;
pub mod fs;
pub mod group;
#[cfg(feature = "tokio")]
mod guest;
pub mod heartbeat;
pub mod idle;
pub mod io;
pub mod log;
mod loop_bound;
pub mod metrics;
pub mod net;
mod on_this_loop;
mod pause;
mod per_loop;
mod priority;
pub mod process;
pub mod readiness;
#[allow(unsafe_code)]
mod ready_queue;
pub mod signal;
mod supervise;
mod sys;
pub mod task;
pub mod time;
mod timers;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub mod tokio;

pub use event_loop::{
    EventLoop, EventLoopBuilder, Hook, LoopHandle, PanicPayload, PostAndWaitError, SendError,
    TryCurrentError, after_turn, before_park, block_on, run_next_turn, run_this_turn, spawn,
    spawn_with,
};
pub use group::{LoopGroup, LoopGroupBuilder, ShutdownError};
pub use idle::{IdlePolicy, UnknownIdlePolicy};
pub use loop_bound::LoopBound;
pub use metrics::LoopMetrics;
pub use on_this_loop::{OnThisLoop, on_this_loop};
pub use per_loop::{PerLoop, PerLoopError};
pub use priority::Priority;
pub use sys::one_loop::BelongsToOneLoop_UseOnThisLoop;
pub use task::{JoinError, JoinHandle};

/// For this project's own benches and experiments. No promise of stability.
#[cfg(all(feature = "internals", not(wakeful_loom)))]
#[doc(hidden)]
pub mod internals {
    pub use crate::balance::activity::Activity;
    pub use crate::idle::{Governor, GovernorLimits, HoldGovernor, Next, Spinner};
    pub use crate::pause::Point;
    pub use crate::ready_queue::bench::{
        BoxedProducer, EventConsumer, EventQueue, PooledProducer, PushDrain, Ring, Source,
    };
    pub use crate::sys::duplicate::duplicate;
}

/// For the other crates of this runtime: what a limit, or a refused system call, has caused.
#[doc(hidden)]
pub mod limits {
    pub use crate::sys::limits::{explain_call_error, of_file_sizes};
}

/// What `wakeful-torture` injects. No promise of stability.
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults {
    pub use crate::sys::faults::{FaultCounts, Faults, counts, inject, was_reset};
}

#[cfg(feature = "macros")]
pub use wakeful_macros::{main, test};
