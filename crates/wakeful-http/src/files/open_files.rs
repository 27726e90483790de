//! How many files may be open at a time, and who waits for one to close.

use std::fmt;
use std::fs::File;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wakeful::LoopHandle;

use crate::in_time::in_time;
use crate::layers::permits::{Acquire, Permit, Permits};

/// What a request opens at most for a moment: the directory, the file, and its compressed variant.
pub(super) const OF_A_REQUEST: usize = 3;
/// What stays open while the body is sent: one of the files.
const OF_A_BODY: usize = 1;
/// How long a request waits. A client that reads nothing loses its responses long before that
/// ([`MinRate`](crate::MinRate)).
const PATIENCE: Duration = Duration::from_secs(30);
/// While requests wait, it is asked after this time whether more files may be open by now.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// More than any process may have open.
const MANY: usize = u32::MAX as usize;

/// A bound that the clones of a service share.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenFiles(
    /// `None`: there is no bound.
    Option<Arc<Bound>>,
);

struct Bound {
    permits: Arc<Permits>,
    /// Says how many files may be open now. `None`: the number does not change.
    most: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
    /// How many may be open, as far as is known.
    known: AtomicUsize,
    epoch: Instant,
    /// When `most` was last asked, in milliseconds since the epoch. 0: never.
    asked: AtomicU64,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("known", &self.known).finish_non_exhaustive()
    }
}

impl OpenFiles {
    pub(super) fn of(files: usize) -> Self {
        Self::new(files, None)
    }

    /// `most` is asked again when requests wait. The bound only grows.
    pub(super) fn by(most: Arc<dyn Fn() -> usize + Send + Sync>) -> Self {
        Self::new(most(), Some(most))
    }

    fn new(files: usize, most: Option<Arc<dyn Fn() -> usize + Send + Sync>>) -> Self {
        let files = files.clamp(OF_A_REQUEST, MANY);
        Self(Some(Arc::new(Bound {
            permits: Arc::new(Permits::new(files)),
            most,
            known: AtomicUsize::new(files),
            epoch: Instant::now(),
            asked: AtomicU64::new(0),
        })))
    }

    /// A place for a request's files, if there is room and nobody waits.
    pub(super) fn try_enter(&self) -> Option<Place> {
        match &self.0 {
            None => Some(Place(None)),
            Some(bound) => bound.permits.try_take(OF_A_REQUEST).map(|permit| Place(Some(permit))),
        }
    }

    /// Waits for a place, in the order of arrival. `None`: it took too long.
    pub(super) async fn enter(self) -> Option<Place> {
        let Some(bound) = self.0 else { return Some(Place(None)) };
        bound.look_again();
        let acquire = pin!(Acquire::several(bound.permits.clone(), OF_A_REQUEST));
        // Without a loop there are no timers.
        let permit = match LoopHandle::try_current() {
            Ok(_) => in_time(PATIENCE, acquire).await.ok()?,
            Err(_) => acquire.await,
        };
        Some(Place(Some(permit)))
    }
}

impl Bound {
    /// Asks whether more files may be open by now.
    fn look_again(&self) {
        let Some(most) = &self.most else { return };
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = self.asked.load(Ordering::Relaxed);
        // If several threads come here, one asks.
        let is_time =
            before == 0 || Duration::from_millis(now.saturating_sub(before)) >= LOOK_AGAIN;
        if !is_time
            || self
                .asked
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let most = most().min(MANY);
        let more = most.saturating_sub(self.known.fetch_max(most, Ordering::Relaxed));
        if more > 0 {
            self.permits.add(more);
        }
    }
}

/// The right to open files for one request. It ends when it is dropped, on any thread.
#[derive(Debug)]
pub(super) struct Place(
    /// `None`: there is no bound.
    Option<Permit>,
);

impl Place {
    /// The request has only one open file left.
    pub(super) fn found(&mut self) {
        if let Some(permit) = &mut self.0 {
            permit.keep(OF_A_BODY);
        }
    }

    /// The place of a file that the request has opened.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }
}

/// A file, and its place. The file closes first.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) _place: Place,
}
