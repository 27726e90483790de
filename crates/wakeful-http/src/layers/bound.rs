//! A bound of what requests have open at a time, on all loops together: files, or connections to
//! backends. Beyond it requests wait, in the order of their arrival.
//!
//! The first request of a connection may use all of it. The further ones that HTTP/2 clients have
//! in flight meanwhile may use half of it together. So a few clients with many requests do not lock
//! out all others.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wakeful::LoopHandle;

use super::permits::{Acquire, Permit, Permits};
use crate::further_request::is_further_request;
use crate::in_time::in_time;

/// When a request comes to wait, it is asked whether more may be open by now, if this time has
/// passed since it was asked last.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// More than any process may have open.
const MANY: usize = u32::MAX as usize;

/// The bound. Clones share it.
///
/// If there is room, and nobody waits, a request takes no lock, neither at its start nor at its
/// end.
#[derive(Debug, Clone)]
pub struct Bound(Arc<Shared>);

struct Shared {
    permits: Arc<Permits>,
    /// A further request needs these in addition.
    further: Arc<Permits>,
    least: usize,
    /// Says how much may be open now.
    most: Box<dyn Fn() -> usize + Send + Sync>,
    /// How much may be open, as far as is known.
    known: AtomicUsize,
    epoch: Instant,
    /// When `most` was last asked, in milliseconds since the epoch. 0: never.
    asked: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("known", &self.known).finish_non_exhaustive()
    }
}

/// The right to have something open. It ends when it is dropped, on any thread.
#[derive(Debug)]
pub struct Held {
    permit: Permit,
    /// `None`: this is no further request.
    further: Option<Permit>,
}

impl Held {
    /// Gives back all but `count`.
    pub fn keep(&mut self, count: usize) {
        self.permit.keep(count);
        if let Some(further) = &mut self.further {
            further.keep(count);
        }
    }
}

impl Bound {
    /// `most` says how much may be open. It is called now, and when further requests come to wait,
    /// at most once a second. The bound is at least `least`, and only grows.
    pub fn new(least: usize, most: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        let known = most().clamp(least, MANY);
        Self(Arc::new(Shared {
            permits: Arc::new(Permits::new(known)),
            further: Arc::new(Permits::new(for_further(known, least))),
            least,
            most: Box::new(most),
            known: AtomicUsize::new(known),
            epoch: Instant::now(),
            asked: AtomicU64::new(0),
        }))
    }

    /// Takes `count`, if there is room, and nobody waits.
    #[must_use]
    pub fn try_take(&self, count: usize) -> Option<Held> {
        let further = match is_further_request() {
            true => Some(self.0.further.try_take(count)?),
            false => None,
        };
        Some(Held { permit: self.0.permits.try_take(count)?, further })
    }

    /// Takes `count`, or waits for that (on a loop, for at most `patience`). If the future is
    /// dropped, those who waited behind it go on.
    pub async fn take(self, count: usize, patience: Duration) -> Option<Held> {
        if let Some(held) = self.try_take(count) {
            return Some(held);
        }
        self.0.look_again();
        let is_further = is_further_request();
        let taking = pin!(async {
            let further = match is_further {
                true => Some(Acquire::several(self.0.further.clone(), count).await),
                false => None,
            };
            let permit = Acquire::several(self.0.permits.clone(), count).await;
            Held { permit, further }
        });
        // Without a loop there are no timers.
        match LoopHandle::try_current() {
            Ok(_) => in_time(patience, taking).await.ok(),
            Err(_) => Some(taking.await),
        }
    }
}

/// How much of `most` further requests may use.
fn for_further(most: usize, least: usize) -> usize {
    (most / 2).max(least)
}

impl Shared {
    /// Asks whether more may be open by now.
    fn look_again(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = self.asked.load(Ordering::Relaxed);
        let is_time =
            before == 0 || Duration::from_millis(now.saturating_sub(before)) >= LOOK_AGAIN;
        // If several threads come here at once, one of them asks.
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if !is_time || self.asked.compare_exchange(before, now, set, failed).is_err() {
            return;
        }
        let most = (self.most)().min(MANY);
        let before = self.known.fetch_max(most, Ordering::Relaxed);
        if most > before {
            self.permits.add(most - before);
            let for_further = |most| for_further(most, self.least);
            self.further.add(for_further(most) - for_further(before));
        }
    }
}
