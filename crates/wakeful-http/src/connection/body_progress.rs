//! How much of a request's body has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::LengthLimitError;

use crate::error::BoxError;

/// Shared with the body, which may be read on another thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    received: AtomicU64,
    /// Whether a task is reading, and nothing has come.
    is_waiting: AtomicBool,
    is_too_large: AtomicBool,
    has_ended: AtomicBool,
    /// Whether the body was dropped before its end.
    is_cut: AtomicBool,
}

impl Progress {
    pub(crate) fn saw(&self, polled: &Poll<Option<Result<Frame<Bytes>, BoxError>>>) {
        self.0.is_waiting.store(polled.is_pending(), Ordering::Relaxed);
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
