//! Many datagrams by one system call, through the crate `quinn-udp`.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;

use super::UdpSocket;
use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::net::ready_methods::ready_methods;
use crate::net::shared;
use crate::priority::Priority;
use crate::readiness::Wait;
use crate::task::{consume_budget, coop};

/// A UDP socket for QUIC, and for other protocols that send many datagrams at once. With each
/// datagram it returns the ECN mark and the address to which the datagram was sent. It never sends
/// fragments, if the system can forbid them (see [`may_fragment`](Self::may_fragment)).
///
/// * [`send`](Self::send) takes a [`Transmit`]: one buffer that the kernel, or the network card,
///   cuts into datagrams of one size (GSO, `UDP_SEGMENT`).
/// * [`recv`](Self::recv) takes several buffers (`recvmmsg`), and fills each with one datagram or
///   with several of one sender and of one size (GRO, `UDP_GRO`). [`RecvMeta::stride`] is the
///   length of each of these datagrams (the last one may be shorter). A peer may send an empty
///   datagram, whose length and stride are 0.
///
/// The types are those of the crate `quinn-udp` (0.5), as [`quinn_udp`](crate::net::quinn_udp).
/// `ports/adapters/examples/quinn` in wakeful's repository runs `quinn` on this socket.
///
/// All operations are *cancel-safe*: a call that was dropped before it returned has sent or
/// received nothing.
///
/// ```
/// use std::io::IoSliceMut;
/// use wakeful::net::quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
/// use wakeful::net::{BatchUdpSocket, UdpSocket};
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let one = BatchUdpSocket::new(UdpSocket::bind("127.0.0.1:0").await?)?;
///     let other = BatchUdpSocket::new(UdpSocket::bind("127.0.0.1:0").await?)?;
///
///     one.send(&Transmit {
///         destination: other.local_addr()?,
///         ecn: Some(EcnCodepoint::Ect0),
///         contents: b"hello",
///         segment_size: None,
///         src_ip: None,
///     })
///     .await?;
///
///     let mut buf = vec![0; 1500 * other.max_receive_segments()];
///     let mut meta = [RecvMeta::default()];
///     let filled = other.recv(&mut [IoSliceMut::new(&mut buf)], &mut meta).await?;
///     assert_eq!((filled, meta[0].addr), (1, one.local_addr()?));
///     assert_eq!(meta[0].ecn, Some(EcnCodepoint::Ect0));
///     // The stride of an empty datagram is 0.
///     for datagram in buf[..meta[0].len].chunks(meta[0].stride.max(1)) {
///         assert_eq!(datagram, b"hello");
///     }
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread. If a library requires a `Send` and
/// `Sync` socket, as `quinn` does, put it in a [`LoopBound`](crate::LoopBound).
#[derive(Debug)]
pub struct BatchUdpSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

ready_methods!(BatchUdpSocket);

