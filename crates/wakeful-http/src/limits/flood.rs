//! Detects floods of HTTP/2 frames that make a server do useless work.
//!
//! h2 bounds the memory that they cost (answers to PING and SETTINGS do not queue up, CONTINUATION
//! frames and reset streams are counted), but not the work. Here each connection has two buckets,
//! one for frames without use and one for resets. The clock is read only when one of them is empty.
//! Two kinds do not count, as long as the server has caused them: answers to its own frames, and
//! window updates for what it has sent, however late the client reads it.

use std::time::Instant;

use super::Http2Limits;
use super::frames::{self, Frame};
use crate::counts::Refusal;

/// How many control frames are free for each HEADERS or DATA frame. An honest client sends two
/// window updates for a DATA frame, and some clients measure the round trip by a PING for each.
const CONTROL_FRAMES_PER_USEFUL: u64 = 4;
/// For this many bytes of the server's DATA, one more window update is free. Go's client sends two
/// window updates after each 4 KiB that it has read.
const DATA_PER_UPDATE: u32 = 1024;
/// How many seconds' worth of resets may come at once.
const RESET_BURST: u64 = 5;

/// What the client of one connection may still send.
#[derive(Debug)]
pub(crate) struct Flood {
    /// How many answers to the server's SETTINGS and PING are free.
    answers: u64,
    /// How many window updates are free, for what the server has sent.
    updates: u64,
    control: Bucket,
    resets: Bucket,
}

impl Flood {
    pub(crate) fn new(limits: &Http2Limits) -> Self {
        let now = wakeful::time::now();
        let control = limits.max_control_frames_per_second.into();
        let resets = limits.max_resets_per_second.into();
        Self {
            answers: 0,
            updates: 0,
            control: Bucket::new(control, control, now),
            resets: Bucket::new(resets, resets * RESET_BURST, now),
        }
    }

    /// Called when the server has sent a frame.
    pub(crate) fn sent(&mut self, frame: Frame) {
        if is_useful(frame) {
            self.control.add(CONTROL_FRAMES_PER_USEFUL);
        }
        if frame.kind == frames::DATA {
            let pieces = u64::from(frame.length / DATA_PER_UPDATE);
            self.updates += CONTROL_FRAMES_PER_USEFUL + pieces;
        }
        if asks(frame) {
            self.answers += 1;
        }
    }

    /// Called when the client has sent a frame.
    ///
    /// # Errors
    /// The frame was one too many.
    pub(crate) fn received(&mut self, frame: Frame) -> Result<(), Refusal> {
        if is_useful(frame) {
            self.control.add(CONTROL_FRAMES_PER_USEFUL);
            return Ok(());
        }
        let (is_free, refusal) = match frame.kind {
            frames::RST_STREAM => {
                return if self.resets.take() { Ok(()) } else { Err(Refusal::Http2ResetFlood) };
            }
            frames::SETTINGS => (self.is_answer(frame), Refusal::Http2SettingsFlood),
            frames::PING => (self.is_answer(frame), Refusal::Http2PingFlood),
            frames::WINDOW_UPDATE => (take(&mut self.updates), Refusal::Http2FrameFlood),
            frames::CONTINUATION => (false, Refusal::Http2ContinuationFlood),
            frames::DATA => (false, Refusal::Http2EmptyDataFlood),
            _ => (false, Refusal::Http2FrameFlood),
        };
        if is_free || self.control.take() { Ok(()) } else { Err(refusal) }
    }

    /// Called when the client has reset a stream whose response it has completely: it does not send
    /// the rest of its request.
    ///
    /// # Errors
    /// The frame was one too many.
    pub(crate) fn received_late_reset(&mut self) -> Result<(), Refusal> {
        if self.control.take() { Ok(()) } else { Err(Refusal::Http2ResetFlood) }
    }

    fn is_answer(&mut self, frame: Frame) -> bool {
        frame.flags & frames::ACK != 0 && take(&mut self.answers)
    }
}

fn is_useful(frame: Frame) -> bool {
    frame.kind == frames::HEADERS || (frame.kind == frames::DATA && frame.length > 0)
}

/// Must the other side answer this frame?
fn asks(frame: Frame) -> bool {
    matches!(frame.kind, frames::SETTINGS | frames::PING) && frame.flags & frames::ACK == 0
}

fn take(left: &mut u64) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

/// A bucket with `left` tokens. More come with each second, up to a bound.
#[derive(Debug)]
struct Bucket {
    left: u64,
    most: u64,
    per_second: u64,
    /// When it was last filled.
    filled: Instant,
}

