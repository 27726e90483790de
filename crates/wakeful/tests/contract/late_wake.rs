//! No late wake: the public case. With an idle registered descriptor and a timer far away, work
//! that a handler queues, and work posted after that, run within the same wake. Counted by parks,
//! not by the clock.

use std::cell::Cell;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wakeful::LoopHandle;
use wakeful::net::UnixStream;

use crate::backend::Backend;
use crate::backend::driven::{Driven, has_guest};

on_every_backend! {
    work_queued_by_a_post_runs_within_its_wake,
    a_local_task_woken_by_a_post_runs_within_its_wake,
    work_queued_from_an_io_handler_a_timer_and_a_drop_is_not_late,
    what_before_park_queues_prevents_the_park,
}

/// Runs a loop on a thread of its own, with an idle descriptor and a timer 5 s away, and gives
/// `scenario` its handle once it is about to park. The loop counts its parks between two moments of
/// `scenario`'s choice.
fn with_idle_loop<B: Backend>(scenario: impl FnOnce(&LoopHandle)) {
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = B::event_loop();
        let handle = event_loop.handle();
        let (_peer, idle) = StdUnixStream::pair().unwrap();
        let watch = event_loop.spawn(async move {
            let mut idle = UnixStream::from_std(idle).unwrap();
            let _ = idle.read(&mut [0; 1]).await;
        });
        let timer = event_loop.spawn(wakeful::time::sleep(Duration::from_secs(5)));
        let mut told = false;
        let hook = event_loop.before_park(move || {
            if !std::mem::replace(&mut told, true) {
                ready.send(handle.clone()).unwrap();
            }
        });
        event_loop.run().unwrap();
        assert!(!timer.is_finished() && !watch.is_finished());
        drop((hook, timer, watch));
    });
    let handle = is_ready.recv().unwrap();
    scenario(&handle);
    handle.stop();
    thread.join().unwrap();
}

/// How a post queues the closure as local work.
type Way = fn(Box<dyn FnOnce()>);

/// Post #1 calls `queue_local` with what marks the local work as done; post #2 follows. Returns the
/// parks that the loop took between post #1 and the moment when both were done.
fn parks_between(handle: &LoopHandle, queue_local: Way) -> u64 {
    let (done, is_done) = mpsc::channel();
    let (local_done, counted) = (done.clone(), handle.clone());
    handle
        .post(move || {
            let at_start = counted.metrics().parks;
            let counted = counted.clone();
            queue_local(Box::new(move || {
                local_done.send(counted.metrics().parks - at_start).unwrap();
            }));
        })
        .unwrap();
    let remote_done = done;
    handle.post(move || remote_done.send(0).unwrap()).unwrap();
    is_done.recv().unwrap().max(is_done.recv().unwrap())
}

fn work_queued_by_a_post_runs_within_its_wake<B: Backend>() {
    let ways: [(&str, Way); 5] = [
        ("a task", |f| wakeful::spawn(async move { f() }).detach()),
        ("a this-turn callback", |f| wakeful::run_this_turn(f)),
        ("a next-turn callback", |f| wakeful::run_next_turn(f)),
        ("a task that yields", |f| {
            wakeful::spawn(async move {
                for _ in 0..10 {
                    wakeful::task::yield_now().await;
                }
                f();
            })
            .detach();
        }),
        ("a chain of callbacks", |f| {
            wakeful::run_next_turn(|| wakeful::run_this_turn(|| wakeful::run_next_turn(f)));
        }),
    ];
    with_idle_loop::<B>(|handle| {
        for (name, way) in ways {
            for _ in 0..20 {
                assert_eq!(parks_between(handle, way), 0, "{name}");
            }
        }
    });
}

fn a_local_task_woken_by_a_post_runs_within_its_wake<B: Backend>() {
    with_idle_loop::<B>(|handle| {
        let (send, receive) = async_channel::unbounded::<u64>();
        let (done, is_done) = mpsc::channel();
        let counted = handle.clone();
        let task = handle.spawn(move || async move {
            while let Ok(parks) = receive.recv().await {
                done.send(counted.metrics().parks - parks).unwrap();
            }
        });
        for _ in 0..20 {
            let (send, counted) = (send.clone(), handle.clone());
            handle.post(move || send.try_send(counted.metrics().parks).unwrap()).unwrap();
            assert_eq!(is_done.recv().unwrap(), 0);
        }
        task.unwrap().detach();
    });
}

fn work_queued_from_an_io_handler_a_timer_and_a_drop_is_not_late<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    event_loop
        .block_on(async {
            let far = wakeful::spawn(wakeful::time::sleep(Duration::from_secs(5)));
            let (mut one, mut other) = UnixStream::pair().unwrap();
            let done = Rc::new(Cell::new(0));
            let check = |done: &Rc<Cell<u32>>| {
                let (done, handle, parks) = (done.clone(), handle.clone(), handle.metrics().parks);
                move || {
                    assert_eq!(handle.metrics().parks, parks);
                    done.set(done.get() + 1);
                }
            };
            // From an I/O handler.
            let reader = wakeful::spawn({
                let (handle, done) = (handle.clone(), done.clone());
                async move {
                    other.read(&mut [0; 1]).await.unwrap();
                    let parks = handle.metrics().parks;
                    wakeful::run_next_turn(move || {
                        assert_eq!(handle.metrics().parks, parks);
                        done.set(done.get() + 1);
                    });
                }
            });
            one.write_all(b"x").await.unwrap();
            reader.await.unwrap();
            // From a timer.
            wakeful::time::sleep(Duration::from_micros(100)).await;
            wakeful::run_next_turn(check(&done));
            wakeful::task::yield_now().await;
            // From a drop, and during a panic's unwind.
            struct OnDrop<F: FnOnce() + 'static>(Option<F>);
            impl<F: FnOnce() + 'static> Drop for OnDrop<F> {
                fn drop(&mut self) {
                    wakeful::run_next_turn(self.0.take().unwrap());
                }
            }
            drop(OnDrop(Some(check(&done))));
            let unwinding = OnDrop(Some(check(&done)));
            let panicked = wakeful::spawn(async move {
                let _unwinding = unwinding;
                panic!("on purpose");
            });
            assert!(panicked.await.unwrap_err().is_panic());
            while done.get() < 4 {
                wakeful::task::yield_now().await;
            }
            assert!(!far.is_finished());
        })
        .unwrap();
}

fn what_before_park_queues_prevents_the_park<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let ran = Rc::new(Cell::new(0));
    let hook = event_loop.before_park({
        let ran = ran.clone();
        move || {
            if ran.get() < 5 {
                let ran = ran.clone();
                wakeful::run_next_turn(move || ran.set(ran.get() + 1));
            }
        }
    });
    let mut turns = 0;
    while ran.get() < 5 {
        event_loop.take_turn(Some(Duration::from_secs(5))).unwrap();
        turns += 1;
    }
    // On a loop with a guest the hook runs after a turn, and not in the next turn.
    assert!(turns == 5 || has_guest(), "{turns}");
    assert_eq!(handle.metrics().parks, 0);
    drop(hook);
}
