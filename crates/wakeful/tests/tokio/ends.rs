//! The end of a loop that has a guest, and of a group of them.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use wakeful::{EventLoop, LoopGroup, LoopHandle};

use crate::background::LONG;
use crate::guest;

/// Counts its drops, and wants the runtime and, if it is a task's of the loop, the loop then.
struct Dropped {
    count: Arc<AtomicUsize>,
    wants_runtime: bool,
    wants_loop: bool,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        if self.wants_runtime {
            let _ = tokio::runtime::Handle::current();
        }
        if self.wants_loop {
            let _ = LoopHandle::current();
        }
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_left_is_dropped_within_the_runtime() {
    let count = Arc::new(AtomicUsize::new(0));
    let mut event_loop = guest();
    let dropped = |wants_loop| Dropped { count: count.clone(), wants_runtime: true, wants_loop };
    let (of_loop, of_tokio, local) = (dropped(true), dropped(false), dropped(false));
    let never_polled = dropped(true);
    event_loop
        .block_on(async move {
            wakeful::spawn(async move {
                let _held = of_loop;
                std::future::pending::<()>().await;
            })
            .detach();
            tokio::spawn(async move {
                let _held = of_tokio;
                std::future::pending::<()>().await;
            });
            tokio::task::spawn_local(async move {
                let _held = local;
                std::future::pending::<()>().await;
            });
            wakeful::task::yield_now().await;
            wakeful::time::sleep(Duration::from_millis(1)).await;
        })
        .unwrap();
    event_loop
        .spawn(async move {
            let _held = never_polled;
        })
        .detach();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    drop(event_loop);
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

#[test]
fn sockets_and_timers_of_tokio_that_outlive_the_loop_are_errors_and_no_hang() {
    let mut event_loop = guest();
    let (listener, sleep) = event_loop
        .block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            (listener, Box::pin(tokio::time::sleep(Duration::from_secs(3600))))
        })
        .unwrap();
    drop(event_loop);
    let accepted = wakeful::block_on(async { listener.accept().await.is_err() });
    assert!(accepted, "its runtime is gone");
    drop(sleep);
}

#[test]
fn blocking_work_is_not_waited_for() {
    let (end, ends) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    let mut event_loop = guest();
    event_loop
        .block_on(async move {
            tokio::task::spawn_blocking(move || {
                began.send(()).unwrap();
                let _ = ends.recv();
            });
        })
        .unwrap();
    begins.recv_timeout(LONG).unwrap();
    // Returns although the work continues.
    drop(event_loop);
    end.send(()).unwrap();
}

#[test]
fn a_shutdown_waits_for_the_loop_s_tasks_that_wait_for_tokio_s() {
    let group = LoopGroup::builder().loops(2).tokio().build().unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    for handle in group.handles() {
        let done = done.clone();
        let task = handle.spawn(move || async move {
            let of_tokio = tokio::spawn(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
            });
            of_tokio.await.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
        });
        task.unwrap().detach();
    }
    group.shutdown(LONG).unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 2);
}

/// Echoes one connection after the other, on a thread of its own.
fn echo_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut reads, mut writes) = (&stream, &stream);
        let _ = std::io::copy(&mut reads, &mut writes);
    });
    addr
}

type Request = (u8, oneshot::Sender<u8>);

/// A client as connection pools are: a task of Tokio owns the socket, and requests come by a
/// channel from any thread.
fn client(addr: std::net::SocketAddr) -> tokio::sync::mpsc::UnboundedSender<Request> {
    let (requests, mut in_task) = tokio::sync::mpsc::unbounded_channel::<Request>();
    tokio::spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        while let Some((byte, answer)) = in_task.recv().await {
            stream.write_all(&[byte]).await.unwrap();
            let mut buf = [0];
            stream.read_exact(&mut buf).await.unwrap();
            let _ = answer.send(buf[0]);
        }
    });
    requests
}

