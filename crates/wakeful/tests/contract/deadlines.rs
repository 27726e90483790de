//! A deadline strikes only after what had arrived before it was read, also after a pause of the
//! process.
//!
//! A pause is made by code that blocks the thread: between the loop's question to the kernel and
//! its look at the timers (a waker that blocks), within a poll, and in a turn after which more is
//! ready than the loop fetches at once. `wakeful-http/tests/stopped.rs` stops whole processes.

use std::cell::RefCell;
use std::future::Future;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::net::UnixStream;
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::{Deadline, seen_until, timeout, timeout_at};

use crate::backend::Backend;
use crate::background::LONG;

on_every_backend! {
    a_pause_between_the_kernel_and_the_timers_loses_nothing,
    a_pause_within_a_poll_loses_nothing,
    a_pause_loses_nothing_though_more_is_ready_than_is_fetched_at_once,
    a_deadline_strikes_where_nothing_arrives,
}

/// Long enough to be set before it passes.
const LIMIT: Duration = Duration::from_millis(30);

fn pair() -> (StdUnixStream, UnixStream) {
    let (write, read) = StdUnixStream::pair().unwrap();
    (write, UnixStream::from_std(read).unwrap())
}

fn sleep_until(end: Instant) {
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::sleep(left + Duration::from_millis(1));
    }
}

/// When it is woken, bytes arrive and time passes.
struct Pause {
    end: Instant,
    peer: StdUnixStream,
}

impl Wake for Pause {
    fn wake(self: Arc<Self>) {
        (&self.peer).write_all(b"x").unwrap();
        sleep_until(self.end);
    }
}

fn a_pause_between_the_kernel_and_the_timers_loses_nothing<B: Backend>() {
    B::block_on(async {
        let (peer, mut stream) = pair();
        let end = Instant::now() + LIMIT;
        let reader = spawn(async move { timeout_at(end, stream.read(&mut [0; 8])).await });
        let (trigger, mut first) = pair();
        let mut buf = [0; 8];
        let mut read = pin!(first.read(&mut buf));
        let waker = Waker::from(Arc::new(Pause { end, peer }));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // The reader waits as well.
        yield_now().await;
        (&trigger).write_all(b"x").unwrap();
        let read = timeout(LONG, reader).await.expect("it ends").unwrap();
        assert!(matches!(read, Ok(Ok(1))), "the byte came before the deadline: {read:?}");
    });
}

fn a_pause_within_a_poll_loses_nothing<B: Backend>() {
    B::block_on(async {
        let (peer, mut stream) = pair();
        let mut buf = [0; 8];
        let end = Instant::now() + LIMIT;
        let mut read = pin!(timeout_at(end, stream.read(&mut buf)));
        let polled = std::future::poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        let read = std::future::poll_fn(|cx| {
            if Instant::now() < end {
                (&peer).write_all(b"x").unwrap();
                sleep_until(end);
            }
            read.as_mut().poll(cx)
        });
        assert!(matches!(read.await, Ok(Ok(1))));
    });
}

fn a_pause_loses_nothing_though_more_is_ready_than_is_fetched_at_once<B: Backend>() {
    const SOCKETS: usize = 40;
    let mut event_loop = B::builder().io_batch(2).build().unwrap();
    let readers = event_loop
        .block_on(async {
            let end = Instant::now() + LIMIT;
            let peers = RefCell::new(Vec::new());
            let readers: Vec<_> = (0..SOCKETS)
                .map(|_| {
                    let (peer, mut stream) = pair();
                    peers.borrow_mut().push(peer);
                    spawn(async move { timeout_at(end, stream.read(&mut [0; 8])).await })
                })
                .collect();
            // All of them wait, and the kernel's first edges are over.
            for _ in 0..SOCKETS {
                yield_now().await;
            }
            peers.borrow().iter().for_each(|mut peer| peer.write_all(b"x").unwrap());
            sleep_until(end);
            let mut late = 0;
            for reader in readers {
                late += usize::from(reader.await.unwrap().is_err());
            }
            late
        })
        .unwrap();
    assert_eq!(readers, 0, "given up though the byte was there");
}

fn a_deadline_strikes_where_nothing_arrives<B: Backend>() {
    B::block_on(async {
        let (_peer, mut stream) = pair();
        assert!(timeout(Duration::ZERO, stream.read(&mut [0; 8])).await.is_err());
        assert!(timeout(Duration::from_micros(100), stream.read(&mut [0; 8])).await.is_err());
        let end = Instant::now() + Duration::from_millis(1);
        let mut deadline = pin!(Deadline::at(end));
        deadline.as_mut().await;
        assert!(seen_until() >= end);
        assert!(seen_until() <= Instant::now());
        // It can be used again.
        let later = Instant::now() + Duration::from_millis(1);
        deadline.reset(later);
        timeout(LONG, deadline).await.expect("it strikes");
        assert!(Instant::now() >= later);
    });
}
