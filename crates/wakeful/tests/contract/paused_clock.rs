//! A loop whose clock a test has paused: what waits for time takes none, and what is ready comes
//! first.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use futures_lite::future::{or, poll_once, zip};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wakeful::task::{spawn_blocking, yield_now};
use wakeful::time::{
    Deadline, MissedTickBehavior, advance, interval, now, pause, resume, seen_until, sleep,
    sleep_until, timeout, turn_time,
};
use wakeful::{EventLoop, LoopHandle, spawn};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, skip_on_guests};
use crate::background::{LONG, until_asleep, wait_until};
use crate::support::tcp_pair;

on_every_backend! {
    hours_of_sleeps_intervals_and_limits_take_no_time,
    timers_are_due_at_their_own_moments_and_in_order,
    an_interval_starts_anew_at_the_moment_that_it_is_reset_to,
    the_clock_stands_still_while_anything_is_ready,
    what_the_kernel_has_comes_before_a_jump,
    a_socket_that_nobody_writes_to_holds_nothing_up,
    blocking_work_in_flight_holds_the_clock,
    blocking_work_that_was_aborted_or_has_panicked_holds_nothing,
    advance_moves_the_clock_at_once_and_runs_what_is_due,
    advance_in_the_middle_of_work_jumps_over_no_message,
    a_resumed_clock_goes_on_from_where_it_stood,
    a_sleep_of_a_thousand_years_keeps_its_loop_neither_awake_nor_from_jumping,
    what_is_refused_says_why,
    each_loop_has_a_clock_of_its_own,
    metrics_and_the_wait_of_a_turn_keep_the_machine_s_clock,
    a_turn_that_may_not_wait_never_moves_the_clock,
    a_loop_that_another_one_drives_jumps_where_it_would_park,
    blocking_work_in_flight_holds_the_clock_of_a_loop_that_another_one_drives,
    a_loop_s_shutdown_jumps_over_its_grace,
    a_loop_s_shutdown_ends_by_the_machine_s_clock_where_its_own_stands_still,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn paused<B: Backend>() -> EventLoop {
    B::builder().start_paused(true).build().expect("a loop can be built here")
}

/// Runs `test` on a loop whose clock is paused. It waits for hours: where the clock does not jump,
/// it never ends.
fn on_a_paused_loop<B: Backend, F: Future>(test: F) -> F::Output {
    paused::<B>().block_on(test).expect("the kernel lets the loop wait")
}

fn hours_of_sleeps_intervals_and_limits_take_no_time<B: Backend>() {
    let real = Instant::now();
    on_a_paused_loop::<B, _>(async {
        let start = now();
        sleep(HOUR).await;
        assert_eq!(now() - start, HOUR);
        sleep_until(start + 2 * HOUR).await;
        assert_eq!(now() - start, 2 * HOUR);
        let mut ticks = interval(HOUR);
        for number in 2..10 {
            assert_eq!(ticks.tick().await - start, number * HOUR);
            assert_eq!(now() - start, number * HOUR);
        }
        assert!(timeout(HOUR, pending::<()>()).await.is_err());
        assert_eq!(now() - start, 10 * HOUR);
        Deadline::after(HOUR).await;
        assert_eq!(now() - start, 11 * HOUR);
        assert_eq!((turn_time(), seen_until()), (now(), now()));
        assert!(timeout(HOUR, async { sleep(SECOND).await }).await.is_ok());
        assert_eq!(now() - start, 11 * HOUR + SECOND);
    });
    assert!(real.elapsed() < HOUR);
}

fn timers_are_due_at_their_own_moments_and_in_order<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let (start, log) = (now(), Rc::new(RefCell::new(Vec::new())));
        let tasks: Vec<_> = [3, 1, 2, 5, 4]
            .map(|number| {
                let log = log.clone();
                spawn(async move {
                    sleep(number * SECOND).await;
                    log.borrow_mut().push(now() - start);
                    sleep(10 * SECOND).await;
                    log.borrow_mut().push(now() - start);
                })
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
        let wanted: Vec<_> = (1..=5).chain(11..=15).map(|number| number * SECOND).collect();
        assert_eq!(*log.borrow(), wanted);
    });
}

