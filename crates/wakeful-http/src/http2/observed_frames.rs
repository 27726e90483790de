//! What was observed on an HTTP/2 connection: the open streams and their windows, the bytes of
//! responses, whether there is a flood, and how much may be read next.

use std::mem;
use std::time::Instant;

use wakeful::time::turn_time;

use crate::connection::{BodyReads, ConnectionState, OpenStreams, Phase};
use crate::counts::Refusal;
use crate::limits::Limits;
use crate::limits::flood::Flood;
use crate::limits::frames::{self, Found, Frame, FrameReader};

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
    /// The client sends nothing more.
    pub(super) is_at_end: bool,
    /// The last frame from the client. It may be incomplete.
    last: Option<Frame>,
    /// The last stream that the client opened, and how many it has opened.
    last_stream: u32,
    opened: u64,
    /// Whether the last header opens that stream. If not, it is trailers.
    opens: bool,
    /// Whether data of a request has come since the last report.
    uploads: bool,
    /// How often something was read of a body, as far as that is known here, and since when data
    /// has come to an idle connection without a further read.
    body_reads: u64,
    unread_since: Option<Instant>,
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
            is_at_end: false,
            last: None,
            last_stream: 0,
            opened: 0,
            opens: false,
            uploads: false,
            body_reads: 0,
            unread_since: None,
            data: 0,
            refused: 0,
        }
    }

    /// Notes bytes that the client has sent.
    pub(super) fn received(&mut self, bytes: &[u8], open: &mut OpenStreams) {
        let Self { received, limits, flood, last, last_stream, opened, opens, uploads, .. } = self;
        let mut count = 0;
        received.feed(bytes, |found| {
            let frame = match found {
                Found::Frame(frame) => frame,
                Found::Room { stream, bytes } => return open.may_have(stream, bytes),
                Found::InitialWindow(bytes) => return open.begin_with(bytes),
            };
            count += 1;
            let is_late_reset = frame.kind == frames::RST_STREAM && !open.has(frame.stream);
            let received = match is_late_reset {
                true => limits.received_late_reset(),
                false => limits.received(frame),
            };
            if let Err(refusal) = received {
                flood.get_or_insert(refusal);
            }
            *last = Some(frame);
            if frame.kind == frames::HEADERS {
                *opens = frame.stream > *last_stream;
                if *opens {
                    *last_stream = frame.stream;
                    *opened += 1;
                    open.opens(frame.stream);
                }
            } else if frame.kind == frames::DATA {
                *uploads |= frame.length > 0;
            } else if frame.kind == frames::RST_STREAM {
                open.client_resets(frame.stream);
            }
        });
        self.gives_way = count > MANY_FRAMES;
        self.room = if self.gives_way { SHORT_READ } else { self.room.saturating_mul(2) };
    }

    /// Notes bytes that the server has sent.
    pub(super) fn sent(&mut self, bytes: &[u8], open: &mut OpenStreams) {
        let Self { sent, limits, data, .. } = self;
        sent.feed(bytes, |found| {
            let Found::Frame(frame) = found else { return };
            limits.sent(frame);
            let is_last = match frame.kind {
                frames::HEADERS => frame.flags & frames::END_STREAM != 0,
                frames::DATA => {
                    *data += u64::from(frame.length);
                    open.sent(frame.stream, frame.length);
                    frame.flags & frames::END_STREAM != 0
                }
                kind => kind == frames::RST_STREAM,
            };
            if is_last {
                open.server_ends(frame.stream);
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

    /// The stream of which the first header has begun and not ended, so that it is no request yet.
    /// Trailers that have not ended belong to a request that has come.
    fn begins(&self) -> Option<u32> {
        (self.opens && self.is_in_header()).then_some(self.last_stream)
    }

    /// Reports what was observed to the connection, and returns the connection's phase.
    pub(super) fn tell(&mut self, state: &ConnectionState) -> Phase {
        self.count_refused(state);
        let (begins, uploads) = (self.begins(), mem::take(&mut self.uploads));
        let mut open = state.streams();
        if !state.writes().is_blocked() {
            open.handed_over(state.movable().served(), begins);
        }
        let is_one_begun = begins.is_some() && open.last() == begins;
        state.writes().streams_sent(self.data, open.count() > usize::from(is_one_begun));
        let phase = if self.is_in_header() {
            Phase::Header
        } else if state.requests().is_in_flight() || state.writes().is_blocked() || open.count() > 0
        {
            Phase::Busy
        } else {
            Phase::Idle
        };
        if phase != Phase::Idle {
            self.unread_since = None;
        } else if uploads {
            self.uploads_while_idle(state, turn_time());
        }
        phase
    }

    /// Data of a request has come after its response. A task may read it, so the connection is not
    /// idle. It is if nothing was read for the idle timeout, which ends an HTTP/1 connection, too.
    fn uploads_while_idle(&mut self, state: &ConnectionState, now: Instant) {
        let reads = state.body_reads().map_or(0, BodyReads::count);
        if mem::replace(&mut self.body_reads, reads) != reads {
            self.unread_since = None;
        }
        let unread_since = *self.unread_since.get_or_insert(now);
        if now.saturating_duration_since(unread_since) < state.loop_state().limits().idle_timeout {
            state.is_idle_since(now);
        }
    }

    /// Counts the streams that h2 has refused: they were opened, and did not come to the service
    /// when h2 had read everything.
    fn count_refused(&mut self, state: &ConnectionState) {
        let begun = state.movable().served() + u64::from(self.begins().is_some());
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
            Refusal::Http2Protocol => h2::Reason::PROTOCOL_ERROR,
            _ => h2::Reason::ENHANCE_YOUR_CALM,
        };
        self.sent.is_between_frames().then(|| frames::goaway(self.last_stream, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use wakeful::net::PeerAddr;

    use super::*;
    use crate::connection::{MovableState, Protocol};
    use crate::drain::Readiness;
    use crate::loop_state::{LoopState, ServerState};
    use crate::observe::Observe;
    use crate::peer::Peer;

    const PADDED: u8 = 8;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// A setting of the initial window.
    fn initial(bytes: u32) -> Vec<u8> {
        frame(frames::SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
    }

    fn room(stream: u8, bytes: u32) -> Vec<u8> {
        frame(frames::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    fn headers(flags: u8, stream: u8) -> Vec<u8> {
        frame(frames::HEADERS, flags | frames::END_HEADERS, stream, b"fields")
    }

    /// Which of the first three requests have no room, and how much was sent of each.
    fn shut(open: &OpenStreams) -> [Option<u64>; 3] {
        [1, 2, 3].map(|request| open.sent_without_room(request))
    }

    #[test]
    fn a_stream_begins_with_its_first_header_and_not_with_its_trailers() {
        let begun = |flags, stream| frame(frames::HEADERS, flags, stream, b"fields");
        let rest = |flags, stream| frame(frames::CONTINUATION, flags, stream, b"rest");
        for size in [1, 4, 1000] {
            let mut frames = ObservedFrames::new(&Limits::default());
            let mut open = OpenStreams::new(10);
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            let mut begins = |bytes: &[Vec<u8>]| {
                let bytes = bytes.concat();
                bytes.chunks(size).for_each(|piece| frames.received(piece, &mut open));
                (frames.is_in_header(), frames.begins())
            };
            assert_eq!(begins(&[preface, begun(0, 1)]), (true, Some(1)));
            assert_eq!(begins(&[rest(0, 1)]), (true, Some(1)));
            assert_eq!(begins(&[rest(frames::END_HEADERS, 1)]), (false, None));
            // The request has come, whatever its trailers do.
            assert_eq!(begins(&[headers(0, 3), begun(frames::END_STREAM, 3)]), (true, None));
            assert_eq!(begins(&[rest(0, 3)]), (true, None));
            assert_eq!(begins(&[rest(frames::END_HEADERS, 3)]), (false, None));
            assert_eq!(begins(&[begun(frames::END_STREAM, 1)]), (true, None));
            assert_eq!(begins(&[rest(frames::END_HEADERS, 1)]), (false, None));
            let mut cut = headers(0, 5);
            cut.pop();
            assert_eq!(begins(&[cut]), (true, Some(5)));
            assert_eq!(begins(&[b"s".to_vec()]), (false, None));
        }
    }

    fn state(limits: Limits) -> Rc<ConnectionState> {
        let server = ServerState::new(limits, 1, Readiness::new());
        let loop_state = LoopState::of_next_loop(&server, &Observe::new());
        let (movable, peer) = (MovableState::new(None, None), Peer::new(PeerAddr::Unix));
        ConnectionState::new(loop_state, Protocol::Http2, movable, peer)
    }

    #[test]
    fn an_upload_of_which_nothing_is_read_for_long_does_not_keep_its_connection() {
        let idle_timeout = Duration::from_millis(20);
        let limits = Limits::new().idle_timeout(idle_timeout);
        let mut frames = ObservedFrames::new(&limits);
        let state = state(limits);
        state.closing().begin();
        frames.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &mut state.streams());
        let mut begins_wait_anew = || {
            let before = Instant::now();
            frames.received(&frame(frames::DATA, 0, 1, b"some"), &mut state.streams());
            assert_eq!(frames.tell(&state), Phase::Idle);
            state.silent_since().is_some_and(|since| since >= before)
        };
        for _ in 0..2 {
            assert!(begins_wait_anew());
            std::thread::sleep(idle_timeout);
            assert!(!begins_wait_anew());
            state.body_reads().unwrap().one_more();
        }
        assert!(begins_wait_anew());
    }

    #[test]
    fn the_window_of_a_stream_is_followed_however_the_bytes_are_cut() {
        for size in [1, 2, 3, 5, 7, 1000] {
            let mut frames = ObservedFrames::new(&Limits::default());
            let mut open = OpenStreams::new(10);
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            let received = |frames: &mut ObservedFrames, open: &mut _, bytes: &[Vec<u8>]| {
                bytes.concat().chunks(size).for_each(|piece| frames.received(piece, open));
            };
            let sent = |frames: &mut ObservedFrames, open: &mut _, bytes: &[Vec<u8>]| {
                bytes.concat().chunks(size).for_each(|piece| frames.sent(piece, open));
            };
            let (get, whole) = (frames::END_STREAM, frames::END_STREAM);
            let begin = [preface, initial(20), headers(get, 1), headers(get, 3), headers(get, 5)];
            received(&mut frames, &mut open, &begin);
            open.handed_over(3, None);
            assert_eq!(shut(&open), [None; 3]);
            // The length of the padding, six bytes of data, and twelve of padding: 19 in all.
            let padded = frame(frames::DATA, PADDED, 1, &[12; 19]);
            sent(&mut frames, &mut open, &[headers(0, 1), headers(0, 3), padded]);
            sent(&mut frames, &mut open, &[frame(frames::DATA, 0, 3, b"twenty bytes of data")]);
            assert_eq!(shut(&open), [None, Some(20), None]);
            sent(&mut frames, &mut open, &[frame(frames::DATA, 0, 1, b"1")]);
            assert_eq!(shut(&open), [Some(20), Some(20), None]);
            // Room for the connection is not for a stream.
            received(&mut frames, &mut open, &[room(3, 2), room(0, 100), room(7, 100)]);
            assert_eq!(shut(&open), [Some(20), None, None]);
            sent(&mut frames, &mut open, &[frame(frames::DATA, 0, 3, b"2")]);
            // Each stream has 15 bytes less: 0 - 15, 1 - 15 and 20 - 15.
            received(&mut frames, &mut open, &[initial(5)]);
            assert_eq!(shut(&open), [Some(20), Some(21), None]);
            received(&mut frames, &mut open, &[room(3, 14), initial(0)]);
            assert_eq!(shut(&open), [Some(20), Some(21), Some(0)]);
            received(&mut frames, &mut open, &[initial(6)]);
            assert_eq!(shut(&open), [Some(20), None, None]);
            received(&mut frames, &mut open, &[initial(u32::MAX), initial(20)]);
            assert_eq!(shut(&open), [Some(20), None, None]);
            // What is over has no window.
            sent(&mut frames, &mut open, &[frame(frames::DATA, whole, 1, b"")]);
            received(&mut frames, &mut open, &[frame(frames::RST_STREAM, 0, 3, &[0; 4])]);
            received(&mut frames, &mut open, &[initial(0)]);
            assert_eq!(shut(&open), [None, None, Some(0)]);
            assert_eq!(open.count(), 1);
        }
    }
}
