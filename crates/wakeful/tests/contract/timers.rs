//! Timers: never early, in order, cancelled without a trace.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::EventLoop;
use wakeful::time::{Sleep, interval, sleep, sleep_until, timeout, timeout_at, turn_time};

use crate::backend::Backend;
use crate::backend::driven::Driven;

on_every_backend! {
    a_loop_s_thread_has_a_timer_slack_of_1_nanosecond,
    no_timer_is_early,
    timers_fire_in_order_and_equal_ones_in_the_order_of_their_start,
    a_dropped_timer_leaves_no_trace_and_an_unpolled_one_never_was,
    a_timer_dropped_on_another_thread_is_cancelled_on_its_own,
    a_timer_moves_to_the_loop_that_polls_it,
    huge_and_passed_deadlines,
    a_reset_moves_the_deadline_both_ways,
    a_sleep_is_set_while_a_loop_has_its_timer,
    the_time_of_a_turn_is_read_once_and_never_lies_before_what_was_due,
    the_time_of_a_turn_is_read_again_behind_what_blocks_its_loop,
    the_time_of_a_turn_is_not_that_of_a_run_before,
    timeouts_win_and_lose,
    an_interval_keeps_its_schedule,
    a_due_timer_is_not_starved_by_10_000_closures,
    more_due_timers_than_a_turn_s_budget_are_all_fired,
}

/// For so long the time of a turn is not read again.
const RECENT: Duration = Duration::from_millis(1);

fn is_send_sync<T: Send + Sync>(_: &T) {}

/// The loop's own word on how many timers it has.
fn timers(event_loop: &EventLoop) -> String {
    let text = format!("{event_loop:?}");
    text.split("timers: ").nth(1).unwrap().split(',').next().unwrap().to_owned()
}

fn no_timer_is_early<B: Backend>() {
    B::block_on(async {
        for nanoseconds in [0, 1, 999, 1_001, 50_000, 123_456, 1_000_001, 2_500_000] {
            for _ in 0..20 {
                let (start, duration) = (Instant::now(), Duration::from_nanos(nanoseconds));
                sleep(duration).await;
                assert!(start.elapsed() >= duration);
            }
        }
    });
}

/// Notes when its timer fires: a waker runs in the timers' phase itself. (In which order the tasks
/// run that two timers of one turn have woken is not promised.)
struct Notes(Arc<Mutex<Vec<(u64, usize)>>>, (u64, usize));

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(self.1);
    }
}

fn timers_fire_in_order_and_equal_ones_in_the_order_of_their_start<B: Backend>() {
    let mut event_loop = B::event_loop();
    let log = Arc::new(Mutex::new(Vec::new()));
    let base = Instant::now() + Duration::from_millis(50);
    let mut timers = Vec::new();
    event_loop
        .block_on(async {
            for (number, delay) in [3, 1, 2, 1, 0, 3].into_iter().enumerate() {
                let waker = Arc::new(Notes(log.clone(), (delay, number))).into();
                let mut timer = Box::pin(sleep_until(base + Duration::from_micros(delay * 300)));
                assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                timers.push(timer);
            }
        })
        .unwrap();
    while log.lock().unwrap().len() < timers.len() {
        event_loop.take_turn(None).unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [(0, 4), (1, 1), (1, 3), (2, 2), (3, 0), (3, 5)]);
}

