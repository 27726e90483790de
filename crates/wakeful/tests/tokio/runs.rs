//! What needs Tokio works in the loop's tasks, and what needs a loop works in Tokio's.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wakeful::net::{TcpListener, TcpStream};
use wakeful::{EventLoop, LoopHandle};

use crate::background::LONG;
use crate::{guest, on_a_guest, soon};

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn what_needs_a_runtime_works_in_a_task_and_in_the_root_on_the_same_thread() {
    let here = thread::current().id();
    let test = move || async move {
        let spawned = tokio::spawn(async { thread::current().id() });
        assert_eq!(spawned.await.unwrap(), here);
        let not_send = Rc::new(here);
        assert_eq!(tokio::task::spawn_local(async move { *not_send }).await.unwrap(), here);
        let start = Instant::now();
        tokio::time::sleep(SHORT).await;
        assert!(start.elapsed() >= SHORT);
        let never = std::future::pending::<()>();
        assert!(tokio::time::timeout(SHORT, never).await.is_err());
        let blocking = tokio::task::spawn_blocking(|| thread::current().id());
        assert_ne!(blocking.await.unwrap(), here);
        tokio::task::yield_now().await;
    };
    on_a_guest(async move {
        test().await;
        wakeful::spawn(test()).await.unwrap();
    });
}

#[test]
fn what_needs_a_loop_works_in_a_task_of_tokio() {
    on_a_guest(async {
        let task = tokio::task::spawn_local(async {
            let start = Instant::now();
            wakeful::time::sleep(SHORT).await;
            assert!(start.elapsed() >= SHORT);
            assert_eq!(wakeful::spawn(async { 1 }).await.unwrap(), 1);
            let (ran, waker) = (Rc::new(Cell::new(0)), Rc::new(tokio::sync::Notify::new()));
            let (of_turn, notify) = (ran.clone(), waker.clone());
            wakeful::run_next_turn(move || {
                of_turn.set(2);
                notify.notify_one();
            });
            waker.notified().await;
            assert_eq!(ran.get(), 2);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let (client, server) =
                futures_lite::future::zip(TcpStream::connect(addr), listener.accept()).await;
            let (mut client, (mut server, _)) = (client.unwrap(), server.unwrap());
            client.write_all(b"echo").await.unwrap();
            let mut buf = [0; 4];
            assert_eq!(server.read(&mut buf).await.unwrap(), 4);
            wakeful::task::spawn_blocking(|| ()).await.unwrap();
            wakeful::task::yield_now().await;
        });
        task.await.unwrap();
    });
}

#[test]
fn sockets_of_both_talk_to_each_other() {
    const ROUNDS: usize = 200;
    on_a_guest(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buf = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..read]).await.unwrap();
            }
        });
        let client = wakeful::spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            for round in 0..ROUNDS {
                let sent = round.to_le_bytes();
                stream.write_all(&sent).await.unwrap();
                let mut got = [0; 8];
                let mut filled = 0;
                while filled < got.len() {
                    filled += stream.read(&mut got[filled..]).await.unwrap();
                }
                assert_eq!(got, sent);
            }
        });
        client.await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn tokio_s_select_takes_futures_of_both() {
    on_a_guest(async {
        let (sender, receiver) = tokio::sync::oneshot::channel::<u8>();
        let never = wakeful::spawn(std::future::pending::<()>());
        let sends = wakeful::spawn(async move {
            wakeful::time::sleep(SHORT).await;
            sender.send(7).unwrap();
        });
        let got = tokio::select! {
            _ = never => unreachable!(),
            () = tokio::time::sleep(Duration::from_secs(3600)) => unreachable!(),
            got = receiver => got.unwrap(),
        };
        assert_eq!(got, 7);
        sends.await.unwrap();
        tokio::select! {
            () = wakeful::time::sleep(Duration::from_secs(3600)) => unreachable!(),
            () = tokio::time::sleep(SHORT) => {}
        }
    });
}

#[test]
fn tasks_of_both_go_on_in_the_next_run() {
    let mut event_loop = guest();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    event_loop
        .block_on(async {
            let own = sender.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    tokio::task::yield_now().await;
                    if own.send(number).is_err() {
                        break;
                    }
                }
            });
            wakeful::spawn(async move {
                while sender.send(u64::MAX).is_ok() {
                    wakeful::task::yield_now().await;
                }
            })
            .detach();
        })
        .unwrap();
    for _ in 0..2 {
        let both = soon(async {
            let (mut of_tokio, mut of_loop) = (0, 0);
            while of_tokio < 10 || of_loop < 10 {
                match receiver.recv().await {
                    Some(u64::MAX) => of_loop += 1,
                    Some(_) => of_tokio += 1,
                    None => panic!("they have ended"),
                }
            }
        });
        event_loop.block_on(both).unwrap();
    }
}

/// Within Tokio, a run of a loop is one poll. Tokio would let 128 operations succeed in it, and
/// would wake what waits then only after the run.
#[test]
fn a_loop_without_a_guest_that_a_task_of_tokio_runs_has_no_budget_of_tokio_s() {
    async fn receives() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..1_000 {
            sender.send(number).unwrap();
            assert_eq!(receiver.recv().await, Some(number));
        }
    }
    fn runs() {
        wakeful::block_on(async {
            receives().await;
            wakeful::spawn(receives()).await.unwrap();
        });
        let mut event_loop = EventLoop::new().unwrap();
        let handle = event_loop.handle();
        let task = event_loop.spawn(async move {
            receives().await;
            handle.stop();
        });
        event_loop.run().unwrap();
        assert!(task.is_finished());
    }
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { runs() });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async { runs() });
        runtime.block_on(runtime.spawn(async { runs() })).unwrap();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LONG).expect("a run has come to its end");
}

/// Tokio wakes a task that yields to it only when its own loop goes on.
#[test]
fn what_yields_to_tokio_in_the_last_turn_of_a_run_goes_on_in_the_next_one() {
    let mut event_loop = guest();
    let free = Rc::new(tokio::sync::Mutex::new(()));
    let yields = event_loop.spawn(async {
        LoopHandle::current().stop();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    });
    let takes = event_loop.spawn(async move {
        for _ in 0..1_000 {
            drop(free.lock().await);
        }
    });
    event_loop.run().unwrap();
    event_loop.block_on(soon(yields)).unwrap().unwrap();
    event_loop.block_on(soon(takes)).unwrap().unwrap();
}

#[test]
fn run_ends_by_stop_and_runs_what_was_sent_before() {
    let mut event_loop = guest();
    let handle = event_loop.handle();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        for number in 0..10 {
            let sender = sender.clone();
            handle
                .post(move || {
                    tokio::runtime::Handle::current();
                    sender.send(number).unwrap();
                })
                .unwrap();
        }
        handle.stop();
    });
    event_loop.run().unwrap();
    thread.join().unwrap();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
}

#[wakeful::main(tokio)]
async fn by_the_attribute() -> u32 {
    tokio::spawn(async { 42 }).await.unwrap()
}

#[test]
fn main_takes_tokio_as_an_argument() {
    assert_eq!(by_the_attribute(), 42);
}

#[wakeful::test(tokio)]
async fn test_takes_tokio_as_an_argument() {
    tokio::time::sleep(Duration::from_micros(1)).await;
    wakeful::task::yield_now().await;
}
