//! Readiness of any descriptor: for those who make the system calls themselves.
//!
//! The sockets of [`net`](crate::net) read and write; nothing here is needed for them. [`AsyncFd`]
//! is for everything else that an epoll can watch: inotify, timerfd and signalfd, tun and tap,
//! serial ports, netlink, vsock, raw and packet sockets, the socket of a C library, another
//! library's epoll.
//!
//! Readiness is what an event of the kernel has said, and it stays until an attempt finds that it
//! is over: the descriptor is watched edge-triggered, so the kernel says it once. So who is told
//! that a descriptor is readable reads until `EAGAIN`, by [`ReadyGuard::try_io`] or
//! [`AsyncFd::async_io`], or says that it is over by [`ReadyGuard::clear_ready`].

mod async_fd;
mod guard;
mod wait;

pub use self::async_fd::AsyncFd;
pub use self::guard::{NotReady, ReadyGuard};
pub use crate::driver::interest::{Interest, Ready};

pub(crate) use self::wait::Wait;

use std::io;
use std::rc::Rc;

use crate::driver::Driver;
use crate::event_loop::{current, explain_missing};

/// The driver of this thread's loop.
pub(crate) fn driver() -> io::Result<Rc<Driver>> {
    current().map(|inner| inner.driver().clone()).ok_or_else(|| {
        io::Error::other(explain_missing(
            "no event loop runs on this thread: sockets are made within `wakeful::block_on`, a task \
             of a loop, or a closure sent by a `LoopHandle`",
        ))
    })
}