impl Bucket {
    /// Makes a full bucket.
    fn new(per_second: u64, most: u64, now: Instant) -> Self {
        Self { left: most, most, per_second, filled: now }
    }

    fn add(&mut self, count: u64) {
        self.left = self.left.saturating_add(count).min(self.most);
    }

    fn take(&mut self) -> bool {
        if self.left == 0 {
            self.fill(wakeful::time::now());
        }
        take(&mut self.left)
    }

    #[cold]
    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_nanos();
        let earned = elapsed.saturating_mul(self.per_second.into()) / 1_000_000_000;
        if earned > 0 {
            self.filled = now;
            self.add(u64::try_from(earned).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLIENT: Frame = Frame { kind: frames::PING, flags: 0, length: 8, stream: 0 };

    fn flood() -> Flood {
        let limits = Http2Limits::new().max_control_frames_per_second(10).max_resets_per_second(2);
        Flood::new(&limits)
    }

    #[test]
    fn requests_pay_for_pings_and_nothing_for_resets() {
        let mut flood = flood();
        for _ in 0..1000 {
            flood
                .received(Frame { kind: frames::HEADERS, flags: 5, length: 9, stream: 1 })
                .unwrap();
            for _ in 0..CONTROL_FRAMES_PER_USEFUL {
                flood.received(CLIENT).unwrap();
            }
        }
        let reset = Frame { kind: frames::RST_STREAM, flags: 0, length: 4, stream: 1 };
        let refused = (0..1000).find_map(|_| flood.received(reset).err());
        assert_eq!(refused, Some(Refusal::Http2ResetFlood));
    }

    #[test]
    fn what_was_sent_may_be_acknowledged_later_in_small_pieces() {
        const FRAMES: u32 = 1000;
        let mut flood = flood();
        for _ in 0..FRAMES {
            flood.sent(Frame { kind: frames::DATA, flags: 0, length: 16 << 10, stream: 1 });
        }
        let update = Frame { kind: frames::WINDOW_UPDATE, flags: 0, length: 4, stream: 0 };
        for _ in 0..FRAMES * 2 * 4 {
            flood.received(update).unwrap();
        }
        // The answers allow no other frames, and do not allow them for ever.
        let refused = (0..100).find_map(|_| flood.received(CLIENT).err());
        assert_eq!(refused, Some(Refusal::Http2PingFlood));
        let refused = (0..FRAMES * 20).find_map(|_| flood.received(update).err());
        assert_eq!(refused, Some(Refusal::Http2FrameFlood));
    }

    #[test]
    fn each_kind_alone_is_too_much_and_says_so() {
        for (kind, refusal) in [
            (frames::SETTINGS, Refusal::Http2SettingsFlood),
            (frames::PING, Refusal::Http2PingFlood),
            (frames::CONTINUATION, Refusal::Http2ContinuationFlood),
            (frames::PRIORITY, Refusal::Http2FrameFlood),
            (frames::WINDOW_UPDATE, Refusal::Http2FrameFlood),
            (0x42, Refusal::Http2FrameFlood),
            (frames::DATA, Refusal::Http2EmptyDataFlood),
        ] {
            let mut flood = flood();
            let frame = Frame { kind, flags: 0, length: 0, stream: 0 };
            let refused = (0..100_000).find_map(|_| flood.received(frame).err());
            assert_eq!(refused, Some(refusal));
        }
    }

    #[test]
    fn answers_to_the_server_s_own_frames_are_free_and_others_are_not() {
        const ASKED: u32 = 100_000;
        for (kind, refusal) in [
            (frames::PING, Refusal::Http2PingFlood),
            (frames::SETTINGS, Refusal::Http2SettingsFlood),
        ] {
            let mut flood = flood();
            let answer = Frame { kind, flags: frames::ACK, length: 8, stream: 0 };
            for _ in 0..ASKED {
                flood.sent(Frame { flags: 0, ..answer });
            }
            for _ in 0..ASKED {
                flood.received(answer).unwrap();
            }
            let refused = (0..ASKED).find_map(|_| flood.received(answer).err());
            assert_eq!(refused, Some(refusal));
        }
    }

    #[test]
    fn a_bucket_fills_with_time_up_to_its_bound() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 20, start);
        assert_eq!(bucket.left, 20);
        bucket.left = 0;
        bucket.fill(start + Duration::from_millis(50));
        assert_eq!(bucket.left, 0, "half a frame");
        bucket.fill(start + Duration::from_millis(300));
        assert_eq!(bucket.left, 3);
        bucket.fill(start + Duration::from_secs(100));
        assert_eq!(bucket.left, 20);
    }
}
