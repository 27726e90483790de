//! Whatever floods the thread, the other side has its step.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use wakeful::{LoopHandle, Priority};

use crate::{on_a_guest, soon};

const ROUNDS: usize = 100;

#[test]
fn a_flood_of_tokio_s_tasks_does_not_starve_the_loop() {
    on_a_guest(async {
        let flood: Vec<_> = (0..500)
            .map(|_| {
                tokio::spawn(async {
                    loop {
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let handle = LoopHandle::current();
        let posts = wakeful::task::spawn_blocking(move || {
            (0..ROUNDS).for_each(|_| handle.post_and_wait(|| ()).unwrap());
        });
        for _ in 0..ROUNDS {
            wakeful::task::yield_now().await;
        }
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut ours = wakeful::net::UnixStream::from_std(ours).unwrap();
        for _ in 0..ROUNDS {
            std::io::Write::write_all(&mut theirs, b"x").unwrap();
            assert_eq!(ours.read(&mut [0]).await.unwrap(), 1);
        }
        wakeful::time::sleep(std::time::Duration::from_millis(1)).await;
        posts.await.unwrap();
        assert!(flood.iter().all(|task| !task.is_finished()));
    });
}

/// Callbacks of a turn run before its tasks.
#[test]
fn a_callback_of_each_turn_that_uses_all_operations_of_tokio_does_not_starve_tasks() {
    fn takes(free: Rc<tokio::sync::Mutex<()>>, times: Rc<Cell<u64>>) {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while pin!(free.lock()).poll(&mut cx).is_ready() {
            times.set(times.get() + 1);
        }
        wakeful::run_next_turn(move || takes(free, times));
    }
    on_a_guest(async {
        let times = Rc::new(Cell::new(0));
        takes(Rc::default(), times.clone());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let task = wakeful::spawn(async move {
            for _ in 0..ROUNDS {
                sender.send(()).unwrap();
                receiver.recv().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        soon(task).await.unwrap();
        assert!(times.get() > ROUNDS as u64, "the callbacks go on, too");
    });
}

/// The last turn comes after Tokio's own loop.
#[test]
fn a_stop_ends_a_run_though_a_task_has_operations_of_tokio_that_never_wait() {
    let mut event_loop = wakeful::EventLoop::builder().tokio().build().unwrap();
    let takes = event_loop.spawn(async {
        let free = tokio::sync::Mutex::new(());
        loop {
            drop(free.lock().await);
        }
    });
    let handle = event_loop.handle();
    let stops = thread::spawn(move || handle.post_and_wait(move || LoopHandle::current().stop()));
    event_loop.run().unwrap();
    stops.join().unwrap().unwrap();
    assert!(!takes.is_finished());
}

#[test]
fn a_flood_of_the_loop_s_tasks_does_not_starve_tokio() {
    on_a_guest(async {
        let flood: Vec<_> = (0..500)
            .map(|_| {
                wakeful::spawn(async {
                    loop {
                        wakeful::task::yield_now().await;
                    }
                })
            })
            .collect();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buf = [0; 1];
            while let Ok(1) = stream.read(&mut buf).await {
                stream.write_all(&buf).await.unwrap();
            }
        });
        let client = tokio::spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
            for _ in 0..ROUNDS {
                stream.write_all(b"x").await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        });
        client.await.unwrap();
        server.await.unwrap();
        assert!(flood.iter().all(|task| !task.is_finished()));
    });
}

/// Never pending by itself: only the budget makes it give way.
async fn takes_without_end(taken: Rc<Cell<u64>>) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    loop {
        sender.send(()).unwrap();
        receiver.recv().await;
        taken.set(taken.get() + 1);
    }
}

#[test]
fn a_task_that_tokio_never_lets_wait_gives_way_to_the_others() {
    on_a_guest(async {
        let counts: Vec<_> = (0..3).map(|_| Rc::new(Cell::new(0))).collect();
        let greedy: Vec<_> = counts.iter().cloned().map(takes_without_end).collect();
        let _greedy: Vec<_> = greedy.into_iter().map(wakeful::spawn).collect();
        let handle = LoopHandle::current();
        let posts = wakeful::task::spawn_blocking(move || {
            (0..ROUNDS).for_each(|_| handle.post_and_wait(|| ()).unwrap());
        });
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
            wakeful::task::yield_now().await;
        }
        posts.await.unwrap();
        assert!(counts.iter().all(|count| count.get() > 0), "{counts:?}");
    });
}

#[test]
fn high_tasks_that_tokio_never_lets_wait_do_not_starve_normal_ones() {
    on_a_guest(async {
        let counts: Vec<_> = (0..3).map(|_| Rc::new(Cell::new(0))).collect();
        let greedy = |count: &Rc<Cell<u64>>| {
            wakeful::spawn_with(Priority::High, takes_without_end(count.clone()))
        };
        let _greedy: Vec<_> = counts.iter().map(greedy).collect();
        let handle = LoopHandle::current();
        let posts = wakeful::task::spawn_blocking(move || {
            (0..ROUNDS).for_each(|_| handle.post_and_wait(|| ()).unwrap());
        });
        let normal = wakeful::spawn(async {
            for _ in 0..ROUNDS {
                // An operation of Tokio, for which there has to be some budget.
                let (send, receive) = tokio::sync::oneshot::channel();
                send.send(()).unwrap();
                receive.await.unwrap();
                wakeful::task::yield_now().await;
            }
        });
        normal.await.unwrap();
        posts.await.unwrap();
        // A normal task that uses all operations of its turns leaves the others to high tasks.
        let _greedy_too = wakeful::spawn(takes_without_end(Rc::default()));
        let before: Vec<_> = counts.iter().map(|count| count.get()).collect();
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
        }
        assert!(counts.iter().zip(before).all(|(count, before)| count.get() > before));
    });
}

/// Tokio polls it, and not the loop: its budget is Tokio's.
#[test]
fn a_task_of_tokio_whose_operations_of_the_loop_are_always_ready_gives_way_to_the_others() {
    on_a_guest(async {
        let (mut ours, mut theirs) = wakeful::net::UnixStream::pair().unwrap();
        let socket = tokio::task::spawn_local(async move {
            loop {
                theirs.write_all(b"x").await.unwrap();
                ours.read_exact(&mut [0]).await.unwrap();
            }
        });
        let budget = tokio::spawn(async {
            loop {
                wakeful::task::consume_budget().await;
            }
        });
        let asked = tokio::spawn(async {
            loop {
                while wakeful::task::has_budget_remaining() {
                    wakeful::task::consume_budget().await;
                }
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
            wakeful::task::yield_now().await;
        }
        wakeful::time::sleep(std::time::Duration::from_millis(1)).await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        for task in [socket, budget, asked] {
            assert!(!task.is_finished());
            task.abort();
        }
    });
}

/// It polls again at once: an operation that is put off would be for ever.
#[test]
fn a_block_on_of_another_library_in_a_task_of_tokio_comes_to_its_end() {
    on_a_guest(async {
        let blocks = tokio::task::spawn_local(async {
            let (mut ours, mut theirs) = wakeful::net::UnixStream::pair().unwrap();
            for _ in 0..ROUNDS {
                futures_lite::future::block_on(async {
                    for _ in 0..ROUNDS {
                        theirs.write_all(b"x").await.unwrap();
                        ours.read_exact(&mut [0]).await.unwrap();
                    }
                });
            }
        });
        blocks.await.unwrap();
        // No budget applies there, nor Tokio's.
        let unconstrained = wakeful::task::unconstrained(async {
            for _ in 0..ROUNDS * ROUNDS {
                assert!(wakeful::task::has_budget_remaining());
                wakeful::task::consume_budget().await;
            }
        });
        let unconstrained = tokio::spawn(async {
            let mut unconstrained = Box::pin(unconstrained);
            std::future::poll_fn(|cx| Poll::Ready(unconstrained.as_mut().poll(cx))).await
        });
        assert!(unconstrained.await.unwrap().is_ready());
    });
}

#[test]
fn a_root_that_uses_all_of_tokio_s_budget_does_not_starve_the_loop_s_tasks() {
    let done = Rc::new(Cell::new(false));
    let task_s = done.clone();
    on_a_guest(async move {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        wakeful::spawn(async move {
            for _ in 0..ROUNDS {
                // An operation of Tokio, for which there has to be some budget.
                let (send, receive) = tokio::sync::oneshot::channel();
                send.send(()).unwrap();
                receive.await.unwrap();
                wakeful::task::yield_now().await;
            }
            task_s.set(true);
        })
        .detach();
        while !done.get() {
            sender.send(()).unwrap();
            receiver.recv().await;
        }
    });
}

#[test]
fn both_kinds_of_timers_fire_while_both_kinds_of_tasks_flood() {
    on_a_guest(async {
        let _ours = wakeful::spawn(async {
            loop {
                wakeful::task::yield_now().await;
            }
        });
        let tokio_s = tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..20 {
            wakeful::time::sleep(std::time::Duration::from_micros(100)).await;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let blocking = tokio::task::spawn_blocking(|| thread::current().id());
        assert_ne!(blocking.await.unwrap(), thread::current().id());
        tokio_s.abort();
    });
}
