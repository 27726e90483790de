//! Makes any program spin for a while before it sleeps in `epoll_wait` or `poll`, as long as that
//! is worth its cost.
//!
//! On a virtual machine whose CPUs halt, waking a sleeping thread takes 25 to 60 µs. The better
//! remedy is to keep the CPUs from halting (`wakeful-awake`), which costs no CPU time. If that is
//! not permitted, a thread can poll for a while before it sleeps. This crate makes unmodified
//! programs do so: it defines libc's `epoll_wait`, `epoll_pwait`, `epoll_pwait2`, `poll` and
//! `ppoll`.
//!
//! **What it costs.** While there is traffic, it uses up to a whole CPU for each thread that waits
//! for traffic. Without traffic it costs nothing. It uses the governor of wakeful's own
//! [`Adaptive`] policy, which learns whether spinning is worth its cost, yields to other threads,
//! stays within a cgroup's CPU quota, and never spins on a thread with a real-time policy.
//!
//! # In your own program
//! In a program that links the crate, all code, including mio and Tokio, calls the crate's
//! functions instead of libc's. [`enable()`] turns the spinning on:
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
//! `wakeful awake --spin -- COMMAND`. `WAKEFUL_SPIN_MAX_CPU=0.5` sets [`Adaptive::max_cpu`]. The
//! two `WAKEFUL_SPIN` variables also work in a program that links the crate. Child processes
//! inherit all three variables, so the children of a preforking server also spin.
//!
//! The program must be linked dynamically with glibc, on Linux. The library has no effect on static
//! programs, programs that make system calls directly (Go, wakeful), io_uring, `select`, and
//! set-user-ID programs, for which the loader ignores `LD_PRELOAD`.
//!
//! # What a program can notice
//! * Threads: as soon as there is traffic, two threads run for about 20 ms, with all signals
//!   blocked, to measure the cost of a wake on this machine.
//! * Descriptors: none stays open. The two threads, and under a CPU quota a spinning thread once
//!   per second, open files of `/proc` and `/sys/fs/cgroup` for a moment.
//! * Memory: only the two threads, and their start, allocate memory. A `poll` or `ppoll` on a
//!   thread that blocks a signal does not start them, because such a wait may be in a signal
//!   handler that has interrupted `malloc`. If all threads of a process wait in this way, the cost
//!   of a wake stays unknown. Then a thread spins for up to 1 ms at a time, and for up to a tenth
//!   of its time. (A handler with SA_NODEFER and no other blocked signal cannot be distinguished
//!   from the program. Such a handler must not be the first code that waits with `poll` under
//!   traffic.)
//! * Signals: a wait ends with EINTR if a handler ran on its thread, even during a spin.
//!   `src/interposed.rs` proves this, and names the one case in which EINTR is returned although no
//!   handler ran.
//! * Signals of the whole process (`kill`), if it has several threads: a thread that spins blocks
//!   signals, so the handler runs on a thread that does not block the signal. Then the wait of the
//!   main thread does not end with EINTR, although the kernel would have preferred that thread. If
//!   this wait must end, block the signal in all other threads, or have the handler write into a
//!   pipe that the main thread watches.
//! * System calls: a spin makes `ppoll`, `epoll_pwait`, `rt_sigprocmask`, `sched_yield`,
//!   `getrusage` and `sched_getscheduler`, and the sleep after it `epoll_pwait`, `epoll_pwait2` or
//!   `ppoll`. If a seccomp filter makes one of them return an error, the spinning ends. If the
//!   filter kills the process for such a call, the process ends.
//! * Timeouts: a wait is never shorter than its timeout. It is longer by at most one poll, or by up
//!   to a millisecond before Linux 5.11 or glibc 2.35, which have no `epoll_pwait2`.
//! * Cancellation (`pthread_cancel`): a wait is a cancellation point while it sleeps, not while it
//!   spins. A signal handler that runs during a spin cannot be cancelled. If it calls
//!   `pthread_exit`, which is not among the functions that a handler may call, the process aborts.
//!   A thread with `PTHREAD_CANCEL_ASYNCHRONOUS` does not spin.

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
