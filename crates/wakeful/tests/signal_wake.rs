//! `LoopHandle::wake` from a signal handler: errno is kept, nothing is allocated, the loop's own
//! lists are not touched, and each wake leads to a turn, wherever the signal lands. Alone in its
//! process, because handlers and the allocator are the process's.

#![allow(unsafe_code)] // A signal handler, and an allocator that counts.

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;
#[path = "contract/background.rs"]
mod background;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::future::poll_fn;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use wakeful::{EventLoop, LoopHandle};

use self::backend::Backend;
use self::background::{Background, until_asleep, wait_until};

on_every_backend! {
    late_wake_from_a_signal_handler_is_one_turn_and_one_park,
    late_wake_from_a_signal_within_each_part_of_a_turn,
    late_wake_from_a_signal_on_the_loop_s_own_thread_as_it_parks,
    a_storm_of_signals_into_the_local_queue_s_push_leaves_it_sound,
    a_wake_from_a_signal_handler_after_the_loop_s_end_is_nothing,
}

thread_local! {
    /// A plain cell without a destructor: a handler may use it.
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Counts what is allocated or freed within the handler.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn count(&self) {
        if IN_HANDLER.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        }
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Whom the handler wakes.
static TARGET: AtomicPtr<LoopHandle> = AtomicPtr::new(ptr::null_mut());
/// How often the handler has run.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// How many turns of the loop had ended when the handler last woke it.
static ENDED_AT_WAKE: AtomicU64 = AtomicU64::new(0);
/// How many turns of the loop have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
static ERRNO_CHANGED: AtomicBool = AtomicBool::new(false);

/// No error has this number.
const ERRNO: c_int = 7_777;

extern "C" fn on_signal(_: c_int) {
    IN_HANDLER.set(true);
    // SAFETY: the calling thread's own errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let interrupted = std::mem::replace(errno, ERRNO);
    // SAFETY: the handle is never freed: a signal may still be on its way when its test ends.
    if let Some(handle) = unsafe { TARGET.load(Ordering::SeqCst).as_ref() } {
        ENDED_AT_WAKE.store(ENDED.load(Ordering::SeqCst), Ordering::SeqCst);
        handle.wake();
    }
    if std::mem::replace(errno, interrupted) != ERRNO {
        ERRNO_CHANGED.store(true, Ordering::SeqCst);
    }
    IN_HANDLER.set(false);
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// The handler is in place; its test is [`alone`].
struct Handler;

impl Handler {
    fn install(handle: &LoopHandle) -> Self {
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as usize;
        // SAFETY: the handler does async-signal-safe things only, which is what the tests are
        // about.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) }, 0);
        TARGET.store(Box::into_raw(Box::new(handle.clone())), Ordering::SeqCst);
        Self
    }

    /// Sends the signal to `thread` and waits until its handler has returned.
    fn signal(&self, thread: libc::pthread_t) {
        let before = HANDLED.load(Ordering::SeqCst);
        // SAFETY: the thread runs: tests end theirs later.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        wait_until("the handler", || HANDLED.load(Ordering::SeqCst) > before);
    }

    /// Waits for the end of a turn that came after the last wake.
    fn until_turn(&self) {
        wait_until("the turn of a wake", || {
            ENDED.load(Ordering::SeqCst) > ENDED_AT_WAKE.load(Ordering::SeqCst)
        });
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        TARGET.store(ptr::null_mut(), Ordering::SeqCst);
        if !std::thread::panicking() {
            assert!(!ERRNO_CHANGED.load(Ordering::SeqCst), "errno is kept");
            assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "nothing is allocated");
        }
    }
}

/// A thread, by both of its names.
#[derive(Clone, Copy)]
struct Thread {
    pthread: libc::pthread_t,
    id: libc::pid_t,
}

fn this_thread() -> Thread {
    // SAFETY: neither can fail.
    unsafe { Thread { pthread: libc::pthread_self(), id: libc::gettid() } }
}

/// Signals for one thread by the kernel's clock, so that they come while that thread runs, however
/// busy the machine is.
struct Timer(libc::timer_t);

impl Timer {
    fn start(thread: Thread, nanoseconds: libc::c_long) -> Self {
        // SAFETY: all zeroes is a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGUSR1;
        event.sigev_notify_thread_id = thread.id;
        let mut timer = ptr::null_mut();
        // SAFETY: both places are valid.
        let created =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        assert_eq!(created, 0, "{}", std::io::Error::last_os_error());
        let interval = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let times = libc::itimerspec { it_interval: interval, it_value: interval };
        // SAFETY: the timer was created above.
        let set = unsafe { libc::timer_settime(timer, 0, &raw const times, ptr::null_mut()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        Self(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is ours.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The handler and the counts are the process's: one test at a time, with its loops.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A loop that counts the turns that end, and its thread.
fn start<B: Backend>(prepare: impl FnOnce(&EventLoop) + Send + 'static) -> (Background, Thread) {
    let (send, receive) = mpsc::channel();
    let background = Background::start(B::builder(), move |event_loop| {
        send.send(this_thread()).unwrap();
        prepare(event_loop);
        event_loop.after_turn(|| _ = ENDED.fetch_add(1, Ordering::SeqCst))
    });
    (background, receive.recv().unwrap())
}

/// The signal is handled on this thread, so that nothing but the wake itself ends the loop's sleep.
fn late_wake_from_a_signal_handler_is_one_turn_and_one_park<B: Backend>() {
    let _alone = alone();
    let (background, _) = start::<B>(|event_loop| {
        event_loop.spawn(wakeful::time::sleep(Duration::from_secs(5))).detach();
    });
    let handle = background.handle();
    let handler = Handler::install(handle);
    let mut before = handle.post_and_wait(|| ()).map(|()| None).unwrap();
    for _ in 0..200 {
        until_asleep(handle);
        handler.signal(this_thread().pthread);
        handler.until_turn();
        until_asleep(handle);
        // Counted on the loop's own thread, which takes a turn and a park of its own.
        let counted = handle.clone();
        let now = handle.post_and_wait(move || counted.metrics()).unwrap();
        if let Some((turns, parks, remote)) = before {
            let since = (now.turns - turns, now.parks - parks, now.remote - remote);
            assert_eq!(since, (2, 2, 1), "turns, parks, nodes from other threads");
        }
        before = Some((now.turns, now.parks, now.remote));
    }
    drop(handler);
    background.end();
}

/// The handler runs on the loop's own thread at a known place, down to the last code before the
/// sleep: the loop does not sleep before it has taken another turn, or at all in this one.
fn late_wake_from_a_signal_within_each_part_of_a_turn<B: Backend>() {
    let _alone = alone();
    /// Makes the closure run at some place of the next turn.
    type Place = fn(&EventLoop, Box<dyn FnMut()>) -> Option<wakeful::Hook>;
    let places: [(&str, Place); 6] = [
        ("before_park", |event_loop, f| Some(event_loop.before_park(f))),
        ("after_turn", |event_loop, f| Some(event_loop.after_turn(f))),
        ("task", |event_loop, mut f| {
            event_loop.spawn(async move { f() }).detach();
            None
        }),
        ("this-turn callback", |event_loop, f| {
            event_loop.run_this_turn(f);
            None
        }),
        ("next-turn callback", |event_loop, f| {
            event_loop.run_next_turn(f);
            None
        }),
        ("drop", |event_loop, f| {
            let on_drop = OnDrop(f);
            event_loop.run_next_turn(move || drop(on_drop));
            None
        }),
    ];
    for (name, place) in places {
        let mut event_loop = B::event_loop();
        let handle = event_loop.handle();
        let handler = Handler::install(&handle);
        let mut raised = false;
        let raise = move || {
            if !std::mem::replace(&mut raised, true) {
                // SAFETY: the handler is the one of this test.
                assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
            }
        };
        let hook = place(&event_loop, Box::new(raise));
        let handled = HANDLED.load(Ordering::SeqCst);
        if name != "before_park" {
            event_loop.turn(Some(Duration::ZERO)).unwrap();
            assert_eq!(HANDLED.load(Ordering::SeqCst), handled + 1, "{name}");
        }
        event_loop.turn(Some(background::LONG)).unwrap();
        assert_eq!(HANDLED.load(Ordering::SeqCst), handled + 1, "{name}");
        assert_eq!(handle.metrics().parks, 0, "{name}");
        // It is spent by then.
        event_loop.turn(Some(Duration::from_nanos(1))).unwrap();
        assert_eq!(handle.metrics().parks, 1, "{name}");
        drop((hook, handler));
    }
}

struct OnDrop(Box<dyn FnMut()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The signal lands anywhere on the loop's way into its sleep: also between its last look and the
/// system call.
fn late_wake_from_a_signal_on_the_loop_s_own_thread_as_it_parks<B: Backend>() {
    let _alone = alone();
    let (background, thread) = start::<B>(|event_loop| {
        // The way from the end of a turn to the sleep is a hundred nanoseconds: made longer, so
        // that signals land on it.
        let mut steps = 0_u32;
        let hook = event_loop.before_park(move || {
            steps = (steps + 37) % 1_009;
            (0..steps).for_each(|_| std::hint::spin_loop());
        });
        // It stays until the loop's end.
        std::mem::forget(hook);
    });
    let handle = background.handle();
    handle.post_and_wait(|| ()).unwrap();
    let remote = handle.metrics().remote;
    let handler = Handler::install(handle);
    for _ in 0..1_000 {
        handler.signal(thread.pthread);
        handler.until_turn();
    }
    assert_eq!(handle.metrics().remote, remote, "a wake is no node");
    drop(handler);
    background.end();
}

/// The loop pushes local work as fast as it can, tasks and closures, while 100,000 signals land on
/// its thread.
fn a_storm_of_signals_into_the_local_queue_s_push_leaves_it_sound<B: Backend>() {
    let _alone = alone();
    const SIGNALS: u64 = 100_000;
    const WORKERS: usize = 64;
    static END: AtomicBool = AtomicBool::new(false);
    static PUSHES: AtomicU64 = AtomicU64::new(0);
    END.store(false, Ordering::SeqCst);

    type Workers = Rc<RefCell<Vec<(u64, Option<Waker>)>>>;
    let (ended, has_ended) = mpsc::channel();
    let (background, thread) = start::<B>(move |event_loop| {
        let workers: Workers = Rc::new(RefCell::new(vec![(0, None); WORKERS]));
        for number in 0..WORKERS {
            let workers = workers.clone();
            let work = poll_fn(move |cx| {
                let worker = &mut workers.borrow_mut()[number];
                worker.0 += 1;
                worker.1.get_or_insert_with(|| cx.waker().clone());
                Poll::<()>::Pending
            });
            event_loop.spawn(work).detach();
        }
        let handle = event_loop.handle();
        let (mut rounds, mut posts) = (1, 0);
        let last_post = std::sync::Arc::new(AtomicU64::new(0));
        let pusher = poll_fn(move |cx| {
            // All have run for the last round, each once, or they are still in line.
            let done = workers.borrow().iter().filter(|(polls, _)| *polls == rounds).count();
            if done == WORKERS {
                if END.load(Ordering::SeqCst) && last_post.load(Ordering::SeqCst) == posts {
                    ended.send((rounds, posts)).unwrap();
                    return Poll::Ready(());
                }
                rounds += 1;
                for number in 0..WORKERS {
                    let waker = workers.borrow()[number].1.clone().expect("it has been polled");
                    waker.wake();
                }
                posts += 1;
                let (number, last_post) = (posts, last_post.clone());
                let post = move || {
                    let before = last_post.swap(number, Ordering::SeqCst);
                    assert_eq!(before + 1, number, "posts of one thread are in order");
                };
                handle.post(post).unwrap();
                PUSHES.fetch_add(WORKERS as u64 + 2, Ordering::SeqCst);
            } else {
                let polls = |(polls, _): &(u64, _)| *polls == rounds || *polls + 1 == rounds;
                assert!(workers.borrow().iter().all(polls), "none is polled twice for one wake");
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        event_loop.spawn(pusher).detach();
    });
    let handle = background.handle();
    wait_until("the first pushes", || PUSHES.load(Ordering::SeqCst) > 0);
    let remote = handle.metrics().remote;
    let handler = Handler::install(handle);
    // From another thread, one by one.
    for _ in 0..500 {
        handler.signal(thread.pthread);
        handler.until_turn();
    }
    // And as fast as they come.
    let timer = Timer::start(thread, 15_000);
    let before = HANDLED.load(Ordering::SeqCst);
    for thousands in 1..=SIGNALS / 1_000 {
        wait_until("a thousand signals", || {
            HANDLED.load(Ordering::SeqCst) >= before + 1_000 * thousands
        });
    }
    drop(timer);
    handler.until_turn();
    drop(handler);
    END.store(true, Ordering::SeqCst);
    let (rounds, posts) = has_ended.recv_timeout(background::LONG).unwrap();
    assert_eq!(rounds, posts + 1);
    let metrics = handle.metrics();
    assert_eq!((metrics.remote, metrics.panics), (remote, 0), "a wake is no node");
    background.end();
}

fn a_wake_from_a_signal_handler_after_the_loop_s_end_is_nothing<B: Backend>() {
    let _alone = alone();
    let event_loop = B::event_loop();
    let handler = Handler::install(&event_loop.handle());
    drop(event_loop);
    for _ in 0..10 {
        handler.signal(this_thread().pthread);
    }
}
