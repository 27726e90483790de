//! A request and its response, and the request once more where that is safe.

use std::error::Error;
use std::time::Instant;

use http::header::{CONNECTION, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use wakeful::time::timeout;

use super::body::{Deadline, OpenStream, Outgoing};
use super::host::{Host, Lease, Pool};
use super::{ClientError, HttpVersion, OutgoingBody, ResponseBody};
use crate::panics;
use crate::tls::security::Security;

type Copy<B> = fn(&B) -> Option<B>;

/// How often a request is sent again, beyond the retries, because its connection of HTTP/2 ended
/// before it got to it. A server that lets a connection have 100 requests ends it under the many
/// that share it, and each new connection takes 100 of those that were left out.
const ENDINGS: u32 = 8;

impl<B: OutgoingBody> Host<B> {
    /// Sends `request`, and again where [that is safe](super#what-is-sent-again), and returns the
    /// response once its head has come.
    ///
    /// What of the URI is another host than this one is only said to the server, by the `host`
    /// header or `:authority`; a `host` header of the request goes before it. The request's version
    /// does not matter.
    ///
    /// *Cancel-safety*: given up, the request is broken off: a connection of HTTP/1.1 closes, a
    /// stream of HTTP/2 is reset. Whether the server acted on it is not known.
    ///
    /// # Errors
    /// No connection in time; no response in time; the exchange broke off; the method is CONNECT,
    /// which is not supported.
    ///
    /// # Panics
    /// Where no loop runs.
    pub async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, ClientError> {
        self.send_with(request, |_| None).await.map_err(|failed| failed.error)
    }

    /// As [`send`](Self::send), with a body that is cloned to be sent again: let cloning it be
    /// cheap, as it is for `Full<Bytes>`.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_replayable(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ClientError>
    where
        B: Clone,
    {
        let copy = |body: &B| Some(body.clone());
        self.send_with(request, copy).await.map_err(|failed| failed.error)
    }

    /// As [`send`](Self::send), for who has another server to ask: a request that no server acted
    /// on comes back with the error. `copy` says what is sent once more in place of a body, if it
    /// can be; one that is empty from the start always can.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_with(
        &self,
        request: Request<B>,
        copy: fn(&B) -> Option<B>,
    ) -> Result<Response<ResponseBody>, SendFailure<B>> {
        let pool = &*self.0;
        let (head, total) = (pool.settings.head_timeout, pool.settings.total_timeout);
        let deadline = total.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
        let (limit, is_total) = match (head, total) {
            (Some(head), Some(total)) => (Some(head.min(total)), total < head),
            (head, total) => (head.or(total), head.is_none()),
        };
        let exchange = self.exchange(request, copy);
        let (response, stream) = match limit {
            None => exchange.await?,
            Some(after) => match timeout(after, exchange).await {
                Ok(exchanged) => exchanged?,
                Err(_) => {
                    let target = pool.label.clone();
                    let error = if is_total {
                        ClientError::TotalTimeout { target, after }
                    } else {
                        ClientError::HeadTimeout { target, after }
                    };
                    return Err(error.into());
                }
            },
        };
        let deadline =
            deadline.map(|(at, after)| Deadline { end: wakeful::time::Deadline::at(at), after });
        Ok(response.map(|body| ResponseBody::new(body, pool.label.clone(), deadline, stream)))
    }

    async fn exchange(
        &self,
        request: Request<B>,
        copy: Copy<B>,
    ) -> Result<(Response<Incoming>, Option<OpenStream>), SendFailure<B>> {
        let pool = &self.0;
        let mut request = pool.address(request)?.map(Outgoing::given);
        let is_idempotent = request.method().is_idempotent();
        let mut retries = pool.settings.retries;
        let mut endings = if retries > 0 { ENDINGS } else { 0 };
        // As many connections as there may be can have ended unnoticed.
        let mut unnoticed = u32::try_from(pool.settings.max_connections).unwrap_or(u32::MAX);
        loop {
            let lease = match pool.lease().await {
                Ok(lease) => lease,
                Err(error) => return Err(SendFailure { error, request: given(request) }),
            };
            let was_used = lease.was_used();
            let again = (retries + endings > 0 && lease.may_be_stale())
                .then(|| copy_of(&request, copy))
                .flatten();
            let failure = match lease.send(request).await {
                Ok(exchanged) => return Ok(exchanged),
                Err(failure) => failure,
            };
            let is_safe = match failure.acted {
                Acted::No => true,
                Acted::OnceAtMost => is_idempotent,
                Acted::Perhaps => false,
            };
            // A server that ends many connections at once (by GOAWAY, before it closes them) is not
            // to use up what a request may be sent again.
            let is_untouched = failure.request.is_some();
            let left: &mut u32 = if is_untouched && was_used && unnoticed > 0 {
                &mut unnoticed
            } else if failure.is_ending && endings > 0 {
                &mut endings
            } else {
                &mut retries
            };
            request = match failure.request.or(again.filter(|_| is_safe)) {
                Some(request) if *left > 0 => request,
                untouched => {
                    let (target, source) = (pool.label.clone(), failure.error);
                    let error = match failure.cause {
                        Cause::Panic => ClientError::Panicked { target },
                        Cause::EndedBefore => ClientError::Ended { target },
                        Cause::Error => ClientError::Exchange { target, source },
                    };
                    return Err(SendFailure { error, request: untouched.and_then(given) });
                }
            };
            *left -= 1;
            pool.counts.add_retried();
            panics::log!(debug, target = %pool.label, error = %failure.error, "sending a request again");
        }
    }
}

