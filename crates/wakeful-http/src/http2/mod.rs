//! An HTTP/2 connection. It stays on one loop, because the state of its streams and header tables
//! cannot be moved.
//!
//! h2 handles every byte. [`ObservedIo`] shows the frames' headers in both directions to
//! [`ObservedFrames`], so that floods are noticed, and a last frame can tell the client why the
//! connection ends.

mod goaway;
mod observed_frames;
mod observed_io;
mod streams;

use std::cell::RefCell;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::Service;
use wakeful::accept::Draining;
use wakeful::io::LoopTimer;

use self::goaway::{Shutdown, say_last_word};
use self::observed_frames::ObservedFrames;
use self::observed_io::ObservedIo;
use self::streams::{EndsStreams, Streams};
use crate::connection::{Act, ConnectionState, Liveness, Timer};
use crate::counts::Refusal;
use crate::error::BoxError;
use crate::limits::Limits;
use crate::lingering_close;

/// Serves the connection until it closes.
pub(crate) async fn serve<I, S, B>(
    io: I,
    service: S,
    state: &Rc<ConnectionState>,
    draining: &Draining,
) -> hyper::Result<()>
where
    I: Read + Write + Liveness + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let _ends_streams = EndsStreams(state);
    let limits = state.loop_state().limits();
    let frames = Rc::new(RefCell::new(ObservedFrames::new(limits)));
    // The io is shared, because hyper does not give it back.
    let io = Rc::new(RefCell::new(io));
    let observed = ObservedIo { io: io.clone(), frames: frames.clone(), state: state.clone() };
    let connection = builder(limits, state).serve_connection(observed, service);
    let ended = drive(connection, &frames, state, draining).await;
    let result = match ended {
        Ended::ByItself(result) => {
            // The client may still be reading its last response, and sends window updates as it
            // does. If the socket were closed by then, it would answer them with a reset, which
            // cuts the response off.
            if let (Ok(()), Ok(io)) = (&result, Rc::try_unwrap(io)) {
                let silence = state.loop_state().going_away();
                lingering_close::linger_while_it_reads(
                    &mut io.into_inner(),
                    silence,
                    Liveness::unsent,
                )
                .await;
            }
            result
        }
        Ended::Unheard => {
            // The same holds for what the kernel has not sent yet. If there is nothing, the client
            // is idle. It was waited for already, so both waits are shorter than a grace period.
            if let Ok(io) = Rc::try_unwrap(io)
                && let mut io = io.into_inner()
                && Liveness::unsent(&io) > 0
            {
                let silence = state.loop_state().going_away() / 2;
                lingering_close::linger_while_it_reads(&mut io, silence, Liveness::unsent).await;
            }
            Ok(())
        }
        Ended::By(refusal) => {
            let word = frames.borrow().last_word(refusal);
            // The other reference was dropped with hyper's connection.
            if let Ok(io) = Rc::try_unwrap(io) {
                let io = io.into_inner();
                if refusal == Refusal::SlowResponse {
                    io.resets_at_close();
                }
                if let Some(word) = word {
                    say_last_word(io, word).await;
                }
            }
            Ok(())
        }
    };
    if let Err(error) = &result {
        count(error, &frames.borrow(), state);
    }
    result
}

/// What ended the connection.
enum Ended {
    ByItself(hyper::Result<()>),
    /// The client was told to leave, and does not.
    Unheard,
    By(Refusal),
}

async fn drive<I, S, B>(
    connection: http2::Connection<I, S, Streams>,
    frames: &RefCell<ObservedFrames>,
    state: &Rc<ConnectionState>,
    draining: &Draining,
) -> Ended
where
    I: Read + Write + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let mut connection = pin!(connection);
    let (mut timer, mut shutdown) = (Timer::new(), Shutdown::new(draining, state));
    poll_fn(|cx| {
        frames.borrow_mut().gives_way = false;
        shutdown.poll_drain(draining, state, cx);
        loop {
            if shutdown.takes_announcement(state) {
                connection.as_mut().graceful_shutdown();
            }
            let polled = connection.as_mut().poll(cx);
            if let Some(refusal) = frames.borrow().flood {
                state.loop_state().refuse(refusal);
                return Poll::Ready(Ended::By(refusal));
            }
            if let Poll::Ready(ended) = polled {
                let is_cut_off = ended.is_ok()
                    && !shutdown.is_announced()
                    && !frames.borrow().is_at_end
                    && state.streams().count() > 0;
                if is_cut_off {
                    // hyper returns, as if the client had closed, if a CONNECT has a
                    // `content-length`. (h2 does not return while a stream is open.)
                    let refusal = Refusal::Http2Protocol;
                    state.loop_state().refuse(refusal);
                    return Poll::Ready(Ended::By(refusal));
                }
                return Poll::Ready(Ended::ByItself(ended));
            }
            if shutdown.is_due(state) {
                continue;
            }
            let phase = frames.borrow_mut().tell(state);
            match state.poll_deadlines(&mut timer, phase, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::PollAgain) => {}
                Poll::Ready(Act::Finish) if !shutdown.is_announced() => {}
                // The client has got its GOAWAY, nothing is in flight, and the client does not
                // leave.
                Poll::Ready(Act::Finish) => return Poll::Ready(Ended::Unheard),
                Poll::Ready(Act::End(refusal)) => return Poll::Ready(Ended::By(refusal)),
            }
        }
    })
    .await
}

fn builder(limits: &Limits, state: &Rc<ConnectionState>) -> http2::Builder<Streams> {
    let http2 = &limits.http2;
    let mut builder = http2::Builder::new(Streams(state.clone()));
    builder
        .timer(LoopTimer)
        .max_header_list_size(u32::try_from(limits.max_header_size).unwrap_or(u32::MAX))
        .max_concurrent_streams(http2.max_streams)
        .initial_stream_window_size(http2.stream_window)
        .initial_connection_window_size(http2.connection_window)
        .max_frame_size(http2.max_frame_size)
        .max_send_buf_size(http2.max_send_buffer)
        .keep_alive_interval(http2.ping_interval)
        .keep_alive_timeout(http2.ping_timeout)
        .max_pending_accept_reset_streams(http2.max_pending_resets)
        .max_local_error_reset_streams(http2.max_error_resets)
        // A service that does not support CONNECT answers it like any other request.
        .enable_connect_protocol();
    builder
}

/// Counts the errors that the client has caused.
fn count(error: &hyper::Error, frames: &ObservedFrames, state: &ConnectionState) {
    let Some(h2) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        if error.is_timeout() {
            state.loop_state().refuse(Refusal::Http2PingTimeout);
        }
        return;
    };
    if !h2.is_library() {
        return;
    }
    // h2 has told the client in words which limit it was.
    let text = String::from_utf8_lossy(frames.farewell());
    let refusal = [
        ("continuations", Refusal::Http2ContinuationFlood),
        ("resets", Refusal::Http2ResetFlood),
        ("data_frames", Refusal::Http2EmptyDataFlood),
        ("way_too_large", Refusal::HeaderTooLarge),
    ]
    .into_iter()
    .find_map(|(word, refusal)| text.contains(word).then_some(refusal));
    state.loop_state().refuse(refusal.unwrap_or(Refusal::Http2Protocol));
}
