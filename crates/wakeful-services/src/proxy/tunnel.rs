//! A tunnel between a client and a backend that have left HTTP: bytes both ways, until both sides
//! have ended, nothing moves any more, or the loop ends.
//!
//! What one side cannot take yet waits here, one read at most in each direction, and no more is
//! read from the other side meanwhile. A tunnel on which nothing happens holds no buffer: reads go
//! through one that all tunnels of a loop share. The end of one side's stream is passed on as that,
//! and the other direction goes on.
//!
//! A WebSocket's client is told when the server drains, as `websocket` says. Whatever is left when
//! the grace period is over goes with the loop.

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

/// How much is read at a time.
const PIECE: usize = 16 * 1024;

/// So many looks within each limit: a tunnel may be silent for a quarter longer than it says.
const LOOKS: u32 = 4;

/// What the tunnels of a loop share.
#[derive(Debug, Clone)]
pub(super) struct Tunnels {
    /// How long nothing may move.
    idle: Duration,
    /// How long nothing may move once one side has ended its stream, or while one does not take
    /// what the other has sent: it may have gone, and who has something to write does not read
    /// that.
    half_closed: Duration,
    scratch: Rc<RefCell<Vec<u8>>>,
    /// How many more there may be.
    places: Rc<Cell<usize>>,
}

impl Tunnels {
    pub(super) fn new(idle: Duration, half_closed: Duration, most: usize) -> Self {
        let scratch = Rc::new(RefCell::new(Vec::new()));
        let places = Rc::new(Cell::new(most.max(1)));
        Self { idle, half_closed: half_closed.min(idle), scratch, places }
    }

    /// A place for one more, if there is one: from before a backend is asked.
    pub(super) fn enter(&self) -> Option<Place> {
        self.places.set(self.places.get().checked_sub(1)?);
        Some(Place(self.places.clone()))
    }
}

/// That of a tunnel, or of a request for one.
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
    /// What went to the client, if the tunnel may have to be ended for it.
    frames: Option<Frames>,
    drain: DrainBegins,
    drains: bool,
    silence: Silence,
    settings: Tunnels,
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
        // Each is the first in every other poll: one that always has something may use up what a
        // task may do in a turn, and the other one would wait for its end.
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
        self.silence.poll(has_moved, limit, cx).map(Ended::Idle)
    }
}

/// Bytes on their way from one side to the other.
#[derive(Debug, Default)]
struct Direction {
    /// Read, and not written.
    waiting: Vec<u8>,
    /// So much of it is written.
    written: usize,
    needs_flush: bool,
    has_moved: bool,
    stage: Stage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The source has ended.
    Ending,
    Ended,
}

impl Direction {
    /// Ready: `from` has ended, and `to` was told so.
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

    /// Something waits.
    fn is_stuck(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// Writes `piece`, or what waits.
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

/// For how long nothing has moved, without a look at the clock for each byte: it is looked now and
/// then, and on a quiet tunnel seldom.
struct Silence {
    /// How long the timer is.
    period: Duration,
    /// Up to the last look.
    lasts: Duration,
    timer: Deadline,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        let period = limit / LOOKS;
        Self { period, lasts: Duration::ZERO, timer: Deadline::after(period) }
    }

    /// Ready: longer than `limit`. A shorter one than before counts from now on; for a longer one
    /// the timer stays, so who is stuck now and again moves none.
    fn poll(&mut self, has_moved: bool, limit: Duration, cx: &mut Context<'_>) -> Poll<Duration> {
        if limit / LOOKS < self.period {
            *self = Self::new(limit);
        }
        if has_moved {
            self.lasts = Duration::ZERO;
        }
        while Pin::new(&mut self.timer).poll(cx).is_ready() {
            self.lasts += self.period;
            if self.lasts > limit {
                return Poll::Ready(limit);
            }
            *self = Self { lasts: self.lasts, ..Self::new(limit) };
        }
        Poll::Pending
    }
}
