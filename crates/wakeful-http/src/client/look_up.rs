//! Looks a host's name up, once for all requests that need it meanwhile.
//!
//! A look-up occupies a thread as long as the resolver takes, even if the request was cancelled
//! long ago. With one look-up per request there would be hundreds of threads if a name server is
//! silent, and other names would wait behind them. A look-up that nobody wants any more is dropped
//! if no thread has begun it.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use wakeful::task::{BlockingHandle, spawn_blocking};

use crate::foreign_code::shielded;

type Found = Result<Rc<[SocketAddr]>, Rc<io::Error>>;

/// The look-up of a name that is under way, if there is one.
#[derive(Default)]
pub(super) struct LookUp(RefCell<Option<UnderWay>>);

struct UnderWay {
    since: Instant,
    /// Whether the look-up's thread has finished, even if nobody has waited for the result. Such a
    /// result may be old, so it is not used again.
    is_done: Arc<AtomicBool>,
    found: Shared<LocalBoxFuture<'static, Found>>,
}

impl LookUp {
    /// The addresses of a name. Requests that come during a look-up share its answer. If it takes
    /// longer than `patience` it may hang, and the next request begins another.
    ///
    /// # Errors
    /// The look-up failed; no thread can be started for it.
    pub(super) async fn addresses(
        &self,
        name: &str,
        port: u16,
        patience: Duration,
    ) -> io::Result<Vec<SocketAddr>> {
        let name = name.to_owned();
        self.share(patience, move || Ok((name, port).to_socket_addrs()?.collect())).await
    }

    async fn share(
        &self,
        patience: Duration,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        // A look-up for which there was no thread has failed, and is not done.
        let is_of_use = |one: &UnderWay| {
            !one.is_done.load(Ordering::Acquire)
                && one.found.peek().is_none()
                && one.since.elapsed() < patience
        };
        let known = self.0.borrow().as_ref().filter(|one| is_of_use(one)).map(|o| o.found.clone());
        let found = known.unwrap_or_else(|| {
            let one = begin(look_up);
            let found = one.found.clone();
            // The previous look-up is dropped where nothing is borrowed, because its drop also
            // drops wakers.
            drop(self.0.replace(Some(one)));
            found
        });
        // If one waker panics, the other waiting requests must still be woken.
        shielded(found).await.map(|addrs| addrs.to_vec()).map_err(|error| copy(&error))
    }
}

fn begin(look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static) -> UnderWay {
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    let mut thread = OnThread(spawn_blocking(move || {
        let found = look_up();
        done.store(true, Ordering::Release);
        found
    }));
    let found = async move {
        let found = (&mut thread.0).await.map_err(|error| {
            let text = format!("cannot look the name up: {error}");
            io::Error::other(text)
        });
        found.and_then(|found| found).map(Rc::from).map_err(Rc::new)
    };
    UnderWay { since: Instant::now(), is_done, found: found.boxed_local().shared() }
}

/// Aborts the look-up when it is dropped.
struct OnThread(BlockingHandle<io::Result<Vec<SocketAddr>>>);

impl Drop for OnThread {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, mpsc};

    use futures_util::future::{join, join_all};
    use wakeful::time::{sleep, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_look_up_that_nobody_wants_before_a_thread_begins_it_does_not_run() {
        let start = Instant::now();
        loop {
            let (look_up, has_run) = (LookUp::default(), Arc::new(AtomicBool::new(false)));
            let runs = has_run.clone();
            let mut asks = Box::pin(look_up.share(LONG, move || {
                runs.store(true, Ordering::Relaxed);
                Ok(Vec::new())
            }));
            let _ = asks.as_mut().now_or_never();
            drop(asks);
            // Usually long before a thread wakes.
            drop(look_up);
            while Arc::strong_count(&has_run) > 1 {
                std::thread::yield_now();
            }
            if !has_run.load(Ordering::Relaxed) {
                return;
            }
            assert!(start.elapsed() < LONG, "each of them has run");
        }
    }

    /// As where no thread can be started.
    #[test]
    fn a_look_up_that_never_ran_is_not_used_again() {
        wakeful::block_on(async {
            let failed = || async { Err(Rc::new(io::Error::other("no thread"))) };
            let found = failed().boxed_local().shared();
            assert!(found.clone().await.is_err());
            let is_done = Arc::default();
            let before = UnderWay { since: Instant::now(), is_done, found };
            let look_up = LookUp(RefCell::new(Some(before)));
            assert_eq!(look_up.share(LONG, || Ok(Vec::new())).await.unwrap(), []);
        });
    }

    #[test]
    fn who_asks_while_a_name_is_looked_up_waits_for_that_answer() {
        wakeful::block_on(async {
            let (look_up, begun) = (LookUp::default(), Arc::new(AtomicUsize::new(0)));
            let (answer, silent) = mpsc::channel::<SocketAddr>();
            let silent = Arc::new(Mutex::new(silent));
            let ask = |patience| {
                let (begun, silent) = (begun.clone(), silent.clone());
                look_up.share(patience, move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let answer = silent.lock().unwrap().recv_timeout(LONG);
                    answer.map(|addr| vec![addr]).map_err(io::Error::other)
                })
            };
            // These requests are cancelled. The next ones find the same look-up under way.
            for _ in 0..2 {
                let given_up = (0..50).map(|_| timeout(SHORT, ask(LONG)));
                assert!(join_all(given_up).await.iter().all(Result::is_err));
            }
            let addr: SocketAddr = "127.0.0.1:80".parse().unwrap();
            let (first, ()) = join(ask(LONG), async { answer.send(addr).unwrap() }).await;
            assert_eq!((first.unwrap(), begun.load(Ordering::Relaxed)), (vec![addr], 1));
            // A finished look-up is not used again, so there is a second one.
            answer.send(addr).unwrap();
            assert_eq!(ask(LONG).await.unwrap(), [addr]);
            assert_eq!(begun.load(Ordering::Relaxed), 2);
            // A request does not wait for a look-up that has taken too long.
            let hangs = timeout(SHORT, ask(LONG)).await;
            let another = timeout(SHORT, ask(Duration::ZERO)).await;
            assert!(hangs.is_err() && another.is_err());
            let start = Instant::now();
            while begun.load(Ordering::Relaxed) < 4 {
                assert!(start.elapsed() < LONG, "no other look-up was begun");
                sleep(SHORT).await;
            }
            // Now both look-up threads end.
            drop(answer);
        });
    }
}
