//! The request body that an HTTP/1.1 connection sends, while the response comes.
//!
//! A server may answer before it has read the request. hyper then continues to send the request's
//! body, and the connection takes no other request. So if the body has not ended when the response
//! ends, the connection ends, too. If the body has ended, hyper may still hold bytes of it that the
//! server does not read: they must be sent within a bounded time.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use wakeful::time::turn_time;

use crate::foreign_code;

/// The upload of a connection, which has one request at a time.
#[derive(Default)]
pub(super) struct Upload {
    /// The number of the request on this connection.
    request: Cell<u64>,
    /// Whether hyper has begun to poll that request's body, and has not dropped it.
    is_under_way: Cell<bool>,
    is_cut: Cell<bool>,
    /// When that request's response ended, or was given up.
    answered: Cell<Option<Instant>>,
    /// The waker of the connection's task.
    waker: Cell<Option<Waker>>,
}

impl Upload {
    /// Begins the next request. Returns one part for its body, and one for its response.
    pub(super) fn begin(self: &Rc<Self>) -> (Uploading, Answering) {
        self.request.set(self.request.get() + 1);
        self.is_under_way.set(false);
        self.answered.set(None);
        (Uploading(self.clone()), Answering { upload: self.clone(), request: self.request.get() })
    }

    /// Returns when the response ended. Since then the connection only sends what hyper still holds
    /// of the request.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered.get()
    }

    /// Completes when a response has ended before its request's body. If the connection `is_reset`,
    /// completes when the response has ended.
    pub(super) fn poll_cut(&self, cx: &Context<'_>, is_reset: bool) -> Poll<()> {
        if self.is_cut.get() || is_reset && self.answered.get().is_some() {
            return Poll::Ready(());
        }
        if self.is_under_way.get() || is_reset {
            let known = self.waker.take().filter(|known| known.will_wake(cx.waker()));
            self.waker.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        }
        Poll::Pending
    }
}

/// Belongs to the request's body.
pub(super) struct Uploading(Rc<Upload>);

impl Uploading {
    pub(super) fn is_asked(&self) {
        self.0.is_under_way.set(true);
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.is_under_way.set(false);
    }
}

/// Belongs to the response until its end.
pub(super) struct Answering {
    upload: Rc<Upload>,
    request: u64,
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.upload.request.get() != self.request {
            // The connection already has its next request.
            return;
        }
        self.upload.answered.set(Some(turn_time()));
        if self.upload.is_under_way.get() {
            self.upload.is_cut.set(true);
        }
        self.upload.waker.take().into_iter().for_each(foreign_code::wake);
    }
}
