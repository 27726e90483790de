//! Sockets. Each belongs to the loop that made it: none is `Send` or `Sync`.
//!
//! Make and use a socket within its loop: in `block_on`, in a task, or in a closure that a handle
//! sent. Making one elsewhere is an error. (A [`TcpSocket`] is not connected yet, and belongs to no
//! loop.) Code that shares a socket between two threads does not compile:
//!
//! ```compile_fail,E0277
//! # async fn shared(stream: wakeful::net::TcpStream) {
//! let thread = std::thread::spawn(move || drop(stream));
//! # }
//! ```
//!
//! A table of sessions that several threads share does not compile either. With such a table one
//! thread may close a session that another thread has just looked up (`wakeful lab shared-socket`
//! shows the resulting crash):
//!
//! ```compile_fail,E0277
//! # use std::sync::{Arc, Mutex};
//! # async fn shared(stream: wakeful::net::TcpStream) {
//! let sessions = Arc::new(Mutex::new(vec![stream]));
//! let closing = std::thread::spawn(move || sessions.lock().unwrap().clear());
//! # }
//! ```
//!
//! A socket may move to another task of its loop:
//!
//! ```
//! # async fn alone(stream: wakeful::net::TcpStream) {
//! let task = wakeful::spawn(async move { drop(stream) });
//! # }
//! ```
//!
//! To move a connection to another loop, make it a [`DetachedStream`]. Any thread may hold one, and
//! it can do no I/O:
//!
//! ```
//! use wakeful::net::TcpStream;
//!
//! fn hand_over(stream: TcpStream, to: &wakeful::LoopHandle) {
//!     let detached = stream.detach();
//!     let _ = to.spawn(move || async move {
//!         let mut stream = detached.attach()?.stream;
//!         stream.write_all(b"here I am").await
//!     });
//! }
//! ```
//!
//! Reads and writes are tried at once, and wait only if the kernel would block. If a read fills
//! only a part of its buffer, or the kernel takes only a part of a write, the loop knows that
//! nothing more is ready, and makes no further system call.
//!
//! # Cancel safety
//! An operation that was dropped before it returned has moved no byte. The exceptions are methods
//! that consist of several operations: `write_all`, `read_to_end`, and `read_exact` and similar
//! methods of extension traits.

mod accept;
pub(crate) mod accepted;
mod addr;
mod byte_stream;
mod detached;
mod incoming;
mod listen_addrs;
mod listener;
mod listener_socket;
mod message_io;
mod passing;
mod peer_cred;
pub mod pipe;
mod ready_methods;
mod ready_streams;
mod resolve;
mod split;
mod stream;
mod tcp;
mod tcp_info;
mod tcp_options;
mod tcp_socket;
mod udp;
mod unix;
mod unix_datagram;
mod unix_seqpacket;
mod unix_socket;
mod with_fds;

pub use self::addr::{InvalidListenAddr, ListenAddr, PeerAddr};
pub use self::detached::{AttachError, Attached, DetachedListener, DetachedStream};
pub use self::incoming::Incoming;
pub use self::listen_addrs::ToListenAddrs;
pub use self::listener::Listener;
pub use self::peer_cred::UCred;
pub use self::resolve::{Resolve, resolve};
pub use self::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use self::stream::Stream;
pub use self::tcp::{TcpListener, TcpStream};
pub use self::tcp_info::{TcpInfo, TcpState};
pub use self::tcp_socket::TcpSocket;
#[cfg(feature = "quinn-udp")]
#[cfg_attr(docsrs, doc(cfg(feature = "quinn-udp")))]
pub use self::udp::BatchUdpSocket;
pub use self::udp::UdpSocket;
pub use self::unix::{UnixListener, UnixStream};
pub use self::unix_datagram::UnixDatagram;
pub use self::unix_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};
#[cfg(feature = "quinn-udp")]
#[cfg_attr(docsrs, doc(cfg(feature = "quinn-udp")))]
pub use quinn_udp;

