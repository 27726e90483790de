//! An HTTP/2 connection, to its end on one loop: the state of its streams and header tables cannot be taken along.
//!
//! h2 sees every byte; [`Observed`] sees the headers of frames as they go by, in both directions, so that floods are noticed and, at the end, the client can be told why in a frame of its own.

use std::cell::RefCell;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper::server::conn::http2;
use hyper::service::Service;
use wakeful::accept::Draining;
use wakeful::io::LoopTimer;
use wakeful::time::timeout;

use crate::limits::flood::Flood;
use crate::limits::frames::{self, Frame, FrameReader};
use crate::streams::Streams;
use crate::watch::{self, Act, Phase, Watch};
use crate::{BoxError, Limits, Refusal, refuse};

/// For the last frame.
const PATIENCE: Duration = Duration::from_secs(2);

/// h2 handles all that it has read before it comes back. A client of which a read has more frames than this waits for its loop's other tasks.
const MANY_FRAMES: u64 = 16;
/// The next read behind that has no more bytes than this, nor has a connection's first, since a flood may come with the preface. Each read with fewer frames doubles it.
const SHORT_READ: usize = 512;

/// Serves it until it closes.
pub(crate) async fn serve<I, S, B>(
    io: I,
    service: S,
    watch: &Rc<Watch>,
    draining: &Draining,
) -> hyper::Result<()>
where
    I: Read + Write + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let limits = watch.local.limits();
    let seen = Rc::new(RefCell::new(Seen::new(limits)));
    // Shared, because hyper does not give it back.
    let io = Rc::new(RefCell::new(io));
    let observed = Observed { io: io.clone(), seen: seen.clone(), watch: watch.clone() };
    let connection = builder(limits, watch).serve_connection(observed, service);
    let ended = drive(connection, &seen, watch, draining).await;
    let result = match ended {
        Ended::ByItself(result) => result,
        Ended::By(refusal) => {
            let word = seen.borrow().last_word(refusal);
            // With hyper's connection went the other one who had it.
            if let (Some(word), Ok(io)) = (word, Rc::try_unwrap(io)) {
                say(io.into_inner(), word).await;
            }
            Ok(())
        }
    };
    if let Err(error) = &result {
        count(error, &seen.borrow(), watch);
    }
    result
}

/// What ended it.
enum Ended {
    ByItself(hyper::Result<()>),
    By(Refusal),
}

async fn drive<I, S, B>(
    connection: http2::Connection<I, S, Streams>,
    seen: &RefCell<Seen>,
    watch: &Watch,
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
    let (mut connection, mut drained) = (pin!(connection), pin!(draining.started()));
    let (mut timer, mut told) = (watch::Timer::new(), false);
    poll_fn(|cx| {
        seen.borrow_mut().gives_way = false;
        if !watch.is_closing() && drained.as_mut().poll(cx).is_ready() {
            watch.close_soon();
        }
        loop {
            if watch.is_closing() && !told {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            let polled = connection.as_mut().poll(cx);
            if let Some(refusal) = seen.borrow().flood {
                watch.local.refuse(refusal);
                return Poll::Ready(Ended::By(refusal));
            }
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(Ended::ByItself(ended));
            }
            if watch.is_closing() && !told {
                continue;
            }
            let phase = {
                let mut seen = seen.borrow_mut();
                seen.count_refused(watch);
                watch.data.bytes.set(seen.data);
                watch.data.is_waiting.set(!seen.open.is_empty());
                seen.phase(watch)
            };
            match watch.poll(&mut timer, phase, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Act::PollAgain) => {}
                Poll::Ready(Act::Finish) if !told => {}
                // It was told, nothing is in flight, and it does not leave.
                Poll::Ready(Act::Finish) => return Poll::Ready(Ended::ByItself(Ok(()))),
                Poll::Ready(Act::End(refusal)) => return Poll::Ready(Ended::By(refusal)),
            }
        }
    })
    .await
}

fn builder(limits: &Limits, watch: &Rc<Watch>) -> http2::Builder<Streams> {
    let http2 = &limits.http2;
    let mut builder = http2::Builder::new(Streams(watch.clone()));
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
        // A service that has no use for it answers it as any other request.
        .enable_connect_protocol();
    builder
}

/// Writes the last frame, if there is room for it.
async fn say<I: Read + Write + Unpin>(mut io: I, word: [u8; 17]) {
    let written = poll_fn(|cx| Pin::new(&mut io).poll_write(cx, &word));
    if let Ok(Ok(_)) = timeout(PATIENCE, written).await {
        refuse::linger(&mut io).await;
    }
}

/// What went wrong by the client's doing.
fn count(error: &hyper::Error, seen: &Seen, watch: &Watch) {
    let Some(h2) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        if error.is_timeout() {
            watch.local.refuse(Refusal::Http2PingTimeout);
        }
        return;
    };
    if !h2.is_library() {
        return;
    }
    // h2 has told the client which, in words.
    let text = String::from_utf8_lossy(seen.sent.farewell());
    let refusal = [
        ("continuations", Refusal::Http2ContinuationFlood),
        ("resets", Refusal::Http2ResetFlood),
        ("data_frames", Refusal::Http2EmptyDataFlood),
        ("way_too_large", Refusal::HeaderTooLarge),
    ]
    .into_iter()
    .find_map(|(word, refusal)| text.contains(word).then_some(refusal));
    watch.local.refuse(refusal.unwrap_or(Refusal::Http2Protocol));
}

