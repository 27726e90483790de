//! Sockets between two loops: removed from one, and not yet on the other.
//!
//! A socket on a loop cannot leave its thread; a detached socket can do no I/O. It keeps nothing of
//! the old loop: no registration, no waker, no readiness. It carries what the next loop needs: the
//! descriptor, its kind, its priority, and the bytes that were already read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::addr::{ListenAddr, PeerAddr};
use super::byte_stream::StreamIo;
use super::listener::Listener;
use super::stream::Stream;
use super::tcp::{self, TcpListener, TcpStream};
use super::unix::{UnixListener, UnixStream};
use crate::driver::listener_members::ListenerMembers;
use crate::driver::membership::Joining;
use crate::priority::Priority;
use crate::sys::uninit::ReadCall;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Tcp,
    Unix,
}

/// A connection on its way from one loop to another. It belongs to no loop, and can do no I/O.
/// Dropping it closes the connection.
///
/// `detach` removes a stream from its loop, on that loop's thread. It takes the stream by value, so
/// no operation can be in flight: a pending read or write borrows the stream. Drop such a future
/// first. If the operation is *cancel-safe*, it has then moved no byte.
/// [Reunite](super::OwnedReadHalf::reunite) split streams first. After `detach` the old loop wakes
/// no task for the stream. If you have read bytes from the stream but not used them, send them
/// along with [`with_unread`](Self::with_unread). [`attach`](Self::attach) puts the stream on the
/// loop of the calling thread.
///
/// Its socket options and its [`Priority`] do not change. Bytes that arrive meanwhile wait in the
/// kernel.
///
/// ```
/// use wakeful::LoopGroup;
/// use wakeful::net::{DetachedStream, TcpListener, TcpStream};
///
/// // Reads the first byte, and leaves the rest to the loop that knows what to do with it.
/// async fn route(mut stream: TcpStream, group: &LoopGroup) -> std::io::Result<()> {
///     let mut buf = [0; 64];
///     let read = stream.read(&mut buf).await?;
///     let Some((number, rest)) = buf[..read].split_first() else { return Ok(()) };
///     let to = &group.handles()[usize::from(*number) % 2];
///     let detached = stream.detach().with_unread(rest);
///     to.spawn(move || serve(detached)).expect("the loop runs").detach();
///     Ok(())
/// }
///
/// async fn serve(detached: DetachedStream) -> std::io::Result<()> {
///     let attached = detached.attach()?;
///     let (mut stream, mut line) = (attached.stream, attached.unread);
///     let mut buf = [0; 64];
///     while !line.ends_with(b"\n") {
///         match stream.read(&mut buf).await? {
///             0 => break,
///             read => line.extend_from_slice(&buf[..read]),
///         }
///     }
///     stream.write_all(&line).await
/// }
///
/// # fn main() -> std::io::Result<()> {
/// let group = LoopGroup::builder().loops(2).build()?;
/// wakeful::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let mut client = TcpStream::connect(listener.local_addr()?).await?;
///     let (server, _) = listener.accept().await?;
///     client.write_all(b"\x01hello\n").await?;
///     route(server, &group).await?;
///     let mut answer = [0; 64];
///     let read = client.read(&mut answer).await?;
///     assert_eq!(&answer[..read], b"hello\n");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug)]
#[must_use = "dropping it closes the connection"]
pub struct DetachedStream {
    fd: OwnedFd,
    kind: Kind,
    priority: Priority,
    unread: Vec<u8>,
}

/// A stream on its new loop, and bytes that were read from it before.
#[derive(Debug)]
pub struct Attached {
    /// The connection.
    pub stream: Stream,
    /// The bytes that were given to [`DetachedStream::with_unread`]. They come before all bytes
    /// that the stream reads.
    pub unread: Vec<u8>,
}

impl DetachedStream {
    /// A connection that has not been on a loop yet.
    pub(super) fn of_tcp(fd: OwnedFd, priority: Priority) -> Self {
        Self { fd, kind: Kind::Tcp, priority, unread: Vec::new() }
    }

    /// Like [`of_tcp`](Self::of_tcp).
    pub(super) fn of_unix(fd: OwnedFd, priority: Priority) -> Self {
        Self { fd, kind: Kind::Unix, priority, unread: Vec::new() }
    }

    fn take(stream: Stream) -> Self {
        let (kind, io) = match stream {
            Stream::Tcp(stream) => (Kind::Tcp, stream.into_io()),
            Stream::Unix(stream) => (Kind::Unix, stream.into_io()),
        };
        let priority = io.priority();
        Self { fd: io.into_fd(), kind, priority, unread: Vec::new() }
    }

    /// Adds bytes that were read from the connection but not used. The code that attaches the
    /// stream must process them first. A second call appends its bytes to those of the first.
    pub fn with_unread(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        let mut bytes = bytes.into();
        if self.unread.is_empty() {
            self.unread = bytes;
        } else {
            self.unread.append(&mut bytes);
        }
        self
    }

    /// Returns the bytes that were added with [`with_unread`](Self::with_unread).
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// Kernel errors; `NotConnected` if the connection is gone.
    pub fn peer_addr(&self) -> io::Result<PeerAddr> {
        match self.kind {
            Kind::Tcp => tcp::peer_addr(&self.fd).map(PeerAddr::Tcp),
            Kind::Unix => Ok(PeerAddr::Unix),
        }
    }

