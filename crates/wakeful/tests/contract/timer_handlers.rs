//! Timers whose handlers start, move, cancel and destroy timers, and timers started at the odd
//! places of a turn. A handler here is a waker of its own, which runs in the timers' phase itself,
//! where the order is exact.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use wakeful::EventLoop;
use wakeful::time::{Sleep, interval_at, sleep, sleep_until};

use crate::backend::Backend;
use crate::backend::driven::{Driven, has_guest};
use crate::background::{Background, LONG, until_asleep};

on_every_backend! {
    timer_fire_in_order_through_the_counter_s_wrap,
    timer_cancel_inside_a_callback,
    timer_destroy_inside_a_callback,
    timer_scheduling_within_a_callback,
    timer_reschedule_keeps_one_timer,
    timer_reschedule_keeps_who_waits,
    timer_reschedule_silences_the_old_deadline,
    timer_reschedule_of_an_interval_keeps_who_waits,
    timer_reschedule_from_elsewhere_wakes_who_waits_at_once,
    timer_early_check,
    timer_from_check,
    timer_reuse_with_another_waker,
    lost_timeout_of_an_earlier_timer_than_the_wait_s,
    lost_timeout_behind_one_that_is_cancelled,
}

const FAR: Duration = Duration::from_secs(3600);

struct Handler<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Handler<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn handler(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Handler(f)).into()
}

/// A timer where handlers reach it.
type Shared = Arc<Mutex<Option<Pin<Box<Sleep>>>>>;

fn shared(timer: Sleep) -> Shared {
    Arc::new(Mutex::new(Some(Box::pin(timer))))
}

/// Starts the timer on the loop of this thread. `false`: it was due by then.
fn start(timer: &Shared, waker: &Waker) -> bool {
    let mut timer = timer.lock().unwrap();
    let timer = timer.as_mut().expect("there is one");
    timer.as_mut().poll(&mut Context::from_waker(waker)).is_pending()
}

/// Moves the timer to `after` from now and starts it. On a machine that stalls it may be due by
/// then: again.
fn reset_until_pending(timer: &Shared, waker: &Waker, after: Duration) {
    loop {
        timer.lock().unwrap().as_mut().expect("there is one").reset(Instant::now() + after);
        if start(timer, waker) {
            break;
        }
    }
}

