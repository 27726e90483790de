//! EINTR: signals neither shorten nor lengthen a wait. In a process of its own, because signals are
//! the process's.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::signal::{SIGUSR2, Signals};

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    a_wait_with_a_limit_is_not_shortened_by_signals,
}

fn a_wait_with_a_limit_is_not_shortened_by_signals<B: Backend>() {
    let mut event_loop = B::event_loop();
    let limit = Duration::from_millis(30);
    let (ready, is_ready) = mpsc::channel();
    let watcher = thread::spawn(move || {
        B::block_on(async move {
            let mut signals = Signals::new(&[SIGUSR2]).unwrap();
            ready.send(()).unwrap();
            signals.recv().await.unwrap();
        });
    });
    is_ready.recv().unwrap();
    let sender = thread::spawn(move || {
        for _ in 0..10 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::USR2).unwrap();
            thread::yield_now();
        }
    });
    let start = Instant::now();
    event_loop.turn(Some(limit)).unwrap();
    assert!(start.elapsed() >= limit);
    sender.join().unwrap();
    watcher.join().unwrap();
}