#[test]
fn a_client_that_four_loops_share_works_until_the_last_of_them_has_ended() {
    const LOOPS: usize = 4;
    let group = LoopGroup::builder().loops(LOOPS).tokio().build().unwrap();
    let addr = echo_server();
    let requests = group.handles()[0].post_and_wait(move || client(addr)).unwrap();
    let tasks: Vec<_> = group
        .handles()
        .iter()
        .map(|handle| {
            let requests = requests.clone();
            let task = handle.spawn(move || async move {
                for byte in 0..100 {
                    let (answer, answered) = oneshot::channel();
                    requests.send((byte, answer)).unwrap();
                    assert_eq!(answered.await.unwrap(), byte);
                }
            });
            task.unwrap()
        })
        .collect();
    wakeful::block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    // The last loop does not come back from a closure, which uses the client when the client's own
    // loop has ended.
    struct TellsEnd(mpsc::Sender<()>);
    impl Drop for TellsEnd {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (ended, has_ended) = mpsc::channel();
    let tells_end = TellsEnd(ended);
    let waits = group.handles()[0].spawn(move || async move {
        let _tells_end = tells_end;
        std::future::pending::<()>().await;
    });
    waits.unwrap().detach();
    let (answered, is_answered) = mpsc::channel();
    let (began, begins) = mpsc::channel();
    group.handles()[LOOPS - 1]
        .post(move || {
            began.send(()).unwrap();
            has_ended.recv_timeout(LONG).unwrap();
            let (answer, waits) = oneshot::channel();
            requests.send((7, answer)).unwrap();
            let _ = answered.send(futures_lite::future::block_on(waits));
        })
        .unwrap();
    begins.recv_timeout(LONG).unwrap();
    group.shutdown(Duration::ZERO).unwrap();
    assert_eq!(is_answered.recv_timeout(LONG).unwrap().unwrap(), 7);
}

#[test]
fn loops_that_have_ended_do_not_wait_for_ever_for_one_that_has_not() {
    let group = LoopGroup::builder().loops(2).tokio().build().unwrap();
    let (end, ends) = mpsc::channel::<()>();
    let (began, begins) = mpsc::channel();
    group.handles()[1]
        .post(move || {
            began.send(()).unwrap();
            let _ = ends.recv();
        })
        .unwrap();
    begins.recv_timeout(LONG).unwrap();
    let error = group.shutdown(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("wakeful-1") && !error.contains("wakeful-0"), "{error}");
    end.send(()).unwrap();
}

/// The loops' guests continue for a while after the loops.
#[test]
fn at_the_end_of_a_group_tokio_s_tasks_that_wait_for_the_loop_s_timers_do_not_panic() {
    /// Tells whether it was dropped by a panic.
    struct TellsHow(mpsc::Sender<bool>);
    impl Drop for TellsHow {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::panicking());
        }
    }
    let group = LoopGroup::builder().loops(2).tokio().build().unwrap();
    let (tell, dropped) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    for handle in group.handles() {
        let (tell, begin) = (tell.clone(), begin.clone());
        let wait = move || {
            let (by_sleep, begins) = (TellsHow(tell.clone()), begin.clone());
            tokio::spawn(async move {
                let _dropped = by_sleep;
                begins.send(()).unwrap();
                wakeful::time::sleep(LONG).await;
            });
            let by_timeout = TellsHow(tell);
            tokio::spawn(async move {
                let _dropped = by_timeout;
                begin.send(()).unwrap();
                let _ = wakeful::time::timeout(LONG, std::future::pending::<()>()).await;
            });
        };
        handle.post_and_wait(wait).unwrap();
    }
    (0..4).for_each(|_| begun.recv_timeout(LONG).unwrap());
    drop(tell);
    group.shutdown(Duration::ZERO).unwrap();
    assert_eq!(dropped.iter().collect::<Vec<_>>(), [false; 4]);
}

thread_local! {
    static DEED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

struct DoesIt;

impl Drop for DoesIt {
    fn drop(&mut self) {
        if let Some(deed) = DEED.take() {
            deed();
        }
    }
}

/// Calls `deed` in the drop of a future that Tokio refuses. Tokio has its own context locked then,
/// and panics if a runtime is entered or dropped.
fn where_tokio_is_locked(deed: impl FnOnce() + 'static) {
    DEED.set(Some(Box::new(deed)));
    let refused = catch_unwind(|| {
        let does = DoesIt;
        tokio::spawn(async move {
            let _does = does;
        })
    });
    assert!(refused.is_err(), "there is no runtime");
    assert!(DEED.take().is_none());
}

#[test]
fn a_loop_may_end_in_the_drop_of_a_future_that_tokio_refuses() {
    let beside = tokio::runtime::Runtime::new().unwrap();
    let with_beside = EventLoop::builder().tokio_handle(beside.handle().clone()).build().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    for event_loop in [guest(), with_beside] {
        let held = Dropped { count: count.clone(), wants_runtime: false, wants_loop: true };
        event_loop
            .spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            })
            .detach();
        where_tokio_is_locked(|| drop(event_loop));
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // The thread is as before.
    guest().block_on(async { tokio::spawn(async {}).await.unwrap() }).unwrap();
}

#[test]
fn a_loop_cannot_be_built_in_the_drop_of_a_future_that_tokio_refuses() {
    where_tokio_is_locked(|| {
        let error = EventLoop::builder().tokio().build().unwrap_err();
        assert!(error.to_string().contains("Tokio cannot be entered here"), "{error}");
    });
}
