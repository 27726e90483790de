//! Spawning on a loop from elsewhere: the future is made where it will live.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::join::JoinHandle;
use super::{Queue, local, raw};
use crate::priority::Priority;
use crate::ready_queue::Node;

pin_project_lite::pin_project! {
    /// A closure that makes a future, and then that future.
    #[project = LazyProjection]
    #[project_replace = LazyTaken]
    enum Lazy<M, F> {
        Make { make: M },
        Made { #[pin] future: F },
        Empty,
    }
}

impl<M: FnOnce() -> F, F: Future> Future for Lazy<M, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if matches!(*self, Self::Make { .. })
            && let LazyTaken::Make { make } = self.as_mut().project_replace(Self::Empty)
        {
            self.set(Self::Made { future: make() });
        }
        match self.project() {
            LazyProjection::Made { future } => future.poll(cx),
            LazyProjection::Make { .. } | LazyProjection::Empty => {
                unreachable!("the future was made above, or making it panicked and ended the task")
            }
        }
    }
}

/// Spawns the future that `make` returns on the loop of `queue`. `make` runs there.
///
/// # Errors
/// The closure comes back when the loop has ended.
pub(crate) fn spawn_remote<M, F>(
    queue: &Arc<Queue>,
    spawned_at: &'static Location<'static>,
    priority: Priority,
    make: M,
) -> Result<JoinHandle<F::Output>, M>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send,
{
    // Until its first poll the task holds nothing but `make`, which may be sent.
    let header = raw::allocate(priority, Lazy::Make { make }, queue.clone(), spawned_at);
    let node: NonNull<Node> = header.cast();
    // SAFETY: a fresh task, scheduled and in no queue, with a reference for the loop.
    match unsafe { local::schedule_in_order(queue, node) } {
        // SAFETY: the second reference is the handle's.
        Ok(()) => Ok(unsafe { JoinHandle::new(header) }),
        // SAFETY: refused, so both references are ours, and `raw::allocate` made it of this type.
        Err(_) => match unsafe { raw::deallocate::<Lazy<M, F>>(header) } {
            Lazy::Make { make } => Err(make),
            Lazy::Made { .. } | Lazy::Empty => unreachable!("the task has not run"),
        },
    }
}
