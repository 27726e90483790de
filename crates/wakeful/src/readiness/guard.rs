use std::fmt;
use std::io;
use std::os::fd::AsFd;

use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::driver::seen::Seen;

/// A descriptor that was ready, with methods to use the descriptor and to clear its readiness.
///
/// If the guard is dropped, the descriptor still counts as ready, and the next wait returns at
/// once.
///
/// You may hold the guard for any time, even across an `await`: [`clear_ready`](Self::clear_ready)
/// does not lose an event that arrives meanwhile.
///
/// ```
/// # use std::io::Write;
/// # use std::os::unix::net::UnixStream;
/// # fn main() -> std::io::Result<()> {
/// use rustix::io::{Errno, read};
/// use wakeful::readiness::AsyncFd;
///
/// wakeful::block_on(async {
///     let (here, mut there) = UnixStream::pair()?;
///     let here = AsyncFd::nonblocking(here)?;
///     there.write_all(b"hello")?;
///
///     let mut buf = [0; 16];
///     let mut guard = here.readable().await?;
///     assert!(guard.ready().is_readable());
///     assert_eq!(read(guard.get_ref(), &mut buf), Ok(5));
///     assert_eq!(read(guard.get_ref(), &mut buf), Err(Errno::AGAIN));
///     guard.clear_ready(); // The next wait ends when more comes.
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[must_use = "it says that the descriptor was ready; try something with it"]
pub struct ReadyGuard<'a, T: AsFd> {
    socket: &'a Registered<T>,
    seen: Seen,
}

/// The error of [`ReadyGuard::try_io`]: the operation returned `WouldBlock`, because the descriptor
/// is no longer ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotReady;

impl<'a, T: AsFd> ReadyGuard<'a, T> {
    pub(super) fn new(socket: &'a Registered<T>, seen: Seen) -> Self {
        Self { socket, seen }
    }

    /// Returns which of the awaited interests were ready.
    #[must_use]
    pub fn ready(&self) -> Ready {
        self.seen.ready
    }

    /// Returns a reference to the inner value of the [`AsyncFd`](super::AsyncFd).
    #[must_use]
    pub fn get_ref(&self) -> &'a T {
        self.socket.io()
    }

    /// Calls `operation` once. If it returns `WouldBlock`, all readiness that this guard saw is
    /// cleared: if the descriptor was readable *and* writable, both are cleared. To clear only one
    /// of them, use [`clear_ready_matching`](Self::clear_ready_matching).
    ///
    /// `operation` must use this descriptor, and must return `WouldBlock` for no other reason:
    /// otherwise the next wait would never end.
    ///
    /// ```
    /// # use std::io::{Read, Write};
    /// # use std::os::unix::net::UnixStream;
    /// # fn main() -> std::io::Result<()> {
    /// use wakeful::readiness::AsyncFd;
    ///
    /// wakeful::block_on(async {
    ///     let (here, mut there) = UnixStream::pair()?;
    ///     let here = AsyncFd::nonblocking(here)?;
    ///     there.write_all(b"hello")?;
    ///
    ///     let mut buf = [0; 16];
    ///     let mut guard = here.readable().await?;
    ///     let read = guard.try_io(|mut stream| stream.read(&mut buf)).expect("it is ready")?;
    ///     assert_eq!(&buf[..read], b"hello");
    ///     assert!(guard.try_io(|mut stream| stream.read(&mut buf)).is_err(), "that was all");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotReady`]: `operation` returned `WouldBlock`. Any other result of `operation` is inside
    /// the `Ok`.
    pub fn try_io<R>(
        &mut self,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> Result<io::Result<R>, NotReady> {
        match operation(self.socket.io()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The readiness is cleared as of this moment, including events that came since the
                // guard was made.
                let seen = self.seen.interest();
                let now = self.socket.seen(seen);
                self.socket.clear(&now, seen);
                Err(NotReady)
            }
            result => Ok(result),
        }
    }

    /// Clears the readiness that this guard saw. The next wait ends with an event that arrives
    /// after the guard was made.
    ///
    /// Call it only if you know that the descriptor is not ready, for example after `EAGAIN`. If
    /// the descriptor *is* ready, there is no new event, and the next wait would not end. A closed
    /// descriptor stays ready.
    pub fn clear_ready(&mut self) {
        self.clear_ready_matching(self.seen.interest());
    }

    /// Like [`clear_ready`](Self::clear_ready), but only for `interest`.
    pub fn clear_ready_matching(&mut self, interest: Interest) {
        self.socket.clear(&self.seen, interest);
    }
}

impl<T: AsFd> fmt::Debug for ReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyGuard").field("ready", &self.seen.ready).finish_non_exhaustive()
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the descriptor is not ready")
    }
}

impl std::error::Error for NotReady {}

impl From<NotReady> for io::Error {
    fn from(not_ready: NotReady) -> Self {
        Self::new(io::ErrorKind::WouldBlock, not_ready)
    }
}
