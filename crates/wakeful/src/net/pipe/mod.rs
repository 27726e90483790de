//! Pipes: anonymous ones, and named ones (FIFOs).
//!
//! Each end is a separate open file, so `O_NONBLOCK` on one end does not affect the process that
//! has the other end. An end that is opened or made here is non-blocking from the start.
//!
//! ```
//! use wakeful::net::pipe;
//!
//! # fn main() -> std::io::Result<()> {
//! wakeful::block_on(async {
//!     let (mut sender, mut receiver) = pipe::pipe()?;
//!     sender.write_all(b"through").await?;
//!     let mut buf = [0; 16];
//!     let read = receiver.read(&mut buf).await?;
//!     assert_eq!(&buf[..read], b"through");
//!
//!     drop(sender);
//!     assert_eq!(receiver.read(&mut buf).await?, 0, "the end");
//!     Ok(())
//! })
//! # }
//! ```

mod fifo;
mod pipe_io;
mod receiver;
mod sender;

pub use self::receiver::Receiver;
pub use self::sender::Sender;

use std::io;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::sys::limits::explain_call;

/// Makes an anonymous pipe, with both ends on this thread's loop.
///
/// To give one end to another process or thread, see [`Sender::into_blocking_fd`] and
/// [`Receiver::into_blocking_fd`].
///
/// # Errors
/// No loop runs on this thread; no descriptors are left; the user has no more memory for pipes
/// (`fs.pipe-user-pages-hard`).
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (reads, writes) = pipe_with(flags).map_err(explain_call("pipe2"))?;
    Ok((Sender::of(writes)?, Receiver::of(reads)?))
}
