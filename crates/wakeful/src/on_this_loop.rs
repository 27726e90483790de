//! A future that is `Send`, around one that is not.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::event_loop::current;
use crate::loop_bound::LoopBound;

/// Wraps a future that need not be `Send` in one that is `Send`. The inner future stays on the loop
/// of this thread.
///
/// Frameworks such as axum and tonic require handlers whose futures are `Send`. Sockets, clients
/// and other values of a loop are not `Send`. But a handler runs on one loop, so it may use them:
/// wrap the part that uses them, and await it.
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
/// use wakeful::on_this_loop;
///
/// async fn handler() -> u32 {
///     on_this_loop(async {
///         let not_send = Rc::new(Cell::new(40));
///         wakeful::time::sleep(Duration::from_millis(1)).await;
///         not_send.get() + 2
///     })
///     .await
/// }
///
/// fn is_send<T: Send>(value: T) -> T {
///     value
/// }
///
/// assert_eq!(wakeful::block_on(is_send(handler())), 42);
/// ```
///
/// The future must own what it uses (`'static`), because a handler that is dropped on another
/// thread may end before the future does. Move clones into an `async move` block. For one value per
/// loop, use a [`PerLoop`](crate::PerLoop). The output need not be `Send`; if it is not, do not
/// hold it across a further `await`.
///
/// A future is bound to the loop that *calls* this function. To run one on another loop, use
/// [`LoopHandle::spawn`](crate::LoopHandle::spawn). It takes a closure that makes the future there,
/// and returns a handle that is `Send`.
///
/// A call allocates the future once.
///
/// # Panics
/// If no loop runs on this thread. The returned future panics if it is polled by another loop, on a
/// thread without a loop, or after it was ready.
///
/// # Cancel safety
/// Dropping the returned future also drops `future`. On the thread of its loop this happens at
/// once.
///
/// # Threads
/// `future` is polled and dropped only on the thread of its loop. If the returned future is dropped
/// elsewhere, `future` is sent to its loop and dropped there. If the loop has ended by then,
/// `future` leaks, and a line is logged (see [`LoopBound`](crate::LoopBound#threads)).
#[track_caller]
pub fn on_this_loop<F: Future + 'static>(future: F) -> OnThisLoop<F> {
    // The future is in a box, because a pinned value can go back to its loop only in a box.
    let future = LoopBound::new(Box::pin(future));
    OnThisLoop { future: Some(future), made_at: Location::caller() }
}

/// The future that [`on_this_loop`] returns. It is `Send`.
#[must_use = "futures do nothing unless awaited"]
pub struct OnThisLoop<F: Future + 'static> {
    /// `None`: the future is complete.
    future: Option<LoopBound<Pin<Box<F>>>>,
    made_at: &'static Location<'static>,
}

impl<F: Future> Future for OnThisLoop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(bound) = &mut this.future else {
            panic!(
                "the future that `on_this_loop` made at {} is polled after it was ready",
                this.made_at
            );
        };
        // Another loop on the same thread has other timers and sockets, so it is not home.
        let is_home = current().is_some_and(|inner| inner.handle().is_same(bound.home()));
        let Some(future) = bound.get_mut().filter(|_| is_home) else { not_at_home(this.made_at) };
        let output = ready!(future.as_mut().poll(cx));
        this.future = None;
        Poll::Ready(output)
    }
}

#[cold]
fn not_at_home(made_at: &'static Location<'static>) -> ! {
    panic!(
        "the future that `on_this_loop` made at {made_at} is polled outside of its event loop: await it in the task that \
         made it, and have no other thread or loop poll it"
    )
}

// Nothing is pinned in place, because the future is in a box.
impl<F: Future> Unpin for OnThisLoop<F> {}

impl<F: Future> fmt::Debug for OnThisLoop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnThisLoop")
            .field("made_at", &format_args!("{}", self.made_at))
            .field("was_ready", &self.future.is_none())
            .finish_non_exhaustive()
    }
}
