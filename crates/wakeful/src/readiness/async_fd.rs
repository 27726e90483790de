use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::guard::ReadyGuard;
use super::wait::Wait;
use crate::driver::interest::Interest;
use crate::driver::registered::Registered;
use crate::priority::Priority;
use crate::task::coop;

/// A descriptor of any kind whose readiness wakes tasks of this loop.
///
/// It holds a value that owns or borrows the descriptor: a `File`, an `OwnedFd`, a C library's
/// socket in a type with [`AsFd`], a `BorrowedFd`. Several tasks may wait at once, in each
/// direction. If a C library owns the descriptor, drop the `AsyncFd` before the library closes the
/// descriptor.
///
/// ```
/// use rustix::fs::inotify;
/// use wakeful::readiness::{AsyncFd, Interest};
///
/// # fn main() -> std::io::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wakeful-inotify-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// wakeful::block_on(async {
///     let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
///     let changes = AsyncFd::new(inotify::init(flags)?)?;
///     inotify::add_watch(changes.get_ref(), &dir, inotify::WatchFlags::CREATE)?;
///     std::fs::write(dir.join("new"), "")?;
///
///     let mut buf = [0; 4096];
///     let length = changes
///         .async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut buf)?))
///         .await?;
///     assert!(length > 0);
/// #   std::fs::remove_dir_all(&dir)?;
///     Ok(())
/// })
/// # }
/// ```
///
/// A forked child keeps the descriptor open, because the loop cannot know whether other code owns
/// it.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
pub struct AsyncFd<T: AsFd> {
    socket: Registered<T>,
}

impl<T: AsFd> AsyncFd<T> {
    /// Watches the descriptor of `io` on this thread's loop.
    ///
    /// This does not set `O_NONBLOCK`, because that flag belongs to the open file, which other
    /// processes may share (the terminal of standard input, an inherited socket). Without the flag,
    /// a read or write that is not ready blocks the loop. [`nonblocking`](Self::nonblocking) sets
    /// it.
    ///
    /// # Errors
    /// * No loop runs on this thread.
    /// * `InvalidInput`: the descriptor is a regular file or a directory, which the kernel cannot
    ///   watch; or it is not open.
    /// * `AlreadyExists`: this loop already watches the descriptor with normal priority. Share the
    ///   `AsyncFd`, or watch a duplicate of the descriptor.
    /// * No memory or watches are left.
    ///
    /// After an error `io` is dropped.
    pub fn new(io: T) -> io::Result<Self> {
        let watched = Registered::watched(&super::driver()?, io);
        watched.map(|socket| Self { socket }).map_err(explain)
    }

    /// Like [`new`](Self::new), but sets `O_NONBLOCK`. This affects all holders of the open file,
    /// as long as it is open.
    ///
    /// # Errors
    /// The same as for `new`; kernel errors. After an error the flag is as it was before.
    pub fn nonblocking(io: T) -> io::Result<Self> {
        let watched = Self::new(io)?;
        let flags = rustix::fs::fcntl_getfl(&watched)?;
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&watched, flags | OFlags::NONBLOCK)?;
        }
        Ok(watched)
    }

    /// Returns a reference to the inner value.
    ///
    /// There is no `&mut` access, because the watched descriptor must not change. Use
    /// [`into_inner`](Self::into_inner) to take the value out.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        self.socket.io()
    }

    /// Stops watching the descriptor, and returns the inner value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.socket.into_inner()
    }

    /// Waits until the descriptor is readable: it has data, its end, or an error.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn readable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Waits until the descriptor is writable.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn writable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// Waits until at least one kind of readiness in `interest` was reported.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn ready(&self, interest: Interest) -> io::Result<ReadyGuard<'_, T>> {
        let seen = Wait::new(&self.socket, interest).await?;
        Ok(ReadyGuard::new(&self.socket, seen))
    }

    /// Waits until the descriptor is ready, and calls `operation`. Repeats this while `operation`
    /// returns `WouldBlock`. With several interests `WouldBlock` means that none of them is ready.
    ///
    /// # Cancel safety
    /// Cancel-safe, if `operation` is one system call.
    ///
    /// # Errors
    /// Errors of `operation`; the loop has ended.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            if let Ok(result) = self.ready(interest).await?.try_io(&mut operation) {
                return result;
            }
        }
    }

    /// Polls like [`readable`](Self::readable), for hand-written futures. Only one task at a time
    /// may poll: only the last caller is woken.
    ///
    /// # Errors
    /// The loop has ended.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_interest(Interest::READABLE, cx)
    }

    /// Polls like [`writable`](Self::writable), for hand-written futures. Only one task at a time
    /// may poll: only the last caller is woken.
    ///
    /// # Errors
    /// The loop has ended.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_interest(Interest::WRITABLE, cx)
    }

    fn poll_interest(
        &self,
        interest: Interest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        ready!(coop::poll_proceed(cx));
        let seen = ready!(self.socket.poll_seen_alone(interest, cx));
        coop::made_progress();
        Poll::Ready(Ok(ReadyGuard::new(&self.socket, seen?)))
    }

    /// Sets the priority: events of a high-priority descriptor are handled in the next turn, before
    /// all others. See [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
    ///
    /// # Errors
    /// The same as for [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.socket.set_priority(priority)
    }
}

/// Explains what an error of epoll means here.
fn explain(error: io::Error) -> io::Error {
    let (kind, why) = match Errno::from_io_error(&error) {
        Some(Errno::PERM) => (
            io::ErrorKind::InvalidInput,
            "a regular file or a directory is always ready and cannot be watched: read it on the pool \
             (`wakeful::task::spawn_blocking`)",
        ),
        Some(Errno::EXIST) => (
            io::ErrorKind::AlreadyExists,
            "this loop watches the descriptor already: share the `AsyncFd`, or watch a duplicate",
        ),
        Some(Errno::BADF) => (io::ErrorKind::InvalidInput, "the descriptor is not open"),
        _ => return error,
    };
    io::Error::new(kind, why)
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.io().as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(self.socket.io()).finish()
    }
}
