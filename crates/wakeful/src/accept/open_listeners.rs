//! Which of a server's listeners still accept. If none does, the server has failed.
//!
//! A socket counts as open while a loop accepts from it. It counts as closed when the kernel
//! reports that it does not listen any more, which is then so for every loop, or when the last of
//! its loops has ended.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_channel::{Receiver, Sender};

use crate::task::{Locking, SafeWaker, hold_back_wakers};

/// The listeners of a running server. Dropped when the server ends, after which listeners may
/// close.
#[derive(Debug)]
pub(super) struct OpenListeners {
    sockets: Vec<(Weak<OwnedFd>, Arc<Socket>)>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The number of open sockets. The end of the server adds one that never closes, so that it is
    /// no failure when the sockets close after it.
    open: AtomicUsize,
    /// Closed when no socket is open.
    none: Sender<()>,
    is_none: Receiver<()>,
    cause: Mutex<Option<(io::ErrorKind, String)>>,
}

#[derive(Debug)]
struct Socket {
    /// How many loops accept from the socket.
    loops: AtomicUsize,
}

/// One socket on one loop, from which the loop accepts until this is dropped.
#[derive(Debug)]
pub(super) struct OpenListener {
    socket: Arc<Socket>,
    state: Arc<State>,
}

impl OpenListeners {
    pub(super) fn new() -> Self {
        let (none, is_none) = async_channel::bounded(1);
        let (open, cause) = (AtomicUsize::new(0), Mutex::new(None));
        Self { sockets: Vec::new(), state: Arc::new(State { open, none, is_none, cause }) }
    }

    /// Called for each loop that will accept from `socket`, before the first of them accepts.
    pub(super) fn add(&mut self, socket: &Arc<OwnedFd>) -> OpenListener {
        let fd = Arc::downgrade(socket);
        let known = self.sockets.iter().find(|(known, _)| known.ptr_eq(&fd));
        let socket = match known {
            Some((_, socket)) => socket.clone(),
            None => {
                self.state.open.fetch_add(1, Ordering::Relaxed);
                let socket = Arc::new(Socket { loops: AtomicUsize::new(0) });
                self.sockets.push((fd, socket.clone()));
                socket
            }
        };
        socket.loops.fetch_add(1, Ordering::Relaxed);
        OpenListener { socket, state: self.state.clone() }
    }

    /// Completes when the server has failed, and never if it ends before.
    pub(super) fn failure(&self) -> impl Future<Output = io::Error> + Send + use<> {
        let state = self.state.clone();
        async move {
            // A panic of one waker must not keep another waiting task from its wake.
            let mut is_none = pin!(Locking::new(state.is_none.recv()));
            let mut waker = SafeWaker::default();
            // Nothing is ever sent: `recv` returns when the channel is closed.
            let _ = poll_fn(|cx| waker.with(cx, |cx| is_none.as_mut().as_pin_mut().poll(cx))).await;
            let cause = state.cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match cause {
                Some((kind, text)) => {
                    io::Error::new(kind, format!("the last listener failed: {text}"))
                }
                None => io::Error::other("the loops that accepted connections have ended"),
            }
        }
    }
}

impl Drop for OpenListeners {
    fn drop(&mut self) {
        self.state.open.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    fn one_closed(&self, error: Option<&io::Error>) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            *self.cause.lock().unwrap_or_else(PoisonError::into_inner) =
                error.map(|error| (error.kind(), error.to_string()));
            hold_back_wakers(|| self.none.close());
        }
    }
}

impl OpenListener {
    /// Notes that the socket does not listen any more.
    pub(super) fn broke(&self, error: &io::Error) {
        if self.socket.loops.swap(0, Ordering::AcqRel) > 0 {
            self.state.one_closed(Some(error));
        }
    }
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        let one_less = |loops: usize| loops.checked_sub(1);
        let before = self.socket.loops.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        if before == Ok(1) {
            self.state.one_closed(None);
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread;
    use std::time::Duration;

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    fn has_failed(listeners: &OpenListeners) -> bool {
        block_on(poll_once(listeners.failure())).is_some()
    }

    fn broken() -> io::Error {
        io::Error::from_raw_os_error(libc::EINVAL)
    }

    fn socket() -> Arc<OwnedFd> {
        Arc::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into())
    }

    #[test]
    fn it_fails_with_the_last_socket_whichever_loop_noticed() {
        let (mut listeners, shared, own) = (OpenListeners::new(), socket(), socket());
        let shared: Vec<_> = (0..3).map(|_| listeners.add(&shared)).collect();
        let own = listeners.add(&own);
        shared[0].broke(&broken());
        shared[1].broke(&broken());
        drop(shared);
        assert!(!has_failed(&listeners), "one is open");
        own.broke(&broken());
        let error = block_on(listeners.failure());
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("the last listener failed: "), "{error}");
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_hearing_that_it_failed() {
        struct Panics;

        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("a waker that panics, on purpose");
            }
        }

        let (mut listeners, socket) = (OpenListeners::new(), socket());
        let (on_loop, woken) = (listeners.add(&socket), Arc::new(Woken::default()));
        let mut waiting = [(); 3].map(|()| Box::pin(listeners.failure()));
        for (one, waker) in waiting.iter_mut().zip([
            Arc::new(Panics).into(),
            woken.clone().into(),
            Arc::new(Panics).into(),
        ]) {
            assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        on_loop.broke(&broken());
        assert!(woken.0.load(Ordering::Relaxed));
        for one in waiting {
            let _ = block_on(one);
        }
    }

    /// An executor whose waker, when dropped, drops a task that waits for the same failure.
    #[test]
    fn a_waker_whose_drop_ends_another_wait_blocks_nobody() {
        type Failure = Pin<Box<dyn Future<Output = io::Error> + Send>>;

        struct Owns(#[allow(dead_code, reason = "it is dropped")] Mutex<Failure>);

        impl Wake for Owns {
            fn wake(self: Arc<Self>) {}
        }

        let mut listeners = OpenListeners::new();
        let on_loop = listeners.add(&socket());
        let waits = |waker: &Waker| -> Failure {
            let mut one: Failure = Box::pin(listeners.failure());
            assert!(one.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            one
        };
        let waits_by_an_owner = || {
            let owner = Arc::new(Owns(Mutex::new(waits(Waker::noop()))));
            waits(&owner.into())
        };
        let (replaced, dropped, woken) =
            (waits_by_an_owner(), waits_by_an_owner(), waits_by_an_owner());
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let mut replaced = replaced;
            assert!(replaced.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(dropped);
            on_loop.broke(&broken());
            done.send((replaced, woken)).unwrap();
        });
        let waiting = is_done.recv_timeout(Duration::from_secs(30));
        let (replaced, woken) = waiting.expect("it waits for its own lock");
        block_on(replaced);
        block_on(woken);
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_fails_with_the_last_of_its_loops_and_not_because_it_ends() {
        let socket = socket();
        let mut listeners = OpenListeners::new();
        let mut loops: Vec<_> = (0..2).map(|_| listeners.add(&socket)).collect();
        loops.pop();
        assert!(!has_failed(&listeners));
        loops.pop();
        assert!(block_on(listeners.failure()).to_string().contains("ended"));

        let mut listeners = OpenListeners::new();
        let loops: Vec<_> = (0..2).map(|_| listeners.add(&socket)).collect();
        let failure = listeners.failure();
        drop(listeners);
        drop(loops);
        assert!(block_on(poll_once(failure)).is_none());
    }
}
