//! Any program spins for a while before it sleeps in `epoll_wait` or `poll`, as long as that pays.
//!
//! A thread that sleeps has to be woken, which takes 25 to 60 µs on a virtual machine whose CPUs
//! halt. The better remedy is to keep the CPUs from halting (`wakeful-awake`), and costs no CPU
//! time. Where that is not permitted, a thread can ask again and again for a while before it
//! sleeps. This crate has programs do so that know nothing of it: it defines libc's `epoll_wait`,
//! `epoll_pwait`, `epoll_pwait2`, `poll` and `ppoll`.
//!
//! **The bill.** CPU time while there is traffic: up to a whole CPU for each thread that waits for
//! it. Nothing in silence. What decides is the governor of wakeful's own [`Adaptive`] policy: it
//! learns whether spinning pays, gives way to neighbours, stays within a cgroup's CPU quota, and
//! never spins on a thread with a real-time policy.
//!
//! # In a program of your own
//! Linking the crate is enough for its functions to be called instead of libc's, by mio, Tokio and
//! all else in the program, and [`enable()`] switches the spinning on:
//!
//! ```
//! fn main() -> std::io::Result<()> {
//!     wakeful_spin::enable()?;
//!     // … any runtime on epoll …
//!     println!("{:?}", wakeful_spin::counts());
//!     Ok(())
//! }
//! ```
//!
//! # In any other program
//! `LD_PRELOAD=/path/to/libwakeful_spin.so WAKEFUL_SPIN=1 COMMAND`, or
//! `wakeful awake --spin -- COMMAND`. `WAKEFUL_SPIN_MAX_CPU=0.5` is [`Adaptive::max_cpu`]. The
//! variables also enable a program that links the crate. Children inherit all three, because those
//! of a preforking server are to spin too.
//!
//! It is for Linux with glibc, linked dynamically. Not seen: a static program, one that makes
//! system calls itself (Go, wakeful), io_uring, `select`, and a set-user-ID program, for which the
//! loader ignores `LD_PRELOAD`.
//!
//! # What a program can tell
//! * Threads: as soon as there is traffic, two threads live for some 20 ms, with all signals
//!   blocked, to measure what a wake costs here.
//! * Descriptors: none stays open. Those threads, and under a CPU quota a spinning thread once a
//!   second, open files of `/proc` and `/sys/fs/cgroup` for a moment.
//! * Memory: none is allocated but by those two, and to start them. A wait that may be in a signal
//!   handler which has interrupted `malloc` starts none: that is `poll` or `ppoll` on a thread that
//!   blocks a signal. A process whose threads all wait so spins by the defaults: for up to 1 ms,
//!   and for a tenth of its time. (A handler with SA_NODEFER and no other signal blocked is not
//!   told from the program: it must not be the first that waits by `poll` under traffic.)
//! * Signals: a wait ends with EINTR if a handler ran, as it would have, also during a spin. The
//!   argument is in `src/interposed.rs`, with the one case in which EINTR comes and no handler ran.
//! * System calls: those of a spin are `ppoll`, `epoll_pwait`, `rt_sigprocmask`, `sched_yield`,
//!   `getrusage` and `sched_getscheduler`; the sleep behind one is `epoll_pwait`, `epoll_pwait2` or
//!   `ppoll`. A seccomp filter that answers with an error ends the spinning; one that kills the
//!   process does that.
//! * Timeouts: never shorter, and longer by one poll at most. (Before Linux 5.11, which has no
//!   `epoll_pwait2`, by a millisecond.)
//! * Cancellation (`pthread_cancel`): a wait is a cancellation point while it sleeps, not while it
//!   spins.

mod clock;
mod counts;
mod enable;
mod errno;
mod interposed;
mod real;
mod settings;
mod signals;
mod spin;
mod spinner;
mod waits;

pub use counts::{Counts, counts};
pub use enable::{enable, enable_with};
/// The settings of [`enable_with`].
pub use wakeful::idle::Adaptive;
