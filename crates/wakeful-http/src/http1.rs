//! An HTTP/1 connection on one loop: to its end, or until it goes on to another loop between two requests.
//!
//! hyper does not say when it is idle. What is seen of it is that its service is called, that a response's body ends, and that it flushes behind its last write: a connection is between two requests when none is
//! in flight, its body neither, and everything is flushed. (hyper's own deadline for headers would tell, but costs each request a second round of hyper's loop.)
//!
//! That is what [`Watched`] and [`Watch`] see, and hyper has the last word: told to shut down gracefully, it ends at once if it is idle, with everything flushed, and may be taken apart. If it is not, it finishes what it does with `connection: close`, and stays. So a mistake here costs a connection, not a byte.
//!
//! A connection that is being upgraded, or closes behind its response, ends in the poll that flushes it, so it never moves.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use wakeful::accept::{Draining, Moving};
use wakeful::net::PeerAddr;

use crate::body::RequestBody;
use crate::protocol::Rewound;
use crate::service::ConnectionService;
use crate::watch::{self, Act, Phase, Watch};
use crate::{BoxError, Limits, Refusal, refuse};

/// Serves it until it closes, or until another loop has it.
pub(crate) async fn serve<S, B>(
    mut io: Rewound,
    mut service: ConnectionService<S>,
    peer: PeerAddr,
    watch: &Rc<Watch>,
    draining: &Draining,
    moving: &Moving,
) -> hyper::Result<()>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    loop {
        let is_wanted = || !watch.is_closing() && moving.is_wanted();
        let End::BetweenRequests { io: Rewound { start, stream }, mut unread, service: kept } =
            run(io, service, watch, draining, is_wanted).await?
        else {
            return Ok(());
        };
        unread.extend_from_slice(&start);
        moving.carry(Box::new(watch.life.pack()));
        match moving.hand_over(stream, peer, unread) {
            Ok(()) => return Ok(()),
            // It goes on here.
            Err((stream, unread)) => io = Rewound { start: unread.into(), stream },
        }
        if let Some(carried) = moving.carried().and_then(|carried| carried.downcast().ok()) {
            watch.life.put_back(*carried);
        }
        service = kept;
    }
}

/// Serves it until it closes. It stays on its loop.
pub(crate) async fn serve_here<IO, S, B>(
    io: IO,
    service: ConnectionService<S>,
    watch: &Rc<Watch>,
    draining: &Draining,
) -> hyper::Result<()>
where
    IO: Read + Write + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    run(io, service, watch, draining, || false).await.map(|_| ())
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
    service: ConnectionService<S>,
    watch: &Rc<Watch>,
    draining: &Draining,
    is_wanted: impl Fn() -> bool,
) -> hyper::Result<End<IO, ConnectionService<S>>>
where
    IO: Read + Write + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    watch.reads_anew();
    let watched = Rc::new(Watched::default());
    let limits = watch.local.limits();
    let offers = service.offers();
    let mut connection = builder(limits).serve_connection(
        WatchedIo { io, watched: watched.clone(), watch: watch.clone() },
        WatchedService { service, watched: watched.clone() },
    );
    let mut drained = pin!(draining.started());
    let mut timer = watch::Timer::new();
    let mut told = false;
    let ended = poll_fn(|cx| {
        if !told && drained.as_mut().poll(cx).is_ready() {
            told = true;
            watch.close_soon();
        }
        loop {
            let ended = Pin::new(&mut connection).poll(cx);
            if let Poll::Ready(ended) = ended {
                return Poll::Ready(Ended::ByItself(ended));
            }
            if !told && is_wanted() && watched.is_between_requests(watch) {
                told = true;
                watched.leaves.set(true);
                Pin::new(&mut connection).graceful_shutdown();
                let ended = Pin::new(&mut connection).poll(cx);
                watched.leaves.set(ended.is_ready());
                if let Poll::Ready(ended) = ended {
                    return Poll::Ready(Ended::ByItself(ended));
                }
            }
            match watch.poll(&mut timer, watched.phase(watch), cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::PollAgain) => {}
                Poll::Ready(Act::Finish) => {
                    // If it is not idle, hyper ends it behind what it still does: once told is enough.
                    watched.finishes.set(true);
                    Pin::new(&mut connection).graceful_shutdown();
                }
                Poll::Ready(Act::End(refusal)) => return Poll::Ready(Ended::By(refusal)),
            }
        }
    })
    .await;
    if matches!(ended, Ended::ByItself(Ok(())))
        && let Some(offer) = offers.and_then(|offers| offers.accepted())
    {
        let parts = connection.into_parts();
        // It is open as long as its user wants.
        offer.fulfil(parts.io.io, parts.read_buf).await;
        return Ok(End::Closed);
    }
    if !watched.leaves.get() {
        let mut parts = connection.into_parts();
        let has_come = !parts.read_buf.is_empty();
        if matches!(ended, Ended::ByItself(Ok(()))) && !watched.is_shut.get() {
            refuse::linger(&mut parts.io.io).await;
        }
        return close(parts.io.io, ended, has_come, watch).await.map(|()| End::Closed);
    }
    let parts = connection.into_parts();
    let (io, service) = (parts.io.io, parts.service.service);
    Ok(End::BetweenRequests { io, unread: Vec::from(parts.read_buf), service })
}