fn an_interval_starts_anew_at_the_moment_that_it_is_reset_to<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let start = now();
        let mut ticks = interval(10 * SECOND);
        assert_eq!(ticks.tick().await, start);
        // Each time, the ticks after it follow the new one by whole periods.
        ticks.reset_after(3 * SECOND);
        for second in [3, 13] {
            assert_eq!(ticks.tick().await, start + second * SECOND);
        }
        sleep(SECOND).await;
        ticks.reset_immediately();
        for second in [14, 24] {
            assert_eq!(ticks.tick().await, start + second * SECOND);
        }
        ticks.reset_at(start + HOUR);
        for moment in [start + HOUR, start + HOUR + 10 * SECOND] {
            assert_eq!(ticks.tick().await, moment);
        }
        ticks.reset();
        assert_eq!(ticks.tick().await, start + HOUR + 20 * SECOND);
        // A moment that has passed is a tick that was missed.
        ticks.reset_at(start);
        assert_eq!(ticks.tick().await, start);
        assert_eq!(now(), start + HOUR + 20 * SECOND);
    });
}

fn the_clock_stands_still_while_anything_is_ready<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let (start, handle) = (now(), LoopHandle::current());
        let late = spawn(sleep(Duration::from_millis(1)));
        // More than a turn's budget of polls.
        for _ in 0..1000 {
            yield_now().await;
        }
        let (send, receive) = async_channel::unbounded();
        let of_callback = send.clone();
        wakeful::run_next_turn(move || {
            wakeful::run_this_turn(move || of_callback.try_send(1).unwrap());
        });
        assert_eq!(receive.recv().await, Ok(1));
        // Posted by the loop's own thread and by another one.
        let of_handle = send.clone();
        handle.post(move || of_handle.try_send(2).unwrap()).unwrap();
        assert_eq!(receive.recv().await, Ok(2));
        let thread = std::thread::spawn(move || handle.post(move || send.try_send(3).unwrap()));
        thread.join().unwrap().unwrap();
        assert_eq!(receive.recv().await, Ok(3));
        assert!(!late.is_finished());
        assert_eq!(now(), start);
        late.await.unwrap();
        assert_eq!(now() - start, Duration::from_millis(1));
    });
}

fn what_the_kernel_has_comes_before_a_jump<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let start = now();
        let (mut client, mut server) = tcp_pair().await;
        assert_eq!(now(), start, "a connection within the loop takes no time");
        // Always a timer that is due a moment later than what the kernel has.
        let mut ticks = interval(Duration::from_nanos(1));
        ticks.tick().await;
        let echo = spawn(async move {
            let mut buf = [0; 4];
            while server.read_exact(&mut buf).await.is_ok() {
                server.write_all(&buf).await.unwrap();
            }
        });
        for _ in 0..100 {
            let ping = async {
                client.write_all(b"ping").await.unwrap();
                client.read_exact(&mut [0; 4]).await.unwrap();
            };
            let tick = async {
                ticks.tick().await;
                panic!("the clock has jumped although a socket was ready");
            };
            or(ping, tick).await;
        }
        assert_eq!(now(), start);
        drop(client);
        echo.await.unwrap();
    });
}

fn a_socket_that_nobody_writes_to_holds_nothing_up<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let start = now();
        let (mut client, _server) = tcp_pair().await;
        assert!(timeout(HOUR, client.read(&mut [0; 1])).await.is_err());
        assert_eq!(now() - start, HOUR);
    });
}

/// Returns when the loop has found nothing to do but to wait, since this was called.
fn until_it_waits(handle: &LoopHandle) {
    let before = handle.metrics();
    wait_until("the loop waits", || {
        // It may wait already.
        handle.wake();
        let after = handle.metrics();
        // A loop that spins asks the kernel again and again.
        after.parks > before.parks || after.waits > before.waits + 1000
    });
}

fn blocking_work_in_flight_holds_the_clock<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let (start, handle) = (now(), LoopHandle::current());
        let late = spawn(sleep(Duration::from_millis(1)));
        let (first, second) = (handle.clone(), handle);
        // The second one continues when the first is over.
        let (end, ended) = mpsc::channel();
        let long = spawn_blocking(move || {
            ended.recv().unwrap();
            until_it_waits(&second);
            2
        });
        let short = spawn_blocking(move || {
            until_it_waits(&first);
            1
        });
        assert_eq!((short.await.unwrap(), now()), (1, start));
        end.send(()).unwrap();
        assert_eq!((long.await.unwrap(), now()), (2, start));
        assert!(!late.is_finished());
        late.await.unwrap();
        assert_eq!(now() - start, Duration::from_millis(1));
    });
}

