//! Server-sent events: [`KeepAlive`] keeps a stream alive while there are no events.
//!
//! axum's own `Sse::keep_alive` needs tokio's timers, and panics without a tokio runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use pin_project_lite::pin_project;
use wakeful::time::{Sleep, sleep, turn_time};

/// The interval of axum's `KeepAlive`.
const EVERY: Duration = Duration::from_secs(15);
const LEAST: Duration = Duration::from_millis(1);

pin_project! {
    /// A stream of events that sends at least one item per interval, so that proxies do not close
    /// its connection as idle, and the server notices a client that has gone. The interval is 15
    /// seconds, unless [`every`](Self::every) sets another one.
    ///
    /// Wrap the stream of axum's `Sse`, and give it a comment, which clients ignore:
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use axum::response::sse::{Event, Sse};
    /// use futures_lite::stream::{self, Stream};
    /// use wakeful_http::sse::KeepAlive;
    ///
    /// async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    ///     let news = stream::once(Ok(Event::default().data("news")));
    ///     let comment = || Event::default().comment("still here");
    ///     Sse::new(KeepAlive::new(news, comment).every(Duration::from_secs(10)))
    /// }
    /// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(events));
    /// ```
    ///
    /// The interval restarts with each item of the inner stream, and the stream ends when the inner
    /// stream ends. When the server notices that the client has gone, both are dropped with the
    /// response's body.
    ///
    /// # Cancel safety
    /// Cancel-safe: if a wait for the next item is dropped, no item is lost.
    ///
    /// # Threads
    /// `Send` and `Sync` if the inner stream and the closure are. The timer belongs to the loop
    /// that polls the stream.
    ///
    /// # Panics
    /// A poll panics if no loop runs on this thread, and the inner stream has no item yet.
    #[must_use = "streams do nothing unless polled"]
    pub struct KeepAlive<S, F> {
        #[pin]
        stream: S,
        comment: F,
        every: Duration,
        // `None`: the timer was not needed yet.
        timer: Option<Sleep>,
        // The stream has had items since the timer was set.
        has_spoken: bool,
        // The last result was a comment.
        has_commented: bool,
    }
}

impl<S, F> KeepAlive<S, F> {
    /// Returns `stream`, with the result of `comment` inserted after each 15 seconds of silence.
    pub fn new<T, E>(stream: S, comment: F) -> Self
    where
        S: Stream<Item = Result<T, E>>,
        F: FnMut() -> T,
    {
        Self { stream, comment, every: EVERY, timer: None, has_spoken: false, has_commented: false }
    }

    /// Sets how long the stream may be silent. A time below 1 ms becomes 1 ms.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval.max(LEAST);
        self
    }
}

impl<S, F, T, E> Stream for KeepAlive<S, F>
where
    S: Stream<Item = Result<T, E>>,
    F: FnMut() -> T,
{
    type Item = Result<T, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if let Poll::Ready(item) = this.stream.poll_next(cx) {
            (*this.has_spoken, *this.has_commented) = (true, false);
            return Poll::Ready(item);
        }
        let every = *this.every;
        let timer = this.timer.get_or_insert_with(|| {
            *this.has_spoken = false;
            sleep(every)
        });
        // The timer is restarted only once for several items in a row.
        if std::mem::take(this.has_spoken) {
            restart(timer, every);
        }
        if Pin::new(&mut *timer).poll(cx).is_pending() {
            *this.has_commented = false;
            return Poll::Pending;
        }
        restart(timer, every);
        // If each poll of the stream takes as long as the interval, each poll would give another
        // comment, without end. So other tasks run in between.
        if std::mem::replace(this.has_commented, false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *this.has_commented = true;
        Poll::Ready(Some(Ok((this.comment)())))
    }
}

/// An interval that the clock cannot represent is no interval.
fn restart(timer: &mut Sleep, every: Duration) {
    match turn_time().checked_add(every) {
        Some(deadline) => timer.reset(deadline),
        None => *timer = sleep(every),
    }
}

impl<S: fmt::Debug, F> fmt::Debug for KeepAlive<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive")
            .field("stream", &self.stream)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
