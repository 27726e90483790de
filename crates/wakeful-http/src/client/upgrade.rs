//! A request that asks for another protocol (RFC 9110, 7.8), on a connection of its own.
//!
//! The connection is new and never from the pool, so earlier or later messages cannot be confused
//! with the new protocol. It does not count for
//! [`ClientBuilder::max_connections`](super::ClientBuilder::max_connections): the caller limits the
//! number of upgrades. hyper's own upgrades need connections that are `Send`; here hyper's
//! connection is taken apart after it has ended with a 101.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use wakeful::task::consume_budget;

use super::body::{Exchange, Outgoing};
use super::http1::builder;
use super::retry::{Awaited, given};
use super::transport::ObservedTransport;
use super::unused::UnusedTimer;
use super::upload::Upload;
use super::{ClientError, Host, HttpVersion, OutgoingBody, ResponseBody, SendFailure};
use crate::foreign_code;
use crate::upgrade::Upgraded;

/// The server's answer to a request for another protocol. See [`Host::upgrade`].
#[derive(Debug)]
pub enum UpgradeAnswer {
    /// 101: the connection no longer speaks HTTP. The caller must check that the response names the
    /// requested protocol.
    Switched(Response<()>, Upgraded),
    /// Any other response: there is no upgrade. The connection closes after it.
    Ordinary(Response<ResponseBody>),
}

impl<B: OutgoingBody> Host<B> {
    /// Sends `request` on a new connection, and returns the server's answer. The request must have
    /// the header `connection: upgrade`, and an `upgrade` header with the protocol. It is sent only
    /// once. If no connection could be made, or if it ended before anything was written, the error
    /// contains the request.
    ///
    /// The connection does not count towards
    /// [`ClientBuilder::max_connections`](super::ClientBuilder::max_connections).
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection closes.
    ///
    /// # Errors
    /// The same as for [`send`](Self::send); or the host speaks HTTP/2, which has no upgrades.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn upgrade(&self, request: Request<B>) -> Result<UpgradeAnswer, SendFailure<B>> {
        self.upgrade_watched(request, |_| {}).await
    }

    /// Sends `request` like [`upgrade`](Self::upgrade), for callers with their own time limit for
    /// the server. Calls `watch` with [`Awaited::Connection`] at first, and with
    /// [`Awaited::Response`] when the request has its connection.
    ///
    /// # Cancel safety
    /// The same as for [`upgrade`](Self::upgrade).
    ///
    /// # Errors
    /// The same as for [`upgrade`](Self::upgrade).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn upgrade_watched(
        &self,
        request: Request<B>,
        watch: impl FnMut(Awaited),
    ) -> Result<UpgradeAnswer, SendFailure<B>> {
        // The request may fail at once, and be repeated in a loop.
        consume_budget().await;
        let asked = self.ask_for_upgrade(request, watch);
        let (mut answer, deadline) = self.pool.head_in_time(asked).await?;
        if let UpgradeAnswer::Ordinary(response) = &mut answer {
            response.body_mut().has_until(deadline);
        }
        Ok(answer)
    }

    async fn ask_for_upgrade(
        &self,
        request: Request<B>,
        mut watch: impl FnMut(Awaited),
    ) -> Result<UpgradeAnswer, SendFailure<B>> {
        let pool = &*self.pool;
        if pool.target.version == HttpVersion::Http2 {
            let (target, reason) = (pool.label.clone(), "HTTP/2 has no upgrades");
            return Err(ClientError::Unsupported { target, reason }.into());
        }
        let request = pool.address(request)?;
        watch(Awaited::Connection);
        let transport = match pool.connect().await {
            Ok(transport) => transport,
            Err(error) => return Err(SendFailure { error, request: given(request) }),
        };
        let broken = |source| pool.broken(source);
        let (io, observed) = ObservedTransport::new(transport);
        let (mut sender, connection) =
            builder(&pool.settings).handshake::<_, Outgoing<B>>(io).await.map_err(broken)?;
        pool.counts.add_opened();
        watch(Awaited::Response);
        let mut driven = Driven { connection, has_ended: false };
        let upload = Rc::<Upload>::default();
        let (uploading, answering) = upload.begin();
        let request = request.map(|body| body.by(uploading));
        observed.awaits_head(pool.settings.max_header_size);
        let response = driven.until(sender.try_send_request(request)).await;
        observed.head_has_come();
        let response = match response {
            Ok(response) => response,
            Err(mut failed) => {
                // hyper reads before it writes, and gives back what it has not taken.
                let untouched = failed.take_message().map(|request| request.map(Outgoing::on_none));
                let error = broken(failed.into_error());
                return Err(SendFailure { error, request: untouched.and_then(given) });
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            driven.finish().await.map_err(broken)?;
            let parts = driven.connection.into_parts();
            let upgraded = Upgraded::behind(parts.read_buf, parts.io);
            return Ok(UpgradeAnswer::Switched(response.map(drop), upgraded));
        }
        if !driven.has_ended {
            let patience = pool.settings.idle_timeout;
            wakeful::spawn(driven.answers_ordinarily(upload, patience)).detach();
        }
        let target = pool.label.clone();
        let response =
            response.map(|body| ResponseBody::new(body, target, None, Exchange::Http1(answering)));
        Ok(UpgradeAnswer::Ordinary(response))
    }
}

type Answered<B> = Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>;

/// hyper's connection, which leaves its I/O open when it ends.
struct Driven<B: OutgoingBody> {
    connection: http1::Connection<ObservedTransport, Outgoing<B>>,
    has_ended: bool,
}

impl<B: OutgoingBody> Driven<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let ended = self.connection.poll_without_shutdown(cx);
        self.has_ended |= ended.is_ready();
        ended
    }

    /// Drives the connection until `answered` is ready. The end of the connection is an answer,
    /// too.
    async fn until(&mut self, answered: impl Future<Output = Answered<B>>) -> Answered<B> {
        let mut answered = pin!(answered);
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(answer) = answered.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                if self.has_ended || self.poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    async fn finish(&mut self) -> hyper::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Feeds the body of an ordinary response. The connection closes after it, because it has no
    /// sender. If the request's body has not ended by then, the connection closes with the
    /// response. If hyper could not send the rest of the request, it closes `patience` later.
    async fn answers_ordinarily(self, upload: Rc<Upload>, patience: Duration) {
        let mut connection = pin!(self.connection);
        let mut timer = UnusedTimer::new(patience);
        poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            if let Poll::Ready(Err(error)) = &ended {
                foreign_code::log!(debug, %error, "a connection of the client ended with an error");
            }
            if ended.is_ready() || upload.poll_cut(cx, false).is_ready() {
                return Poll::Ready(());
            }
            timer.poll(cx, || upload.answered())
        })
        .await;
    }
}
