//! The loop's own behaviour: what is queued runs in its order, a stop loses nothing, a loop that
//! nobody drives keeps what it has, and a loop that is blocked is re-armed when it continues.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::net::UnixStream;
use wakeful::{EventLoop, LoopHandle, run_next_turn, run_this_turn, spawn};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, Driven, skip_on_guests};
use crate::background::{Background, LONG, until_asleep};

on_every_backend! {
    repeated_callbacks_run_once_a_turn_until_they_stop,
    queue_then_stop_runs_what_was_queued,
    poll_mode_loop_never_parks_and_sees_everything,
    run_again_after_stop_goes_on_where_it_was,
    stop_twice_ends_one_run,
    cancel_queued_work_before_it_runs,
    callback_order_is_the_order_of_queueing,
    always_enqueue_order_a_post_to_oneself_never_runs_at_once,
    internal_and_external_callbacks_interleaved,
    before_and_after_callbacks_come_once_a_wait_and_once_a_turn,
    idle_time_costs_one_turn_and_one_park_an_event,
    queue_re_arms_while_the_loop_is_blocked,
    suspension_keeps_everything_for_the_next_turn,
}

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.lock().unwrap().push(text.into());
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

fn repeated_callbacks_run_once_a_turn_until_they_stop<B: Backend>() {
    fn repeat(left: u32, ran: Rc<Cell<u32>>) {
        ran.set(ran.get() + 1);
        if left > 1 {
            run_next_turn(move || repeat(left - 1, ran));
        }
    }
    let mut event_loop = B::event_loop();
    let ran = Rc::new(Cell::new(0));
    let first = ran.clone();
    event_loop.run_next_turn(move || repeat(10, first));
    for turn in 1..=10 {
        event_loop.take_turn(Some(LONG)).unwrap();
        assert_eq!(ran.get(), turn);
    }
    assert_eq!(event_loop.handle().metrics().parks, 0);
    assert!(event_loop.asks_to_park().unwrap(), "and then nothing is left");
}

fn queue_then_stop_runs_what_was_queued<B: Backend>() {
    let mut event_loop = B::event_loop();
    let log = Log::default();
    let here = log.clone();
    event_loop
        .handle()
        .post(move || {
            let note = |text: &'static str| {
                let log = here.clone();
                move || note(&log, text)
            };
            let (task, own) = (note("task"), note("own post"));
            spawn(async move { task() }).detach();
            LoopHandle::current().post(own).unwrap();
            run_this_turn(note("this turn"));
            run_next_turn(note("next turn"));
            LoopHandle::current().stop();
        })
        .unwrap();
    event_loop.run().unwrap();
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(log[2..], ["this turn", "next turn"]);
    // Tasks and closures of one turn are promised no order among each other.
    log[..2].sort();
    assert_eq!(log[..2], ["own post", "task"]);
}

fn poll_mode_loop_never_parks_and_sees_everything<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.read(&mut [0; 1]).await.unwrap()
    });
    let timer = event_loop.spawn(wakeful::time::sleep(Duration::from_millis(1)));
    let remote = thread::spawn(move || {
        handle.post_and_wait(|| ()).unwrap();
        peer.write_all(b"x").unwrap();
        peer
    });
    let mut turns = 0;
    while !(reader.is_finished() && timer.is_finished() && remote.is_finished()) {
        one_turn(&mut event_loop);
        turns += 1;
    }
    remote.join().unwrap();
    let metrics = event_loop.handle().metrics();
    assert_eq!((metrics.parks, metrics.turns, metrics.waits), (0, turns, turns));
}

fn run_again_after_stop_goes_on_where_it_was<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (send, receive) = async_channel::unbounded();
    let sum = Rc::new(Cell::new(0));
    let total = sum.clone();
    // A task that lives through all runs.
    let task = event_loop.spawn(async move {
        while let Ok(number) = receive.recv().await {
            total.set(total.get() + number);
            LoopHandle::current().stop();
        }
    });
    for number in 1..=5 {
        // Queued while the loop does not run, by a thread of its own.
        let (send, handle) = (send.clone(), handle.clone());
        thread::spawn(move || handle.post(move || send.try_send(number).unwrap()).unwrap())
            .join()
            .unwrap();
        event_loop.run().unwrap();
        assert_eq!(sum.get(), (1..=number).sum::<u32>());
    }
    assert!(!task.is_finished());
}

