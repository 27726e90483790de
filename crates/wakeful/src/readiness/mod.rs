//! Readiness of any descriptor, for code that makes its own system calls.
//!
//! The sockets of [`net`](crate::net) have their own read and write methods, and do not need this
//! module. [`AsyncFd`] is for everything else that an epoll can watch: inotify, timerfd and
//! signalfd, tun and tap, serial ports, netlink, vsock, raw and packet sockets, the socket of a C
//! library, another library's epoll.
//!
//! Readiness begins with an event of the kernel, and lasts until an operation finds that it has
//! passed (`WouldBlock`). The loop watches the descriptor edge-triggered, so the kernel reports
//! each readiness once. After a descriptor was reported readable, read until `EAGAIN` with
//! [`ReadyGuard::try_io`] or [`AsyncFd::async_io`], or clear the readiness with
//! [`ReadyGuard::clear_ready`].

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