/// What ended it.
enum Ended {
    /// hyper is done with it.
    ByItself(hyper::Result<()>),
    /// One of its limits.
    By(Refusal),
}

/// Closes it, so that the client learns of what was answered last.
async fn close<IO: Read + Write + Unpin>(
    mut io: IO,
    ended: Ended,
    has_come: bool,
    watch: &Watch,
) -> hyper::Result<()> {
    match ended {
        Ended::By(Refusal::HeaderTimeout) if has_come => {
            refuse::answer(&mut io, StatusCode::REQUEST_TIMEOUT, &watch.local).await;
        }
        Ended::By(_) => {}
        Ended::ByItself(result) => {
            let refusal = match &result {
                Err(error) if error.is_parse_too_large() => Some(Refusal::HeaderTooLarge),
                Err(error) if error.is_parse() => Some(Refusal::Malformed),
                _ => None,
            };
            if let Some(refusal) = refusal {
                watch.local.refuse(refusal);
            }
            // Its own answer is written; what is still on its way to it must not reset the connection before that was read.
            if refusal.is_some() || watch.was_refused() {
                refuse::linger(&mut io).await;
            }
            return result;
        }
    }
    Ok(())
}

pub(crate) fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // Deadlines are the watch's.
        .header_read_timeout(None)
        .max_buf_size(limits.max_header_size)
        // The buffer alone is a bound that hyper may read beyond.
        .max_header_size(limits.max_header_size)
        // A client may end its side behind its request and still want the answer.
        .half_close(true);
    if limits.max_headers != HYPERS_MAX_HEADERS {
        builder.max_headers(limits.max_headers);
    }
    builder
}

/// As many fit on its stack: another number costs an allocation for each request.
const HYPERS_MAX_HEADERS: usize = 100;

/// What hyper was seen to do.
#[derive(Debug, Default)]
struct Watched {
    /// It has called the service.
    served: Cell<bool>,
    /// Something has come since the last request was over.
    comes: Cell<bool>,
    /// It has not flushed behind its last write.
    unflushed: Cell<bool>,
    /// It was told to end when it is idle.
    finishes: Cell<bool>,
    /// It was told to end because the connection goes on elsewhere.
    leaves: Cell<bool>,
    /// It has ended its side. Behind a request for an upgrade that came to nothing it does not, and leaves that to others.
    is_shut: Cell<bool>,
}

impl Watched {
    fn phase(&self, watch: &Watch) -> Phase {
        // A body that somebody reads behind its response is not to be cut off by the idle timeout. But it may also be one that is complete and only held, so the drain tries.
        let is_read = || !watch.is_closing() && watch.is_body_held();
        if watch.is_in_flight() || watch.is_write_blocked() || self.finishes.get() || is_read() {
            Phase::Busy
        } else if self.comes.get() {
            Phase::Header
        } else if watch.life.served() == 0 {
            Phase::First
        } else {
            Phase::Idle
        }
    }

    /// Before the first request hyper does not count as idle.
    fn is_between_requests(&self, watch: &Watch) -> bool {
        // What is left of a body that was dropped, hyper may still read.
        self.served.get()
            && !watch.is_in_flight()
            && !self.unflushed.get()
            && !watch.is_body_held()
            && !watch.is_body_cut()
    }
}

struct WatchedService<S> {
    service: S,
    watched: Rc<Watched>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WatchedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    #[inline(always)]
    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.watched.comes.set(false);
        self.watched.served.set(true);
        self.service.call(request)
    }
}

struct WatchedIo<IO> {
    io: IO,
    watched: Rc<Watched>,
    watch: Rc<Watch>,
}

impl<IO: Read + Unpin> Read for WatchedIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, watch, .. } = &mut *self;
        let read = watch.poll_read(Pin::new(io), cx, buf);
        if read.is_ready() && !self.watch.is_in_flight() && !self.watch.is_body_held() {
            let is_rest = self.watch.takes_rest_of_body();
            self.watched.comes.set(!is_rest);
        }
        read
    }
}

impl<IO: Write + Unpin> Write for WatchedIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watched.unflushed.set(true);
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watched.unflushed.set(true);
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.watch.wrote(&written);
        written
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
        self.watched.is_shut.set(true);
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
