//! The wait for a connection's first request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use hyper::rt::{Read, Write};
use wakeful::accept::{Draining, GivesWay, Standing, WhenFull};
use wakeful::net::PeerAddr;
use wakeful::time::{Deadline, timeout};

use super::detect::detect;
use crate::connection::{MovableState, Protocol, unasked_answer};
use crate::counts::Refusal;
use crate::foreign_code;
use crate::loop_state::LoopState;
use crate::tls::Alpn;

/// Returns the protocol, and the bytes that show it. `None`: nothing came, or not before `end`,
/// which has been counted. `unread` was read on another loop. `alpn`: what TLS has agreed on.
pub(crate) async fn first_request<IO: Read + Write + Unpin>(
    io: &mut IO,
    unread: &[u8],
    alpn: Option<Alpn>,
    end: impl Future<Output = ()>,
    movable: &MovableState,
    loop_state: &LoopState,
    peer: PeerAddr,
) -> Option<(Protocol, Bytes)> {
    let limits = loop_state.limits();
    let (patience, late) = match movable.served() {
        0 => (limits.header_timeout, Refusal::HeaderTimeout),
        _ => (limits.idle_timeout, Refusal::IdleTimeout),
    };
    let mut start = BytesMut::from(unread);
    let detected = timeout(patience, until(end, pin!(detect(io, &mut start)))).await;
    match detected {
        Ok(Some(Ok(Some(protocol)))) => return Some((protocol, start.freeze())),
        // Nobody waits for an answer.
        Ok(None) => {}
        Ok(Some(_)) if movable.served() > 0 => {}
        Ok(Some(Ok(None))) => loop_state.refuse(Refusal::NoRequest),
        Ok(Some(Err(error))) => {
            loop_state.refuse(Refusal::NoRequest);
            foreign_code::log!(debug, %peer, %error, "no request came");
        }
        Err(error) => {
            loop_state.refuse(late);
            foreign_code::log!(debug, %peer, %error, "no request came");
            // What has come may be the beginning of either protocol.
            if late == Refusal::HeaderTimeout && !start.is_empty() && alpn != Some(Alpn::Http2) {
                unasked_answer::send(io, StatusCode::REQUEST_TIMEOUT, loop_state).await;
            }
        }
    }
    None
}

/// Completes when draining has begun, and nothing more comes that may have been on its way. It also
/// completes when the server asks for the place of an idle connection that has come from another
/// loop.
pub(crate) async fn drained(draining: &Draining, movable: &MovableState, loop_state: &LoopState) {
    let is_replaced = loop_state.limits().when_full == WhenFull::Replace;
    match movable.served() {
        0 => draining.started().await,
        // In this case `replaceable` is asked instead.
        _ if is_replaced => draining.started().await,
        _ => draining.started_or_asked(Rc::new(HasMoved(movable.arrived()))).await,
    }
    if !draining.is_started() {
        loop_state.refuse(Refusal::GaveWay);
        movable.give_way();
    }
    Deadline::after(loop_state.linger()).await;
}

/// A connection that has been idle since it came from another loop.
struct HasMoved(Instant);

impl GivesWay for HasMoved {
    fn standing(&self) -> Standing {
        Standing::Idle(self.0)
    }
}

/// The output of `future`, or `None` if `end` comes before.
pub(crate) async fn until<F: Future>(
    end: impl Future<Output = ()>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let mut end = pin!(end);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}