fn a_dropped_timer_leaves_no_trace_and_an_unpolled_one_never_was<B: Backend>() {
    let mut event_loop = B::event_loop();
    let far = Duration::from_secs(3600);
    let unpolled = sleep(far);
    let tasks: Vec<_> = (0..1_000).map(|_| event_loop.spawn(sleep(far))).collect();
    while timers(&event_loop) != "1000" {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    tasks.iter().for_each(wakeful::JoinHandle::abort);
    while timers(&event_loop) != "0" {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    drop(unpolled);
}

fn a_timer_dropped_on_another_thread_is_cancelled_on_its_own<B: Backend>() {
    let mut event_loop = B::event_loop();
    let mut far = Box::pin(sleep(Duration::from_secs(3600)));
    is_send_sync(&far);
    event_loop
        .block_on(poll_fn(|cx| {
            assert!(far.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        }))
        .unwrap();
    assert_eq!(timers(&event_loop), "1");
    thread::spawn(move || drop(far)).join().unwrap();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(timers(&event_loop), "0");
}

fn a_timer_moves_to_the_loop_that_polls_it<B: Backend>() {
    let mut one = B::event_loop();
    // On a machine that stalls, it may be due before its first poll: then again.
    let timer: Pin<Box<Sleep>> = loop {
        let mut timer = Box::pin(sleep(Duration::from_millis(2)));
        let polled = poll_fn(|cx| Poll::Ready(timer.as_mut().poll(cx)));
        if one.block_on(polled).unwrap().is_pending() {
            break timer;
        }
    };
    let deadline = timer.deadline();
    thread::spawn(move || {
        B::block_on(timer);
        assert!(Instant::now() >= deadline);
    })
    .join()
    .unwrap();
    one.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(timers(&one), "0");
}

fn huge_and_passed_deadlines<B: Backend>() {
    B::block_on(async {
        for huge in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_secs(1 << 33)]
        {
            assert!(timeout(Duration::from_micros(200), sleep(huge)).await.is_err());
        }
        sleep_until(Instant::now() - Duration::from_millis(1)).await;
        sleep(Duration::ZERO).await;
    });
}

fn a_reset_moves_the_deadline_both_ways<B: Backend>() {
    B::block_on(async {
        let start = Instant::now();
        let mut timer = pin!(sleep(Duration::from_secs(3600)));
        poll_fn(|cx| {
            assert!(timer.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        timer.as_mut().get_mut().reset(start + Duration::from_millis(1));
        timer.as_mut().await;
        assert!(start.elapsed() >= Duration::from_millis(1));
        // Used again after its end.
        let later = Instant::now() + Duration::from_millis(1);
        timer.as_mut().get_mut().reset(later);
        timer.await;
        assert!(Instant::now() >= later);
    });
}

fn timeouts_win_and_lose<B: Backend>() {
    B::block_on(async {
        assert_eq!(timeout(Duration::from_secs(60), async { 1 }).await, Ok(1));
        assert!(timeout(Duration::from_micros(100), pending::<()>()).await.is_err());
        let passed = Instant::now();
        assert_eq!(timeout_at(passed, async { 2 }).await, Ok(2), "what is ready wins");
        let error = timeout_at(passed, pending::<()>()).await.unwrap_err();
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
        // Cancelled inside: the inner future is dropped with it.
        let held = Rc::new(());
        let inner = held.clone();
        let slow = async move {
            let _inner = inner;
            pending::<()>().await;
        };
        assert!(timeout(Duration::from_micros(100), slow).await.is_err());
        assert_eq!(Rc::strong_count(&held), 1);
    });
}

fn an_interval_keeps_its_schedule<B: Backend>() {
    B::block_on(async {
        let period = Duration::from_micros(300);
        let mut ticks = interval(period);
        let first = ticks.tick().await;
        for number in 1..10 {
            let tick = ticks.tick().await;
            assert_eq!(tick, first + period * number);
            assert!(Instant::now() >= tick);
        }
    });
}

fn a_due_timer_is_not_starved_by_10_000_closures<B: Backend>() {
    let mut event_loop = B::builder().task_budget(64).build().unwrap();
    let handle = event_loop.handle();
    let mut due = pin!(sleep(Duration::from_micros(1)));
    let woken = Arc::new(Flag::default());
    let waker: Waker = woken.clone().into();
    event_loop
        .block_on(poll_fn(|_| {
            // Registered while it is not due, or it would not be a timer at all.
            let mut cx = Context::from_waker(&waker);
            loop {
                due.set(sleep(Duration::from_micros(200)));
                if due.as_mut().poll(&mut cx).is_pending() {
                    break;
                }
            }
            Poll::Ready(())
        }))
        .unwrap();
    while !due.is_elapsed() {}
    for _ in 0..10_000 {
        handle.post(|| ()).unwrap();
    }
    let turns = handle.metrics().turns;
    while !woken.0.load(std::sync::atomic::Ordering::Relaxed) {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    assert_eq!(handle.metrics().turns - turns, 1, "its phase comes in every turn");
}

#[derive(Default)]
struct Flag(std::sync::atomic::AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn more_due_timers_than_a_turn_s_budget_are_all_fired<B: Backend>() {
    let mut event_loop = B::builder().timer_budget(10).build().unwrap();
    let soon = Instant::now() + Duration::from_millis(1);
    let tasks: Vec<_> = (0..100).map(|_| event_loop.spawn(sleep_until(soon))).collect();
    while timers(&event_loop) != "100" && Instant::now() < soon {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    while Instant::now() < soon {}
    while !tasks.iter().all(wakeful::JoinHandle::is_finished) {
        let before = event_loop.handle().metrics().timers;
        event_loop.take_turn(Some(Duration::from_secs(5))).unwrap();
        assert!(event_loop.handle().metrics().timers - before <= 10);
    }
}

fn a_sleep_is_set_while_a_loop_has_its_timer<B: Backend>() {
    B::block_on(async {
        let mut sleep = pin!(sleep(Duration::from_millis(20)));
        assert!(!sleep.is_set(), "nobody has polled it");
        assert!(poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await.is_pending());
        assert!(sleep.is_set());
        sleep.reset(Instant::now() + Duration::from_millis(1));
        assert!(sleep.is_set(), "its timer was moved");
        sleep.as_mut().await;
        assert!(!sleep.is_set());
    });
}

fn the_time_of_a_turn_is_read_once_and_never_lies_before_what_was_due<B: Backend>() {
    B::block_on(async {
        let mut last = turn_time();
        for _ in 0..50 {
            let due = Instant::now() + Duration::from_micros(200);
            let mut sleep = pin!(sleep_until(due));
            let mut polls = 0;
            // Not polled twice in a row: a thread that loses its CPU in between finds it due in the
            // turn that has set it, whose time was read before.
            poll_fn(|cx| {
                polls += 1;
                sleep.as_mut().poll(cx)
            })
            .await;
            if polls == 1 {
                // It was due before anybody set it.
                continue;
            }
            let (first, second) = (turn_time(), turn_time());
            assert!(first >= due && first >= last && first <= Instant::now());
            // It is read again where the thread has lost its CPU in between, for instance.
            assert!(first == second || second - first >= RECENT / 2, "{:?}", second - first);
            last = second;
        }
    });
    let before = Instant::now();
    assert!(turn_time() >= before, "where no loop runs it is now");
}

fn the_time_of_a_turn_is_read_again_behind_what_blocks_its_loop<B: Backend>() {
    B::block_on(async {
        let first = turn_time();
        let begun = Instant::now();
        thread::sleep(5 * RECENT);
        assert!(turn_time() >= begun + 4 * RECENT && first <= begun);
        // The work of another task, too.
        let first = turn_time();
        wakeful::spawn(async { thread::sleep(5 * RECENT) }).await.unwrap();
        assert!(turn_time() >= first + 4 * RECENT);
    });
}

fn the_time_of_a_turn_is_not_that_of_a_run_before<B: Backend>() {
    let mut event_loop = B::event_loop();
    for _ in 0..2 {
        let before = Instant::now();
        assert!(event_loop.block_on(async { turn_time() }).unwrap() >= before);
    }
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let before = Instant::now();
    assert!(event_loop.block_on(async { turn_time() }).unwrap() >= before);
}

/// The kernel's default of 50 µs would make each wait that much longer.
fn a_loop_s_thread_has_a_timer_slack_of_1_nanosecond<B: Backend>() {
    let slack = thread::spawn(|| {
        let _event_loop = B::event_loop();
        rustix::thread::current_timer_slack().unwrap()
    });
    assert_eq!(slack.join().unwrap(), 1);
    let group = B::group().loops(2).build().unwrap();
    for handle in group.handles() {
        let slack = handle.post_and_wait(|| rustix::thread::current_timer_slack().unwrap());
        assert_eq!(slack.unwrap(), 1);
    }
}