/// What has gone by.
#[derive(Debug)]
struct Seen {
    received: FrameReader,
    sent: FrameReader,
    limits: Flood,
    flood: Option<Refusal>,
    /// What is read at once, at most.
    room: usize,
    /// The loop's other tasks come before the next read: nothing more is read in this poll.
    gives_way: bool,
    /// What the client has sent last, or is sending.
    last: Option<Frame>,
    /// The stream that the client opened last, and how many it has.
    last_stream: u32,
    opened: u64,
    /// Those whose response is not sent to its end: a few more than the client may have, at most. What the service has answered may wait in h2, for as long as the client gives no room.
    open: Vec<u32>,
    most_open: usize,
    /// Bytes of responses.
    data: u64,
    refused: u64,
}

impl Seen {
    fn new(limits: &Limits) -> Self {
        Self {
            received: FrameReader::of_client(),
            sent: FrameReader::of_server(),
            limits: Flood::new(&limits.http2),
            flood: None,
            room: SHORT_READ,
            gives_way: false,
            last: None,
            last_stream: 0,
            opened: 0,
            open: Vec::new(),
            data: 0,
            most_open: 2 * limits.http2.max_streams as usize,
            refused: 0,
        }
    }

    /// The client has sent so much.
    fn received(&mut self, bytes: &[u8]) {
        let Self { received, limits, flood, last, last_stream, opened, open, .. } = self;
        let (most_open, mut count) = (self.most_open, 0);
        received.feed(bytes, |frame| {
            count += 1;
            if let Err(refusal) = limits.received(frame) {
                flood.get_or_insert(refusal);
            }
            *last = Some(frame);
            if frame.kind == frames::HEADERS && frame.stream > *last_stream {
                *last_stream = frame.stream;
                *opened += 1;
                if open.len() < most_open {
                    open.push(frame.stream);
                }
            } else if frame.kind == frames::RST_STREAM {
                close(open, frame.stream);
            }
        });
        self.gives_way = count > MANY_FRAMES;
        self.room = if self.gives_way { SHORT_READ } else { self.room.saturating_mul(2) };
    }

    fn sent(&mut self, bytes: &[u8]) {
        let Self { sent, limits, open, data, .. } = self;
        sent.feed(bytes, |frame: Frame| {
            limits.sent(frame);
            let is_last = match frame.kind {
                frames::HEADERS => frame.flags & frames::END_STREAM != 0,
                frames::DATA => {
                    *data += u64::from(frame.length);
                    frame.flags & frames::END_STREAM != 0
                }
                kind => kind == frames::RST_STREAM,
            };
            if is_last {
                close(open, frame.stream);
            }
        });
    }

    /// A header has begun and not ended.
    fn is_in_header(&self) -> bool {
        self.last.is_some_and(|frame| {
            matches!(frame.kind, frames::HEADERS | frames::CONTINUATION)
                && (frame.flags & frames::END_HEADERS == 0 || self.received.is_within_frame())
        })
    }

    fn phase(&self, watch: &Watch) -> Phase {
        if self.is_in_header() {
            Phase::Header
        } else if watch.is_in_flight() || watch.is_write_blocked() || !self.open.is_empty() {
            Phase::Busy
        } else {
            Phase::Idle
        }
    }

    /// What was opened and never came to the service, h2 has refused: when it has read all.
    fn count_refused(&mut self, watch: &Watch) {
        let begun = watch.life.served() + u64::from(self.is_in_header());
        let refused = self.opened.saturating_sub(begun);
        if refused > self.refused && !watch.is_closing() && !watch.is_write_blocked() {
            let more = refused - self.refused;
            self.refused = refused;
            watch.local.counts().refuse_many(Refusal::Http2Refused, more);
        }
    }

    /// What the client is told, if it can be: nothing fits into the middle of a frame.
    fn last_word(&self, refusal: Refusal) -> Option<[u8; 17]> {
        let error = match refusal {
            Refusal::MaxAge => h2::Reason::NO_ERROR,
            _ => h2::Reason::ENHANCE_YOUR_CALM,
        };
        self.sent.is_between_frames().then(|| frames::goaway(self.last_stream, error.into()))
    }
}

fn close(open: &mut Vec<u32>, stream: u32) {
    if let Some(place) = open.iter().position(|open| *open == stream) {
        open.swap_remove(place);
    }
}

/// The io that hyper is given.
struct Observed<I> {
    io: Rc<RefCell<I>>,
    seen: Rc<RefCell<Seen>>,
    watch: Rc<Watch>,
}

impl<I: Read + Unpin> Read for Observed<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut seen = self.seen.borrow_mut();
        if seen.flood.is_some() || seen.gives_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.watch.local.with_scratch(|scratch| {
            let room = scratch.len().min(buf.remaining()).min(seen.room);
            let mut read = ReadBuf::new(&mut scratch[..room]);
            ready!(Pin::new(&mut *self.io.borrow_mut()).poll_read(cx, read.unfilled()))?;
            seen.received(read.filled());
            if seen.flood.is_some() {
                // The driver ends it behind this poll, and h2 need not work for what comes with a flood.
                return Poll::Pending;
            }
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl<I: Write + Unpin> Write for Observed<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.io.borrow_mut()).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = written {
            self.seen.borrow_mut().sent(&buf[..count]);
        }
        self.watch.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.io.borrow_mut()).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(mut left)) = written {
            let mut seen = self.seen.borrow_mut();
            for slice in slices {
                let count = left.min(slice.len());
                seen.sent(&slice[..count]);
                left -= count;
            }
        }
        self.watch.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_shutdown(cx)
    }
}
