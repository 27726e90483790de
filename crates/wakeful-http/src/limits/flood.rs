//! Too many of HTTP/2's frames: those that make a server work and bring it nothing.
//!
//! h2 bounds the memory that they cost (answers to PING and SETTINGS do not queue up, CONTINUATION frames and reset streams are counted), but not the work. Here each connection has two
//! buckets, one for frames without use and one for resets. The clock is read only when one of them is empty. What frames of use have earned is taken first, and kept for as long as it takes: a client
//! may read what it was sent, and update its windows, much later.

use std::time::Instant;

use super::Http2Limits;
use super::frames::{self, Frame};
use crate::Refusal;

/// What a HEADERS or DATA frame gives to the control frames: an honest client updates two windows for a DATA frame, and some measure the round trip by a PING for each.
const CONTROL_FRAMES_PER_USEFUL: u64 = 4;
/// The server's DATA gives as many more as it has of these, in bytes: Go's client updates two windows behind each 4 KiB that were read.
const DATA_PER_CONTROL_FRAME: u32 = 1024;
/// How many seconds' resets may come at once.
const RESET_BURST: u64 = 5;

/// What one connection's client may still send.
#[derive(Debug)]
pub(crate) struct Flood {
    /// Control frames that those of use have paid for.
    earned: u64,
    control: Bucket,
    resets: Bucket,
}

impl Flood {
    pub(crate) fn new(limits: &Http2Limits) -> Self {
        let now = Instant::now();
        let control = limits.max_control_frames_per_second.into();
        let resets = limits.max_resets_per_second.into();
        Self {
            earned: 0,
            control: Bucket::new(control, control, now),
            resets: Bucket::new(resets, resets * RESET_BURST, now),
        }
    }

    /// The server has sent a frame.
    pub(crate) fn sent(&mut self, frame: Frame) {
        if is_useful(frame) {
            self.earned += CONTROL_FRAMES_PER_USEFUL;
        }
        if frame.kind == frames::DATA {
            self.earned += u64::from(frame.length / DATA_PER_CONTROL_FRAME);
        }
    }

    /// The client has sent a frame.
    ///
    /// # Errors
    /// It was one too many.
    pub(crate) fn received(&mut self, frame: Frame) -> Result<(), Refusal> {
        if is_useful(frame) {
            self.earned += CONTROL_FRAMES_PER_USEFUL;
            return Ok(());
        }
        // It answers what the server has sent.
        if matches!(frame.kind, frames::SETTINGS | frames::PING) && frame.flags & frames::ACK != 0 {
            return Ok(());
        }
        let refusal = match frame.kind {
            frames::RST_STREAM => Refusal::Http2ResetFlood,
            frames::SETTINGS => Refusal::Http2SettingsFlood,
            frames::PING => Refusal::Http2PingFlood,
            frames::CONTINUATION => Refusal::Http2ContinuationFlood,
            frames::DATA => Refusal::Http2EmptyDataFlood,
            _ => Refusal::Http2FrameFlood,
        };
        let may = match frame.kind {
            frames::RST_STREAM => self.resets.take(),
            _ => self.take_earned() || self.control.take(),
        };
        if may { Ok(()) } else { Err(refusal) }
    }

    fn take_earned(&mut self) -> bool {
        let is_left = self.earned > 0;
        self.earned = self.earned.saturating_sub(1);
        is_left
    }
}

fn is_useful(frame: Frame) -> bool {
    frame.kind == frames::HEADERS || (frame.kind == frames::DATA && frame.length > 0)
}

/// So many are left; so many more come with each second, up to a bound.
#[derive(Debug)]
struct Bucket {
    left: u64,
    most: u64,
    per_second: u64,
    /// When it was filled last.
    filled: Instant,
}

impl Bucket {
    /// Full.
    fn new(per_second: u64, most: u64, now: Instant) -> Self {
        Self { left: most, most, per_second, filled: now }
    }

    fn take(&mut self) -> bool {
        if self.left == 0 {
            self.fill(Instant::now());
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    #[cold]
    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_nanos();
        let earned = elapsed.saturating_mul(self.per_second.into()) / 1_000_000_000;
        if earned > 0 {
            self.filled = now;
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            self.left = self.left.saturating_add(earned).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLIENT: Frame = Frame { kind: frames::PING, flags: 0, length: 8, stream: 0 };

    fn flood() -> Flood {
        let limits = Http2Limits {
            max_control_frames_per_second: 10,
            max_resets_per_second: 2,
            ..Http2Limits::default()
        };
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
    fn answers_to_the_server_s_own_frames_are_free() {
        let mut flood = flood();
        for _ in 0..100_000 {
            flood.received(Frame { flags: frames::ACK, ..CLIENT }).unwrap();
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