fn stop_twice_ends_one_run<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop.stop();
    event_loop.handle().stop();
    event_loop.run().unwrap();
    // The second stop is spent too: this run lasts until its own.
    let ran = Rc::new(Cell::new(false));
    let mark = ran.clone();
    let task = event_loop.spawn(async move {
        for _ in 0..3 {
            wakeful::time::sleep(Duration::from_micros(100)).await;
        }
        mark.set(true);
        LoopHandle::current().stop();
        LoopHandle::current().stop();
    });
    event_loop.run().unwrap();
    assert!(ran.get() && task.is_finished());
}

fn cancel_queued_work_before_it_runs<B: Backend>() {
    let mut event_loop = B::event_loop();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let held = Arc::new(());
    let work = |name: &'static str| {
        let (ran, held) = (ran.clone(), held.clone());
        async move {
            ran.lock().unwrap().push(name);
            drop(held);
        }
    };
    let local = event_loop.spawn(work("local"));
    let kept = event_loop.spawn(work("kept"));
    let remote_work = work("remote");
    let remote = event_loop.handle().spawn(move || remote_work).unwrap();
    let mark = ran.clone();
    let hook = event_loop.after_turn(move || mark.lock().unwrap().push("hook"));
    local.abort();
    remote.abort();
    drop(hook);
    one_turn(&mut event_loop);
    one_turn(&mut event_loop);
    assert_eq!(*ran.lock().unwrap(), ["kept"]);
    assert_eq!(Arc::strong_count(&held), 1, "what was cancelled is dropped");
    assert!(event_loop.block_on(local).unwrap().unwrap_err().is_cancelled());
    assert!(event_loop.block_on(remote).unwrap().unwrap_err().is_cancelled());
    assert!(kept.is_finished());
}

fn callback_order_is_the_order_of_queueing<B: Backend>() {
    let mut event_loop = B::unhurried();
    let log: Rc<RefCell<Vec<u32>>> = Rc::default();
    for number in 0..50 {
        let (this, next) = (log.clone(), log.clone());
        event_loop.run_this_turn(move || this.borrow_mut().push(100 + number));
        event_loop.run_next_turn(move || next.borrow_mut().push(number));
    }
    one_turn(&mut event_loop);
    assert!(log.borrow().iter().copied().eq((0..50).chain(100..150)));
}

fn always_enqueue_order_a_post_to_oneself_never_runs_at_once<B: Backend>() {
    let mut event_loop = B::event_loop();
    let log = Log::default();
    let here = log.clone();
    let post = move || {
        note(&here, "outer begins");
        for number in 0..3 {
            let here = here.clone();
            let nested = move || {
                note(&here, format!("{number} begins"));
                let log = here.clone();
                LoopHandle::current().post(move || note(&log, format!("within {number}"))).unwrap();
                note(&here, format!("{number} ends"));
            };
            LoopHandle::current().post(nested).unwrap();
        }
        note(&here, "outer ends");
    };
    event_loop.handle().post(post).unwrap();
    one_turn(&mut event_loop);
    let order = "outer begins, outer ends, 0 begins, 0 ends, 1 begins, 1 ends, 2 begins, 2 ends, \
                 within 0, within 1, within 2";
    assert_eq!(log.lock().unwrap().join(", "), order);
}

fn internal_and_external_callbacks_interleaved<B: Backend>() {
    fn internal(log: Log) {
        note(&log, "internal");
        run_next_turn(move || internal(log));
    }
    let mut event_loop = B::event_loop();
    let (handle, log) = (event_loop.handle(), Log::default());
    let first = log.clone();
    event_loop.run_next_turn(move || internal(first));
    for turn in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let log = log.clone();
                handle.post(move || note(&log, format!("external {turn}"))).unwrap();
            });
        });
        event_loop.take_turn(Some(LONG)).unwrap();
        let log = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(log, ["internal".to_owned(), format!("external {turn}")]);
    }
    assert_eq!(handle.metrics().parks, 0);
}