/// Calls `f` where the loop is this thread's. It takes no turn.
fn on<R>(event_loop: &mut EventLoop, f: impl FnOnce() -> R) -> R {
    let mut f = Some(f);
    event_loop.block_on(poll_fn(|_| Poll::Ready(f.take().expect("polled once")()))).unwrap()
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

fn pass(deadline: Instant) {
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

/// How many timers the loop has, by its own word.
fn timers(event_loop: &EventLoop) -> String {
    let text = format!("{event_loop:?}");
    text.split("timers: ").nth(1).unwrap().split(',').next().unwrap().to_owned()
}

/// The sequence numbers of a loop's timers begin near their end, so equal deadlines keep their
/// order across the wrap.
fn timer_fire_in_order_through_the_counter_s_wrap<B: Backend>() {
    let mut event_loop = B::unhurried();
    let log: Arc<Mutex<Vec<usize>>> = Arc::default();
    // Far enough that no machine's stall makes it due while the timers are started.
    let deadline = Instant::now() + Duration::from_millis(100);
    let all: Vec<_> = (0..30).map(|_| shared(sleep_until(deadline))).collect();
    on(&mut event_loop, || {
        for (number, timer) in all.iter().enumerate() {
            let log = log.clone();
            assert!(start(timer, &handler(move || log.lock().unwrap().push(number))));
        }
    });
    pass(deadline);
    one_turn(&mut event_loop);
    assert!(log.lock().unwrap().iter().copied().eq(0..30));
}

fn timer_cancel_inside_a_callback<B: Backend>() {
    let mut event_loop = B::event_loop();
    let base = Instant::now() + Duration::from_millis(100);
    let victim = shared(sleep_until(base + Duration::from_nanos(2)));
    let canceller = shared(sleep_until(base + Duration::from_nanos(1)));
    let (fired, cancelled) = (Arc::new(AtomicU64::new(0)), victim.clone());
    let mark = fired.clone();
    on(&mut event_loop, || {
        // Both are due in the same turn; the first one's handler cancels the second.
        assert!(start(&victim, &handler(move || _ = mark.fetch_add(1, Relaxed))));
        assert!(start(&canceller, &handler(move || *cancelled.lock().unwrap() = None)));
    });
    pass(base + Duration::from_nanos(2));
    one_turn(&mut event_loop);
    assert!(victim.lock().unwrap().is_none());
    assert_eq!(event_loop.handle().metrics().timers, 1);
    one_turn(&mut event_loop);
    assert_eq!((fired.load(Relaxed), timers(&event_loop).as_str()), (0, "0"));
}

fn timer_destroy_inside_a_callback<B: Backend>() {
    let mut event_loop = B::event_loop();
    let base = Instant::now() + Duration::from_millis(100);
    let (own, peer) = (shared(sleep_until(base)), shared(sleep(FAR)));
    let (destroyed, with_it) = (own.clone(), peer.clone());
    on(&mut event_loop, || {
        assert!(start(&peer, Waker::noop()));
        let destroy = move || {
            *destroyed.lock().unwrap() = None;
            *with_it.lock().unwrap() = None;
        };
        assert!(start(&own, &handler(destroy)));
    });
    assert_eq!(timers(&event_loop), "2");
    pass(base);
    one_turn(&mut event_loop);
    assert!(own.lock().unwrap().is_none() && peer.lock().unwrap().is_none());
    assert_eq!(timers(&event_loop), "0");
}

/// A handler that starts its timer again and again has it fired once a turn, not for ever within
/// one.
fn timer_scheduling_within_a_callback<B: Backend>() {
    fn again(timer: &Shared, fired: &Arc<AtomicU64>) {
        fired.fetch_add(1, Relaxed);
        let (next, count) = (timer.clone(), fired.clone());
        let waker = handler(move || again(&next, &count));
        reset_until_pending(timer, &waker, Duration::from_micros(20));
    }
    let mut event_loop = B::event_loop();
    let (timer, fired) = (shared(sleep(FAR)), Arc::new(AtomicU64::new(0)));
    on(&mut event_loop, || again(&timer, &fired));
    while fired.load(Relaxed) < 100 {
        let before = fired.load(Relaxed);
        event_loop.take_turn(Some(LONG)).unwrap();
        assert!(fired.load(Relaxed) - before <= 1, "one turn, one firing");
        assert_eq!(timers(&event_loop), "1");
    }
}

fn timer_reschedule_keeps_one_timer<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (timer, fired) = (shared(sleep(FAR)), Arc::new(AtomicU64::new(0)));
    let mark = fired.clone();
    let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
    let reset = |deadline| timer.lock().unwrap().as_mut().unwrap().reset(deadline);
    on(&mut event_loop, || {
        for less in 0..1_000 {
            reset(Instant::now() + FAR - Duration::from_secs(less));
            assert!(start(&timer, &waker));
        }
    });
    assert_eq!(timers(&event_loop), "1");
    on(&mut event_loop, || reset_until_pending(&timer, &waker, Duration::from_millis(1)));
    assert_eq!(timers(&event_loop), "1");
    while fired.load(Relaxed) == 0 {
        event_loop.take_turn(Some(LONG)).unwrap();
    }
    assert_eq!((event_loop.handle().metrics().timers, timers(&event_loop).as_str()), (1, "0"));
}

/// A reset without another poll: the new deadline wakes the task, also one that has passed.
fn timer_reschedule_keeps_who_waits<B: Backend>() {
    for passed in [false, true] {
        let mut event_loop = B::event_loop();
        let (timer, fired) = (shared(sleep(FAR)), Arc::new(AtomicU64::new(0)));
        let mark = fired.clone();
        let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
        on(&mut event_loop, || {
            assert!(start(&timer, &waker));
            let soon = Instant::now() + Duration::from_millis(u64::from(!passed));
            timer.lock().unwrap().as_mut().unwrap().reset(soon);
        });
        let begin = Instant::now();
        while fired.load(Relaxed) == 0 && begin.elapsed() < LONG {
            event_loop.take_turn(Some(LONG)).unwrap();
        }
        assert_eq!(fired.load(Relaxed), 1, "the waiter was forgotten");
        assert!(!on(&mut event_loop, || start(&timer, &waker)), "its deadline has passed");
    }
}

fn timer_reschedule_silences_the_old_deadline<B: Backend>() {
    let mut event_loop = B::event_loop();
    let soon = Instant::now() + Duration::from_millis(100);
    let (timer, fired) = (shared(sleep_until(soon)), Arc::new(AtomicU64::new(0)));
    let mark = fired.clone();
    let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
    let was_set = on(&mut event_loop, || {
        let was_set = start(&timer, &waker);
        timer.lock().unwrap().as_mut().unwrap().reset(Instant::now() + FAR);
        was_set
    });
    assert!(was_set, "no machine stalls for so long");
    pass(soon);
    one_turn(&mut event_loop);
    assert_eq!((fired.load(Relaxed), timers(&event_loop).as_str()), (0, "1"));
}

fn timer_reschedule_of_an_interval_keeps_who_waits<B: Backend>() {
    let mut event_loop = B::event_loop();
    let fired = Arc::new(AtomicU64::new(0));
    let mark = fired.clone();
    let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
    let mut interval = interval_at(Instant::now() + FAR, Duration::from_millis(1));
    on(&mut event_loop, || {
        assert!(interval.poll_tick(&mut Context::from_waker(&waker)).is_pending());
        interval.reset();
    });
    let begin = Instant::now();
    while fired.load(Relaxed) == 0 && begin.elapsed() < LONG {
        event_loop.take_turn(Some(LONG)).unwrap();
    }
    assert_eq!(fired.load(Relaxed), 1, "the waiter was forgotten");
}

/// Between the loop's turns, and on another thread: the task is woken at once, and its next poll
/// sets the deadline.
fn timer_reschedule_from_elsewhere_wakes_who_waits_at_once<B: Backend>() {
    let reset = |timer: &Shared| {
        let mut timer = timer.lock().unwrap();
        timer.as_mut().unwrap().reset(Instant::now() + 2 * FAR);
        assert!(!timer.as_ref().unwrap().is_set());
    };
    type Place = fn(&Shared, fn(&Shared));
    let places: [(&str, Place); 2] = [
        ("between the turns", |timer, reset| reset(timer)),
        ("another thread", |timer, reset| {
            std::thread::scope(|scope| _ = scope.spawn(|| reset(timer)));
        }),
    ];
    for (name, place) in places {
        let mut event_loop = B::event_loop();
        let (timer, woken) = (shared(sleep(FAR)), Arc::new(AtomicU64::new(0)));
        let mark = woken.clone();
        let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
        on(&mut event_loop, || assert!(start(&timer, &waker)));
        place(&timer, reset);
        one_turn(&mut event_loop);
        assert_eq!((woken.load(Relaxed), timers(&event_loop).as_str()), (1, "0"), "{name}");
        on(&mut event_loop, || assert!(start(&timer, &waker)));
        assert_eq!(timers(&event_loop), "1", "{name}");
    }
}

/// Looked at before its time, as often as one likes, a timer is pending, is there once, and wakes
/// nobody.
fn timer_early_check<B: Backend>() {
    let mut event_loop = B::event_loop();
    let deadline = Instant::now() + Duration::from_millis(5);
    let (timer, fired) = (shared(sleep_until(deadline)), Arc::new(AtomicU64::new(0)));
    let mark = fired.clone();
    let waker = handler(move || {
        assert!(Instant::now() >= deadline, "woken early");
        mark.fetch_add(1, Relaxed);
    });
    while on(&mut event_loop, || start(&timer, &waker)) {
        assert_eq!(timers(&event_loop), "1");
        one_turn(&mut event_loop);
        if fired.load(Relaxed) > 0 {
            break;
        }
    }
    assert!(Instant::now() >= deadline, "ready early");
    assert_eq!(event_loop.handle().metrics().timers, fired.load(Relaxed));
    assert_eq!(timers(&event_loop), "0");
}

/// Timers that are started in the hooks, just before a wait and just after the work, are known to
/// the next wait.
fn timer_from_check<B: Backend>() {
    type Hook = fn(&EventLoop, Box<dyn FnMut()>) -> wakeful::Hook;
    let hooks: [(&str, Hook, &[Duration]); 2] = [
        // Started and fired in one turn, whose wait it limits.
        ("before_park", |event_loop, f| event_loop.before_park(f), &[LONG]),
        // Started at the end of the first turn, fired in the second.
        ("after_turn", |event_loop, f| event_loop.after_turn(f), &[Duration::ZERO, LONG]),
    ];
    for (name, hook, turns) in hooks {
        let mut event_loop = B::event_loop();
        let fired = Arc::new(AtomicU64::new(0));
        let mark = fired.clone();
        let waker = handler(move || _ = mark.fetch_add(1, Relaxed));
        let mut started = None;
        let start_once = Box::new(move || {
            if started.is_none() {
                let timer = shared(sleep(FAR));
                reset_until_pending(&timer, &waker, Duration::from_millis(1));
                started = Some(timer);
            }
        });
        let hook = hook(&event_loop, start_once);
        let begin = Instant::now();
        for max_wait in turns {
            event_loop.take_turn(Some(*max_wait)).unwrap();
        }
        // The hook before a sleep ends a run of a guest's loop before the timer does.
        while has_guest() && fired.load(Relaxed) == 0 {
            event_loop.take_turn(Some(LONG)).unwrap();
        }
        assert_eq!(fired.load(Relaxed), 1, "{name}");
        assert!(begin.elapsed() < LONG, "{name}: by the timer, not by the limit");
        drop(hook);
    }
}

/// A timer that is used again by another task wakes that one, and only that one.
fn timer_reuse_with_another_waker<B: Backend>() {
    let mut event_loop = B::event_loop();
    let deadline = Instant::now() + Duration::from_millis(100);
    let timer = shared(sleep_until(deadline));
    let count = || {
        let fired = Arc::new(AtomicU64::new(0));
        let mark = fired.clone();
        (fired, handler(move || _ = mark.fetch_add(1, Relaxed)))
    };
    let ((first, first_waker), (second, second_waker)) = (count(), count());
    on(&mut event_loop, || {
        assert!(start(&timer, &first_waker));
        assert!(start(&timer, &second_waker));
    });
    assert_eq!(timers(&event_loop), "1");
    pass(deadline);
    one_turn(&mut event_loop);
    assert_eq!((first.load(Relaxed), second.load(Relaxed)), (0, 1));
}

/// The loop waits for a timer far away; another thread starts one that is earlier. It is not lost
/// behind the far one.
fn lost_timeout_of_an_earlier_timer_than_the_wait_s<B: Backend>() {
    let background = Background::start(B::builder(), |event_loop| event_loop.spawn(sleep(FAR)));
    let handle = background.handle();
    handle.post_and_wait(|| ()).unwrap();
    for _ in 0..20 {
        until_asleep(handle);
        let (done, is_done) = mpsc::channel();
        let task = handle.spawn(move || async move {
            sleep(Duration::from_micros(300)).await;
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LONG).unwrap();
        task.unwrap().detach();
    }
    background.end();
}

/// The earliest timer is cancelled while the loop sleeps until it: the next one is on time all the
/// same.
fn lost_timeout_behind_one_that_is_cancelled<B: Backend>() {
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    for _ in 0..20 {
        let earlier = handle.spawn(|| sleep(Duration::from_secs(60))).unwrap();
        let (done, is_done) = mpsc::channel();
        let later = handle.spawn(move || async move {
            sleep(Duration::from_millis(1)).await;
            done.send(()).unwrap();
        });
        let earliest = handle.spawn(|| sleep(Duration::from_micros(500))).unwrap();
        until_asleep(handle);
        earliest.abort();
        is_done.recv_timeout(LONG).unwrap();
        earlier.abort();
        later.unwrap().detach();
    }
    let left = handle.post_and_wait(|| ());
    left.unwrap();
    background.end();
}
