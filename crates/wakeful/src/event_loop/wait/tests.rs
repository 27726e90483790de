//! User code that runs after the loop has decided to sleep, and before the wait. If it makes
//! something runnable, the wait must end.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use crate::driver::epoll::{Timer, alone_with_pwait2};
use crate::event_loop::{EventLoop, SleepObserver};
use crate::idle::{Adaptive, Idle, Next, Spinner};
use crate::sys::failures::{Call, fail};
use crate::sys::thread::{allowed_cpus, pin_to};
use crate::time::{Sleep, sleep};
use crate::{IdlePolicy, LoopHandle, run_next_turn, run_this_turn, spawn};

/// How long a wait lasts that nothing ends.
const LIMIT: Duration = Duration::from_secs(10);

/// Counts what has run.
type Done = Arc<AtomicUsize>;

fn count(done: &Done) {
    done.fetch_add(1, Ordering::Relaxed);
}

struct Counts(Done);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        count(&self.0);
    }
}

/// A task that waits for a wake, and counts it. Returns its waker.
fn waiting_task(event_loop: &mut EventLoop, done: &Done) -> Waker {
    let (done, slot) = (done.clone(), Arc::new(Mutex::new(None)));
    let mine = slot.clone();
    let mut polled = false;
    event_loop
        .spawn(poll_fn(move |cx| {
            if std::mem::replace(&mut polled, true) {
                count(&done);
                return Poll::Ready(());
            }
            *mine.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }))
        .detach();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    slot.lock().unwrap().take().expect("it has been polled")
}

/// A function that runs once, when the loop leaves for its wait.
type Once = Rc<Cell<Option<Box<dyn FnOnce()>>>>;

struct OnLeaving(Once);

impl SleepObserver for OnLeaving {
    fn before_sleep(&self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }

    fn after_sleep(&self) {}
}

fn park() -> EventLoop {
    EventLoop::builder().idle(IdlePolicy::Park).build().unwrap()
}

/// Polls a timer whose deadline is far away. A test moves the deadline.
fn polled(timer: Sleep, done: &Done) -> Pin<Box<Sleep>> {
    let mut timer = Box::pin(timer);
    let waker = Arc::new(Counts(done.clone())).into();
    assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    timer
}

#[test]
fn whatever_is_made_runnable_on_the_way_to_the_wait_ends_it() {
    type Way = (&'static str, fn(Waker, Done, Pin<Box<Sleep>>));
    let ways: [Way; 7] = [
        ("a task is woken", |waker, _, _| waker.wake()),
        ("a task is spawned", |_, done, _| spawn(async move { count(&done) }).detach()),
        ("a closure is sent", |_, done, _| {
            LoopHandle::current().post(move || count(&done)).unwrap();
        }),
        ("a this-turn callback", |_, done, _| run_this_turn(move || count(&done))),
        ("a next-turn callback", |_, done, _| run_next_turn(move || count(&done))),
        ("a timer is set", |_, done, _| std::mem::forget(polled(sleep(SOON), &done))),
        ("a timer is moved", |_, _, mut timer| {
            timer.as_mut().get_mut().reset(Instant::now() + SOON);
            std::mem::forget(timer);
        }),
    ];
    for (name, way) in ways {
        let mut event_loop = park();
        let done = Done::default();
        let waker = waiting_task(&mut event_loop, &done);
        let far = {
            let _entered = crate::event_loop::current::enter(&event_loop.inner);
            polled(sleep(Duration::from_secs(3600)), &done)
        };
        let place = Once::default();
        let alarm = Timer::new().unwrap();
        event_loop.observe_sleep(Box::new(OnLeaving(place.clone())), [&alarm]).unwrap();
        let marks = done.clone();
        place.set(Some(Box::new(move || way(waker, marks, far))));
        let start = Instant::now();
        while done.load(Ordering::Relaxed) == 0 {
            event_loop.turn(Some(LIMIT)).unwrap();
        }
        assert!(start.elapsed() < LIMIT, "{name}: the wait lasted");
        assert_eq!(done.load(Ordering::Relaxed), 1, "{name}");
        let parks = event_loop.handle().metrics().parks;
        assert!((1..=2).contains(&parks), "{name}: {parks} parks");
    }
}

const SOON: Duration = Duration::from_micros(300);

thread_local! {
    static ON_LOG: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Calls this thread's `ON_LOG` for the line that reports what the kernel lacks.
struct Subscriber;

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("driver::epoll")
    }

    fn event(&self, _event: &Event<'_>) {
        if let Some(f) = ON_LOG.take() {
            f();
        }
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[test]
fn a_subscriber_that_wakes_a_task_as_the_loop_goes_to_sleep_is_heard() {
    let mut event_loop = park();
    let done = Done::default();
    let waker = waiting_task(&mut event_loop, &done);
    let _alone = alone_with_pwait2();
    fail(Call::PreciseWait, Errno::NOSYS, 1);
    ON_LOG.set(Some(Box::new(move || waker.wake())));
    tracing::subscriber::with_default(Subscriber, || {
        let start = Instant::now();
        event_loop.turn(Some(LIMIT)).unwrap();
        assert!(start.elapsed() < LIMIT, "the wait lasted");
    });
    assert!(ON_LOG.take().is_none(), "the line was logged");
    assert_eq!(done.load(Ordering::Relaxed), 1);
}

/// Lets gaps pass that are worth a spin, until a spin begins. Other tests may spin on this CPU for
/// a moment.
fn spins(spinner: &mut Spinner) {
    let began = Instant::now();
    let mut now = 1;
    while spinner.begin(now) != Next::Spin {
        assert!(began.elapsed() < LIMIT, "another loop has the CPU");
        spinner.woken(now + 20_000);
        now += 1_000_000;
    }
}

#[test]
fn a_loop_that_has_spun_in_a_foreign_loop_s_turn_leaves_its_cpu_to_others_after_it() {
    pin_to(allowed_cpus().unwrap().into_iter().take(1)).unwrap();
    let adaptive = Adaptive::new().never_hold();
    let event_loop = EventLoop::builder().idle(IdlePolicy::Adaptive(adaptive)).build().unwrap();
    let inner = &event_loop.inner;
    let Idle::Adapt(spinner) = &inner.idle else { unreachable!("its policy") };
    spins(&mut spinner.borrow_mut());
    inner.leave_turn();
    spins(&mut Spinner::new(adaptive, *inner.handle.process()));
}
