//! How many connections are open at a time, on all loops together.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_lock::{Semaphore, SemaphoreGuardArc};

use super::{Listener, LoopCounts};
use crate::net::accept::Accepted;
use crate::task::coop;

/// The limit of a server's open connections, if it has one.
#[derive(Debug, Clone)]
pub(super) struct Limit(Option<Arc<Semaphore>>);

/// The right to have one connection open.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: Option<SemaphoreGuardArc>,
}

impl Limit {
    /// 0 is none.
    pub(super) fn new(connections: usize) -> Self {
        Self((connections > 0).then(|| Arc::new(Semaphore::new(connections))))
    }

    /// A permit, if one is left.
    pub(super) fn try_permit(&self) -> Option<Permit> {
        match &self.0 {
            None => Some(Permit { _permit: None }),
            Some(permits) => permits.try_acquire_arc().map(|p| Permit { _permit: Some(p) }),
        }
    }

    /// Takes the next connection, with a permit. Without one it stays in the backlog.
    ///
    /// A loop that waits for a connection holds no permit meanwhile: else loops without connections would keep
    /// those that have some from serving them.
    pub(super) async fn accept(
        &self,
        listener: &Listener,
        counts: &LoopCounts,
    ) -> io::Result<(Accepted, Permit)> {
        let mut accept = pin!(listener.accept_detached());
        let mut waits = false;
        let mut acquire = None;
        poll_fn(|cx| {
            let permit = match (self.try_permit(), &self.0) {
                (Some(permit), _) => permit,
                (None, None) => unreachable!("without a limit there is always a permit"),
                (None, Some(permits)) => {
                    let acquire = acquire.get_or_insert_with(|| Box::pin(permits.acquire_arc()));
                    match acquire.as_mut().poll(cx) {
                        Poll::Ready(permit) => Permit { _permit: Some(permit) },
                        Poll::Pending => return Poll::Pending,
                    }
                }
            };
            acquire = None;
            match accept.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(result.map(|accepted| (accepted, permit))),
                Poll::Pending => {
                    // One that has spent its budget has not asked, or has only passed over what is gone.
                    if !coop::is_spent() && std::mem::replace(&mut waits, true) {
                        counts.count_wake_in_vain();
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}
