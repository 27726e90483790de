//! One attempt to send a request on a connection, and what is known about a failed one: whether the
//! server can have acted on it, and why it failed.
//!
//! The bytes that were observed on the connection decide that (`transport`), not the kind of
//! hyper's error.

use std::error::Error;
use std::{io, mem};

use http::{Request, Response};
use hyper::body::Incoming;

use super::OutgoingBody;
use super::body::{Exchange, Outgoing};
use super::host_pool::Lease;
use crate::foreign_code::{Contained, shielded};

/// Whether the server acted on a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acted {
    No,
    /// Nothing shows whether it acted. It acted once at most.
    OnceAtMost,
    /// The same, on a connection without an earlier request.
    OnceAtMostOnNew,
    /// The server began to answer, or may be about to.
    Perhaps,
}

/// An attempt that failed.
pub(super) struct Failure<B: OutgoingBody> {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it was used.
    pub(super) request: Option<Request<Outgoing<B>>>,
    pub(super) acted: Acted,
    pub(super) cause: Cause,
    /// The connection was ending, and the server has not begun to handle the request.
    pub(super) is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The error itself says why.
    Error,
    /// A panic in this or another request's body has ended the connection.
    Panic,
    /// The connection ended while the request waited for a stream on it.
    EndedBefore,
}

impl<B: OutgoingBody> Lease<B> {
    /// Has another request used the connection before?
    pub(super) fn was_used(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.connection.was_used(),
            Self::Http2(connection, _) => connection.was_used(),
        }
    }

    /// Is it possible that the server has given the connection up, or will refuse a stream?
    pub(super) fn may_be_stale(&self) -> bool {
        match self {
            Self::Http1(_) => self.was_used(),
            Self::Http2(..) => true,
        }
    }

    /// Prepares for a request that cannot be sent again: checks whether the server has closed the
    /// connection, before the write. hyper reads before it writes.
    pub(super) fn look_first(&self) {
        if let Self::Http1(lease) = self
            && lease.connection.was_used()
        {
            lease.connection.observed().look_first();
        }
    }

    /// Sends the request on this connection.
    pub(super) async fn send(
        self,
        request: Request<Outgoing<B>>,
    ) -> Result<(Response<Incoming>, Exchange), Failure<B>> {
        match self {
            Self::Http1(mut lease) => {
                let was_used = lease.connection.was_used();
                lease.is_sent = true;
                let (sent, answering) = lease.connection.send(request);
                let mut failed = match shielded(sent).await {
                    Ok(response) => {
                        lease.answered(Some(&response));
                        return Ok((response, Exchange::Http1(answering)));
                    }
                    Err(failed) => failed,
                };
                lease.answered(None);
                let request = failed.take_message().map(|request| request.map(Outgoing::on_none));
                let error = failed.into_error();
                let observed = lease.connection.observed();
                // The end of the stream counts as a read, too.
                let of_the_end = u64::from(error.is_incomplete_message());
                let acted = if request.is_some() || !observed.has_written() {
                    Acted::No
                } else if !error.is_parse() && !error.is_user() && observed.reads() <= of_the_end {
                    if was_used { Acted::OnceAtMost } else { Acted::OnceAtMostOnNew }
                } else {
                    Acted::Perhaps
                };
                Err(Failure { error, request, acted, cause: Cause::Error, is_ending: false })
            }
            Self::Http2(connection, mut stream) => {
                let was_used = connection.was_used();
                stream.mark_sent();
                let mut request = request.map(|body| body.on(&stream));
                // h2 does not use the extensions, and would drop them in the task that all requests
                // share.
                let extensions = Contained::new(mem::take(request.extensions_mut()));
                let mut failed = match shielded(connection.send(request)).await {
                    Ok(response) => return Ok((response, Exchange::Http2(stream))),
                    Err(failed) => failed,
                };
                stream.fails();
                let mut request =
                    failed.take_message().map(|request| request.map(Outgoing::on_none));
                if let Some((request, extensions)) = request.as_mut().zip(extensions.into_inner()) {
                    *request.extensions_mut() = extensions;
                }
                let error = failed.into_error();
                let of_http2 = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
                // hyper shows the connection's end as an I/O error. Or h2 itself has ended it.
                let is_broken_off = error.source().is_some_and(<dyn Error>::is::<io::Error>);
                let has_ended =
                    is_broken_off || of_http2.is_some_and(|e| e.is_library() && e.is_go_away());
                let cause = if stream.has_panicked() {
                    Cause::Panic
                } else if error.is_user() {
                    // hyper reports a request that was dropped with its task as a user error. A
                    // body's own error is not reported here, because it resets the stream.
                    Cause::EndedBefore
                } else {
                    Cause::Error
                };
                let is_left_out = of_http2.is_some_and(|e| e.is_remote() && e.is_go_away());
                let is_orderly = of_http2.is_some_and(|e| e.reason() == Some(h2::Reason::NO_ERROR));
                let is_ending =
                    cause != Cause::Panic && (request.is_some() || is_left_out && is_orderly);
                let acted = match of_http2 {
                    _ if request.is_some() => Acted::No,
                    // The request's stream may just have been opened.
                    _ if cause == Cause::EndedBefore => Acted::OnceAtMost,
                    _ if is_left_out => Acted::No,
                    Some(e) if e.is_remote() && e.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                        Acted::No
                    }
                    _ if has_ended && was_used => Acted::OnceAtMost,
                    _ if is_broken_off && cause == Cause::Error => Acted::OnceAtMostOnNew,
                    _ => Acted::Perhaps,
                };
                Err(Failure { error, request, acted, cause, is_ending })
            }
        }
    }
}
