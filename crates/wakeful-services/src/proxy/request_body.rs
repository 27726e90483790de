//! A request's body on its way to a backend: first what was buffered, and then the rest, directly
//! from the client.
//!
//! A body that fits into the buffer is complete before a backend gets the request. So a slow client
//! occupies no connection to a backend, and the request can be sent again to another backend.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use wakeful_http::client::Awaited;
use wakeful_http::{BoxError, RequestBody};

use super::budget::{Budget, Share};
use super::{headers, pieces};

pub(super) struct BufferedRequest {
    pieces: VecDeque<Bytes>,
    /// The total length of the waiting pieces.
    waiting: u64,
    trailers: Option<HeaderMap>,
    rest: Option<RequestBody>,
    share: Option<Rc<Share>>,
    progress: Rc<Progress>,
}

/// No backend gives a client less time for a part of its body than this. So a backend that closes
/// the connection sooner does not do it for want of the body.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// When the last bytes of the body were forwarded, because a backend's time to answer begins there.
/// Also whether the client delays the request, and for how long: then a failure may say nothing
/// about the backend.
#[derive(Debug)]
pub(super) struct Progress {
    last: Cell<Instant>,
    /// Whether the request has no connection to a backend yet. This time is not a backend's
    /// silence.
    awaits_connection: Cell<bool>,
    client: Cell<ClientIs>,
    /// How long this backend has waited for the client, without the present wait.
    waited: Cell<Duration>,
    /// Whether a part of the client's body may be left, and is still held for a backend.
    is_open: Cell<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientIs {
    InTime,
    /// All received bytes were forwarded, and the client must send more.
    Awaited {
        since: Instant,
    },
    /// The client's body broke off.
    Gone,
}

impl Progress {
    fn new() -> Self {
        Self {
            last: Cell::new(Instant::now()),
            awaits_connection: Cell::default(),
            client: Cell::new(ClientIs::InTime),
            waited: Cell::default(),
            is_open: Cell::default(),
        }
    }

    /// Notes that a backend is about to get the request.
    pub(super) fn begin(&self) {
        self.client.set(ClientIs::InTime);
        self.waited.set(Duration::ZERO);
    }

    /// Notes what the request waits for now. A backend's time to answer begins when the request has
    /// its connection.
    pub(super) fn awaits(&self, awaited: Awaited) {
        self.awaits_connection.set(awaited == Awaited::Connection);
        if awaited == Awaited::Response {
            self.touch();
        }
    }

    pub(super) fn awaits_connection(&self) -> bool {
        self.awaits_connection.get()
    }

    pub(super) fn last(&self) -> Instant {
        self.last.get()
    }

    pub(super) fn touch(&self) {
        self.last.set(Instant::now());
    }

    /// Notes that the backend has everything that came.
    fn awaits_client(&self) {
        if !self.waits_for_client() {
            self.client.set(ClientIs::Awaited { since: Instant::now() });
        }
    }

    /// Notes that a frame came, or the end of the body, or of its connection.
    fn comes(&self, client: ClientIs) {
        self.touch();
        if let ClientIs::Awaited { since } = self.client.replace(client) {
            let waited = self.last().saturating_duration_since(since);
            self.waited.set(self.waited.get().saturating_add(waited));
        }
    }

    /// Does the backend have everything that came, while the client has not sent the rest?
    pub(super) fn waits_for_client(&self) -> bool {
        matches!(self.client.get(), ClientIs::Awaited { .. })
    }

    /// Is the rest of the body still held, so that it may be dropped before its end? If it was
    /// dropped already, the client's connection itself knows whether it closes.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Did the body break off after its beginning?
    pub(super) fn client_has_gone(&self) -> bool {
        self.client.get() == ClientIs::Gone
    }

    /// Could a failure of the exchange be the client's fault? A backend may close a connection
    /// whose request does not come. But a call that streams waits for its client most of the time.
    /// If that were enough, a backend that fails at once would never be left out.
    ///
    /// All waits count together: a client may send a byte now and then until the backend has had
    /// enough. `silence` is how long a backend may be silent.
    pub(super) fn may_be_clients_fault(&self, silence: Duration) -> bool {
        match self.client.get() {
            ClientIs::InTime => false,
            ClientIs::Awaited { since } => {
                let waited = self.waited.get().saturating_add(since.elapsed());
                waited >= LEAST_PATIENCE.min(silence / 4)
            }
            ClientIs::Gone => true,
        }
    }
}

impl BufferedRequest {
    /// No body.
    pub(super) fn none() -> Self {
        let progress = Rc::new(Progress::new());
        Self {
            pieces: VecDeque::new(),
            waiting: 0,
            trailers: None,
            rest: None,
            share: None,
            progress,
        }
    }

