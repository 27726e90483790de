//! An HTTP/1 connection on one loop: to its end, or until it goes on to another loop between two
//! requests.
//!
//! hyper does not say when it is idle. What is seen of it is that its service is called, that a
//! response's body ends, and that it flushes behind its last write: a connection is between two
//! requests when none is in flight, its body neither, and everything is flushed. (hyper's own
//! deadline for headers would tell, but costs each request a second round of hyper's loop.)
//!
//! That is what [`Seen`] and [`Watch`] see, and hyper has the last word: told to shut down
//! gracefully, it ends at once if it is idle, with everything flushed, and may be taken apart. If
//! it is not, it finishes what it does with `connection: close`, and stays. So a mistake here costs
//! a connection, not a byte.
//!
//! A connection that is being upgraded, or closes behind its response, ends in the poll that
//! flushes it, so it never moves.

mod observed;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use wakeful::accept::{Draining, Moving};
use wakeful::net::PeerAddr;

use self::observed::{Seen, WatchedIo, WatchedService};
use crate::connection::deadlines::{Act, Watch};
use crate::connection::lingering_close;
use crate::connection::protocol::{Ends, Rewound};
use crate::connection::timer::Timer;
use crate::counts::Refusal;
use crate::error::BoxError;
use crate::limits::Limits;
use crate::panics;
use crate::request::RequestBody;
use crate::request::service::ConnectionService;

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
    IO: Read + Write + Ends + Unpin + 'static,
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
    IO: Read + Write + Ends + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    watch.reads_anew();
    let seen = Rc::new(Seen::default());
    let limits = watch.local.limits();
    let offers = service.offers();
    let mut connection = builder(limits).serve_connection(
        WatchedIo { io, seen: seen.clone(), watch: watch.clone() },
        WatchedService { service, seen: seen.clone() },
    );
    let mut drained = pin!(draining.started());
    let mut timer = Timer::new();
    let mut told = false;
    let ended = poll_fn(|cx| {
        if !told && drained.as_mut().poll(cx).is_ready() {
            told = true;
            watch.close_soon();
        }
        loop {
            let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut connection).poll(cx)));
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(ended)) => return Poll::Ready(Ended::ByItself(ended)),
                Err(payload) => return Poll::Ready(Ended::ByPanic(payload)),
            }
            if !told && is_wanted() && seen.is_between_requests(watch) {
                told = true;
                seen.leaves.set(true);
                Pin::new(&mut connection).graceful_shutdown();
                let ended = Pin::new(&mut connection).poll(cx);
                seen.leaves.set(ended.is_ready());
                if let Poll::Ready(ended) = ended {
                    return Poll::Ready(Ended::ByItself(ended));
                }
            }
            match watch.poll(&mut timer, seen.phase(watch), cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::PollAgain) => {}
                Poll::Ready(Act::Finish) => {
                    // If it is not idle, hyper ends it behind what it still does: once told is
                    // enough.
                    seen.finishes.set(true);
                    Pin::new(&mut connection).graceful_shutdown();
                }
                Poll::Ready(Act::End(refusal)) => return Poll::Ready(Ended::By(refusal)),
            }
        }
    })
    .await;
    if let Ended::ByPanic(payload) = ended {
        // Not while it unwinds: what the service, its future or a body has may panic in its drop,
        // too.
        panics::contain(|| drop(connection));
        resume_unwind(payload);
    }
    if matches!(ended, Ended::ByItself(Ok(())))
        && let Some(offer) = offers.and_then(|offers| offers.accepted())
    {
        let parts = connection.into_parts();
        // It is open as long as its user wants.
        offer.fulfil(parts.io.io, parts.read_buf).await;
        return Ok(End::Closed);
    }
    if !seen.leaves.get() {
        let mut parts = connection.into_parts();
        let has_come = !parts.read_buf.is_empty();
        if matches!(ended, Ended::ByItself(Ok(()))) && !seen.is_shut.get() {
            lingering_close::linger(&mut parts.io.io).await;
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
    /// The service, or a body.
    ByPanic(Box<dyn Any + Send>),
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
            lingering_close::answer(&mut io, StatusCode::REQUEST_TIMEOUT, &watch.local).await;
        }
        Ended::By(_) | Ended::ByPanic(_) => {}
        Ended::ByItself(result) => {
            let refusal = match &result {
                Err(error) if error.is_parse_too_large() => Some(Refusal::HeaderTooLarge),
                Err(error) if error.is_parse() => Some(Refusal::Malformed),
                _ => None,
            };
            if let Some(refusal) = refusal {
                watch.local.refuse(refusal);
            }
            // Its own answer is written; what is still on its way to it must not reset the
            // connection before that was read.
            if refusal.is_some() || watch.was_refused() || watch.leaves_body() {
                lingering_close::linger(&mut io).await;
            } else if has_come && result.is_ok() {
                // More requests have come than we answer, and the client may still read the last
                // response.
                lingering_close::linger_while_it_reads(&mut io, watch.local.going_away()).await;
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

#[cfg(test)]
mod tests;
