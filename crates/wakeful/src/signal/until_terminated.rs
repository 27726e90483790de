//! A program that runs until it is told to end, and ends gracefully.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use signal_hook::consts::signal::{SIGINT, SIGTERM};

use super::signals::Signals;
use crate::event_loop::EventLoop;
use crate::group::early_end::{self, Listening, Tell};
use crate::sys::thread::without_signals;
use crate::sys::{panics, signals};
use crate::task::{JoinError, on_own_thread};

/// A signal within this time after the first one does not count as a second signal.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// For how long a signal still has no effect when a signal has ended a server. It may be a repeat,
/// and the program may have its last lines to write.
const UNTIL_GIVEN_BACK: Duration = Duration::from_secs(1);

/// Gives SIGINT and SIGTERM the effects back that they had before, when it is dropped, unless
/// something else still catches them. Otherwise neither would end a program that does not end
/// after its server.
#[doc(hidden)]
#[derive(Debug)]
pub struct GivesBack(Duration);

impl GivesBack {
    pub fn at_drop() -> Self {
        Self(Duration::ZERO)
    }

    /// A signal has come.
    pub fn after_a_signal(&mut self) {
        self.0 = UNTIL_GIVEN_BACK;
    }
}

impl Drop for GivesBack {
    fn drop(&mut self) {
        for signal in [SIGINT, SIGTERM] {
            signals::give_back(signal, self.0);
        }
    }
}

/// Runs a server until a signal ends it: calls `start`, waits for Ctrl-C (SIGINT) or SIGTERM, calls
/// `drain` with the value that `start` returned, and returns the result of `drain`.
///
/// After a second signal the call does not wait for `drain`: it returns `None`, and the program
/// should exit. (A second signal within a tenth of a second counts as the same one, because
/// `timeout(1)` and terminals signal both a process and its group.) The call blocks its thread, and
/// runs a small loop there. It calls `start` on that thread before the loop's first turn. So
/// `start` may block, and tasks that it spawns run as soon as it returns.
///
/// If a signal arrives while `start` starts a server that waits for its set-ups
/// ([`ConnectionServer::on_each_loop`](crate::accept::ConnectionServer::on_each_loop)), the server
/// does not start. If `start` passes that error on, the call returns `None`, and the program should
/// exit. Any other `start` that a signal finds at work runs to its end, and then the server drains.
///
/// `drain` runs on a separate thread. If no thread can be started because the process is at its
/// limit of threads, `drain` runs on the calling thread, after the small loop has stopped. Then a
/// second signal has its default effect, and ends the process.
///
/// A second after the call has returned (at once if it returns an error, and no signal has come),
/// both signals have the effects that they had before, unless other code catches them. So they end
/// a program that does not end by itself. (In process 1 of a container they have none.)
///
/// # Errors
/// `start` fails; the signals cannot be caught; a loop already runs on this thread; or no loop can
/// be built.
///
/// # Panics
/// If `start` or `drain` panics.
pub fn run_until_terminated<S, R>(
    start: impl FnOnce() -> io::Result<S>,
    drain: impl FnOnce(S) -> R + Send + 'static,
) -> io::Result<Option<R>>
where
    S: Send + 'static,
    R: Send + 'static,
{
    run_until_terminated_or_failed(start, |_| pending(), drain)
}

/// Like [`run_until_terminated`], but also ends when the server fails: when the future that
/// `failure` returns completes. `failure` is usually
/// [`Serving::failure`](crate::accept::Serving::failure). The server then drains as after a signal,
/// and the result is the failure's error.
///
/// ```no_run
/// use std::time::Duration;
/// use wakeful::accept::{ConnectionServer, Serving, SharedListener};
/// use wakeful::signal::run_until_terminated_or_failed;
///
/// # fn main() -> std::io::Result<()> {
/// let listener = SharedListener::bind(&"127.0.0.1:8080".parse().expect("an address"))?;
/// let server = ConnectionServer::new(vec![listener]);
/// let drained = run_until_terminated_or_failed(
///     || server.start(|| async |_connection| ()),
///     Serving::failure,
///     |serving| serving.shutdown(Duration::from_secs(10)),
/// )?;
/// if let Some(result) = drained {
///     result?; // What `shutdown` returned. `None`: a second signal came.
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The same as for [`run_until_terminated`]; or the server has failed.
///
/// # Panics
/// If one of the closures panics.
pub fn run_until_terminated_or_failed<S, R, F>(
    start: impl FnOnce() -> io::Result<S>,
    failure: impl FnOnce(&S) -> F,
    drain: impl FnOnce(S) -> R + Send + 'static,
) -> io::Result<Option<R>>
where
    S: Send + 'static,
    R: Send + 'static,
    F: Future<Output = io::Error>,
{
    run_until_terminated_in(ONE_SIGNAL, pending, start, failure, drain)
}

