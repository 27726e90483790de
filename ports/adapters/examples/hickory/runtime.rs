//! What it takes to run hickory-resolver on a wakeful loop: its `RuntimeProvider`.
//!
//! hickory wants all of it `Send` and `Sync`. Here a resolver and its sockets belong to one loop.
//! Await lookups there: on another loop they fail. Give each loop of a group a resolver of its own
//! (`wakeful::PerLoop`).

use std::future::{Future, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};
use wakeful::net::{TcpSocket, TcpStream, UdpSocket};
use wakeful::time::{sleep, timeout};
use wakeful::{LoopBound, LoopHandle};

/// Where hickory itself sets no limit to a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// hickory's runtime, on one loop.
#[derive(Clone)]
pub(crate) struct Wakeful(pub(crate) LoopHandle);

type BoxFuture<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;
type PollIo<T> = Poll<io::Result<T>>;

impl RuntimeProvider for Wakeful {
    type Handle = Self;
    type Timer = Timer;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> Self {
        self.clone()
    }

    fn connect_tcp(
        &self,
        server_addr: SocketAddr,
        bind_addr: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> BoxFuture<Tcp> {
        if let Err(error) = self.here() {
            return Box::pin(ready(Err(error)));
        }
        let connect = async move {
            let v4 = server_addr.is_ipv4();
            let socket = if v4 { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            if let Some(addr) = bind_addr {
                socket.bind(addr)?;
            }
            socket.set_nodelay(true)?;
            socket.connect(server_addr).await
        };
        let connect = timeout(limit.unwrap_or(CONNECT_TIMEOUT), connect);
        // A lookup that two loops wait for may be polled by either.
        let mut connect = LoopBound::with_home(Box::pin(connect), self.0.clone());
        Box::pin(poll_fn(move |cx| {
            let connect = connect.get_mut().ok_or_else(elsewhere)?;
            connect.as_mut().poll(cx).map(|result| Ok(Tcp(LoopBound::new(result??))))
        }))
    }

    fn bind_udp(&self, local_addr: SocketAddr, _server_addr: SocketAddr) -> BoxFuture<Udp> {
        let bind = || UdpSocket::from_std(std::net::UdpSocket::bind(local_addr)?);
        let socket = self.here().and_then(|()| bind());
        Box::pin(ready(socket.map(|socket| Udp(LoopBound::new(socket)))))
    }
}

impl Wakeful {
    fn here(&self) -> io::Result<()> {
        let is_home = LoopHandle::try_current().is_ok_and(|here| here.is_same(&self.0));
        if is_home { Ok(()) } else { Err(elsewhere()) }
    }
}

fn elsewhere() -> io::Error {
    io::Error::other("this resolver belongs to another event loop")
}

impl Spawn for Wakeful {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        // A loop that has ended drops it.
        drop(self.0.spawn(move || future));
    }
}

pub(crate) struct Timer;

#[async_trait]
impl Time for Timer {
    async fn delay_for(duration: Duration) {
        sleep(duration).await;
    }

    async fn timeout<F: Future + Send + 'static>(limit: Duration, f: F) -> io::Result<F::Output> {
        Ok(timeout(limit, f).await?)
    }
}

pub(crate) struct Udp(LoopBound<UdpSocket>);

impl DnsUdpSocket for Udp {
    type Time = Timer;

    fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> PollIo<(usize, SocketAddr)> {
        self.0.get().ok_or_else(elsewhere)?.poll_recv_from(cx, buf)
    }

    fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> PollIo<usize> {
        self.0.get().ok_or_else(elsewhere)?.poll_send_to(cx, buf, target)
    }
}

pub(crate) struct Tcp(LoopBound<TcpStream>);

impl Tcp {
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.0.get_mut().map(Pin::new).ok_or_else(elsewhere)
    }
}

impl DnsTcpStream for Tcp {
    type Time = Timer;
}

impl AsyncRead for Tcp {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> PollIo<usize> {
        self.here()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> PollIo<usize> {
        self.here()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollIo<()> {
        self.here()?.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollIo<()> {
        self.here()?.poll_close(cx)
    }
}
