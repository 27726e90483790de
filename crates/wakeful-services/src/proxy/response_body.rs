//! A response's body on its way to a client. It is read from the backend as fast as it comes,
//! within limits, however slow the client is.
//!
//! Most bodies are complete with their head, and are just forwarded. For the others a task reads
//! ahead, until the response's own limit or the loop's limit is reached. Then it reads only as fast
//! as the client does. A response without waiting pieces may always read one more piece, so that
//! the buffers of other clients cannot block it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use wakeful::JoinHandle;
use wakeful_http::client::{ClientError, ResponseBody};

use super::backends::Exchange;
use super::budget::{Budget, Share};
use super::request_body::Progress;
use super::silence::within;
use super::{headers, pieces};
use crate::log;

/// The body of an answer, from the proxy itself or from a backend.
pub(super) enum ProxyBody {
    Whole { data: Bytes, trailers: Option<HeaderMap> },
    Piped(Piped),
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    #[error(transparent)]
    Backend(#[from] ClientError),
    #[error("the backend sent nothing for {0:?}")]
    Silent(Duration),
}

/// How a body is read ahead.
#[derive(Debug, Clone)]
pub(super) struct ReadAhead {
    /// How many bytes to read ahead, at most, plus one piece.
    pub(super) limit: usize,
    /// How long the backend may send nothing.
    pub(super) silence: Duration,
    pub(super) budget: Rc<Budget>,
}

type Piece = Result<Frame<Bytes>, BrokenOff>;

impl ProxyBody {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Whole { data: text.into(), trailers: None }
    }

