//! Tasks from spawn to free, without a driver: a ready queue, a [`Local`], and a bell that counts.
//! Miri interprets these tests, and checks each access of `task/raw.rs` (`.ci/sanitizers`).

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use crate::driver::bell::LoopBell;
use crate::metrics::Counters;
use crate::priority::Priority;
use crate::sys::fork_check::Process;
use crate::task::header::Header;
use crate::task::local::Local;
use crate::task::{JoinError, JoinHandle, JoinSet, Queue, spawn_remote, try_id};

/// The part of an event loop that its tasks need.
struct Tasks {
    local: Local,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    rings: Arc<AtomicUsize>,
}

impl Tasks {
    fn new() -> Self {
        let (rings, counters) = (Arc::<AtomicUsize>::default(), Arc::<Counters>::default());
        let queue = Arc::new(Queue::new(LoopBell::Counting(rings.clone())));
        let local = Local::new(queue.clone(), counters.clone(), None);
        Self { local, queue, counters, rings }
    }

    fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let _entered = self.local.enter();
        self.local.spawn(Priority::Normal, future)
    }

    /// Runs everything that is ready or that others have pushed. Returns how many polls that took.
    fn run(&self) -> usize {
        let _entered = self.local.enter();
        self.local.take_remote();
        std::iter::from_fn(|| self.local.run_normal()).count()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let _entered = self.local.enter();
        self.local.end(Process::now());
    }
}

fn output<T>(handle: JoinHandle<T>) -> Result<T, JoinError> {
    match pin!(handle).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the task is not complete"),
    }
}

/// A future that is pending once, and sends its waker meanwhile.
fn give_waker(to: mpsc::Sender<Waker>) -> impl Future<Output = ()> {
    let mut polled = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        to.send(cx.waker().clone()).unwrap();
        Poll::Pending
    })
}

/// Counts its drops. It has some size, because it lies behind the header.
struct Dropped(Rc<Cell<usize>>, [u64; 8]);

