//! `LoopHandle::wake` from a signal handler: errno is kept, nothing is allocated, the loop's own lists are not touched, and each
//! wake leads to a turn, wherever the signal lands. Alone in its process, because handlers and the allocator are the process's.

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

use wakeful::{EventLoop, LoopHandle};

use self::backend::Backend;
use self::background::{Background, until_asleep, wait_until};

on_every_backend! {
    late_wake_from_a_signal_handler_is_one_turn_and_one_park,
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
    // SAFETY: the handle lives as long as the test that has set it, and that waits for its signals.
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

/// One test at a time has the handler.
struct Handler<'a> {
    handle: Box<LoopHandle>,
    _turn: MutexGuard<'a, ()>,
}

impl Handler<'_> {
    fn install(handle: &LoopHandle) -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let turn = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as usize;
        // SAFETY: the handler does async-signal-safe things only, which is what the tests are about.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) }, 0);
        let mut this = Self { handle: Box::new(handle.clone()), _turn: turn };
        TARGET.store(&raw mut *this.handle, Ordering::SeqCst);
        this
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

impl Drop for Handler<'_> {
    fn drop(&mut self) {
        TARGET.store(ptr::null_mut(), Ordering::SeqCst);
        if !std::thread::panicking() {
            assert!(!ERRNO_CHANGED.load(Ordering::SeqCst), "errno is kept");
            assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0, "nothing is allocated");
        }
    }
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: it always succeeds.
    unsafe { libc::pthread_self() }
}

/// A loop that counts the turns that end, and its thread.
fn start<B: Backend>(
    prepare: impl FnOnce(&EventLoop) + Send + 'static,
) -> (Background, libc::pthread_t) {
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
    let (background, _) = start::<B>(|event_loop| {
        event_loop.spawn(wakeful::time::sleep(std::time::Duration::from_secs(5))).detach();
    });
    let handle = background.handle();
    let handler = Handler::install(handle);
    let mut before = handle.run_and_wait(|| ()).map(|()| None).unwrap();
    for _ in 0..200 {
        until_asleep(handle);
        handler.signal(this_thread());
        handler.until_turn();
        until_asleep(handle);
        // Counted on the loop's own thread, which takes a turn and a park of its own.
        let counted = handle.clone();
        let now = handle.run_and_wait(move || counted.metrics()).unwrap();
        if let Some((turns, parks, remote)) = before {
            let since = (now.turns - turns, now.parks - parks, now.remote - remote);
            assert_eq!(since, (2, 2, 1), "turns, parks, nodes from other threads");
        }
        before = Some((now.turns, now.parks, now.remote));
    }
    drop(handler);
    background.end();
}

/// The signal lands anywhere on the loop's way into its sleep: also between its last look and the system call.
fn late_wake_from_a_signal_on_the_loop_s_own_thread_as_it_parks<B: Backend>() {
    let (background, thread) = start::<B>(|event_loop| {
        // The way from the end of a turn to the sleep is a hundred nanoseconds: made longer, so that signals land on it.
        let mut steps = 0_u32;
        let hook = event_loop.before_park(move || {
            steps = (steps + 37) % 1_009;
            (0..steps).for_each(|_| std::hint::spin_loop());
        });
        // It stays until the loop's end.
        std::mem::forget(hook);
    });
    let handle = background.handle();
    handle.run_and_wait(|| ()).unwrap();
    let remote = handle.metrics().remote;
    let handler = Handler::install(handle);
    for _ in 0..5_000 {
        handler.signal(thread);
        handler.until_turn();
    }
    assert_eq!(handle.metrics().remote, remote, "a wake is no node");
    drop(handler);
    background.end();
}

/// The loop pushes local work as fast as it can, tasks and closures, while 100,000 signals land on its thread.
fn a_storm_of_signals_into_the_local_queue_s_push_leaves_it_sound<B: Backend>() {
    const SIGNALS: u32 = 100_000;
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
                handle.run(post).unwrap();
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
    for number in 0..SIGNALS {
        handler.signal(thread);
        if number % 100 == 0 {
            handler.until_turn();
        }
    }
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
    let event_loop = B::event_loop();
    let handler = Handler::install(&event_loop.handle());
    drop(event_loop);
    for _ in 0..10 {
        handler.signal(this_thread());
    }
}