/// Like [`run_until_terminated_or_failed`], for a worker, with two differences. Signals within
/// `one_signal` of the first one do not count as a second one: a signal to all processes of a
/// service also reaches the worker's master, which then signals the worker, too. And while `start`
/// waits for set-ups, it is ended not only by a signal, but also by the future that `orphaned`
/// makes, on a thread of its own, with a loop.
///
/// # Errors
/// The same as for [`run_until_terminated_or_failed`].
#[doc(hidden)]
pub fn run_until_terminated_in<S, R, F, O>(
    one_signal: Duration,
    orphaned: impl Fn() -> O + Send + Sync + 'static,
    start: impl FnOnce() -> io::Result<S>,
    failure: impl FnOnce(&S) -> F,
    drain: impl FnOnce(S) -> R + Send + 'static,
) -> io::Result<Option<R>>
where
    S: Send + 'static,
    R: Send + 'static,
    F: Future<Output = io::Error>,
    O: Future<Output = ()>,
{
    let sooner = match one_signal {
        Duration::MAX => "only SIGKILL ends this worker sooner",
        _ => "a second signal stops at once",
    };
    // A worker's master may send it another signal, so nothing is given back there.
    let mut gives_back = (one_signal != Duration::MAX).then(GivesBack::at_drop);
    let mut event_loop = EventLoop::new()?;
    let (mut signals, server) = event_loop.prepare(|| {
        // The signals are caught before the server starts, because a program that sees it listen
        // may at once tell it to end.
        let signals = Signals::new(&[SIGINT, SIGTERM])?;
        let server = start_until(&signals, orphaned, start)?;
        Ok::<_, io::Error>((signals, server))
    })??;
    let Some(server) = server else {
        gives_back.iter_mut().for_each(GivesBack::after_a_signal);
        return Ok(None);
    };
    let (failed, ended) = event_loop.block_on(async move {
        let failed = match signal_or_failure(&mut signals, failure(&server)).await {
            Ok(signal) => {
                let name = if signal == SIGINT { "INT" } else { "TERM" };
                panics::log!(info, "{name}: draining; {sooner}");
                None
            }
            Err(error) => {
                panics::log!(error, %error, "draining, and then ending; {sooner}");
                Some(error)
            }
        };
        // The drain does not run on the pool. There it might wait for a thread, while requests that
        // it waits for need its own.
        let mut drained = match on_own_thread("wakeful-drain", move || drain(server)) {
            Ok(drained) => drained,
            Err((error, drain_here)) => {
                panics::log!(warn, %error, "the drain runs on the main thread");
                return Ok((failed, Ended::DrainHere(drain_here)));
            }
        };
        let mut second = pin!(second_signal_in(one_signal, &mut signals));
        let ended = poll_fn(|cx| match Pin::new(&mut drained).poll(cx) {
            Poll::Ready(result) => Poll::Ready(Ok::<_, io::Error>(Ended::Drained(result))),
            Poll::Pending => second.as_mut().poll(cx).map_ok(|_| Ended::AtOnce),
        })
        .await?;
        Ok::<_, io::Error>((failed, ended))
    })??;
    if failed.is_none() {
        gives_back.iter_mut().for_each(GivesBack::after_a_signal);
    }
    let result = match ended {
        Ended::Drained(result) => result,
        Ended::AtOnce => return failed.map_or(Ok(None), Err),
        Ended::DrainHere(drain_here) => {
            // If the time is too long to be represented, there is no second signal.
            let second = Instant::now().checked_add(one_signal);
            let end_by = |second| [SIGINT, SIGTERM].map(|signal| signals::end_by(signal, second));
            let _until_drained = second.map(end_by);
            drain_here()
        }
    };
    match result.map_err(JoinError::try_into_panic) {
        Ok(result) => failed.map_or(Ok(Some(result)), Err),
        Err(Ok(payload)) => std::panic::resume_unwind(payload),
        Err(Err(error)) => Err(io::Error::other(error)),
    }
}