    /// Puts the connection on this thread's loop. The first operation is tried at once, so bytes
    /// that have arrived meanwhile are read without waiting for an event.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left; `max_user_watches` is reached. The
    /// error returns the connection.
    pub fn attach(self) -> Result<Attached, AttachError<Self>> {
        let Self { fd, kind, priority, unread } = self;
        let on_loop = match kind {
            Kind::Tcp => StreamIo::attach(fd, ReadCall::Plain, priority)
                .map(|io| TcpStream::from_io(io).into()),
            Kind::Unix => StreamIo::attach(fd, ReadCall::Message, priority)
                .map(|io| UnixStream::from_io(io).into()),
        };
        match on_loop {
            Ok(stream) => Ok(Attached { stream, unread }),
            Err((fd, error)) => {
                Err(AttachError { error, detached: Self { fd, kind, priority, unread } })
            }
        }
    }
}

/// A listener on its way from one loop to another, like a [`DetachedStream`]. Connections wait in
/// the backlog until it is attached. Dropping it closes the socket. (If it comes from a
/// [`SharedListener`](crate::accept::SharedListener), the socket closes when the last owner drops
/// it.)
///
/// ```
/// use wakeful::accept::Listener;
/// use wakeful::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// let group = wakeful::LoopGroup::builder().loops(1).build()?;
/// wakeful::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let addr = listener.local_addr()?;
///     let detached = listener.detach();
///     let accepted = group.handles()[0].spawn(move || async move {
///         let listener: Listener = detached.attach()?;
///         listener.accept().await.map(|(_stream, peer)| peer.to_string())
///     });
///     let client = TcpStream::connect(addr).await?;
///     let peer = accepted.expect("the loop runs").await??;
///     assert_eq!(peer, client.local_addr()?.to_string());
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug)]
#[must_use = "dropping it closes the listener"]
pub struct DetachedListener {
    fd: Arc<OwnedFd>,
    kind: Kind,
    /// The memberships of all loops that share the listener, if they do.
    memberships: Option<Arc<ListenerMembers>>,
    /// Other processes may have the socket.
    is_lent: bool,
    priority: Priority,
}

impl DetachedListener {
    /// A socket that listens on `addr`, and that only one loop will use.
    pub(crate) fn new(fd: Arc<OwnedFd>, addr: &ListenAddr) -> Self {
        let kind = match addr {
            ListenAddr::Tcp(_) => Kind::Tcp,
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => Kind::Unix,
        };
        Self { fd, kind, memberships: None, is_lent: false, priority: Priority::Normal }
    }

    fn take(listener: Listener) -> Self {
        let (kind, socket) = match listener {
            Listener::Tcp(listener) => (Kind::Tcp, listener.into_socket()),
            Listener::Unix(listener) => (Kind::Unix, listener.into_socket()),
        };
        let (memberships, priority) = (socket.memberships().cloned(), socket.priority());
        let is_lent = socket.is_lent();
        Self { fd: socket.into_inner(), kind, memberships, is_lent, priority }
    }

    pub(crate) fn lent(mut self, is_lent: bool) -> Self {
        self.is_lent = is_lent;
        self
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Puts the listener on this thread's loop.
    ///
    /// # Errors
    /// The same as for [`DetachedStream::attach`].
    pub fn attach(self) -> Result<Listener, AttachError<Self>> {
        let Self { fd, kind, memberships, is_lent, priority } = self;
        let attached = match &memberships {
            Some(memberships) => super::register_shared(fd.clone(), memberships, Joining::AtOnce)
                .map_err(|error| (fd, error)),
            None => super::attach(fd, priority),
        };
        match attached {
            Ok(socket) => {
                socket.set_lent(is_lent);
                Ok(match kind {
                    Kind::Tcp => Listener::Tcp(TcpListener::from_socket(socket)),
                    Kind::Unix => Listener::Unix(UnixListener::from_socket(socket)),
                })
            }
            Err((fd, error)) => {
                let detached = Self { fd, kind, memberships, is_lent, priority };
                Err(AttachError { error, detached })
            }
        }
    }
}

macro_rules! detach {
    ($($type:ident),*) => { $(
        impl $type {
            /// Removes the stream from its loop, to [attach](DetachedStream::attach) it to another
            /// one. From now on no task is woken for it here.
            pub fn detach(self) -> DetachedStream {
                DetachedStream::take(self.into())
            }
        }
    )* };
}
detach!(TcpStream, UnixStream, Stream);

macro_rules! detach_listener {
    ($($type:ident),*) => { $(
        impl $type {
            /// Removes the listener from its loop, to [attach](DetachedListener::attach) it to
            /// another one.
            pub fn detach(self) -> DetachedListener {
                DetachedListener::take(self.into())
            }
        }
    )* };
}
detach_listener!(TcpListener, UnixListener, Listener);

/// The error of an `attach`: this thread's loop did not accept the socket. The error holds the
/// socket. Drop the error to close it, or try again on this or another thread.
#[derive(Debug, thiserror::Error)]
#[error("not attached: {error}")]
pub struct AttachError<T> {
    #[source]
    error: io::Error,
    detached: T,
}

impl<T> AttachError<T> {
    /// Returns the stream or listener that was not attached.
    pub fn into_inner(self) -> T {
        self.detached
    }

    pub(crate) fn into_parts(self) -> (T, io::Error) {
        (self.detached, self.error)
    }

    /// Returns the cause.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

/// Returns the cause, for `?`, and closes the socket.
impl<T> From<AttachError<T>> for io::Error {
    fn from(error: AttachError<T>) -> Self {
        error.error
    }
}
