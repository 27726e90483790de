//! An HTTP/1 connection on one loop: to its end, or until it moves to another loop between two
//! requests.
//!
//! hyper does not report when it is idle. Only these events can be observed: hyper calls the
//! service, a response's body ends, and hyper flushes after its last write. A connection is between
//! two requests when no request and no body is in flight, and everything is flushed. (hyper's own
//! deadline for headers would tell, but costs each request a second round of hyper's loop.)
//!
//! [`Observed`] and [`ConnectionState`] record these events, but hyper decides. When told to shut
//! down gracefully, hyper ends at once if it is idle, with everything flushed, and may be taken
//! apart. If it is not idle, it finishes its work with `connection: close`, and stays on this loop.
//! So a mistake here costs a connection, not a byte.
//!
//! A connection that is being upgraded, or closes after its response, ends in the poll that flushes
//! it, so it never moves.
//!
//! `observed` records what hyper did, `observed_io` has the io and the service that observe it, and
//! `close` ends a connection. `connection` has what is in flight, and the deadlines.

mod close;
mod observed;
mod observed_io;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1;
use hyper::service::Service;
use wakeful::accept::{Draining, Moving};
use wakeful::net::PeerAddr;
use wakeful::time::Deadline;

use self::close::{Ended, close, close_after_failure};
use self::observed::Observed;
use self::observed_io::{ObservedIo, ObservedService};
use crate::connection::{Act, ConnectionState, Liveness, Rewound, Timer};
use crate::error::BoxError;
use crate::foreign_code;
use crate::limits::Limits;
use crate::request::{ConnectionService, RequestBody};
use crate::upgrade::Io;

/// Serves the connection until it closes, or until another loop has it.
pub(crate) async fn serve<S, B>(
    mut io: Rewound,
    mut service: ConnectionService<S>,
    peer: PeerAddr,
    state: &Rc<ConnectionState>,
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
        let is_wanted = || !state.closing().has_begun() && moving.is_wanted();
        let End::BetweenRequests { io: Rewound { start, stream }, mut unread, service: kept } =
            run(io, service, state, draining, is_wanted).await?
        else {
            return Ok(());
        };
        unread.extend_from_slice(&start);
        moving.carry(Box::new(state.movable().pack()));
        match moving.hand_over(stream, peer, unread) {
            Ok(()) => return Ok(()),
            // The move failed, so the connection continues here.
            Err((stream, unread)) => io = Rewound { start: unread.into(), stream },
        }
        if let Some(carried) = moving.carried().and_then(|carried| carried.downcast().ok()) {
            state.movable().put_back(*carried);
        }
        service = kept;
    }
}

/// Serves the connection until it closes, on this loop.
pub(crate) async fn serve_here<IO, S, B>(
    io: IO,
    service: ConnectionService<S>,
    state: &Rc<ConnectionState>,
    draining: &Draining,
) -> hyper::Result<()>
where
    IO: Io + Liveness + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    run(io, service, state, draining, || false).await.map(|_| ())
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

