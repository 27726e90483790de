mod poll_send;

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType};
use socket2::SockRef;

use super::message_io::{self, MessageIo, message_methods};
use super::passing::{self, Kind};
use super::ready_methods::ready_methods;
use super::unix::{kernel_addr, unix_addr};
use super::unix_socket::{self, Pause, Pausing};
use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::priority::Priority;
use crate::readiness::Wait;
use crate::sys::limits::{explain, explain_call};
use crate::sys::unix_message::{self, Leave};
use crate::task::coop::checked;
use crate::task::{consume_budget, coop};
use crate::time::{sleep, timeout};

/// A Unix datagram socket of this loop. Datagrams arrive in order, and none is lost on the way: a
/// sender waits until the receiver's queue has room. (Bytes that do not fit into `buf` are lost,
/// and so are datagrams in the queue of a receiver that closes.) Several tasks may wait on it at
/// once, in each direction.
///
/// It is bound to a path or to an abstract name, or has no address ([`unbound`](Self::unbound),
/// [`pair`](Self::pair)). A receiver cannot answer a socket without an address. The socket file of
/// a path stays when the socket closes: remove the file yourself.
///
/// Descriptors that a peer attaches to a datagram are closed, unless
/// [`recv_with_fds`](Self::recv_with_fds) or [`recv_from_with_fds`](Self::recv_from_with_fds)
/// receives the datagram.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
///
/// # Examples
/// ```
/// use wakeful::net::UnixDatagram;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let server = UnixDatagram::autobind()?;
///     let client = UnixDatagram::autobind()?;
///     client.send_to_addr(b"question", &server.local_addr()?).await?;
///
///     let mut buf = [0; 64];
///     let (length, from) = server.recv_from(&mut buf).await?;
///     assert_eq!(&buf[..length], b"question");
///     server.send_to_addr(b"answer", &from).await?;
///     assert_eq!(client.recv(&mut buf).await?, 6);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct UnixDatagram {
    io: MessageIo,
    /// The pause of a hand-written send that waits for room.
    pausing: RefCell<Option<Box<Pausing>>>,
}

message_methods!(UnixDatagram, "datagram");
ready_methods!(UnixDatagram);

