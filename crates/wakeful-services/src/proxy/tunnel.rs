//! A tunnel between a client and a backend that have left HTTP. It carries bytes in both
//! directions, until both sides have ended, nothing moves for too long, or the loop ends.
//!
//! Bytes that one side does not take yet wait here, at most one read in each direction, and nothing
//! more is read from the other side meanwhile. An idle tunnel holds no buffer: reads use a buffer
//! that all tunnels of a loop share. The end of one side's stream is forwarded as an end, and the
//! other direction continues. If a tunnel ends in another way, a side that was not told of an end
//! is cut off, so that it does not take what it has got for everything.
//!
//! When the server drains, `websocket` tells a WebSocket's client. Tunnels that are left when the
//! grace period is over end with the loop.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use wakeful::time::Deadline;
use wakeful_http::upgrade::Upgraded;
use wakeful_http::{DrainBegins, drain_begins};

use super::websocket::Frames;

/// The size of one read.
const PIECE: usize = 16 * 1024;

/// The number of checks within each limit. So a tunnel may be silent for a quarter longer than the
/// limit.
const LOOKS: u32 = 4;

/// The shortest time between two checks.
const SHORTEST: Duration = Duration::from_millis(1);

/// The state that the tunnels of a loop share.
#[derive(Debug, Clone)]
pub(super) struct Tunnels {
    /// How long nothing may move.
    idle: Duration,
    /// The limit after one side has ended its stream, or while one side does not take what the
    /// other has sent. That side may be gone, and a side that waits to write does not read, so it
    /// would not notice.
    half_closed: Duration,
    scratch: Rc<RefCell<Vec<u8>>>,
    /// How many more tunnels there may be.
    places: Rc<Cell<usize>>,
}

impl Tunnels {
    pub(super) fn new(idle: Duration, half_closed: Duration, most: usize) -> Self {
        let scratch = Rc::new(RefCell::new(Vec::new()));
        let places = Rc::new(Cell::new(most.max(1)));
        Self { idle, half_closed: half_closed.min(idle), scratch, places }
    }

    pub(super) fn has_place(&self) -> bool {
        self.places.get() > 0
    }

    /// Takes a place for a tunnel, if there is one. It is taken before a backend is asked.
    pub(super) fn enter(&self) -> Option<Place> {
        self.places.set(self.places.get().checked_sub(1)?);
        Some(Place(self.places.clone()))
    }
}

/// The place of a tunnel, or of a request for one.
#[derive(Debug)]
pub(super) struct Place(Rc<Cell<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// How a tunnel ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Both sides have ended their streams.
    ByBoth,
    Idle(Duration),
    Broken(io::Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByBoth => f.write_str("both sides have ended it"),
            Self::Idle(idle) => write!(f, "nothing moved for {idle:?}"),
            Self::Broken(error) => write!(f, "it broke: {error}"),
        }
    }
}

pub(super) struct Tunnel {
    client: Upgraded,
    backend: Upgraded,
    up: Direction,
    down: Direction,
    up_first: bool,
    /// The frames that went to the client, if the tunnel may have to be ended between two of them.
    frames: Option<Frames>,
    drain: DrainBegins,
    drains: bool,
    silence: Silence,
    settings: Tunnels,
}

/// A side that was told the end of the other one has got all of it. Any other side must not take
/// this for an end.
impl Drop for Tunnel {
    fn drop(&mut self) {
        if self.down.stage != Stage::Ended {
            self.client.abort();
        }
        if self.up.stage != Stage::Ended {
            self.backend.abort();
        }
    }
}

impl Tunnel {
    pub(super) fn new(
        client: Upgraded,
        backend: Upgraded,
        is_websocket: bool,
        settings: Tunnels,
    ) -> Self {
        Self {
            client,
            backend,
            up: Direction::default(),
            down: Direction::default(),
            up_first: false,
            frames: is_websocket.then(Frames::default),
            drain: drain_begins(),
            drains: false,
            silence: Silence::new(settings.idle),
            settings,
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if !self.drains && Pin::new(&mut self.drain).poll(cx).is_ready() {
            self.drains = true;
        }
        let mut scratch = self.settings.scratch.borrow_mut();
        scratch.resize(PIECE, 0);
        if self.drains
            && let Some(frames) = &mut self.frames
        {
            frames.end_soon();
        }
        // The directions take turns to be polled first. A direction that always has data may use up
        // the task's budget for the turn, and the other one would never be polled.
        self.up_first = !self.up_first;
        let (mut up, mut down) = (Poll::Pending, Poll::Pending);
        for is_up in [self.up_first, !self.up_first] {
            if is_up {
                up = self.up.poll(&mut self.client, &mut self.backend, None, &mut scratch, cx);
            } else {
                let frames = self.frames.as_mut();
                down =
                    self.down.poll(&mut self.backend, &mut self.client, frames, &mut scratch, cx);
            }
        }
        drop(scratch);
        let is_open = match (up, down) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                return Poll::Ready(Ended::Broken(error));
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ended::ByBoth),
            (up, down) => up.is_pending() && down.is_pending(),
        };
        let is_stuck = self.up.is_stuck() || self.down.is_stuck();
        let limit =
            if is_open && !is_stuck { self.settings.idle } else { self.settings.half_closed };
        let has_moved =
            std::mem::take(&mut self.up.has_moved) | std::mem::take(&mut self.down.has_moved);
        let sides = [&self.client, &self.backend];
        self.silence.poll(has_moved, sides, limit, cx).map(Ended::Idle)
    }
}

