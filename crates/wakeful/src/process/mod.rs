//! Child processes: start one, talk to it, wait for its end.
//!
//! [`Command`] is like [`std::process::Command`], but this thread's loop watches its children.
//!
//! ```
//! use std::process::Stdio;
//! use wakeful::process::Command;
//!
//! # fn main() -> std::io::Result<()> {
//! wakeful::block_on(async {
//!     let output = Command::new("echo").arg("hello").output().await?;
//!     assert_eq!(output.stdout, b"hello\n");
//!
//!     let mut cat =
//!         Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//!     let mut stdin = cat.stdin.take().expect("it is a pipe");
//!     stdin.write_all(b"through a child").await?;
//!     drop(stdin); // `cat` sees the end.
//!     let output = cat.wait_with_output().await?;
//!     assert_eq!(output.stdout, b"through a child");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # How the end of a child is seen
//! The loop watches a descriptor of the process (`pidfd_open(2)`, Linux 5.3) like a socket. wakeful
//! installs no handler for SIGCHLD, and a handler of your program does no harm. If the call is
//! refused (a seccomp filter, an older kernel), or no descriptor is left, a thread of the [blocking
//! pool](crate::task::spawn_blocking) waits instead, one for each child that is awaited.
//!
//! # Zombies
//! A child that has ended stays a zombie until [`Child::wait`] or [`Child::try_wait`] reads its
//! status. If a [`Child`] is dropped before that, a separate thread waits for the end of the child,
//! so it does not stay a zombie. (At the limit of threads, an idle thread of the blocking pool or
//! the loop looks at the child each second.) The same is true of the children of a loop that ends:
//! they continue, unless [`kill_on_drop`](Command::kill_on_drop) is set.
//!
//! If SIGCHLD is ignored (`SIG_IGN` or `SA_NOCLDWAIT`), or other code of the process waits for any
//! child (`waitpid(-1)`), the status is lost. A wait then returns an error that says so, as soon as
//! the child has ended.

mod child;
mod command;
mod orphan;
mod running;

pub use self::child::Child;
pub use self::command::Command;
#[doc(hidden)]
pub use crate::sys::fork_check::ProcessMark;
#[doc(hidden)]
pub use crate::sys::thread::start_thread;

/// The standard input of a child, to write to.
pub type ChildStdin = crate::net::pipe::Sender;

/// The standard output of a child, to read from.
pub type ChildStdout = crate::net::pipe::Receiver;

/// The standard error of a child, to read from.
pub type ChildStderr = crate::net::pipe::Receiver;