impl UnixDatagram {
    /// Makes a socket that receives at `path`, and creates the socket file.
    ///
    /// # Errors
    /// The file exists (`AddrInUse`), or cannot be created; the path is too long for an address
    /// (`ENAMETOOLONG`); no loop runs on this thread; no descriptors are left.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bound(&SocketAddrUnix::new(path.as_ref())?)
    }

    /// Makes a socket that receives at `addr`: a path, as for [`bind`](Self::bind), or an abstract
    /// name, which has no file (unix(7)).
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for `bind`.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::bound(&kernel_addr(addr)?)
    }

    /// Makes a socket that receives at an abstract name that the kernel chooses (unix(7), "Autobind
    /// feature"): see [`local_addr`](Self::local_addr). This is for clients that expect answers.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn autobind() -> io::Result<Self> {
        Self::bound(&SocketAddrUnix::new_unnamed())
    }

    /// Makes a socket without an address, which can only send.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn unbound() -> io::Result<Self> {
        Self::on_loop(socket()?)
    }

    /// Makes two sockets that are connected to each other. If one of them is closed, the other one
    /// learns this only when it sends.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = unix_socket::pair(SocketType::DGRAM)?;
        Ok((Self::on_loop(one)?, Self::on_loop(other)?))
    }

    fn bound(addr: &SocketAddrUnix) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::bind(&fd, addr).map_err(explain_call("bind"))?;
        Self::on_loop(fd)
    }

    fn on_loop(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { io: MessageIo::new(fd)?, pausing: RefCell::default() })
    }

    /// Puts an existing socket on this loop. The socket becomes non-blocking. So do its duplicates,
    /// even in other processes, because this is a property of the open file.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(socket: std::os::unix::net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::on_loop(socket.into())
    }

    /// Removes the socket from its loop. The socket stays non-blocking.
    #[must_use]
    pub fn into_std(self) -> std::os::unix::net::UnixDatagram {
        self.io.into_fd().into()
    }

    /// Fixes the peer: [`send`](Self::send) sends to it, and only its datagrams are received.
    ///
    /// # Errors
    /// Kernel errors: `NotFound` if there is no such file, `ConnectionRefused` if no socket is
    /// bound there; the path is too long for an address (`ENAMETOOLONG`).
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::net::connect(self, &SocketAddrUnix::new(path.as_ref())?)?)
    }

    /// Like [`connect`](Self::connect), to a path or to an abstract name.
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for `connect`.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(self, &kernel_addr(addr)?)?)
    }

    /// Sends a datagram to the socket at `path`, and returns its length in bytes. While the
    /// receiver's queue is full, it retries, at first after 50 µs and later after up to 10 ms: the
    /// kernel reports no event when the queue of an unconnected peer has room.
    ///
    /// # Errors
    /// Kernel errors: `NotFound` if there is no such file, `ConnectionRefused` if no socket is
    /// bound there; the path is too long for an address (`ENAMETOOLONG`); the loop has ended; the
    /// same as for [`send`](Self::send).
    ///
    /// # Cancel safety
    /// A call that was dropped before it returned has sent nothing.
    pub async fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let addr = checked(SocketAddrUnix::new(path.as_ref())).await?;
        self.send_addressed(buf, &[], &addr).await
    }

    /// Like [`send_to`](Self::send_to), to a path or to an abstract name.
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for
    /// [`send_to`](Self::send_to).
    ///
    /// # Cancel safety
    /// The same as for [`send_to`](Self::send_to).
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.send_addressed(buf, &[], &checked(kernel_addr(addr)).await?).await
    }

    /// Like [`send_to_addr`](Self::send_to_addr), but also sends descriptors, as
    /// [`send_with_fds`](Self::send_with_fds) does.
    ///
    /// # Errors
    /// The same as for [`send_to_addr`](Self::send_to_addr) and
    /// [`send_with_fds`](Self::send_with_fds).
    ///
    /// # Cancel safety
    /// The same as for [`send_to`](Self::send_to).
    pub async fn send_to_with_fds(
        &self,
        buf: &[u8],
        addr: &SocketAddr,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        checked(passing::check(Kind::Messages, buf, fds)).await?;
        self.send_addressed(buf, fds, &checked(kernel_addr(addr)).await?).await
    }

    /// Like [`send_to`](Self::send_to), but does not wait. If this socket's buffer is full, try
    /// again when the socket is [`writable`](Self::writable). If the other socket's queue is full,
    /// there is no event when it has room.
    ///
    /// # Errors
    /// `WouldBlock`: this socket's buffer or the other socket's queue has no room now. Otherwise,
    /// the same as for [`send_to`](Self::send_to).
    pub fn try_send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let addr = SocketAddrUnix::new(path.as_ref())?;
        self.try_send_addressed(buf, &[], &addr).map_err(explain)
    }

    /// Like [`try_send_to`](Self::try_send_to), to a path or to an abstract name.
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for
    /// [`try_send_to`](Self::try_send_to).
    pub fn try_send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.try_send_addressed(buf, &[], &kernel_addr(addr)?).map_err(explain)
    }

    async fn send_addressed(
        &self,
        buf: &[u8],
        fds: &[BorrowedFd<'_>],
        to: &SocketAddrUnix,
    ) -> io::Result<usize> {
        let mut pause = Pause::new();
        loop {
            consume_budget().await;
            match self.try_send_addressed(buf, fds, to) {
                Err(Errno::AGAIN) if is_writable(self) => sleep(pause.next()).await,
                Err(Errno::AGAIN) => {
                    // Or the queue of a third socket, to which this one is connected, is full.
                    let writable = Wait::new(self.socket(), Interest::WRITABLE);
                    if let Ok(Err(ended)) = timeout(pause.next(), writable).await {
                        return Err(ended);
                    }
                }
                result => return result.map_err(explain),
            }
        }
    }

    /// The readiness of the socket says nothing about the receiver's queue, so it is not checked.
    fn try_send_addressed(
        &self,
        buf: &[u8],
        fds: &[BorrowedFd<'_>],
        to: &SocketAddrUnix,
    ) -> Result<usize, Errno> {
        loop {
            match passing::send(self.socket().io(), buf, fds, Some(to)) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !is_writable(self) {
                        self.socket().would_block(Direction::Write);
                    }
                    return Err(Errno::AGAIN);
                }
                result => return result,
            }
        }
    }

    /// Receives a datagram. Returns how many bytes of it are in `buf`, and the sender's address.
    /// The address is unnamed if the sender's socket was not bound (or was bound to a path of 108
    /// bytes, which [`SocketAddr`] cannot hold). Bytes that do not fit into `buf` are lost. Several
    /// tasks may wait at once.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// A call that was dropped before it returned has taken nothing.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.shared(Direction::Read, |fd| receive_from(fd, buf, Leave::Nothing)).await
    }

    /// Like [`recv_from`](Self::recv_from), but the datagram stays in the queue.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.shared(Direction::Read, |fd| receive_from(fd, buf, Leave::Message)).await
    }

    /// Like [`recv_from`](Self::recv_from), but also receives the datagram's descriptors, as
    /// [`recv_with_fds`](Self::recv_with_fds) does.
    ///
    /// # Errors
    /// The same as for [`recv_from`](Self::recv_from) and [`recv_with_fds`](Self::recv_with_fds).
    ///
    /// # Cancel safety
    /// The same as for [`recv_with_fds`](Self::recv_with_fds).
    pub async fn recv_from_with_fds(
        &self,
        buf: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> io::Result<(usize, SocketAddr)> {
        self.io
            .shared(Direction::Read, |fd| {
                let message = passing::receive(fd, Kind::Messages, buf, fds)?;
                Ok((message.count, message.sender()))
            })
            .await
    }

    /// Like [`recv_from`](Self::recv_from), but does not wait.
    ///
    /// # Errors
    /// `WouldBlock`: nothing has arrived. Kernel errors.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.attempt(Direction::Read, |fd| receive_from(fd, buf, Leave::Nothing))
    }

    /// Like [`peek_from`](Self::peek_from), but does not wait.
    ///
    /// # Errors
    /// `WouldBlock`: nothing has arrived. Kernel errors.
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.attempt(Direction::Read, |fd| receive_from(fd, buf, Leave::Message))
    }

    /// Polls like [`recv_from`](Self::recv_from), for hand-written futures. Only one task at a time
    /// may poll: only the last caller is woken. Any number of tasks may await `recv_from`
    /// meanwhile.
    ///
    /// # Errors
    /// The same as for [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let receive = |fd: &OwnedFd| receive_from(fd, buf, Leave::Nothing);
        self.io.poll_alone(Direction::Read, cx, receive)
    }
}

fn socket() -> io::Result<OwnedFd> {
    super::addr::socket(AddressFamily::UNIX, SocketType::DGRAM)
}

fn receive_from(fd: &OwnedFd, buf: &mut [u8], leave: Leave) -> Result<(usize, SocketAddr), Errno> {
    let message = unix_message::receive(fd.as_fd(), buf, None, leave)?;
    Ok((message.count, message.sender()))
}

/// Is there room in the socket's own buffer, and in the queue of the socket that it is connected
/// to?
fn is_writable(socket: &UnixDatagram) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    let asked = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}
