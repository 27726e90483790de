//! How much of a request's body has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::LengthLimitError;

use crate::error::BoxError;

/// With HTTP/2: how often something was read of a connection's bodies, also after their responses.
/// They may be read on other threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyReads(Arc<AtomicU64>);

impl BodyReads {
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shared with the body, which may be read on another thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    received: AtomicU64,
    /// Whether a task has asked for more, and nothing has come since.
    is_waiting: AtomicBool,
    is_too_large: AtomicBool,
    has_ended: AtomicBool,
    /// Whether the body was dropped before its end.
    is_cut: AtomicBool,
}

/// Notes that something has come, when it wakes the task that has asked. The task may be at
/// something else, and not ask again for long: it does not wait for the client then.
#[derive(Debug)]
struct Noting {
    /// The wakers do not count for [`Progress::is_alone`].
    state: Weak<State>,
    waker: Waker,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(state) = self.state.upgrade() {
            state.is_waiting.store(false, Ordering::Relaxed);
        }
        self.waker.wake_by_ref();
    }
}

/// The waker that a body was last polled with, so that each body needs only one.
#[derive(Debug, Default)]
pub(crate) struct LastWaker(Option<Arc<Noting>>);

impl Progress {
    /// Notes that a task asks for more. The body must be polled with the waker that this returns.
    pub(crate) fn asks(&self, last: &mut LastWaker, waker: &Waker) -> Waker {
        self.0.is_waiting.store(true, Ordering::Relaxed);
        let kept = last.0.take().filter(|kept| kept.waker.will_wake(waker));
        let noting = kept.unwrap_or_else(|| {
            Arc::new(Noting { state: Arc::downgrade(&self.0), waker: waker.clone() })
        });
        last.0 = Some(noting.clone());
        noting.into()
    }

    pub(crate) fn saw(&self, polled: &Poll<Option<Result<Frame<Bytes>, BoxError>>>) {
        if polled.is_ready() {
            self.0.is_waiting.store(false, Ordering::Relaxed);
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.0.received.fetch_add(length, Ordering::Relaxed);
                // Nothing comes after trailers.
                if frame.is_trailers() {
                    self.0.has_ended.store(true, Ordering::Relaxed);
                }
            }
            Poll::Ready(Some(Err(error))) if error.is::<LengthLimitError>() => {
                self.0.is_too_large.store(true, Ordering::Relaxed);
            }
            Poll::Ready(None) => self.0.has_ended.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// How many bytes have come, and whether more are waited for.
    pub(crate) fn now(&self) -> (u64, bool) {
        (self.0.received.load(Ordering::Relaxed), self.0.is_waiting.load(Ordering::Relaxed))
    }

    /// Is this the last reference, so that nobody else holds the body or observes it?
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub(crate) fn is_dropped(&self) {
        if !self.0.has_ended.load(Ordering::Relaxed) {
            self.0.is_cut.store(true, Ordering::Relaxed);
        }
    }

    /// Was the body dropped before its end?
    pub(crate) fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Relaxed)
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.0.is_too_large.load(Ordering::Relaxed)
    }
}