    /// Takes what has come of the body, and starts a task to read the rest. The exchange lasts as
    /// long as the task. `asked` is the progress of the request's body, which may still be on its
    /// way.
    ///
    /// # Errors
    /// The body has broken off before anything of the response was sent to the client.
    pub(super) fn read(
        mut body: ResponseBody,
        exchange: Exchange,
        asked: Rc<Progress>,
        ahead: ReadAhead,
    ) -> Result<Self, ClientError> {
        let exact = body.size_hint().exact();
        let mut poll = || {
            if body.is_end_stream() {
                return Poll::Ready(None);
            }
            Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()))
        };
        let mut start = VecDeque::new();
        let mut data = Bytes::new();
        // Data and the end, or data, trailers and the end. A body with more than that gets a task.
        for _ in 0..2 {
            match poll() {
                Poll::Pending => break,
                Poll::Ready(None) => {
                    exchange.succeeded();
                    return Ok(Self::Whole { data, trailers: None });
                }
                Poll::Ready(Some(Ok(frame))) if frame.is_data() && start.is_empty() => {
                    data = frame.data_ref().cloned().unwrap_or_default();
                    start.push_back(Ok(frame));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_trailers() {
                    Ok(trailers) => {
                        exchange.succeeded();
                        let trailers = Some(headers::trailers(trailers));
                        return Ok(Self::Whole { data, trailers });
                    }
                    Err(frame) => start.push_back(Ok(frame)),
                },
                Poll::Ready(Some(Err(error))) => {
                    if !asked.client_has_gone() {
                        exchange.failed(&error);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Self::Piped(Piped::start(start, exact, body, exchange, asked, ahead)))
    }
}

/// A body that a task reads.
pub(super) struct Piped {
    pipe: Rc<Pipe>,
    /// The length of the rest, if it is known.
    left: Option<u64>,
    task: JoinHandle<()>,
}

impl Drop for Piped {
    /// The client has everything, or is gone, so the backend need not continue.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The queue between the task and the client's connection.
struct Pipe {
    pieces: RefCell<VecDeque<Piece>>,
    has_ended: Cell<bool>,
    share: Share,
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
}

impl Pipe {
    fn push(&self, piece: Piece) {
        if let Ok(frame) = &piece {
            self.share.take(frame.data_ref().map_or(0, Bytes::len));
        } else {
            self.has_ended.set(true);
        }
        let mut pieces = self.pieces.borrow_mut();
        let last = pieces.back_mut().and_then(|last| last.as_mut().ok()?.data_mut());
        let data = piece.as_ref().ok().and_then(Frame::data_ref);
        let is_joined = last.zip(data).is_some_and(|(last, data)| pieces::join(last, data));
        if !is_joined {
            pieces.push_back(piece);
        }
        drop(pieces);
        wake(&self.reader);
    }

    fn end(&self) {
        self.has_ended.set(true);
        wake(&self.reader);
    }

    /// Waits until more may be read.
    async fn room(&self, limit: usize) {
        poll_fn(|cx| {
            let (waiting, may_more) = (self.share.taken(), self.share.has_room());
            if waiting == 0 || waiting < limit && may_more {
                return Poll::Ready(());
            }
            self.writer.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

fn wake(waker: &Cell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Piped {
    fn start(
        start: VecDeque<Piece>,
        left: Option<u64>,
        body: ResponseBody,
        exchange: Exchange,
        asked: Rc<Progress>,
        ahead: ReadAhead,
    ) -> Self {
        let pipe = Rc::new(Pipe {
            pieces: RefCell::default(),
            has_ended: Cell::new(false),
            share: ahead.budget.share(),
            reader: Cell::default(),
            writer: Cell::default(),
        });
        start.into_iter().for_each(|piece| pipe.push(piece));
        let task = wakeful::spawn(read_ahead(pipe.clone(), body, exchange, asked, ahead));
        Self { pipe, left, task }
    }
}

async fn read_ahead(
    pipe: Rc<Pipe>,
    mut body: ResponseBody,
    exchange: Exchange,
    asked: Rc<Progress>,
    ahead: ReadAhead,
) {
    let has_length = body.size_hint().exact().is_some();
    while !pipe.has_ended.get() {
        pipe.room(ahead.limit).await;
        // A backend that answers before it has the whole request may be silent as long as more of
        // the request comes.
        asked.touch();
        let piece = match within(ahead.silence, &asked, pin!(body.frame())).await {
            Some(Some(Ok(frame))) => Ok(match frame.into_trailers() {
                Ok(trailers) => Frame::trailers(headers::trailers(trailers)),
                Err(frame) => frame,
            }),
            Some(Some(Err(error))) => {
                if !asked.client_has_gone() {
                    exchange.failed(&error);
                }
                Err(error.into())
            }
            Some(None) => {
                exchange.succeeded();
                return pipe.end();
            }
            None => {
                let broken = BrokenOff::Silent(ahead.silence);
                // A stream without a length may just have nothing to say. Or the backend may be
                // waiting for the client.
                if has_length && !asked.waits_for_client() {
                    exchange.failed(&broken);
                } else {
                    log::log!(debug, backend = %exchange.host().target(), error = %broken, "a response is cut off");
                }
                Err(broken)
            }
        };
        pipe.push(piece);
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        match &mut *self {
            Self::Whole { data, trailers } => {
                let data = std::mem::take(data);
                let frame = if data.is_empty() {
                    trailers.take().map(Frame::trailers)
                } else {
                    Some(Frame::data(data))
                };
                Poll::Ready(frame.map(Ok))
            }
            Self::Piped(Piped { pipe, left, .. }) => {
                let Some(piece) = pipe.pieces.borrow_mut().pop_front() else {
                    if pipe.has_ended.get() {
                        return Poll::Ready(None);
                    }
                    pipe.reader.set(Some(cx.waker().clone()));
                    return Poll::Pending;
                };
                if let Ok(frame) = &piece
                    && let Some(data) = frame.data_ref()
                {
                    pipe.share.give_back(data.len());
                    *left = left.map(|left| left.saturating_sub(data.len() as u64));
                    wake(&pipe.writer);
                }
                Poll::Ready(Some(piece))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { data, trailers } => data.is_empty() && trailers.is_none(),
            Self::Piped(Piped { pipe, .. }) => {
                pipe.has_ended.get() && pipe.pieces.borrow().is_empty()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            Self::Piped(Piped { left: Some(left), .. }) => SizeHint::with_exact(*left),
            _ => SizeHint::default(),
        }
    }
}