/// Bytes on their way from one side to the other.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes that were read and not written completely.
    waiting: Vec<u8>,
    /// How many of these bytes were written.
    written: usize,
    /// After a poll: whether the flush was pending.
    needs_flush: bool,
    has_moved: bool,
    stage: Stage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The source has ended, and the destination must be told.
    Ending,
    Ended,
}

impl Direction {
    /// Ready when `from` has ended, and `to` was told.
    fn poll(
        &mut self,
        from: &mut Upgraded,
        to: &mut Upgraded,
        mut frames: Option<&mut Frames>,
        scratch: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.written < self.waiting.len() {
                self.written += ready!(self.write(to, None, cx))?;
            }
            self.waiting = Vec::new();
            self.written = 0;
            match self.stage {
                Stage::Open => {}
                Stage::Ending => {
                    ready!(Pin::new(&mut *to).poll_close(cx))?;
                    self.stage = Stage::Ended;
                    return Poll::Ready(Ok(()));
                }
                Stage::Ended => return Poll::Ready(Ok(())),
            }
            if let Some(farewell) = frames.as_mut().and_then(|frames| frames.farewell()) {
                self.waiting.extend_from_slice(farewell);
                continue;
            }
            let Poll::Ready(read) = Pin::new(&mut *from).poll_read(cx, scratch) else {
                if self.needs_flush {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    self.needs_flush = false;
                }
                return Poll::Pending;
            };
            let read = read?;
            self.has_moved = true;
            if read == 0 {
                self.stage = Stage::Ending;
                continue;
            }
            let mut piece = &scratch[..read];
            if let Some(frames) = &mut frames {
                piece = frames.pass(piece);
            }
            let written = match self.write(to, Some(piece), cx) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.waiting.extend_from_slice(&piece[written..]);
        }
    }

    /// Does something wait for the destination? Bytes wait to be written; or, over TLS, bytes that
    /// were written wait to be sent, and perhaps the end behind them.
    fn is_stuck(&self) -> bool {
        self.written < self.waiting.len() || self.needs_flush || self.stage == Stage::Ending
    }

    /// Writes `piece`, or the waiting bytes.
    fn write(
        &mut self,
        to: &mut Upgraded,
        piece: Option<&[u8]>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let piece = piece.unwrap_or(&self.waiting[self.written..]);
        if piece.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let written = ready!(Pin::new(to).poll_write(cx, piece))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        (self.needs_flush, self.has_moved) = (true, true);
        Poll::Ready(Ok(written))
    }
}

/// Measures for how long nothing has moved, without a clock reading for each byte: it checks from
/// time to time, and rarely on a quiet tunnel.
///
/// The kernel lets a writer go on only when much of its buffer is free, which may take a side that
/// reads steadily longer than the limit. So what a side's kernel has taken out of that buffer
/// counts, too. (Over HTTP/2 nobody knows how much that is.)
struct Silence {
    /// The length of the timer.
    period: Duration,
    /// The silence up to the last check.
    lasts: Duration,
    timer: Deadline,
    /// How many written bytes each side had not taken at the last check.
    unsent: [usize; 2],
}

impl Silence {
    fn new(limit: Duration) -> Self {
        let period = Self::period(limit);
        Self { period, lasts: Duration::ZERO, timer: Deadline::after(period), unsent: [0; 2] }
    }

    fn period(limit: Duration) -> Duration {
        (limit / LOOKS).max(SHORTEST)
    }

    /// Ready: nothing has moved for longer than `limit`. If the limit becomes shorter, the silence
    /// counts from now on. If it becomes longer, the timer stays, so that a tunnel that is stuck
    /// now and then does not move it.
    fn poll(
        &mut self,
        has_moved: bool,
        sides: [&Upgraded; 2],
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Duration> {
        if Self::period(limit) < self.period {
            *self = Self::new(limit);
        }
        if has_moved {
            self.lasts = Duration::ZERO;
        }
        while Pin::new(&mut self.timer).poll(cx).is_ready() {
            self.lasts += self.period;
            let unsent = sides.map(Upgraded::unsent);
            if unsent.iter().zip(&self.unsent).any(|(now, before)| now < before) {
                self.lasts = Duration::ZERO;
            }
            if self.lasts > limit {
                return Poll::Ready(limit);
            }
            *self = Self { lasts: self.lasts, unsent, ..Self::new(limit) };
        }
        Poll::Pending
    }
}
