//! One attempt to send a request on a connection, and what is known about a failed one: whether the
//! server can have acted on it, and why it failed.
//!
//! The bytes that were observed on the connection decide that (`transport`), not the kind of
//! hyper's error.

use std::error::Error;
use std::mem;

use http::{Request, Response};
use hyper::body::Incoming;

use super::OutgoingBody;
use super::body::{Exchange, Outgoing};
use super::host_pool::Lease;
use crate::foreign_code::Contained;

/// Did the server act on a request that failed?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acted {
    No,
    /// Nothing tells.
    OnceAtMost,
    /// It began to answer, or may just be about to.
    Perhaps,
}

/// An attempt that failed.
pub(super) struct Failure<B> {
    pub(super) error: hyper::Error,
    /// Untouched.
    pub(super) request: Option<Request<Outgoing<B>>>,
    pub(super) acted: Acted,
    pub(super) cause: Cause,
    /// The connection ended, and the server has not begun with the request.
    pub(super) is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// What the error says.
    Error,
    /// Another request's doing, or its own: it ended the connection.
    Panic,
    /// The connection ended while the request waited for a stream on it.
    EndedBefore,
}

impl<B: OutgoingBody> Lease<B> {
    /// Another request had it before.
    pub(super) fn was_used(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.connection.was_used(),
            Self::Http2(connection, _) => connection.was_used(),
        }
    }

    /// A server may have given the connection up, or refuse a stream.
    pub(super) fn may_be_stale(&self) -> bool {
        match self {
            Self::Http1(_) => self.was_used(),
            Self::Http2(..) => true,
        }
    }

    /// The request that comes next cannot be sent again: a server that has closed meanwhile must
    /// not get it. hyper reads before it writes.
    pub(super) fn look_first(&self) {
        if let Self::Http1(lease) = self
            && lease.connection.was_used()
        {
            lease.connection.observed().look_first();
        }
    }

    /// Sends the request once.
    pub(super) async fn send(
        self,
        request: Request<Outgoing<B>>,
    ) -> Result<(Response<Incoming>, Exchange), Failure<B>> {
        match self {
            Self::Http1(mut lease) => {
                let was_used = lease.connection.was_used();
                lease.is_sent = true;
                let (sent, answering) = lease.connection.send(request);
                let mut failed = match sent.await {
                    Ok(response) => {
                        lease.answered(Some(response.headers()));
                        return Ok((response, Exchange::Http1(answering)));
                    }
                    Err(failed) => failed,
                };
                lease.answered(None);
                let request = failed.take_message().map(|request| request.map(Outgoing::on_none));
                let error = failed.into_error();
                let observed = lease.connection.observed();
                // The end of the stream is a read, too.
                let of_the_end = u64::from(error.is_incomplete_message());
                let acted = if request.is_some() || !observed.has_written() {
                    Acted::No
                } else if was_used
                    && !error.is_parse()
                    && !error.is_user()
                    && observed.reads() <= of_the_end
                {
                    Acted::OnceAtMost
                } else {
                    Acted::Perhaps
                };
                Err(Failure { error, request, acted, cause: Cause::Error, is_ending: false })
            }
            Self::Http2(connection, stream) => {
                let was_used = connection.was_used();
                let mut request = request.map(|body| body.on(&stream));
                // h2 has no use for them, and would drop them in the task of all requests.
                let extensions = Contained::new(mem::take(request.extensions_mut()));
                let mut failed = match connection.send(request).await {
                    Ok(response) => return Ok((response, Exchange::Http2(stream))),
                    Err(failed) => failed,
                };
                let mut request =
                    failed.take_message().map(|request| request.map(Outgoing::on_none));
                if let Some((request, extensions)) = request.as_mut().zip(extensions.into_inner()) {
                    *request.extensions_mut() = extensions;
                }
                let error = failed.into_error();
                let of_http2 = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
                let cause = if stream.has_panicked() {
                    Cause::Panic
                } else if error.is_user() {
                    // hyper counts what it drops with its task among users' errors, and a body's
                    // error is none of these here: it resets its stream.
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
                    // Its stream may just have been opened.
                    _ if cause == Cause::EndedBefore => Acted::OnceAtMost,
                    _ if is_left_out => Acted::No,
                    Some(e) if e.is_remote() && e.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                        Acted::No
                    }
                    Some(e) if e.is_io() && was_used => Acted::OnceAtMost,
                    _ => Acted::Perhaps,
                };
                Err(Failure { error, request, acted, cause, is_ending })
            }
        }
    }
}
