//! No late wake beside a far timer: from Tokio's tasks to the loop, the other way, and from other
//! threads to both. Each test would wait for [`soon`](crate::soon)'s timer if a wake was lost.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use wakeful::LoopHandle;

use crate::on_a_guest;

const HOUR: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 300;

/// Lets Tokio sleep once, so that what comes next finds the loop asleep.
async fn tokio_has_slept() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[test]
fn what_a_task_of_tokio_makes_runnable_runs_without_a_ring() {
    on_a_guest(async {
        let _far = wakeful::spawn(wakeful::time::sleep(HOUR));
        let _far_too = tokio::spawn(tokio::time::sleep(HOUR));
        let handle = LoopHandle::current();
        let (to_task, mut in_task) = mpsc::unbounded_channel::<oneshot::Sender<usize>>();
        let waits = wakeful::spawn(async move {
            let mut number = 0;
            while let Some(answer) = in_task.recv().await {
                number += 1;
                answer.send(number).unwrap();
            }
        });
        let remote = handle.metrics().remote;
        let of_tokio = tokio::task::spawn_local(async move {
            for round in 1..=ROUNDS {
                tokio_has_slept().await;
                // A task that waits.
                let (answer, answered) = oneshot::channel();
                to_task.send(answer).unwrap();
                assert_eq!(answered.await.unwrap(), round);
                if round % 10 > 0 {
                    continue;
                }
                tokio_has_slept().await;
                // A task that is spawned, and a closure.
                assert_eq!(wakeful::spawn(async move { round }).await.unwrap(), round);
                let (answer, answered) = oneshot::channel();
                LoopHandle::current().post(move || answer.send(round).unwrap()).unwrap();
                assert_eq!(answered.await.unwrap(), round);
                tokio_has_slept().await;
                // Callbacks, which have no node.
                let (answer, answered) = oneshot::channel();
                wakeful::run_next_turn(move || answer.send(round).unwrap());
                assert_eq!(answered.await.unwrap(), round);
                tokio_has_slept().await;
                let (answer, answered) = oneshot::channel();
                wakeful::run_this_turn(move || answer.send(round).unwrap());
                assert_eq!(answered.await.unwrap(), round);
            }
        });
        of_tokio.await.unwrap();
        assert_eq!(handle.metrics().remote, remote, "nothing went through the queue");
        waits.await.unwrap();
    });
}

#[test]
fn a_timer_that_a_task_of_tokio_sets_or_moves_is_not_late() {
    on_a_guest(async {
        let _far = wakeful::spawn(wakeful::time::sleep(HOUR));
        let of_tokio = tokio::task::spawn_local(async {
            for _ in 0..ROUNDS {
                tokio_has_slept().await;
                wakeful::time::sleep(Duration::from_micros(300)).await;
            }
            let mut moved = Box::pin(wakeful::time::sleep(HOUR));
            futures_lite::future::poll_once(&mut moved).await;
            tokio_has_slept().await;
            moved.reset(std::time::Instant::now() + Duration::from_millis(1));
            moved.await;
        });
        of_tokio.await.unwrap();
    });
}

#[test]
fn what_a_task_of_the_loop_makes_runnable_in_tokio_is_not_late() {
    on_a_guest(async {
        let (to_tokio, mut in_tokio) = mpsc::unbounded_channel::<oneshot::Sender<usize>>();
        let of_tokio = tokio::spawn(async move {
            let mut number = 0;
            while let Some(answer) = in_tokio.recv().await {
                number += 1;
                answer.send(number).unwrap();
            }
        });
        wakeful::spawn(async move {
            for round in 1..=ROUNDS {
                // By the loop's timer, so that Tokio has slept.
                wakeful::time::sleep(Duration::from_micros(300)).await;
                let (answer, answered) = oneshot::channel();
                to_tokio.send(answer).unwrap();
                assert_eq!(answered.await.unwrap(), round);
            }
        })
        .await
        .unwrap();
        of_tokio.await.unwrap();
    });
}

