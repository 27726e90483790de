//! Too many of HTTP/2's frames: those that make a server work and bring it nothing.
//!
//! h2 bounds the memory that they cost (answers to PING and SETTINGS do not queue up, CONTINUATION frames and reset streams are counted), but not the work. Here each connection has two
//! buckets, one for frames without use and one for resets. The clock is read only when one of them is empty.

use std::time::Instant;

use super::Http2Limits;
use super::frames::{self, Frame};
use crate::Refusal;

/// What a HEADERS or DATA frame gives to the control frames: an honest client updates two windows for a DATA frame, and some measure the round trip by a PING for each.
const CONTROL_FRAMES_PER_USEFUL: u64 = 4;
/// How many seconds' resets may come at once.
const RESET_BURST: u64 = 5;

/// What one connection's client may still send.
#[derive(Debug)]
pub(crate) struct Flood {
    control: Bucket,
    resets: Bucket,
}

impl Flood {
    pub(crate) fn new(limits: &Http2Limits) -> Self {
        let now = Instant::now();
        let control = limits.max_control_frames_per_second.into();
        let resets = limits.max_resets_per_second.into();
        Self {
            control: Bucket::new(control, control, now),
            resets: Bucket::new(resets, resets * RESET_BURST, now),
        }
    }

    /// The server has sent a frame.
    pub(crate) fn sent(&mut self, frame: Frame) {
        if is_useful(frame) {
            self.control.add(CONTROL_FRAMES_PER_USEFUL);
        }
    }

    /// The client has sent a frame.
    ///
    /// # Errors
    /// It was one too many.
    pub(crate) fn received(&mut self, frame: Frame) -> Result<(), Refusal> {
        if is_useful(frame) {
            self.control.add(CONTROL_FRAMES_PER_USEFUL);
            return Ok(());
        }
        // It answers what the server has sent.
        if matches!(frame.kind, frames::SETTINGS | frames::PING) && frame.flags & frames::ACK != 0 {
            return Ok(());
        }
        let (bucket, refusal) = match frame.kind {
            frames::RST_STREAM => (&mut self.resets, Refusal::Http2ResetFlood),
            frames::SETTINGS => (&mut self.control, Refusal::Http2SettingsFlood),
            frames::PING => (&mut self.control, Refusal::Http2PingFlood),
            frames::CONTINUATION => (&mut self.control, Refusal::Http2ContinuationFlood),
            frames::DATA => (&mut self.control, Refusal::Http2EmptyDataFlood),
            _ => (&mut self.control, Refusal::Http2FrameFlood),
        };
        if bucket.take() { Ok(()) } else { Err(refusal) }
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

    fn add(&mut self, count: u64) {
        self.left = self.left.saturating_add(count).min(self.most);
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