fn blocking_work_that_was_aborted_or_has_panicked_holds_nothing<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        assert!(spawn_blocking(|| panic!("blocked")).await.is_err());
        spawn_blocking(|| ()).detach();
        let aborted = spawn_blocking(|| ());
        aborted.abort();
        drop(aborted);
        sleep(HOUR).await;
    });
}

fn advance_moves_the_clock_at_once_and_runs_what_is_due<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let (start, log) = (now(), Rc::new(RefCell::new(Vec::new())));
        let tasks = [4, 2, 1, 3].map(|number| {
            let log = log.clone();
            spawn(async move {
                sleep_until(start + number * SECOND).await;
                log.borrow_mut().push((number, now() - start));
            })
        });
        advance(Duration::ZERO).await;
        advance(SECOND - Duration::from_nanos(1)).await;
        assert!(log.borrow().is_empty());
        advance(Duration::from_nanos(1)).await;
        assert_eq!(*log.borrow(), [(1, SECOND)]);
        // From a task, too.
        spawn(advance(2 * SECOND)).await.unwrap();
        let mut ran = log.borrow().clone();
        ran.sort_unstable();
        assert_eq!(ran, [(1, SECOND), (2, 3 * SECOND), (3, 3 * SECOND)]);
        assert!(!tasks[0].is_finished());
        assert_eq!(now() - start, 3 * SECOND);
        // One jump: an interval misses ticks.
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        advance(10 * SECOND + SECOND / 2).await;
        assert_eq!(ticks.tick().await - start, 4 * SECOND);
        assert_eq!(ticks.tick().await - start, 14 * SECOND);
        assert_eq!(now() - start, 14 * SECOND);
        // A sleep that is reset into the past wakes the task that waits.
        let mut moved = sleep(HOUR);
        assert!(poll_once(&mut moved).await.is_none());
        moved.reset(now() - SECOND);
        moved.await;
        assert_eq!(now() - start, 14 * SECOND);
    });
}

/// A limit does not strike before what arrived before the jump, also where that goes through
/// another task.
fn advance_in_the_middle_of_work_jumps_over_no_message<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let (mut client, mut server) = tcp_pair().await;
        let (send, receive) = async_channel::unbounded();
        let reads = spawn(async move {
            let mut buf = [0; 1];
            while server.read_exact(&mut buf).await.is_ok() {
                send.try_send(buf[0]).unwrap();
            }
        });
        for number in 0..100 {
            let limited = timeout(SECOND, receive.recv());
            let jump = async {
                client.write_all(&[number]).await.unwrap();
                advance(HOUR).await;
            };
            assert_eq!(zip(limited, jump).await.0, Ok(Ok(number)));
        }
        drop(client);
        reads.await.unwrap();
    });
}

fn a_resumed_clock_goes_on_from_where_it_stood<B: Backend>() {
    B::block_on(async {
        let (start, real) = (now(), Instant::now());
        assert!(real - start < HOUR, "both are one");
        let far = spawn(sleep(HOUR));
        let soon = spawn(sleep(HOUR + Duration::from_millis(2)));
        yield_now().await;
        pause();
        let paused_at = now();
        assert!(paused_at >= start);
        advance(HOUR).await;
        assert!(far.is_finished());
        assert_eq!(now() - paused_at, HOUR);
        resume();
        // Its rest is waited for.
        soon.await.unwrap();
        assert!(real.elapsed() >= Duration::from_millis(2));
        assert!(now() - start >= HOUR + Duration::from_millis(2));
        let (begun, real) = (now(), Instant::now());
        sleep(Duration::from_millis(1)).await;
        assert!(now() - begun >= Duration::from_millis(1));
        assert!(real.elapsed() >= Duration::from_millis(1));
        pause();
        sleep(HOUR).await;
    });
}

