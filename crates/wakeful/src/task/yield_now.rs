use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets all other tasks that are ready run before this one continues. If there are many of them,
/// the loop also checks its sockets and timers in between.
///
/// ```
/// wakeful::block_on(async {
///     wakeful::task::yield_now().await;
/// });
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
///
/// # Cancel safety
/// Cancel-safe: dropping it has no effect.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
