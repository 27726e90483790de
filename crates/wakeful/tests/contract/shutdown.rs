//! How a group ends: what its shutdown waits for, what it drops, what it leaves behind. What is
//! observed is drops and answers, not time.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wakeful::task::yield_now;
use wakeful::time::sleep;
use wakeful::{LoopGroup, spawn};

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::LONG;

on_every_backend! {
    shutdown_also_waits_for_what_the_last_task_spawned,
    shutdown_drops_a_task_that_never_ends,
    a_loop_that_a_task_blocks_is_reported_and_left_behind,
    a_loop_that_is_still_dropping_its_tasks_is_not_called_blocked,
    the_end_of_a_loop_costs_the_same_for_each_of_its_tasks,
    dropping_a_group_ends_its_tasks_and_threads,
    a_group_may_be_dropped_on_one_of_its_own_loops,
    shutdown_also_waits_for_what_a_task_spawned_on_a_loop_that_was_idle,
}

fn group<B: Backend>(loops: usize) -> LoopGroup {
    B::group().loops(loops).build().unwrap()
}

/// Between its making and its first poll a task is nobody's but the ready list's.
fn shutdown_also_waits_for_what_the_last_task_spawned<B: Backend>() {
    fn link(left: u32, done: Arc<AtomicBool>) {
        spawn(async move {
            match left {
                0 => done.store(true, Ordering::Relaxed),
                left => link(left - 1, done),
            }
        })
        .detach();
    }
    for _ in 0..10 {
        let (group, done) = (group::<B>(1), Arc::new(AtomicBool::new(false)));
        let last = done.clone();
        group.handles()[0].post(move || link(5_000, last)).unwrap();
        group.shutdown(LONG).unwrap();
        assert!(done.load(Ordering::Relaxed));
    }
}

fn shutdown_drops_a_task_that_never_ends<B: Backend>() {
    let group = group::<B>(2);
    let (held, is_dropped) = mpsc::channel::<()>();
    for handle in group.handles() {
        let held = held.clone();
        let endless = handle.spawn(move || async move {
            let _held = held;
            pending::<()>().await;
        });
        endless.unwrap().detach();
        let busy = handle.spawn(|| async {
            loop {
                yield_now().await;
            }
        });
        busy.unwrap().detach();
    }
    drop(held);
    let (grace, start) = (Duration::from_millis(20), Instant::now());
    group.shutdown(grace).unwrap();
    assert!(start.elapsed() >= grace);
    assert_eq!(is_dropped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

fn a_loop_that_a_task_blocks_is_reported_and_left_behind<B: Backend>() {
    let group = group::<B>(2);
    let (release, released) = mpsc::channel::<()>();
    let (entered, is_entered) = mpsc::channel();
    group.handles()[1]
        .post(move || {
            entered.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    is_entered.recv().unwrap();
    let error = group.shutdown(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("wakeful-1 is blocked"), "{error}");
    assert!(!error.contains("wakeful-0"), "{error}");
    drop(release);
}

fn a_loop_that_is_still_dropping_its_tasks_is_not_called_blocked<B: Backend>() {
    struct DropsLate(mpsc::Receiver<()>);
    impl Drop for DropsLate {
        fn drop(&mut self) {
            let _ = self.0.recv_timeout(LONG);
        }
    }
    let group = group::<B>(2);
    let (release, released) = mpsc::channel();
    let (polled, is_polled) = mpsc::channel();
    let task = group.handles()[1].spawn(move || async move {
        let _late = DropsLate(released);
        polled.send(()).unwrap();
        pending::<()>().await;
    });
    task.unwrap().detach();
    is_polled.recv().unwrap();
    let error = group.shutdown(Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("wakeful-1 has stopped and is still dropping"), "{error}");
    assert!(!error.contains("blocked") && !error.contains("wakeful-0"), "{error}");
    drop(release);
}

/// Compared with what spawning the same tasks costs, in CPU time of this thread. A look at all
/// places for each task costs hundreds of times as much.
fn the_end_of_a_loop_costs_the_same_for_each_of_its_tasks<B: Backend>() {
    const TASKS: usize = 40_000;
    let cpu_time = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(now).expect("a thread's time is not negative")
    };
    let mut event_loop = B::event_loop();
    let begin = cpu_time();
    (0..TASKS).for_each(|_| event_loop.spawn(pending::<()>()).detach());
    while event_loop.handle().metrics().polls < TASKS as u64 {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    let spawned = cpu_time();
    drop(event_loop);
    let (spawning, ending) = (spawned - begin, cpu_time() - spawned);
    assert!(ending < 10 * spawning, "spawning took {spawning:?}, and the end {ending:?}");
}

fn dropping_a_group_ends_its_tasks_and_threads<B: Backend>() {
    let group = group::<B>(2);
    let handles = group.handles().to_vec();
    let task = handles[0].spawn(pending::<()>).unwrap();
    drop(group);
    assert!(B::block_on(task).unwrap_err().is_cancelled());
    assert!(handles.iter().all(|handle| handle.post(|| ()).is_err()));
}

fn a_group_may_be_dropped_on_one_of_its_own_loops<B: Backend>() {
    let group = group::<B>(2);
    let handles = group.handles().to_vec();
    let task = handles[1].spawn(pending::<()>).unwrap();
    let dropped = handles[0].spawn(move || async move { drop(group) }).unwrap();
    B::block_on(async {
        dropped.await.expect("no panic");
        assert!(task.await.unwrap_err().is_cancelled());
    });
    // Its own loop ends with its turn.
    while handles[0].post(|| ()).is_ok() {
        std::thread::yield_now();
    }
}

fn shutdown_also_waits_for_what_a_task_spawned_on_a_loop_that_was_idle<B: Backend>() {
    let (group, done) = (group::<B>(2), Arc::new(AtomicBool::new(false)));
    let (first, mark) = (group.handles()[0].clone(), done.clone());
    let pause = Duration::from_millis(10);
    let task = group.handles()[1].spawn(move || async move {
        sleep(pause).await;
        let handed_over = first.spawn(move || async move {
            sleep(pause).await;
            mark.store(true, Ordering::Relaxed);
        });
        handed_over.unwrap().detach();
    });
    task.unwrap().detach();
    group.shutdown(LONG).unwrap();
    assert!(done.load(Ordering::Relaxed));
}