/// Calls `start`. If one of `signals` arrives while a server that it starts waits for set-ups, the
/// wait ends, and the result is `None`.
#[doc(hidden)]
pub fn start_until_told<S>(
    signals: &Signals,
    start: impl FnOnce() -> io::Result<S>,
) -> io::Result<Option<S>> {
    start_until(signals, pending, start)
}

/// Like [`start_until_told`]. The future that `orphaned` makes also ends the wait.
fn start_until<S, O: Future<Output = ()>>(
    signals: &Signals,
    orphaned: impl Fn() -> O + Send + Sync + 'static,
    start: impl FnOnce() -> io::Result<S>,
) -> io::Result<Option<S>> {
    let (arrivals, orphaned) = (signals.arrivals(), Arc::new(orphaned));
    let listen = move |tell| {
        let orphaned = orphaned.clone();
        listen(arrivals.clone(), move || orphaned(), tell)
    };
    match early_end::within(listen, start) {
        Err(error) if early_end::is_told_to_end(&error) => {
            panics::log!(info, "told to end before the server had started: ending");
            Ok(None)
        }
        started => started.map(Some),
    }
}

/// Calls `tell` when one of the signals arrives, or if one has arrived already, or when the future
/// that `orphaned` makes completes. This thread's loop would do that, but this thread is starting
/// the server.
fn listen<O: Future<Output = ()>>(
    arrivals: Vec<(i32, Arc<AtomicBool>)>,
    orphaned: impl FnOnce() -> O + Send + 'static,
    tell: Tell,
) -> Listening {
    let (listening, over) = async_channel::bounded(1);
    let listens = move || {
        let is_told = EventLoop::new()?.block_on(async {
            let numbers: Vec<_> = arrivals.iter().map(|(signal, _)| *signal).collect();
            // The handlers are registered before the check for signals that have arrived, so that
            // none is missed.
            let mut signals = Signals::new(&numbers)?;
            if arrivals.iter().any(|(_, arrived)| arrived.load(Ordering::Acquire)) {
                return Ok(true);
            }
            let (mut signal, mut over) = (pin!(signals.recv()), pin!(over.recv()));
            let mut orphaned = pin!(orphaned());
            poll_fn(|cx| {
                if over.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(false));
                }
                if orphaned.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(true));
                }
                signal.as_mut().poll(cx).map_ok(|_| true)
            })
            .await
        })??;
        if is_told {
            tell();
        }
        Ok::<_, io::Error>(())
    };
    // If no thread can be started, the signal waits until the start is over.
    if let Ok(thread) = without_signals(|| on_own_thread("wakeful-start", listens)) {
        thread.detach();
    }
    listening
}

/// How [`run_until_terminated`] ended.
enum Ended<T, F> {
    Drained(Result<T, JoinError>),
    /// A second signal ended it.
    AtOnce,
    /// No other thread can be started for the drain.
    DrainHere(F),
}

/// Waits for a second signal, after one that has just arrived. Signals that arrive within a tenth
/// of a second of this call count as the first one.
#[doc(hidden)]
pub async fn second_signal(signals: &mut Signals) -> io::Result<i32> {
    second_signal_in(ONE_SIGNAL, signals).await
}

async fn second_signal_in(one_signal: Duration, signals: &mut Signals) -> io::Result<i32> {
    // Not from the first signal on: nobody knows when one has come that this receives at once,
    // after the log's subscriber was slow. To take it for a second one would end a drain.
    let first = Instant::now();
    loop {
        let signal = signals.recv().await?;
        if first.elapsed() >= one_signal {
            return Ok(signal);
        }
    }
}

/// Waits for a signal.
///
/// # Errors
/// The server has failed; the signals cannot be received.
async fn signal_or_failure(
    signals: &mut Signals,
    failure: impl Future<Output = io::Error>,
) -> io::Result<i32> {
    let (mut signal, mut failure) = (pin!(signals.recv()), pin!(failure));
    poll_fn(|cx| match failure.as_mut().poll(cx) {
        Poll::Ready(error) => Poll::Ready(Err(error)),
        Poll::Pending => signal.as_mut().poll(cx),
    })
    .await
}