#[test]
fn what_other_threads_post_wake_and_send_is_not_late() {
    const THREADS: usize = 4;
    on_a_guest(async {
        let handle = LoopHandle::current();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (handle, sender) = (handle.clone(), sender.clone());
                thread::spawn(move || {
                    for round in 0..ROUNDS {
                        assert_eq!(handle.post_and_wait(move || round).unwrap(), round);
                        // A future that waits in the loop's root, and one of Tokio's.
                        sender.send(round).unwrap();
                        let answer = handle.spawn(move || async move {
                            tokio::spawn(async move { round }).await.unwrap()
                        });
                        let answer = futures_lite::future::block_on(answer.unwrap());
                        assert_eq!(answer.unwrap(), round);
                    }
                })
            })
            .collect();
        drop(sender);
        let mut received = 0;
        while receiver.recv().await.is_some() {
            received += 1;
        }
        assert_eq!(received, THREADS * ROUNDS);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn what_one_thread_sends_runs_in_its_order_also_from_tasks_of_tokio() {
    on_a_guest(async {
        let next = Rc::new(Cell::new(0));
        let handle = LoopHandle::current();
        let ran = next.clone();
        tokio::task::spawn_local(async move {
            for number in 0..ROUNDS {
                let ran = wakeful::LoopBound::new(ran.clone());
                handle
                    .post(move || {
                        let ran = ran.get().expect("it runs on its loop");
                        assert_eq!(ran.get(), number);
                        ran.set(number + 1);
                    })
                    .unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await
        .unwrap();
        while next.get() < ROUNDS {
            wakeful::task::yield_now().await;
        }
    });
}

#[test]
fn a_batch_that_leaves_something_over_is_fetched_to_its_end() {
    // Of edges that were reported, Tokio reports none again.
    const SOCKETS: usize = 40;
    let event_loop = wakeful::EventLoop::builder().io_batch(3).tokio().build();
    let test = crate::soon(async {
        let mut pairs = Vec::new();
        for _ in 0..SOCKETS {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let ours = wakeful::net::UnixStream::from_std(ours).unwrap();
            pairs.push((ours, theirs));
        }
        for round in 0..20 {
            tokio_has_slept().await;
            let reads: Vec<_> = pairs
                .drain(..)
                .map(|(mut ours, mut theirs)| {
                    std::io::Write::write_all(&mut theirs, &[round]).unwrap();
                    wakeful::spawn(async move {
                        let mut buf = [0];
                        assert_eq!(ours.read(&mut buf).await.unwrap(), 1);
                        assert_eq!(buf[0], round);
                        (ours, theirs)
                    })
                })
                .collect();
            for read in reads {
                pairs.push(read.await.unwrap());
            }
        }
    });
    event_loop.unwrap().block_on(test).unwrap();
}

#[test]
fn a_high_socket_is_heard_although_it_is_watched_level_triggered() {
    on_a_guest(async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut ours = wakeful::net::UnixStream::from_std(ours).unwrap();
        ours.set_priority(wakeful::Priority::High).unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            while let Ok(round) = gone.recv() {
                std::io::Write::write_all(&mut theirs, &[round]).unwrap();
            }
        });
        for round in 0..200 {
            go.send(round).unwrap();
            let mut buf = [0];
            assert_eq!(ours.read(&mut buf).await.unwrap(), 1);
            assert_eq!(buf[0], round);
            if round % 10 == 0 {
                tokio_has_slept().await;
            }
        }
        drop(go);
        thread.join().unwrap();
    });
}

/// A stop may come in the middle of a turn, which takes its wake along with others.
#[test]
fn a_stop_that_comes_in_any_moment_ends_the_run() {
    const RUNS: usize = 20_000;
    let (ended, has_ended) = std::sync::mpsc::channel();
    let (give, given) = std::sync::mpsc::channel();
    let runs = thread::spawn(move || {
        let mut event_loop = crate::guest();
        give.send(event_loop.handle()).unwrap();
        for _ in 0..RUNS {
            event_loop.run().unwrap();
            ended.send(()).unwrap();
        }
    });
    let handle = given.recv().unwrap();
    for run in 0..RUNS {
        // A turn is under way, for this one or for the one before.
        handle.wake();
        (0..run % 200 * 10).for_each(|_| std::hint::spin_loop());
        handle.stop();
        has_ended.recv_timeout(crate::background::LONG).expect("a stop was lost");
    }
    runs.join().unwrap();
}
