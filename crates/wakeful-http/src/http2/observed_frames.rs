//! What was observed on an HTTP/2 connection: the open streams, the bytes of responses, whether
//! there is a flood, and how much may be read next.

use crate::connection::{ConnectionState, Phase};
use crate::counts::Refusal;
use crate::limits::Limits;
use crate::limits::flood::Flood;
use crate::limits::frames::{self, Frame, FrameReader};

/// h2 handles everything that it has read before it returns. If a read has more frames than this,
/// the client waits for the loop's other tasks.
const MANY_FRAMES: u64 = 16;
/// The next read after that has no more bytes than this. Neither has a connection's first read,
/// because a flood may come with the preface. Each read with fewer frames doubles the size.
const SHORT_READ: usize = 512;

#[derive(Debug)]
pub(super) struct ObservedFrames {
    received: FrameReader,
    sent: FrameReader,
    limits: Flood,
    pub(super) flood: Option<Refusal>,
    /// The maximum size of the next read.
    pub(super) room: usize,
    /// The loop's other tasks run before the next read, so nothing more is read in this poll.
    pub(super) gives_way: bool,
    /// The last frame from the client. It may be incomplete.
    last: Option<Frame>,
    /// The last stream that the client opened, and how many it has opened.
    last_stream: u32,
    opened: u64,
    /// The streams whose response is not completely sent. There are at most a few more than the
    /// client may have open, because responses may wait in h2 for as long as the client gives no
    /// room.
    open: Vec<u32>,
    most_open: usize,
    /// The number of bytes of responses.
    data: u64,
    refused: u64,
}

impl ObservedFrames {
    pub(super) fn new(limits: &Limits) -> Self {
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

    /// Notes bytes that the client has sent.
    pub(super) fn received(&mut self, bytes: &[u8]) {
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

    pub(super) fn sent(&mut self, bytes: &[u8]) {
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

    /// Has a header begun and not ended?
    fn is_in_header(&self) -> bool {
        self.last.is_some_and(|frame| {
            matches!(frame.kind, frames::HEADERS | frames::CONTINUATION)
                && (frame.flags & frames::END_HEADERS == 0 || self.received.is_within_frame())
        })
    }

    /// Reports what was observed to the connection, and returns the connection's phase.
    pub(super) fn tell(&mut self, state: &ConnectionState) -> Phase {
        self.count_refused(state);
        let is_in_header = self.is_in_header();
        // The stream of a header that has not ended is no request yet.
        let begins = is_in_header && self.open.last() == Some(&self.last_stream);
        state.writes().streams_sent(self.data, self.open.len() > usize::from(begins));
        if is_in_header {
            Phase::Header
        } else if state.requests().is_in_flight()
            || state.writes().is_blocked()
            || !self.open.is_empty()
        {
            Phase::Busy
        } else {
            Phase::Idle
        }
    }

    /// Counts the streams that h2 has refused: they were opened, and did not come to the service
    /// when h2 had read everything.
    fn count_refused(&mut self, state: &ConnectionState) {
        let begun = state.movable().served() + u64::from(self.is_in_header());
        let refused = self.opened.saturating_sub(begun);
        if refused > self.refused && !state.closing().has_begun() && !state.writes().is_blocked() {
            let more = refused - self.refused;
            self.refused = refused;
            state.loop_state().counts().refuse_many(Refusal::Http2Refused, more);
        }
    }

    /// The text that h2 has sent to the client at the end.
    pub(super) fn farewell(&self) -> &[u8] {
        self.sent.farewell()
    }

    /// The last frame to the client. `None`: it cannot be sent, because another frame is not
    /// complete.
    pub(super) fn last_word(&self, refusal: Refusal) -> Option<[u8; 17]> {
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