fn message(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it is refused");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

/// Polls it once.
fn begin(future: impl Future) {
    let polled = futures_lite::future::block_on(poll_once(future));
    assert!(polled.is_none());
}

fn a_sleep_of_a_thousand_years_keeps_its_loop_neither_awake_nor_from_jumping<B: Backend>() {
    on_a_paused_loop::<B, _>(async {
        let start = now();
        let longest = spawn(sleep(1000 * YEAR));
        sleep(HOUR).await;
        assert_eq!(now() - start, HOUR);
        let (send, receive) = async_channel::bounded(1);
        let handle = LoopHandle::current();
        let thread = std::thread::spawn(move || {
            until_asleep(&handle);
            send.try_send(()).unwrap();
        });
        receive.recv().await.unwrap();
        thread.join().unwrap();
        assert!(!longest.is_finished());
        assert_eq!(now() - start, HOUR);
    });
}

fn what_is_refused_says_why<B: Backend>() {
    skip_on_guests("the words are Tokio's");
    let not_on_a_loop = "no event loop runs on this thread";
    assert!(message(pause).contains(not_on_a_loop));
    assert!(message(resume).contains(not_on_a_loop));
    assert!(message(|| begin(advance(SECOND))).contains(not_on_a_loop));
    B::block_on(async {
        let not_paused = "not paused";
        assert!(message(resume).contains(not_paused));
        assert!(message(|| begin(advance(SECOND))).contains(not_paused));
        pause();
        assert!(message(pause).contains("paused already"));
        for too_long in [Duration::MAX, 600 * YEAR] {
            assert!(message(|| begin(advance(too_long))).contains("so far"));
        }
        let start = now();
        sleep(HOUR).await;
        assert_eq!(now() - start, HOUR, "what was refused has changed nothing");
        resume();
        assert!(message(resume).contains(not_paused));
    });
}

fn each_loop_has_a_clock_of_its_own<B: Backend>() {
    skip_on_guests(BY_HAND);
    let (mut one, mut other) = (paused::<B>(), B::event_loop());
    let start = one.block_on(async { now() }).unwrap();
    one.block_on(async { sleep(HOUR).await }).unwrap();
    let real = Instant::now();
    let of_other = other.block_on(async { now() }).unwrap();
    assert!(of_other >= real && of_other < real + HOUR / 2);
    assert_eq!(one.block_on(async { now() }).unwrap(), start + HOUR);
    assert!(now() < start + HOUR, "where no loop runs it is the machine's");
    // Also where one drives the other.
    let driven = one.block_on(async {
        let real = Instant::now();
        let task = other.spawn(async move { (now() - real, pause()).0 });
        other.turn(Some(Duration::ZERO)).unwrap();
        assert_eq!(now(), start + HOUR);
        task.await.unwrap()
    });
    assert!(driven.unwrap() < HOUR / 2);
    other.block_on(async { sleep(HOUR).await }).unwrap();
}

fn metrics_and_the_wait_of_a_turn_keep_the_machine_s_clock<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut event_loop = paused::<B>();
    event_loop.block_on(async { sleep(HOUR).await }).unwrap();
    event_loop.block_on(async { advance(HOUR).await }).unwrap();
    let metrics = event_loop.handle().metrics();
    assert!(metrics.park_time + metrics.spin_time < HOUR / 2);
    assert_eq!(metrics.timer_lateness.count(), 0, "nobody can say how late a paused timer is");
    assert!(metrics.timers >= 1);
    // Without a timer, a wait with a limit ends by the machine's clock.
    while !event_loop.prepare_to_park().unwrap() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    let (real, limit) = (Instant::now(), Duration::from_millis(2));
    event_loop.turn(Some(limit)).unwrap();
    assert!(real.elapsed() >= limit);
}

fn a_turn_that_may_not_wait_never_moves_the_clock<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut event_loop = paused::<B>();
    let start = event_loop.block_on(async { now() }).unwrap();
    let task = event_loop.spawn(async move {
        sleep(HOUR).await;
        now() - start
    });
    for _ in 0..10 {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(!task.is_finished());
    assert_eq!(event_loop.block_on(async { now() }).unwrap(), start);
    // One that may wait a moment jumps, however far it is.
    while !task.is_finished() {
        event_loop.turn(Some(Duration::from_nanos(1))).unwrap();
    }
    assert_eq!(event_loop.block_on(task).unwrap().unwrap(), HOUR);
}

/// Would somebody who waits for the loop's descriptor be woken within this time?
fn is_readable(event_loop: &EventLoop, within: Duration) -> bool {
    let limit = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: 0 };
    let mut epoll = [PollFd::new(event_loop, PollFlags::IN)];
    poll(&mut epoll, Some(&limit)).unwrap() > 0
}