fn before_and_after_callbacks_come_once_a_wait_and_once_a_turn<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut event_loop = B::event_loop();
    let (waits, turns) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let count = |counter: &Rc<Cell<u32>>| {
        let counter = counter.clone();
        move || counter.set(counter.get() + 1)
    };
    let hooks = (event_loop.before_park(count(&waits)), event_loop.after_turn(count(&turns)));
    for number in 1..=10 {
        event_loop.run_next_turn(|| ());
        event_loop.take_turn(Some(LONG)).unwrap();
        event_loop.take_turn(Some(Duration::from_nanos(1))).unwrap();
        assert_eq!((waits.get(), turns.get()), (number, 2 * number));
    }
    let metrics = event_loop.handle().metrics();
    assert_eq!((metrics.parks, metrics.turns), (10, 20));
    drop(hooks);
}

fn idle_time_costs_one_turn_and_one_park_an_event<B: Backend>() {
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    handle.post_and_wait(|| ()).unwrap();
    let mut before = None;
    for _ in 0..50 {
        until_asleep(handle);
        let counted = handle.clone();
        let now = handle.post_and_wait(move || counted.metrics()).unwrap();
        if let Some((turns, parks, waits)) = before {
            let since = (now.turns - turns, now.parks - parks, now.waits - waits);
            assert_eq!(since, (1, 1, 1), "turns, parks, system calls");
        }
        before = Some((now.turns, now.parks, now.waits));
    }
    background.end();
}

fn queue_re_arms_while_the_loop_is_blocked<B: Backend>() {
    const POSTS: u64 = 1_000;
    let background = Background::start(B::builder().task_budget(100).turn_budget(LONG), |_| ());
    let handle = background.handle();
    for _ in 0..5 {
        handle.post_and_wait(|| ()).unwrap();
        until_asleep(handle);
        let (blocked, is_blocked) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let counted = handle.clone();
        handle
            .post(move || {
                blocked.send(counted.metrics()).unwrap();
                may_go_on.recv_timeout(LONG).unwrap();
            })
            .unwrap();
        let before = is_blocked.recv_timeout(LONG).unwrap();
        // The wake has armed the queue again, though the code that it ran has not returned: nobody
        // rings.
        assert!(format!("{handle:?}").contains("asleep: false"));
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..4 {
                let done = done.clone();
                scope.spawn(move || {
                    for _ in 0..POSTS / 4 {
                        let (done, counted) = (done.clone(), handle.clone());
                        handle.post(move || done.send(counted.metrics()).unwrap()).unwrap();
                    }
                });
            }
        });
        go_on.send(()).unwrap();
        drop(done);
        let all: Vec<_> = is_done.iter().collect();
        assert_eq!(all.len() as u64, POSTS);
        let last = all.last().unwrap();
        // 100 a turn, from the turn after the blocked one on, and no sleep between.
        assert_eq!((last.turns - before.turns, last.parks - before.parks), (POSTS / 100, 0));
    }
    background.end();
}

fn suspension_keeps_everything_for_the_next_turn<B: Backend>() {
    let mut event_loop = B::unhurried();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.read(&mut [0; 1]).await.unwrap();
    });
    let due = Instant::now() + Duration::from_millis(20);
    let timer = event_loop.spawn(wakeful::time::sleep_until(due));
    one_turn(&mut event_loop);
    assert_eq!(handle.metrics().polls, 2, "both wait");

    // Nobody drives the loop while all of this happens.
    let barrier = Arc::new(Barrier::new(5));
    let posted = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (handle, barrier, posted) = (handle.clone(), barrier.clone(), posted.clone());
            thread::spawn(move || {
                barrier.wait();
                for _ in 0..10 {
                    let posted = posted.clone();
                    handle.post(move || *posted.lock().unwrap() += 1).unwrap();
                }
            })
        })
        .collect();
    barrier.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    peer.write_all(b"x").unwrap();
    let local = event_loop.spawn(async {});
    while Instant::now() < due {
        std::hint::spin_loop();
    }
    assert_eq!((handle.metrics().turns, *posted.lock().unwrap()), (1, 0));

    event_loop.take_turn(Some(LONG)).unwrap();
    assert!(reader.is_finished() && timer.is_finished() && local.is_finished());
    assert_eq!((handle.metrics().parks, *posted.lock().unwrap()), (0, 40));
}