pub(crate) use self::byte_stream::ByteStream;
pub(crate) use self::tcp::{
    bound_like as bound_tcp_like, listen as listen_tcp, listen_beside as listen_tcp_beside,
    listen_bound as listen_bound_tcp, listen_first as listen_first_tcp,
};
pub(crate) use self::tcp_options::keepalive;
pub(crate) use self::unix::listen as listen_unix;

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use crate::driver::listener_members::ListenerMembers;
use crate::driver::membership::Joining;
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::driver::waiters::Place;
use crate::priority::Priority;
use crate::readiness::driver;
use crate::task::coop;

/// Registers a descriptor with this thread's loop.
pub(crate) fn register<T: AsFd>(io: T) -> io::Result<Registered<T>> {
    Registered::new(&driver()?, io)
}

/// Registers a listener that several loops share.
fn register_shared(
    listener: Arc<OwnedFd>,
    memberships: &Arc<ListenerMembers>,
    joining: Joining,
) -> io::Result<Registered<Arc<OwnedFd>>> {
    Registered::shared(&driver()?, listener, memberships, joining)
}

/// Like [`register`], for a descriptor that had a priority on another loop. An error gives the
/// descriptor back.
fn attach<T: AsFd>(io: T, priority: Priority) -> Result<Registered<T>, (T, io::Error)> {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(error) => return Err((io, error)),
    };
    let socket = Registered::attach(&driver, io)?;
    if priority != socket.priority()
        && let Err(error) = socket.set_priority(priority)
    {
        return Err((socket.into_inner(), error));
    }
    Ok(socket)
}

/// Waits until an operation can be done for which several tasks may wait at the same time on one
/// socket, such as accept, or receiving a datagram.
async fn shared<T: AsFd, R>(
    socket: &Registered<T>,
    direction: Direction,
    operation: impl FnMut(&T) -> Result<R, Errno>,
) -> io::Result<R> {
    Shared { socket, direction, operation, place: None }.await
}

struct Shared<'a, T: AsFd, O> {
    socket: &'a Registered<T>,
    direction: Direction,
    operation: O,
    place: Option<Place>,
}

impl<T: AsFd, O> Unpin for Shared<'_, T, O> {}

impl<T: AsFd, R, O: FnMut(&T) -> Result<R, Errno>> Future for Shared<'_, T, O> {
    type Output = io::Result<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        let this = &mut *self;
        poll_shared(this.socket, this.direction, &mut this.place, cx, &mut this.operation)
    }
}

impl<T: AsFd, O> Drop for Shared<'_, T, O> {
    fn drop(&mut self) {
        self.socket.stop_waiting(self.direction, &mut self.place);
    }
}

/// Tries an operation as soon as the socket may be ready for it. Only one task at a time may wait
/// in each direction: the last one that asked is woken.
fn poll_alone<T: AsFd, R>(
    socket: &Registered<T>,
    direction: Direction,
    cx: &mut Context<'_>,
    operation: impl FnMut(&T) -> Result<R, Errno>,
) -> Poll<io::Result<R>> {
    ready!(coop::poll_proceed(cx));
    let done = ready!(socket.poll_io(direction, cx, operation));
    coop::made_progress();
    Poll::Ready(done)
}

/// Tries an operation as soon as the socket may be ready for it. Many tasks may wait at the same
/// time. A task that stops waiting gives its `place` back with [`Registered::stop_waiting`].
fn poll_shared<T: AsFd, R>(
    socket: &Registered<T>,
    direction: Direction,
    place: &mut Option<Place>,
    cx: &mut Context<'_>,
    mut operation: impl FnMut(&T) -> Result<R, Errno>,
) -> Poll<io::Result<R>> {
    loop {
        ready!(coop::poll_proceed(cx));
        ready!(socket.poll_ready_shared(direction, place, cx))?;
        #[cfg(not(feature = "faults"))]
        let done = operation(socket.io());
        #[cfg(feature = "faults")]
        let done = socket.disturb(&mut operation);
        match done {
            Err(Errno::AGAIN) => socket.would_block(direction),
            Err(Errno::INTR) => {}
            result => {
                coop::made_progress();
                return Poll::Ready(result.map_err(crate::sys::limits::explain));
            }
        }
    }
}
