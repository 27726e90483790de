//! Making Unix sockets of every kind: that listen, are connected, or are a pair.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys::limits::explain_call;
use crate::task::consume_budget;
use crate::time::{Sleep, sleep};

/// The pause before the next attempt, if the kernel reports no event: 50 µs at first, and 10 ms at
/// most.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) fn new() -> Self {
        Self(Duration::from_micros(50))
    }

    /// The length of the next pause.
    pub(super) fn next(&mut self) -> Duration {
        let next = (self.0 * 2).min(Duration::from_millis(10));
        std::mem::replace(&mut self.0, next)
    }
}

/// A series of pauses, for code that is polled by hand.
#[derive(Debug)]
pub(super) struct Pausing {
    next: Pause,
    sleep: Sleep,
}

impl Pausing {
    /// Ready when a pause is over. Then the next pause begins.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let over = Pin::new(&mut self.sleep).poll(cx);
        if over.is_ready() {
            self.sleep = sleep(self.next.next());
        }
        over
    }
}

impl Default for Pausing {
    fn default() -> Self {
        let mut next = Pause::new();
        let sleep = sleep(next.next());
        Self { next, sleep }
    }
}

/// A non-blocking socket that listens on `addr`.
pub(super) fn listen(kind: SocketType, addr: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let fd = super::addr::socket(AddressFamily::UNIX, kind)?;
    rustix::net::bind(&fd, addr).map_err(explain_call("bind"))?;
    rustix::net::listen(&fd, i32::MAX).map_err(explain_call("listen"))?;
    Ok(fd)
}

/// A connection to `addr`. While the listener's backlog is full, it tries again.
///
/// *Cancel-safe*: dropping the future ends the attempt.
pub(super) async fn connect(kind: SocketType, addr: &SocketAddrUnix) -> io::Result<OwnedFd> {
    // The attempt may fail at once, and be repeated in a loop.
    consume_budget().await;
    let fd = super::addr::socket(AddressFamily::UNIX, kind)?;
    let mut pause = Pause::new();
    loop {
        match rustix::net::connect(&fd, addr) {
            Ok(()) => return Ok(fd),
            Err(Errno::AGAIN) => sleep(pause.next()).await,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Two sockets that are connected to each other.
pub(super) fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
        .map_err(explain_call("socketpair"))
}
