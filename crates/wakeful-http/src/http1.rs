//! An HTTP/1 connection on one loop: to its end, or until it goes on to another loop between two requests.
//!
//! hyper does not say when it is idle. It asks its timer for the deadline of a header when it begins to wait for one, and it waits for the next one only when the request before is read to its end and
//! the response encoded to its end; from then until it calls the service it is between two requests. What it has encoded is written once it has flushed behind its last write.
//!
//! That is what [`Watched`] sees, and hyper has the last word: told to shut down gracefully, it ends at once if it is idle, with everything flushed, and may be taken apart. If it is not, it finishes
//! what it does with `connection: close`, and stays. So a mistake here would cost a connection, not a byte.
//!
//! A connection that is being upgraded, or closes behind its response, never waits for another header, so it never moves.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use wakeful::accept::{Draining, Moving};
use wakeful::io::LoopTimer;
use wakeful::net::PeerAddr;

use crate::BoxError;
use crate::connection::Limits;
use crate::protocol::Rewound;

/// Serves it until it closes, or until another loop has it.
pub(crate) async fn serve<S, B>(
    mut io: Rewound,
    mut service: S,
    peer: PeerAddr,
    limits: &Limits,
    draining: &Draining,
    moving: &Moving,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    loop {
        let is_wanted = || moving.is_wanted();
        let End::BetweenRequests { io: Rewound { start, stream }, mut unread, service: kept } =
            run(io, service, limits, draining, is_wanted).await?
        else {
            return Ok(());
        };
        unread.extend_from_slice(&start);
        match moving.hand_over(stream, peer, unread) {
            Ok(()) => return Ok(()),
            // It goes on here.
            Err((stream, unread)) => io = Rewound { start: unread.into(), stream },
        }
        service = kept;
    }
}

/// Serves it until it closes. It stays on its loop.
pub(crate) async fn serve_here<IO, S, B>(
    io: IO,
    service: S,
    limits: &Limits,
    draining: &Draining,
) -> hyper::Result<()>
where
    IO: Read + Write + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    run(io, service, limits, draining, || false).await.map(|_| ())
}

/// How a connection ended on this loop.
enum End<IO, S> {
    Closed,
    /// Nothing is in flight, and everything is written. `unread` comes before what `io` reads.
    BetweenRequests {
        io: IO,
        unread: Vec<u8>,
        service: S,
    },
}

/// Serves it until it closes, or is between two requests and `is_wanted` elsewhere.
async fn run<IO, S, B>(
    io: IO,
    service: S,
    limits: &Limits,
    draining: &Draining,
    is_wanted: impl Fn() -> bool,
) -> hyper::Result<End<IO, S>>
where
    IO: Read + Write + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let watched = Arc::new(Watched::default());
    // Told before it has read, hyper would close at once; but a request is there.
    let mut told = draining.is_started();
    let mut connection = http1::Builder::new()
        .timer(WatchedTimer(watched.clone()))
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(limits.max_header_size)
        // A client may end its side behind its request and still want the answer.
        .half_close(true)
        .keep_alive(!told)
        .serve_connection(
            WatchedIo { io, watched: watched.clone() },
            WatchedService { service, watched: watched.clone() },
        );
    let mut drained = pin!(draining.started());
    poll_fn(|cx| {
        if !told && drained.as_mut().poll(cx).is_ready() {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let ended = Pin::new(&mut connection).poll(cx);
        if ended.is_ready() || told || !is_wanted() || !watched.is_between_requests() {
            return ended;
        }
        told = true;
        watched.leaves.set(true);
        Pin::new(&mut connection).graceful_shutdown();
        let ended = Pin::new(&mut connection).poll(cx);
        watched.leaves.set(ended.is_ready());
        ended
    })
    .await?;
    if !watched.leaves.get() {
        return Ok(End::Closed);
    }
    let parts = connection.into_parts();
    let (io, service) = (parts.io.io, parts.service.service);
    Ok(End::BetweenRequests { io, unread: Vec::from(parts.read_buf), service })
}

/// What hyper was seen to do.
#[derive(Debug, Default)]
struct Watched {
    /// It has called the service.
    served: Flag,
    /// It waits for a header, and has not called the service since.
    waits: Flag,
    /// It has not flushed behind its last write.
    unflushed: Flag,
    /// It was told to end because the connection goes on elsewhere.
    leaves: Flag,
}

impl Watched {
    /// Before the first request hyper does not count as idle.
    fn is_between_requests(&self) -> bool {
        self.served.get() && self.waits.get() && !self.unflushed.get()
    }
}

/// Of one thread; but hyper asks a timer to be `Sync`.
#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Flag {
    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, to: bool) {
        self.0.store(to, Ordering::Relaxed);
    }
}

struct WatchedService<S> {
    service: S,
    watched: Arc<Watched>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WatchedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.watched.waits.set(false);
        self.watched.served.set(true);
        self.service.call(request)
    }
}

/// Asked for nothing but the deadlines of headers.
struct WatchedTimer(Arc<Watched>);

impl Timer for WatchedTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        LoopTimer.sleep(duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.waits.set(true);
        LoopTimer.sleep_until(deadline)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.0.waits.set(true);
        LoopTimer.reset(sleep, deadline);
    }
}

struct WatchedIo<IO> {
    io: IO,
    watched: Arc<Watched>,
}

impl<IO: Read + Unpin> Read for WatchedIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: Write + Unpin> Write for WatchedIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watched.unflushed.set(true);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watched.unflushed.set(true);
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.watched.unflushed.set(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watched.leaves.get() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