/// Serves the connection until it closes, or is between two requests and `is_wanted` elsewhere.
async fn run<IO, S, B>(
    io: IO,
    service: ConnectionService<S>,
    state: &Rc<ConnectionState>,
    draining: &Draining,
    is_wanted: impl Fn() -> bool,
) -> hyper::Result<End<IO, ConnectionService<S>>>
where
    IO: Io + Liveness + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    state.reads_anew();
    let observed = Rc::new(Observed::default());
    let limits = state.loop_state().limits();
    let offers = service.offers();
    let mut connection = builder(limits).serve_connection(
        ObservedIo::new(io, observed.clone(), state.clone()),
        ObservedService { service, observed: observed.clone() },
    );
    let mut drained = pin!(draining.started_or_asked(state.clone()));
    let mut timer = Timer::new();
    let mut is_shutting_down = false;
    let ended = poll_fn(|cx| {
        if !is_shutting_down && drained.as_mut().poll(cx).is_ready() {
            is_shutting_down = true;
            state.closing().begin_by(draining, state.loop_state());
        }
        loop {
            let is_dropped = state.last_body().is_dropped();
            let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut connection).poll(cx)));
            match polled {
                Ok(Poll::Pending) => {
                    if observed.waits_for_request(state) {
                        state.last_body().has_come(is_dropped);
                    }
                    if observed.leaves_unread(state) || observed.leaves_unwritten(state) {
                        cx.waker().wake_by_ref();
                    }
                }
                Ok(Poll::Ready(Ok(()))) if observed.ends_unflushed() => {
                    let is_upgraded = offers.as_ref().is_some_and(|offers| offers.have_accepted());
                    observed.is_upgraded.set(is_upgraded);
                    continue;
                }
                Ok(Poll::Ready(ended)) => return Poll::Ready(Ok(Ended::ByItself(ended))),
                Err(payload) => return Poll::Ready(Err(payload)),
            }
            if !is_shutting_down && is_wanted() && observed.is_between_requests(state) {
                is_shutting_down = true;
                observed.leaves.set(true);
                Pin::new(&mut connection).graceful_shutdown();
                let ended = Pin::new(&mut connection).poll(cx);
                observed.leaves.set(matches!(ended, Poll::Ready(Ok(()))));
                if let Poll::Ready(ended) = ended {
                    return Poll::Ready(Ok(Ended::ByItself(ended)));
                }
            }
            match state.poll_deadlines(&mut timer, observed.phase(state), cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::PollAgain) => {}
                Poll::Ready(Act::Finish) => {
                    // If hyper is not idle, it ends the connection after what it still does.
                    // Telling it once is enough.
                    observed.finishes.set(true);
                    Pin::new(&mut connection).graceful_shutdown();
                }
                Poll::Ready(Act::End(refusal)) => {
                    if !state.requests().is_in_flight() && !state.writes().is_blocked() {
                        // The response is complete.
                        observed.ends_by_close.set(false);
                    }
                    return Poll::Ready(Ok(Ended::By(refusal)));
                }
            }
        }
    })
    .await;
    // From here on, nothing may ask the connection to give its place up: neither the code that it
    // was upgraded for, nor the rest of a close.
    drained.set(draining.started());
    let ended = match ended {
        Ok(ended) => ended,
        Err(payload) => {
            // The connection is taken apart before the unwind continues, because the service, its
            // future or a body may panic in its drop, too.
            let mut io = None;
            foreign_code::contain(|| io = Some(connection.into_parts().io.into_io()));
            if let Some(io) = io {
                close_after_failure(io, &observed).await;
            }
            resume_unwind(payload);
        }
    };
    if matches!(ended, Ended::ByItself(Ok(())))
        && let Some(offer) = offers.and_then(|offers| offers.accepted())
    {
        let parts = connection.into_parts();
        state.leaves_http();
        // An upgraded connection is open as long as its user wants, unless its place is taken. This
        // future is boxed, so that a connection that stays HTTP is no larger.
        let lingered = async {
            draining.started().await;
            Deadline::after(state.loop_state().linger()).await;
        };
        Box::pin(offer.fulfil(parts.io.into_io(), parts.read_buf, lingered)).await;
        return Ok(End::Closed);
    }
    if !observed.leaves.get() {
        let parts = connection.into_parts();
        let closed =
            close(parts.io.into_io(), ended, &parts.read_buf, &observed, state, draining).await;
        return closed.map(|()| End::Closed);
    }
    let parts = connection.into_parts();
    let (io, service) = (parts.io.into_io(), parts.service.service);
    Ok(End::BetweenRequests { io, unread: Vec::from(parts.read_buf), service })
}

pub(crate) fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // `connection` has the deadlines.
        .header_read_timeout(None)
        .max_buf_size(limits.max_header_size)
        // The size of the buffer alone is a bound that hyper may read beyond.
        .max_header_size(limits.max_header_size)
        // A client may end its side after its request and still want the answer.
        .half_close(true);
    if limits.max_headers != HYPERS_MAX_HEADERS {
        builder.max_headers(limits.max_headers);
    }
    builder
}

/// This many fields fit on hyper's stack. Another number costs an allocation for each request.
const HYPERS_MAX_HEADERS: usize = 100;

#[cfg(test)]
mod tests;
