//! What it takes to run quinn on a wakeful loop: its `Runtime`.
//!
//! quinn wants all of it `Send` and `Sync`. Here an endpoint and its socket belong to one loop, and
//! quinn's tasks run there. Its handles (connections, streams) may be used on any thread. Elsewhere
//! the socket is an error, and its drop is sent home.

use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use wakeful::net::{BatchUdpSocket, UdpSocket};
use wakeful::readiness::Interest;
use wakeful::time::{Sleep, now, sleep_until};
use wakeful::{LoopBound, LoopHandle};

/// quinn's runtime, on one loop. `Endpoint::new` is called on that loop.
#[derive(Debug)]
pub(crate) struct Wakeful(pub(crate) LoopHandle);

impl Runtime for Wakeful {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(sleep_until(deadline)))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // A loop that has ended drops it.
        drop(self.0.spawn(move || future));
    }

    fn wrap_udp_socket(&self, std: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let socket = BatchUdpSocket::new(UdpSocket::from_std(std)?)?;
        let (addr, socket) = (socket.local_addr()?, LoopBound::new(socket));
        if !socket.home().is_same(&self.0) {
            return Err(elsewhere());
        }
        Ok(Arc::new(Socket { socket, addr }))
    }

    fn now(&self) -> Instant {
        now()
    }
}

#[derive(Debug)]
struct Timer(Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.0.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) socket: LoopBound<BatchUdpSocket>,
    pub(crate) addr: SocketAddr,
}

impl Socket {
    fn here(&self) -> io::Result<&BatchUdpSocket> {
        self.socket.get().ok_or_else(elsewhere)
    }
}

fn elsewhere() -> io::Error {
    io::Error::other("this UDP socket belongs to another event loop")
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, wait: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.here()?.try_send(transmit) {
            // As good as lost, so QUIC sends it again, or learns that it was too long.
            Err(error) if error.kind() != ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.here()?.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.get().map_or(1, BatchUdpSocket::max_transmit_segments)
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.get().map_or(1, BatchUdpSocket::max_receive_segments)
    }

    fn may_fragment(&self) -> bool {
        self.socket.get().is_none_or(BatchUdpSocket::may_fragment)
    }
}

type Wait = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// One connection's wait for room in the socket's buffer. It allocates only if there is none.
struct Poller {
    socket: Arc<Socket>,
    wait: Option<LoopBound<Wait>>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wait.is_none() {
            if self.socket.here()?.try_io(Interest::WRITABLE, || Ok(())).is_ok() {
                return Poll::Ready(Ok(()));
            }
            let (socket, home) = (self.socket.clone(), self.socket.socket.home().clone());
            let wait: Wait = Box::pin(async move { socket.here()?.writable().await });
            self.wait = Some(LoopBound::with_home(wait, home));
        }
        let wait = self.wait.as_mut().and_then(LoopBound::get_mut).ok_or_else(elsewhere)?;
        let result = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        Poll::Ready(result)
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poller")
    }
}