impl BatchUdpSocket {
    /// Makes a `BatchUdpSocket`, and sets the options that batches need (`IP_PKTINFO`,
    /// `IP_RECVTOS`, `UDP_GRO`, `IP_MTU_DISCOVER`, and those of IPv6). Bind and connect the socket,
    /// and set its other options, before this call. (The result has no plain `recv`, which would
    /// return several datagrams as if they were one.)
    ///
    /// # Errors
    /// Kernel errors. After an error the socket is closed.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state })
    }

    /// Sends all of `transmit`: one datagram, or up to
    /// [`max_transmit_segments`](Self::max_transmit_segments) datagrams of `segment_size` bytes
    /// (the last one may be shorter). Several tasks may send at once.
    ///
    /// # Errors
    /// Kernel errors: `EMSGSIZE` for datagrams that are longer than the path allows. A protocol
    /// that retransmits lost datagrams, such as QUIC, may treat any error as a loss. A network card
    /// or a kernel that cannot cut buffers may return `EIO` or `EINVAL`:
    /// [`max_transmit_segments`](Self::max_transmit_segments) is 1 from then on.
    pub async fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        shared(self.socket(), Direction::Write, |fd| send(&self.state, fd, transmit)).await
    }

    /// Like [`send`](Self::send), but does not wait.
    ///
    /// # Errors
    /// The same as for [`send`](Self::send); `WouldBlock`: the socket's buffer has no room now, and
    /// nothing was sent.
    pub fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket().attempt(Direction::Write, |fd| send(&self.state, fd, transmit))
    }

    /// Polls like [`send`](Self::send), for hand-written futures. Only one task at a time may poll:
    /// only the last caller is woken. Any number of tasks may await [`send`](Self::send) and
    /// [`writable`](Self::writable) meanwhile.
    ///
    /// # Errors
    /// The same as for [`send`](Self::send); the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has sent nothing.
    pub fn poll_send(&self, cx: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<()>> {
        let state = &self.state;
        self.socket.poll_alone(Direction::Write, cx, |fd| send(state, fd, transmit))
    }

    /// Receives datagrams into `bufs`, and returns how many of the buffers were filled. `meta`
    /// describes the content of each. Bytes that do not fit into a buffer are lost. A buffer is
    /// always large enough if its length is that of the longest datagram times
    /// [`max_receive_segments`](Self::max_receive_segments). Several tasks may wait at once.
    ///
    /// It fills at most [`BATCH_SIZE`](quinn_udp::BATCH_SIZE) buffers, and no more than the length
    /// of `meta`. Without buffers it returns 0 at once.
    ///
    /// # Errors
    /// Kernel errors: `ECONNREFUSED` on a connected socket, if the peer had no socket for an
    /// earlier datagram.
    pub async fn recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        if are_none(bufs, meta) {
            consume_budget().await;
            return Ok(0);
        }
        shared(self.socket(), Direction::Read, |fd| receive(&self.state, fd, bufs, meta)).await
    }

    /// Like [`recv`](Self::recv), but does not wait.
    ///
    /// # Errors
    /// The same as for [`recv`](Self::recv); `WouldBlock`: nothing has arrived.
    pub fn try_recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        if are_none(bufs, meta) {
            return Ok(0);
        }
        self.socket().attempt(Direction::Read, |fd| receive(&self.state, fd, bufs, meta))
    }

    /// Polls like [`recv`](Self::recv), for hand-written futures. Only one task at a time may poll:
    /// only the last caller is woken. Any number of tasks may await [`recv`](Self::recv) and
    /// [`readable`](Self::readable) meanwhile.
    ///
    /// # Errors
    /// The same as for [`recv`](Self::recv); the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has received nothing.
    pub fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if are_none(bufs, meta) {
            ready!(coop::poll_proceed(cx));
            coop::made_progress();
            return Poll::Ready(Ok(0));
        }
        let state = &self.state;
        self.socket.poll_alone(Direction::Read, cx, |fd| receive(state, fd, bufs, meta))
    }

    /// Returns the maximum number of datagrams into which a [`Transmit`] may be cut. It is 1 if
    /// neither the kernel nor the network card can cut buffers.
    #[must_use]
    pub fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Returns the maximum number of datagrams that the kernel joins in one buffer. It is 1 if the
    /// kernel joins none.
    #[must_use]
    pub fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    /// Returns whether datagrams may be sent in fragments, because the system cannot forbid it.
    #[must_use]
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the connected peer's address.
    ///
    /// # Errors
    /// `ENOTCONN`: the socket is not connected. Kernel errors.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Sets the priority: events of a high-priority socket are handled in the next turn, before all
    /// others. See [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
    ///
    /// # Errors
    /// The same as for [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.socket.set_priority(priority)
    }

    fn socket(&self) -> &Registered<OwnedFd> {
        self.socket.socket()
    }
}

fn send(state: &UdpSocketState, fd: &OwnedFd, transmit: &Transmit<'_>) -> Result<(), Errno> {
    state.try_send(UdpSockRef::from(fd), transmit).map_err(|error| errno(&error))
}

/// Is there no buffer to fill? `recvmmsg` would wait for a datagram that it does not take.
fn are_none(bufs: &[IoSliceMut<'_>], meta: &[RecvMeta]) -> bool {
    bufs.is_empty() || meta.is_empty()
}

fn receive(
    state: &UdpSocketState,
    fd: &OwnedFd,
    bufs: &mut [IoSliceMut<'_>],
    meta: &mut [RecvMeta],
) -> Result<usize, Errno> {
    let count = bufs.len().min(meta.len());
    state.recv(UdpSockRef::from(fd), &mut bufs[..count], meta).map_err(|error| errno(&error))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl AsFd for BatchUdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