    /// Reads until the body has ended, `limit` is reached, or the loop has no room for more; or,
    /// unless it `waits`, until nothing is there.
    ///
    /// # Errors
    /// The client broke off.
    pub(super) async fn read(
        mut incoming: RequestBody,
        limit: usize,
        waits: bool,
        budget: &Rc<Budget>,
    ) -> Result<Self, BoxError> {
        let mut body = Self::none();
        if incoming.is_end_stream() {
            return Ok(body);
        }
        let share = budget.share();
        let mut has_ended = false;
        while !has_ended && share.taken() < limit && share.has_room() {
            let next = poll_fn(|cx| match Pin::new(&mut incoming).poll_frame(cx) {
                Poll::Pending if !waits => Poll::Ready(None),
                next => next.map(Some),
            });
            let Some(next) = next.await else { break };
            let Some(frame) = next else {
                has_ended = true;
                break;
            };
            match frame?.into_data() {
                Ok(data) => {
                    share.take(data.len());
                    body.waiting += data.len() as u64;
                    let last = body.pieces.back_mut();
                    if !last.is_some_and(|last| pieces::join(last, &data)) {
                        body.pieces.push_back(data);
                    }
                    has_ended = incoming.is_end_stream();
                }
                Err(frame) => {
                    body.trailers = frame.into_trailers().ok().map(headers::trailers);
                    has_ended = true;
                }
            }
        }
        if !has_ended {
            body.progress.is_open.set(true);
            body.rest = Some(incoming);
        }
        body.share = Some(Rc::new(share));
        body.progress.last.set(Instant::now());
        Ok(body)
    }

    pub(super) fn progress(&self) -> Rc<Progress> {
        self.progress.clone()
    }

    /// Is the whole body in the buffer?
    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    pub(super) fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }

    /// A copy of the request's body. `None`: the rest is only with the client.
    pub(super) fn again(&self) -> Option<Self> {
        self.is_whole().then(|| Self {
            pieces: self.pieces.clone(),
            waiting: self.waiting,
            trailers: self.trailers.clone(),
            rest: None,
            share: self.share.clone(),
            progress: self.progress.clone(),
        })
    }
}

impl Drop for BufferedRequest {
    fn drop(&mut self) {
        if self.rest.is_some() {
            self.progress.is_open.set(false);
        }
    }
}

impl Body for BufferedRequest {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(piece) = this.pieces.pop_front() {
            this.waiting -= piece.len() as u64;
            this.progress.touch();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(trailers) = this.trailers.take() {
            this.progress.touch();
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        // Nothing of the body waits here any more.
        this.share = None;
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(&mut *rest).poll_frame(cx) else {
            this.progress.awaits_client();
            return Poll::Pending;
        };
        let rest_has_ended = rest.is_end_stream();
        let has_failed = matches!(frame, Some(Err(_)));
        let client = if has_failed { ClientIs::Gone } else { ClientIs::InTime };
        this.progress.comes(client);
        let is_last = match &frame {
            None => true,
            Some(frame) => frame.as_ref().is_ok_and(Frame::is_trailers) || rest_has_ended,
        };
        if is_last {
            this.progress.is_open.set(false);
        }
        Poll::Ready(frame.map(|frame| {
            Ok(match frame?.into_trailers() {
                Ok(trailers) => Frame::trailers(headers::trailers(trailers)),
                Err(frame) => frame,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        let rest_ended = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.pieces.is_empty() && self.trailers.is_none() && rest_ended
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            None => SizeHint::with_exact(self.waiting),
            Some(rest) => match rest.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(self.waiting + rest),
                None => SizeHint::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn each_piece_that_was_buffered_is_progress_when_it_is_sent() {
        let mut body = BufferedRequest::none();
        body.pieces = [Bytes::from("one"), Bytes::from("two")].into();
        body.waiting = 6;
        body.trailers = Some(HeaderMap::new());
        let progress = body.progress();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let before = Instant::now();
            let frame = Pin::new(&mut body).poll_frame(&mut cx);
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
            assert!(progress.last() >= before);
        }
        let last = progress.last();
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)));
        assert_eq!(progress.last(), last, "nothing was left");
    }

    #[test]
    fn only_waits_of_some_length_in_all_make_a_failure_the_clients() {
        let progress = Progress::new();
        let part = LEAST_PATIENCE * 3 / 5;
        let waits = |since| progress.client.set(ClientIs::Awaited { since });
        let may_be = || progress.may_be_clients_fault(Duration::MAX);
        // Both times are certain, however slow the test is.
        let (later, before) = (Instant::now() + Duration::from_secs(3600), Instant::now() - part);
        assert!(!may_be());
        waits(later);
        assert!(!may_be(), "the wait has only begun");
        assert!(progress.may_be_clients_fault(Duration::ZERO));
        waits(before);
        progress.comes(ClientIs::InTime);
        assert!(progress.waited.get() >= part && !may_be(), "the rest has come");
        waits(before);
        assert!(may_be(), "two waits");
        progress.awaits_client();
        assert!(may_be(), "it is the same wait");
        progress.begin();
        waits(later);
        assert!(!may_be(), "another backend has not waited");
        progress.comes(ClientIs::Gone);
        assert!(may_be());
    }
}
