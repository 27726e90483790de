//! Handlers of `pthread_atfork(3)` that the program has registered before wakeful has, so that they
//! run while wakeful has made itself ready for the fork. Alone in its process, because handlers
//! stay registered.

#![allow(unsafe_code)] // `fork`, its handlers, and how a child ends.

use std::cell::{Cell, RefCell};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use wakeful::EventLoop;
use wakeful::accept::SharedListener;
use wakeful::signal::Signals;

/// Reached only by what waits for itself.
const LONG: Duration = Duration::from_secs(30);

thread_local! {
    static PREPARE: Cell<Option<fn(&mut Used)>> = const { Cell::new(None) };
    static PARENT: Cell<Option<fn(&mut Used)>> = const { Cell::new(None) };
    static USED: RefCell<Option<Used>> = const { RefCell::new(None) };
}

/// What the handlers use.
struct Used {
    event_loop: EventLoop,
    signals: Option<Signals>,
    listener: Option<SharedListener>,
}

impl Used {
    fn watch(&mut self) {
        let watch = async { Signals::new(&[libc::SIGUSR1]).unwrap() };
        self.signals = Some(self.event_loop.block_on(watch).unwrap());
    }

    fn unwatch(&mut self) {
        assert!(self.signals.take().is_some());
    }

    fn bind(&mut self) {
        self.listener = Some(SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap());
    }
}

extern "C" fn prepare() {
    run(PREPARE.take());
}

extern "C" fn parent() {
    run(PARENT.take());
}

fn run(handler: Option<fn(&mut Used)>) {
    if let Some(handler) = handler {
        USED.with_borrow_mut(|used| handler(used.as_mut().unwrap()));
    }
}

/// Forks with these handlers on a thread of its own.
fn fork_with(prepare_by: fn(&mut Used), parent_by: fn(&mut Used)) {
    static REGISTERED: Once = Once::new();
    // SAFETY: the handlers run on the thread that forks, and do not unwind unless the test fails.
    REGISTERED.call_once(|| unsafe {
        assert_eq!(libc::pthread_atfork(Some(prepare), Some(parent), None), 0);
    });
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let event_loop = EventLoop::new().unwrap();
        let mut used = Used { event_loop, signals: None, listener: None };
        used.watch();
        USED.set(Some(used));
        PREPARE.set(Some(prepare_by));
        PARENT.set(Some(parent_by));
        // SAFETY: the child does nothing but end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        // All of it can still be used.
        let mut used = USED.take().unwrap();
        used.signals = None;
        used.watch();
        used.unwatch();
        used.bind();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).expect("the fork waits for itself, or failed");
}

#[test]
fn handlers_may_begin_and_end_to_watch_for_signals() {
    fork_with(Used::unwatch, Used::watch);
    fork_with(Used::watch, Used::unwatch);
}

#[test]
fn handlers_may_bind_listeners() {
    fork_with(Used::bind, Used::bind);
}
