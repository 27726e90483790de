//! An answer that those who ask at the same time share.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_lock::Mutex;
use wakeful::time::timeout;

/// The last answer, and when it was requested.
#[derive(Debug)]
pub(crate) struct SharedAnswer<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Clone for SharedAnswer<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for SharedAnswer<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> SharedAnswer<T> {
    /// The answer to a question that begins after this call. One question runs at a time, and all
    /// calls that come meanwhile share the next one. If a question takes longer than `limit`, for
    /// example because its loop is blocked, the others ask for themselves.
    pub(crate) async fn get(
        &self,
        limit: Duration,
        ask: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let come = Instant::now();
        let last = self.0.clone();
        let lock = wakeful::on_this_loop(async move { timeout(limit, last.lock_arc()).await });
        let Ok(mut last) = lock.await else { return ask.await };
        if let Some((_, answer)) = last.as_ref().filter(|(asked, _)| *asked >= come) {
            return Ok(answer.clone());
        }
        let asked = Instant::now();
        let answer = ask.await?;
        *last = Some((asked, answer.clone()));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::pin::pin;

    use futures_lite::future::{poll_once, zip};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn who_asks_on_a_blocked_loop_does_not_hold_the_others_up() {
        wakeful::block_on(async {
            let shared = SharedAnswer::default();
            let mut on_a_blocked_loop = pin!(shared.get(LONG, pending()));
            assert!(poll_once(&mut on_a_blocked_loop).await.is_none());
            let another = shared.get(Duration::from_millis(1), async { Ok(7) });
            let answer = timeout(LONG, another).await.expect("it asks for itself");
            assert_eq!(answer.unwrap(), 7);
        });
    }

    #[test]
    fn those_who_ask_meanwhile_share_the_next_answer() {
        wakeful::block_on(async {
            let shared = SharedAnswer::default();
            let asks = Cell::new(0);
            let ask = || async {
                wakeful::task::yield_now().await;
                asks.set(asks.get() + 1);
                Ok(asks.get())
            };
            let get = || shared.get(LONG, ask());
            let (first, (second, third)) = zip(get(), zip(get(), get())).await;
            assert_eq!((first.unwrap(), second.unwrap(), third.unwrap()), (1, 2, 2));
            // A question that failed leaves no answer, and lets the next one begin.
            shared.get(LONG, ready(Err(io::Error::other("no")))).await.unwrap_err();
            assert_eq!(get().await.unwrap(), 3);
        });
    }
}