fn a_loop_that_another_one_drives_jumps_where_it_would_park<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut event_loop = paused::<B>();
    let (client, mut server) = event_loop.block_on(tcp_pair()).unwrap();
    let start = event_loop.block_on(async { now() }).unwrap();
    let task = event_loop.spawn(async move {
        sleep(HOUR).await;
        assert_eq!(now() - start, HOUR);
        server.read_exact(&mut [0; 4]).await.unwrap();
        now() - start
    });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert!(!event_loop.prepare_to_park().unwrap(), "the clock has jumped: a timer is due");
    while !event_loop.prepare_to_park().unwrap() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    // Nothing but the socket is awaited.
    assert!(!is_readable(&event_loop, Duration::ZERO));
    let writes = event_loop.spawn(async move {
        let mut client = client;
        client.write_all(b"ping").await.unwrap();
    });
    let late = event_loop.spawn(async { sleep(HOUR).await });
    assert!(is_readable(&event_loop, LONG));
    while !writes.is_finished() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    // What the kernel has comes before the jump, whether or not a turn has seen it.
    while !task.is_finished() {
        if event_loop.prepare_to_park().unwrap() {
            assert!(is_readable(&event_loop, Duration::ZERO));
        }
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(!late.is_finished());
    assert_eq!(event_loop.block_on(task).unwrap().unwrap(), HOUR);
}

fn blocking_work_in_flight_holds_the_clock_of_a_loop_that_another_one_drives<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut event_loop = paused::<B>();
    let start = event_loop.block_on(async { now() }).unwrap();
    let late = event_loop.spawn(async { sleep(HOUR).await });
    let (end, ended) = mpsc::channel();
    let task = event_loop.spawn(async move {
        spawn_blocking(move || ended.recv()).detach();
    });
    while !event_loop.prepare_to_park().unwrap() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(task.is_finished());
    assert!(!is_readable(&event_loop, Duration::ZERO), "the work holds the clock");
    end.send(()).unwrap();
    // Nobody awaits the work, but its end lets the clock go.
    assert!(is_readable(&event_loop, LONG));
    while !late.is_finished() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        let _ = event_loop.prepare_to_park().unwrap();
    }
    assert_eq!(event_loop.block_on(async { now() }).unwrap(), start + HOUR);
}

fn a_loop_s_shutdown_jumps_over_its_grace<B: Backend>() {
    let event_loop = paused::<B>();
    let handle = event_loop.handle();
    event_loop.spawn(sleep(HOUR)).detach();
    assert!(event_loop.shutdown(YEAR).unwrap());
    let event_loop = paused::<B>();
    event_loop.spawn(pending::<()>()).detach();
    for (grace, event_loop) in [(YEAR, event_loop), (Duration::MAX, paused::<B>())] {
        assert_eq!(event_loop.shutdown(grace).unwrap(), grace == Duration::MAX);
    }
    assert!(handle.metrics().turns < 100, "{:?}", handle.metrics().turns);
}

fn a_loop_s_shutdown_ends_by_the_machine_s_clock_where_its_own_stands_still<B: Backend>() {
    let grace = Duration::from_millis(20);
    let shut_down = |event_loop: EventLoop| {
        let start = Instant::now();
        assert!(!event_loop.shutdown(grace).unwrap());
        assert!(start.elapsed() >= grace);
    };
    let awake = paused::<B>();
    awake
        .spawn(async {
            loop {
                yield_now().await;
            }
        })
        .detach();
    shut_down(awake);
    // Blocking work continues until the end of the test.
    let (end, ended) = mpsc::channel::<()>();
    let mut held = paused::<B>();
    let mut blocking = None;
    held.block_on(async { blocking = Some(spawn_blocking(move || ended.recv().is_err())) })
        .unwrap();
    held.spawn(pending::<()>()).detach();
    shut_down(held);
    // A clock that a task pauses in the shutdown.
    let late = B::event_loop();
    let (end_late, ended_late) = mpsc::channel::<()>();
    late.spawn(async move {
        pause();
        spawn_blocking(move || ended_late.recv().is_err()).await.unwrap();
    })
    .detach();
    shut_down(late);
    drop((end, end_late));
    assert!(B::block_on(blocking.unwrap()).unwrap());
}