/// A request that failed, and itself, if no server acted on it and all of it is still there. (Where
/// the body that is left is a stand-in for an empty one, it is not.)
#[derive(Debug)]
pub struct SendFailure<B> {
    /// What went wrong.
    pub error: ClientError,
    /// To be sent to another server, with a `host` in its head.
    pub request: Option<Box<Request<B>>>,
}

impl<B> From<ClientError> for SendFailure<B> {
    fn from(error: ClientError) -> Self {
        Self { error, request: None }
    }
}

pub(super) fn given<B: Body>(request: Request<Outgoing<B>>) -> Option<Box<Request<B>>> {
    let (parts, body) = request.into_parts();
    match body {
        Outgoing::Given(given) => Some(Box::new(Request::from_parts(parts, given.into_body()?))),
        Outgoing::Empty => None,
    }
}

/// Nothing of the request is lost by this copy; `None`: its body cannot be had twice.
fn copy_of<B: OutgoingBody>(
    request: &Request<Outgoing<B>>,
    copy: Copy<B>,
) -> Option<Request<Outgoing<B>>> {
    let body = match request.body() {
        Outgoing::Empty => Outgoing::Empty,
        Outgoing::Given(given) => match copy(given.body()) {
            Some(body) => Outgoing::given(body),
            None if request.body().is_end_stream() => Outgoing::Empty,
            None => return None,
        },
    };
    let mut copied = Request::new(body);
    *copied.method_mut() = request.method().clone();
    *copied.uri_mut() = request.uri().clone();
    *copied.version_mut() = request.version();
    copied.headers_mut().clone_from(request.headers());
    copied.extensions_mut().clone_from(request.extensions());
    Some(copied)
}

/// Did the server act on a request that failed?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acted {
    No,
    /// Nothing tells.
    OnceAtMost,
    /// It began to answer, or may just be about to.
    Perhaps,
}

struct Failure<B> {
    error: hyper::Error,
    /// Untouched.
    request: Option<Request<Outgoing<B>>>,
    acted: Acted,
    cause: Cause,
    /// The connection ended, and the server has not begun with the request.
    is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// What the error says.
    Error,
    /// Another request's doing, or its own: it ended the connection.
    Panic,
    /// The connection ended while the request waited for a stream on it.
    EndedBefore,
}

impl<B: OutgoingBody> Lease<B> {
    /// Another request had it before.
    fn was_used(&self) -> bool {
        match self {
            Self::Http1(lease) => lease.connection.was_used(),
            Self::Http2(connection, _) => connection.was_used(),
        }
    }

    /// A server may have given the connection up, or refuse a stream.
    fn may_be_stale(&self) -> bool {
        match self {
            Self::Http1(_) => self.was_used(),
            Self::Http2(..) => true,
        }
    }

    async fn send(
        self,
        request: Request<Outgoing<B>>,
    ) -> Result<(Response<Incoming>, Option<OpenStream>), Failure<B>> {
        match self {
            Self::Http1(mut lease) => {
                let was_used = lease.connection.was_used();
                lease.is_sent = true;
                let mut failed = match lease.connection.send(request).await {
                    Ok(response) => return Ok((response, None)),
                    Err(failed) => failed,
                };
                let request = failed.take_message();
                let error = failed.into_error();
                let seen = lease.connection.seen();
                // The end of the stream is a read, too.
                let of_the_end = u64::from(error.is_incomplete_message());
                let acted = if request.is_some() || !seen.written.get() {
                    Acted::No
                } else if was_used
                    && !error.is_parse()
                    && !error.is_user()
                    && seen.reads.get() <= of_the_end
                {
                    Acted::OnceAtMost
                } else {
                    Acted::Perhaps
                };
                Err(Failure { error, request, acted, cause: Cause::Error, is_ending: false })
            }
            Self::Http2(connection, stream) => {
                let was_used = connection.was_used();
                let request = request.map(|body| body.on(Some(&stream)));
                let mut failed = match connection.send(request).await {
                    Ok(response) => return Ok((response, Some(stream))),
                    Err(failed) => failed,
                };
                let request =
                    failed.take_message().map(|request| request.map(|body| body.on(None)));
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

impl<B: OutgoingBody> Pool<B> {
    /// Puts the request into the form that its HTTP wants, and says in it whom it is for.
    pub(super) fn address(&self, mut request: Request<B>) -> Result<Request<B>, ClientError> {
        let unsupported = |reason| ClientError::Unsupported { target: self.label.clone(), reason };
        if request.method() == Method::CONNECT {
            return Err(unsupported("tunnels by CONNECT are not supported"));
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        match self.target.version {
            HttpVersion::Http1 => {
                *request.version_mut() = Version::HTTP_11;
                if !request.headers().contains_key(HOST) {
                    let named = parts.authority.as_ref().and_then(|a| a.as_str().parse().ok());
                    request.headers_mut().insert(HOST, named.unwrap_or_else(|| self.host.clone()));
                }
                (parts.scheme, parts.authority) = (None, None);
            }
            HttpVersion::Http2 => {
                *request.version_mut() = Version::HTTP_2;
                request.headers_mut().remove(CONNECTION);
                let header = request.headers_mut().remove(HOST);
                let header = header.map(|host| Authority::try_from(host.as_bytes()));
                let header = header.transpose().map_err(|_| unsupported("its host is invalid"))?;
                let authority = header.or(parts.authority);
                parts.authority = Some(authority.unwrap_or_else(|| self.authority.clone()));
                parts.scheme = Some(match self.target.security {
                    Security::Plain => Scheme::HTTP,
                    Security::Tls => Scheme::HTTPS,
                });
            }
        }
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|_| unsupported("its URI is invalid"))?;
        Ok(request)
    }
}
