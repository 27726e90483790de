//! How often an HTTP/2 connection may reset a stream because nobody needs the rest of what comes.
//!
//! h2 remembers the last 50 streams that it has reset, for a second. The peer may have sent more on
//! them before it learned of the reset. What comes on a stream that h2 has forgotten counts as a
//! mistake of the peer, and 1,024 mistakes end the connection, with all its requests. So further
//! streams are read on and discarded until h2 can remember them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wakeful::time::now;

/// This many resets are possible at once, and as many in each second. Together they are fewer than
/// h2 remembers.
const RESETS: u64 = 20;
const INTERVAL: u64 = 1_000_000_000 / RESETS;
/// The most streams of a connection that are read on at a time. The limit is also half of the
/// streams that may be open, so they leave room for others.
const MOST_WAITING: usize = 64;

/// The ration of one connection.
#[derive(Debug, Clone)]
pub(crate) struct ResetRation(Arc<State>);

#[derive(Debug)]
struct State {
    /// What the times are counted from.
    begin: Instant,
    /// When all resets so far are made up for, in nanoseconds.
    made_up: AtomicU64,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// The right to reset a stream at some time.
#[derive(Debug)]
pub(crate) struct Turn {
    at: Instant,
    ration: ResetRation,
}

impl ResetRation {
    /// The ration of a connection that may have this many streams open.
    pub(super) fn new(max_streams: u32) -> Self {
        let (made_up, waiting) = (AtomicU64::new(0), AtomicUsize::new(0));
        let most_waiting = MOST_WAITING.min(max_streams as usize / 2);
        Self(Arc::new(State { begin: now(), made_up, waiting, most_waiting }))
    }

    /// `None`: the stream may be reset now.
    pub(crate) fn wait(&self) -> Option<Turn> {
        let now = now().saturating_duration_since(self.0.begin);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let add = |made_up: u64| Some(made_up.max(now).saturating_add(INTERVAL));
        let before = self.0.made_up.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let made_up = before.unwrap_or_default().max(now).saturating_add(INTERVAL);
        let at = made_up.saturating_sub(RESETS * INTERVAL);
        if at <= now {
            return None;
        }
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) >= self.0.most_waiting {
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
            self.give_back();
            return None;
        }
        let at = self.0.begin + Duration::from_nanos(at);
        Some(Turn { at, ration: self.clone() })
    }

    fn give_back(&self) {
        self.0.made_up.fetch_sub(INTERVAL, Ordering::Relaxed);
    }
}

impl Turn {
    /// When the stream may be reset.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Gives the turn back, because the stream has ended by itself.
    pub(crate) fn give_back(self) {
        self.ration.give_back();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.ration.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_resets_are_possible_at_once_and_some_wait() {
        let ration = ResetRation::new(200);
        let mut turns = Vec::new();
        let mut at_once = 0;
        while turns.len() < MOST_WAITING {
            match ration.wait() {
                Some(turn) => turns.push(turn),
                None => at_once += 1,
            }
        }
        assert!(at_once >= RESETS);
        let apart = turns.windows(2).map(|pair| pair[1].at() - pair[0].at());
        assert!(apart.sum::<Duration>() >= Duration::from_nanos(INTERVAL) * 63 - INTERVALS_ROUNDED);
        // No more of them wait.
        assert!(ration.wait().is_none());
        turns.into_iter().for_each(Turn::give_back);
        assert_eq!(ration.0.waiting.load(Ordering::Relaxed), 0);
    }

    /// The first turn may come when a part of an interval has passed.
    const INTERVALS_ROUNDED: Duration = Duration::from_nanos(INTERVAL);
}