impl Dropped {
    fn counted_by(count: &Rc<Cell<usize>>) -> Self {
        Self(count.clone(), [7; 8])
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        assert_eq!(self.1, [7; 8]);
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_task_runs_and_its_output_is_taken() {
    let tasks = Tasks::new();
    let value = Rc::new(40);
    let handle = tasks.spawn(async move { *value + 2 });
    assert!(!handle.is_finished());
    assert_eq!(tasks.run(), 1);
    assert_eq!(output(handle).unwrap(), 42);
}

#[test]
fn a_task_that_borrows_from_itself_is_woken_by_its_own_thread() {
    let tasks = Tasks::new();
    let (send, wakers) = mpsc::channel();
    let handle = tasks.spawn(async move {
        let numbers = [1, 2, 3];
        let borrowed = &numbers;
        give_waker(send.clone()).await;
        give_waker(send).await;
        borrowed.iter().sum::<i32>()
    });
    assert_eq!(tasks.run(), 1);
    // After a wake by reference the waker can be used again. A wake by value gives its reference
    // up.
    let first = wakers.recv().unwrap();
    {
        let _entered = tasks.local.enter();
        first.wake_by_ref();
        first.wake_by_ref();
    }
    assert_eq!(tasks.run(), 1, "two wakes are one poll");
    {
        let _entered = tasks.local.enter();
        wakers.recv().unwrap().wake();
    }
    assert_eq!(tasks.run(), 1);
    assert_eq!(tasks.rings.load(Ordering::SeqCst), 0);
    drop(first);
    assert_eq!(output(handle).unwrap(), 6);
}

#[test]
fn a_task_that_wakes_itself_while_it_runs_is_polled_again() {
    let tasks = Tasks::new();
    let mut left = 3;
    let handle = tasks.spawn(poll_fn(move |cx| {
        left -= 1;
        if left == 0 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    assert_eq!(tasks.run(), 3);
    output(handle).unwrap();
}

#[test]
fn other_threads_wake_a_task_and_one_of_them_rings() {
    let tasks = Tasks::new();
    let (send, wakers) = mpsc::channel();
    let handle = tasks.spawn(give_waker(send));
    tasks.run();
    assert!(tasks.queue.try_sleep());
    let waker = wakers.recv().unwrap();
    let wakes = [waker.clone(), waker].map(|waker| thread::spawn(move || waker.wake()));
    for wake in wakes {
        wake.join().unwrap();
    }
    assert_eq!(tasks.rings.load(Ordering::SeqCst), 1);
    assert_eq!(tasks.run(), 1);
    output(handle).unwrap();
}

#[test]
fn a_task_is_spawned_and_awaited_by_another_thread() {
    let tasks = Tasks::new();
    let queue = tasks.queue.clone();
    let other = thread::spawn(move || {
        let make = || async { Rc::new(String::from("made on the loop")).to_string() };
        let Ok(handle) = spawn_remote(&queue, Location::caller(), Priority::Normal, make) else {
            panic!("the queue is open");
        };
        futures_lite::future::block_on(handle)
    });
    while !other.is_finished() {
        tasks.run();
        thread::yield_now();
    }
    assert_eq!(other.join().unwrap().unwrap(), "made on the loop");
}

#[test]
fn an_aborted_task_drops_its_future_on_its_loop() {
    let tasks = Tasks::new();
    let dropped = Rc::new(Cell::new(0));
    let held = Dropped::counted_by(&dropped);
    let handle = tasks.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    tasks.run();
    // The abort comes from another thread, which keeps no reference.
    let handle = thread::spawn(move || {
        handle.abort();
        handle
    });
    let handle = handle.join().unwrap();
    assert_eq!(dropped.get(), 0);
    tasks.run();
    assert_eq!(dropped.get(), 1);
    assert!(output(handle).unwrap_err().is_cancelled());
}

#[test]
fn an_output_is_dropped_once_whether_the_handle_goes_before_or_after() {
    let tasks = Tasks::new();
    let dropped = Rc::new(Cell::new(0));
    for (before, expected) in [(true, 1), (false, 2)] {
        let held = Dropped::counted_by(&dropped);
        let handle = tasks.spawn(async move { held });
        if before {
            handle.detach();
            tasks.run();
        } else {
            tasks.run();
            drop(handle);
        }
        assert_eq!(dropped.get(), expected);
    }
}

#[test]
fn a_waker_outlives_the_loop_and_its_last_clone_frees_the_shell() {
    let tasks = Tasks::new();
    let dropped = Rc::new(Cell::new(0));
    let (send, wakers) = mpsc::channel();
    let held = Dropped::counted_by(&dropped);
    let handle = tasks.spawn(async move {
        let _held = held;
        give_waker(send).await;
    });
    tasks.run();
    drop(tasks);
    assert_eq!(dropped.get(), 1, "the loop drops its futures");
    assert!(output(handle).unwrap_err().is_cancelled());
    let waker = wakers.recv().unwrap();
    let clone = waker.clone();
    thread::spawn(move || clone.wake()).join().unwrap();
    waker.wake();
}

#[test]
fn wakes_and_aborts_race_the_loop_s_end() {
    let tasks = Tasks::new();
    let (send, wakers) = mpsc::channel();
    let handle = tasks.spawn(give_waker(send));
    tasks.run();
    let waker = wakers.recv().unwrap();
    let clone = waker.clone();
    let others = [
        thread::spawn(move || clone.wake()),
        thread::spawn(move || {
            handle.abort();
            drop(handle);
        }),
    ];
    drop(tasks);
    for other in others {
        other.join().unwrap();
    }
    drop(waker);
}

#[test]
fn a_task_that_no_loop_has_met_is_cancelled_by_the_end() {
    let tasks = Tasks::new();
    let dropped = Rc::new(Cell::new(0));
    let held = Dropped::counted_by(&dropped);
    let handle = tasks.spawn(async move { drop(held) });
    let queue = tasks.queue.clone();
    drop(tasks);
    assert_eq!(dropped.get(), 1);
    assert!(output(handle).unwrap_err().is_cancelled());
    let late = spawn_remote(&queue, Location::caller(), Priority::Normal, || async {});
    assert!(late.is_err(), "the closure comes back");
}

#[test]
fn a_handle_s_awaiter_is_woken_once() {
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let tasks = Tasks::new();
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let mut handle = tasks.spawn(async { 1 });
    let waker = woken.clone().into();
    let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    tasks.run();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(output(handle).unwrap(), 1);
}

#[test]
fn a_panic_goes_to_the_handle() {
    let tasks = Tasks::new();
    let handle = tasks.spawn(async { panic!("on purpose") });
    tasks.run();
    let payload = output::<()>(handle).unwrap_err().try_into_panic().unwrap();
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    assert_eq!(tasks.counters.read().panics, 0, "it is the handle's");
}

/// Every task of every program pays for what is added to the header.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_task_has_88_bytes_beside_its_future() {
    assert_eq!(size_of::<Header>(), 88);
    assert_eq!(size_of::<super::Task<std::future::Ready<()>>>() - size_of::<Header>(), 32);
}

#[test]
fn an_abort_handle_may_be_the_last_to_go_on_another_thread() {
    let tasks = Tasks::new();
    let not_send = Rc::new(());
    let held = not_send.clone();
    let handle = tasks.spawn(async move {
        pending::<()>().await;
        held
    });
    assert_eq!(tasks.run(), 1);
    let abort = handle.abort_handle();
    drop(handle);
    thread::scope(|scope| scope.spawn(|| abort.clone().abort()).join().unwrap());
    assert_eq!((tasks.run(), Rc::strong_count(&not_send)), (1, 1));
    assert!(abort.is_finished());
    drop(tasks);
    thread::spawn(move || drop(abort)).join().unwrap();
}

#[test]
fn the_running_task_is_known_while_it_runs_and_while_it_is_dropped() {
    struct Notes(Rc<Cell<usize>>, Cell<Option<crate::task::Id>>);
    impl Drop for Notes {
        fn drop(&mut self) {
            assert_eq!(try_id(), self.1.get());
            self.0.set(self.0.get() + 1);
        }
    }
    let (dropped, tasks) = (Rc::new(Cell::new(0)), Tasks::new());
    let spawn = || {
        let notes = Notes(dropped.clone(), Cell::new(None));
        tasks.spawn(async move {
            notes.1.set(try_id());
            pending::<()>().await;
            drop(notes);
        })
    };
    let (aborted, left) = (spawn(), spawn());
    assert_eq!(tasks.run(), 2);
    aborted.abort();
    tasks.run();
    assert_eq!((dropped.get(), try_id()), (1, None));
    {
        let _entered = tasks.local.enter();
        assert_eq!(try_id(), None, "the loop runs, and no task");
    }
    drop(tasks);
    assert_eq!((dropped.get(), try_id()), (2, None));
    drop((aborted, left));
}

#[test]
fn a_set_joins_tasks_that_end_by_themselves_by_an_abort_and_at_the_loop_s_end() {
    let tasks = Tasks::new();
    let mut set = JoinSet::new();
    set.insert(tasks.spawn(async { 1 }));
    let aborted = set.insert(tasks.spawn(pending()));
    let left = set.insert(tasks.spawn(pending()));
    tasks.run();
    aborted.abort();
    tasks.run();
    assert_eq!(set.try_join_next().unwrap().unwrap(), 1);
    assert_eq!(set.try_join_next_with_id().unwrap().0, aborted.id());
    assert!(set.try_join_next().is_none());
    drop(tasks);
    let (id, outcome) = thread::spawn(move || set.try_join_next_with_id()).join().unwrap().unwrap();
    assert!(id == left.id() && outcome.unwrap_err().is_cancelled());
}
