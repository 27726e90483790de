//! Sends a request, and sends it again where that is safe.
//!
//! `address` puts the request into the form for its HTTP version. `attempt` sends it once, and says
//! whether the server can have acted on it. This file decides what follows from that.

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use wakeful::task::consume_budget;

use super::attempt::{Acted, Cause};
use super::body::{Exchange, Outgoing};
use super::error::ClientError;
use super::host_pool::{Host, Prefer, Queue};
use super::target::HttpVersion;
use super::{OutgoingBody, ResponseBody, repeated};
use crate::foreign_code::{self, Contained};
use crate::own_values;

type Copy<B> = fn(&B) -> Option<B>;

/// How often a request is sent again, in addition to the retries, because its HTTP/2 connection
/// ended before the server got to it. Suppose that a server allows a connection 100 requests. It
/// ends the connection while many requests share it, and each new connection takes only 100 of
/// those that are left.
const ENDINGS: u32 = 8;

impl<B: OutgoingBody> Host<B> {
    /// Sends `request`, and returns the response when its head has arrived. Retries the request if
    /// [that is safe](super#what-is-sent-again).
    ///
    /// The request goes to this host, even if its URI names another one. The name in the URI is
    /// only sent to the server, as the `host` header or `:authority`. If the request has a `host`
    /// header, that is sent instead. The request's version does not matter.
    ///
    /// Over HTTP/1.1 the body of a GET or HEAD whose length is not known is sent only if the
    /// request has the header `transfer-encoding: chunked`. Otherwise it is left out.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request's HTTP/1.1 connection closes, or its HTTP/2 stream is
    /// reset. It is then unknown whether the server acted on the request.
    ///
    /// # Errors
    /// There was no connection or no response in time; too many requests already wait for a
    /// connection; the exchange broke off; the host was [retired](super::Client::retire); or the
    /// request is not supported, for example because its method is CONNECT. [`ClientError`] lists
    /// the cases.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, ClientError> {
        self.send_and_repeat(request, |_| None).await
    }

    /// Sends `request` like [`send`](Self::send), but clones the body for a retry. Cloning should
    /// be cheap, as for `Full<Bytes>`.
    ///
    /// # Cancel safety
    /// The same as for [`send`](Self::send).
    ///
    /// # Errors
    /// The same as for [`send`](Self::send).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send_replayable(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ClientError>
    where
        B: Clone,
    {
        self.send_and_repeat(request, |body| Some(body.clone())).await
    }

    /// Sends `request` like [`send`](Self::send), for callers that can ask another server: if
    /// [it could be sent again](super#what-is-sent-again), the error contains it.
    ///
    /// `copy` returns a copy of the body for a retry, or `None` if the body cannot be copied. It is
    /// not needed for a body that is empty from the start.
    ///
    /// # Cancel safety
    /// The same as for [`send`](Self::send).
    ///
    /// # Errors
    /// The same as for [`send`](Self::send).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send_with(
        &self,
        request: Request<B>,
        copy: fn(&B) -> Option<B>,
    ) -> Result<Response<ResponseBody>, SendFailure<B>> {
        self.send_watched(request, copy, |_| {}).await
    }

    /// Sends `request` like [`send_with`](Self::send_with), for callers with their own time limit
    /// for the server. Calls `watch` with [`Awaited::Connection`] at first, and before each retry.
    /// Calls it with [`Awaited::Response`] when the request has a connection.
    ///
    /// # Cancel safety
    /// The same as for [`send`](Self::send).
    ///
    /// # Errors
    /// The same as for [`send`](Self::send).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send_watched(
        &self,
        request: Request<B>,
        copy: fn(&B) -> Option<B>,
        watch: impl FnMut(Awaited),
    ) -> Result<Response<ResponseBody>, SendFailure<B>> {
        self.send_by(Caller::MayAskAnother, request, copy, watch).await
    }

    async fn send_and_repeat(
        &self,
        request: Request<B>,
        copy: Copy<B>,
    ) -> Result<Response<ResponseBody>, ClientError> {
        let sent = self.send_by(Caller::HasThisHost, request, copy, |_| {});
        sent.await.map_err(|failed| failed.error)
    }

    async fn send_by(
        &self,
        caller: Caller,
        request: Request<B>,
        copy: Copy<B>,
        watch: impl FnMut(Awaited),
    ) -> Result<Response<ResponseBody>, SendFailure<B>> {
        let pool = &*self.pool;
        let sent = self.send_with_retries(caller, request, copy, watch);
        let ((response, exchange), deadline) = match pool.head_in_time(sent).await {
            Ok(answered) => answered,
            Err(failed) => {
                // The request may fail at once, and be repeated in a loop, for example because the
                // queue is full.
                consume_budget().await;
                return Err(failed);
            }
        };
        Ok(response.map(|body| ResponseBody::new(body, pool.label.clone(), deadline, exchange)))
    }

    /// Sends the request until it is answered, or must not be sent again.
    async fn send_with_retries(
        &self,
        caller: Caller,
        request: Request<B>,
        copy: Copy<B>,
        mut watch: impl FnMut(Awaited),
    ) -> Result<(Response<Incoming>, Exchange), SendFailure<B>> {
        let pool = &self.pool;
        let mut request = pool.address(request)?;
        if pool.target.version == HttpVersion::Http2 {
            own_values::own(request.headers_mut());
        }
        let is_idempotent = request.method().is_idempotent();
        let mut retries = pool.settings.retries;
        let mut endings = if retries > 0 { ENDINGS } else { 0 };
        // All connections of the pool may have ended without notice.
        let mut unnoticed = u32::try_from(pool.settings.max_connections).unwrap_or(u32::MAX);
        let (mut prefer, mut queue) = (Prefer::Idle, Queue::IfItHasRoom);
        loop {
            watch(Awaited::Connection);
            let lease = match pool.lease(prefer, queue).await {
                Ok(lease) => lease,
                Err(error) => return Err(SendFailure { error, request: given(request) }),
            };
            watch(Awaited::Response);
            let was_used = lease.was_used();
            let may_come_back = lease.may_be_stale()
                || is_idempotent && repeated::may_follow_a_new_connection(request.extensions());
            let again = ((retries > 0 || endings > 0) && may_come_back)
                .then(|| copy_of(&request, copy))
                .flatten()
                // A panic in its drop would leak the response, and with it the connection.
                .map(Contained::new);
            if again.is_none() || !is_idempotent {
                lease.look_first();
            }
            let failure = match lease.send(request).await {
                Ok(answered) => return Ok(answered),
                Err(failure) => failure,
            };
            // A server may end many connections at once (by GOAWAY, before it closes them). That
            // should not use up the request's retries.
            let is_untouched = failure.request.is_some();
            // A server that has closed one pooled connection under this request may do so to the
            // next one.
            if !is_untouched {
                prefer = Prefer::New;
            }
            let left: &mut u32 = if is_untouched && was_used && unnoticed > 0 {
                &mut unnoticed
            } else if failure.is_ending && endings > 0 {
                &mut endings
            } else {
                &mut retries
            };
            let acted = failure.acted;
            let is_safe = |request: &Request<_>| {
                (is_idempotent || acted == Acted::No)
                    && repeated::may_be_sent_again(request.extensions(), acted)
            };
            let again = again.filter(|again| is_safe(again));
            let mut again = again.and_then(Contained::into_inner);
            if let Some(again) = &mut again {
                repeated::mark(again.extensions_mut(), acted);
            }
            let next = failure.request.or(again);
            // A copy without the caller's body is repeated here: the caller cannot have it back.
            let has_body = |next: &Request<_>| matches!(next.body(), Outgoing::Given(_));
            let is_callers = acted == Acted::OnceAtMostOnNew
                && caller == Caller::MayAskAnother
                && next.as_ref().is_some_and(has_body);
            request = match next {
                Some(request) if *left > 0 && !is_callers => request,
                untouched => {
                    let target = pool.label.clone();
                    let error = match failure.cause {
                        Cause::Panic => ClientError::Panicked { target },
                        Cause::EndedBefore => ClientError::Ended { target },
                        Cause::Error => pool.broken(failure.error),
                    };
                    return Err(SendFailure { error, request: untouched.and_then(given) });
                }
            };
            *left -= 1;
            queue = Queue::EvenIfFull;
            pool.counts.add_retried();
            foreign_code::log!(debug, target = %pool.label, error = %failure.error, "sending a request again");
        }
    }
}

/// Who repeats a request whose new connection closed before any response byte? It is repeated once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// This host gets it again.
    HasThisHost,
    /// The caller gets it back, because another server is the better choice.
    MayAskAnother,
}

/// What a request of [`Host::send_watched`] or [`Host::upgrade_watched`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A connection: a free one of the pool, or a new one. The limits for that are
    /// [`ClientBuilder::queue_timeout`](super::ClientBuilder::queue_timeout) and
    /// [`ClientBuilder::connect_timeout`](super::ClientBuilder::connect_timeout).
    Connection,
    /// The head of the response. The request has its connection, and is sent on it.
    Response,
}

/// The error of [`Host::send_with`] and [`Host::upgrade`].
#[derive(Debug)]
pub struct SendFailure<B> {
    /// The cause.
    pub error: ClientError,
    /// The request, if its body is still complete, and no server acted on it. A request with an
    /// idempotent method is also here if its connection closed before any response byte: that
    /// server may have acted on it. It has a `host` header, and can be sent to another server.
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

/// A copy of the request, without taking anything from it. `None`: its body cannot be copied.
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
