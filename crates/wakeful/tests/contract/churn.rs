//! Tasks, wakers, handles, timers and sockets in a random mixture, from a printed seed: whatever
//! the interleaving, each future is dropped once, on its loop's thread, and each handle gets an
//! answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use wakeful::JoinHandle;
use wakeful::net::{TcpListener, TcpStream};

use crate::backend::{Backend, localhost};

on_every_backend! {
    every_future_is_dropped_once_at_home_and_every_handle_answered,
    no_byte_is_lost_or_repeated,
}

/// xorshift64*: enough to mix the schedule, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

#[derive(Default)]
struct Ledger {
    made: AtomicUsize,
    dropped: AtomicUsize,
    dropped_elsewhere: AtomicUsize,
    /// Wakers that outlive their polls, fired by other threads at any time.
    wakers: Mutex<Vec<Waker>>,
}

/// A future that gives its waker away and is ready after some polls; its drop is recorded.
struct Restless {
    ledger: Arc<Ledger>,
    home: ThreadId,
    polls_left: u64,
}

impl Restless {
    fn new(ledger: Arc<Ledger>, polls: u64) -> Self {
        ledger.made.fetch_add(1, Ordering::Relaxed);
        Self { ledger, home: thread::current().id(), polls_left: polls }
    }
}

impl Future for Restless {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u64> {
        assert_eq!(self.home, thread::current().id());
        if self.polls_left == 0 {
            return Poll::Ready(7);
        }
        self.polls_left -= 1;
        self.ledger.wakers.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.ledger.dropped.fetch_add(1, Ordering::Relaxed);
        if self.home != thread::current().id() {
            self.ledger.dropped_elsewhere.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn churn<B: Backend>(seed: u64) {
    println!("seed {seed}");
    let ledger = Arc::new(Ledger::default());
    let group = B::group().loops(2).build().unwrap();
    let (handles, joins): (_, mpsc::Receiver<JoinHandle<u64>>) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..4 {
            let (ledger, handles, loops) = (ledger.clone(), handles.clone(), group.handles());
            let mut random = Random(seed * 4 + number + 1);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    match random.below(10) {
                        0..=3 => {
                            let (ledger, polls) = (ledger.clone(), random.below(5));
                            let target = &loops[random.below(2) as usize];
                            let task = target.spawn(move || Restless::new(ledger, polls));
                            let task = task.unwrap();
                            match random.below(4) {
                                0 => task.detach(),
                                1 => task.abort(),
                                _ => handles.send(task).unwrap(),
                            }
                        }
                        4..=7 => {
                            let waker = {
                                let mut wakers = ledger.wakers.lock().unwrap();
                                let count = wakers.len() as u64;
                                if count == 0 {
                                    continue;
                                }
                                wakers.swap_remove(random.below(count) as usize)
                            };
                            match random.below(3) {
                                0 => drop(waker),
                                1 => waker.wake_by_ref(),
                                _ => waker.wake(),
                            }
                        }
                        8 => loops[random.below(2) as usize].wake(),
                        _ => {
                            let sum = loops[random.below(2) as usize].post_and_wait(|| 40 + 2);
                            assert_eq!(sum.unwrap(), 42);
                        }
                    }
                }
            });
        }
    });
    drop(handles);
    let joins: Vec<_> = joins.into_iter().collect();
    // Some tasks wait for wakers that nobody will fire: the loops' end answers for them.
    group.shutdown(Duration::ZERO).unwrap();
    B::block_on(async {
        for join in joins {
            match join.await {
                Ok(value) => assert_eq!(value, 7),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
    });
    // Fired after the loops' end, on a foreign thread.
    for waker in ledger.wakers.lock().unwrap().drain(..) {
        waker.wake();
    }
    assert_eq!(ledger.made.load(Ordering::Relaxed), ledger.dropped.load(Ordering::Relaxed));
    assert_eq!(ledger.dropped_elsewhere.load(Ordering::Relaxed), 0);
}

fn every_future_is_dropped_once_at_home_and_every_handle_answered<B: Backend>() {
    (1..=5).for_each(churn::<B>);
}

/// Bytes of many connections, in random pieces, read in random pieces.
fn no_byte_is_lost_or_repeated<B: Backend>() {
    B::block_on(async {
        const CONNECTIONS: u64 = 50;
        const BYTES: usize = 200_000;
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = wakeful::spawn(async move {
            for number in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().await.unwrap();
                wakeful::spawn(async move {
                    let mut random = Random(number + 1);
                    let mut buf = vec![0; 9_000];
                    loop {
                        let room = 1 + random.below(8_999) as usize;
                        match stream.read(&mut buf[..room]).await.unwrap() {
                            0 => break,
                            read => stream.write_all(&buf[..read]).await.unwrap(),
                        }
                        if random.below(8) == 0 {
                            wakeful::time::sleep(Duration::from_micros(random.below(200))).await;
                        }
                    }
                })
                .detach();
            }
        });
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                wakeful::spawn(async move {
                    let stream = TcpStream::connect(addr).await.unwrap();
                    let (mut read, mut write) = stream.into_split();
                    let byte = move |at: usize| (at as u64 * 31 + number) as u8;
                    let writer = wakeful::spawn(async move {
                        let mut random = Random(number + 77);
                        let mut at = 0;
                        while at < BYTES {
                            let piece = (1 + random.below(10_000) as usize).min(BYTES - at);
                            let bytes: Vec<_> = (at..at + piece).map(byte).collect();
                            write.write_all(&bytes).await.unwrap();
                            at += piece;
                        }
                    });
                    let (mut at, mut buf) = (0, vec![0; 4_096]);
                    loop {
                        let read = read.read(&mut buf).await.unwrap();
                        if read == 0 {
                            break;
                        }
                        assert!(buf[..read].iter().enumerate().all(|(i, b)| *b == byte(at + i)));
                        at += read;
                    }
                    writer.await.unwrap();
                    assert_eq!(at, BYTES);
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
}
