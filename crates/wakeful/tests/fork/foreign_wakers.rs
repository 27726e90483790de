//! Who waits for a loop's tasks, sockets and timers may belong to another executor. Its waker may
//! take a lock that another thread of the parent holds at the fork. A forked child must not wait
//! for that lock.

use std::cell::Cell;
use std::future::{Future, pending};
use std::mem;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use wakeful::net::{UdpSocket, UnixStream};
use wakeful::task::JoinSet;

use crate::backend::Backend;
use crate::child::{fork, in_child_with, one_at_a_time, report, verdict};
use crate::is_refused;

/// Another executor. Its wakers take its lock whenever they are cloned, woken or dropped.
#[derive(Default)]
struct Foreign {
    lock: Mutex<()>,
    woken: AtomicUsize,
}

impl Foreign {
    fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: the table's functions own and borrow the count as a waker does.
        unsafe { Waker::from_raw(raw_waker(self.clone())) }
    }

    fn poll<F: Future + ?Sized>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker()))
    }

    fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }

    /// Holds the lock on another thread, until the sender is dropped. `f` gets the sender.
    fn while_it_is_locked(&self, f: impl FnOnce(mpsc::Sender<()>)) {
        let (is_locked, locked) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _held = self.lock.lock().unwrap();
                is_locked.send(()).unwrap();
                assert!(released.recv().is_err());
            });
            locked.recv().unwrap();
            f(release);
        });
    }
}

fn raw_waker(foreign: Arc<Foreign>) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let foreign = mem::ManuallyDrop::new(owned(data));
            drop(foreign.lock.lock().unwrap());
            raw_waker(Arc::clone(&foreign))
        },
        |data| wake(&owned(data)),
        |data| wake(&mem::ManuallyDrop::new(owned(data))),
        |data| drop(owned(data).lock.lock().unwrap()),
    );
    fn owned(data: *const ()) -> Arc<Foreign> {
        // SAFETY: the data of a waker of this table is an `Arc` of this type.
        unsafe { Arc::from_raw(data.cast()) }
    }
    fn wake(foreign: &Foreign) {
        drop(foreign.lock.lock().unwrap());
        foreign.woken.fetch_add(1, Ordering::Relaxed);
    }
    RawWaker::new(Arc::into_raw(foreign).cast(), &TABLE)
}

pub(crate) fn drop_in_the_child_calls_no_waker_of_who_awaits_a_task<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let mut begun = event_loop.spawn(pending::<()>());
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    let mut new = event_loop.spawn(pending::<()>());
    for task in [&mut begun, &mut new] {
        assert!(foreign.poll(Pin::new(task)).is_pending());
    }
    foreign.while_it_is_locked(|_release| {
        in_child_with(&mut event_loop, |event_loop| {
            drop(event_loop);
            assert!(B::block_on(&mut begun).unwrap_err().is_cancelled());
            assert!(B::block_on(&mut new).unwrap_err().is_cancelled());
        });
    });
    drop(event_loop);
    assert_eq!(foreign.woken(), 2, "in the parent");
}

pub(crate) fn drop_in_the_child_calls_no_waker_of_who_awaits_a_set<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let mut set = JoinSet::new();
    set.insert(event_loop.spawn(pending::<()>()));
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    set.insert(event_loop.spawn(pending::<()>()));
    assert!(foreign.poll(pin!(set.join_next())).is_pending());
    foreign.while_it_is_locked(|_release| {
        in_child_with(&mut event_loop, |event_loop| {
            drop(event_loop);
            for _ in 0..2 {
                let ended = B::block_on(set.join_next()).expect("two tasks were in it");
                assert!(ended.unwrap_err().is_cancelled());
            }
        });
    });
    drop(event_loop);
    assert_eq!(foreign.woken(), 1, "in the parent");
}

pub(crate) fn drop_in_the_child_calls_no_waker_of_who_awaits_a_socket<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let sockets = async { (UnixStream::pair().unwrap(), UdpSocket::bind("127.0.0.1:0").await) };
    let ((mut stream, _peer), datagrams) = event_loop.block_on(sockets).unwrap();
    let (datagrams, mut buf) = (datagrams.unwrap(), [0; 2]);
    let (of_stream, of_datagrams) = buf.split_at_mut(1);
    let mut read = pin!(stream.read(of_stream));
    let mut received = pin!(datagrams.recv_from(of_datagrams));
    assert!(foreign.poll(read.as_mut()).is_pending());
    assert!(foreign.poll(received.as_mut()).is_pending());
    foreign.while_it_is_locked(|_release| in_child_with(&mut event_loop, drop));
    drop(event_loop);
    assert_eq!(foreign.woken(), 2, "in the parent");
}

pub(crate) fn drop_in_the_child_calls_no_waker_of_who_awaits_a_timer<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let mut sleep = pin!(wakeful::time::sleep(Duration::from_secs(3600)));
    let polled = event_loop.block_on(async { foreign.poll(sleep.as_mut()) });
    assert!(polled.unwrap().is_pending());
    foreign.while_it_is_locked(|_release| in_child_with(&mut event_loop, drop));
    drop(event_loop);
    assert_eq!(foreign.woken(), 1, "in the parent");
}

/// The child may await the handle, and drop it, as long as it has the loop. It is told of the end.
pub(crate) fn a_handle_in_the_child_forgets_who_awaits_it_in_the_parent<B: Backend>() {
    let _one = one_at_a_time();
    let (foreign, of_child) = (Arc::new(Foreign::default()), Arc::new(Foreign::default()));
    let mut event_loop = B::event_loop();
    let tasks = || event_loop.spawn(pending::<()>());
    let (mut polled, mut dropped, mut inserted) = (tasks(), tasks(), tasks());
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    for task in [&mut polled, &mut dropped, &mut inserted] {
        assert!(foreign.poll(Pin::new(task)).is_pending());
    }
    let mut tasks = (polled, dropped, inserted, event_loop);
    foreign.while_it_is_locked(|_release| {
        in_child_with(&mut tasks, |(mut polled, dropped, inserted, event_loop)| {
            drop(dropped);
            let mut set = JoinSet::new();
            set.insert(inserted);
            assert!(of_child.poll(pin!(set.join_next())).is_pending());
            for _ in 0..2 {
                assert!(of_child.poll(Pin::new(&mut polled)).is_pending());
            }
            drop(event_loop);
            assert_eq!(of_child.woken(), 2);
            assert!(B::block_on(&mut polled).unwrap_err().is_cancelled());
            assert!(B::block_on(set.join_next()).unwrap().unwrap_err().is_cancelled());
        });
    });
    drop(tasks);
}

/// The set's own drop, and its poll, have the waker of who awaits it.
pub(crate) fn a_set_in_the_child_forgets_who_awaits_it_in_the_parent<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let mut sets = [JoinSet::new(), JoinSet::new()];
    for set in &mut sets {
        set.insert(event_loop.spawn(pending::<()>()));
        assert!(foreign.poll(pin!(set.join_next())).is_pending());
    }
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    foreign.while_it_is_locked(|_release| {
        in_child_with(&mut sets, |[mut polled, dropped]| {
            drop(dropped);
            let of_child = Arc::new(Foreign::default());
            assert!(of_child.poll(pin!(polled.join_next())).is_pending());
        });
    });
    drop((sets, event_loop));
}

pub(crate) fn a_task_that_forks_and_returns_wakes_nobody_in_the_child<B: Backend>() {
    let _one = one_at_a_time();
    let foreign = Arc::new(Foreign::default());
    let mut event_loop = B::event_loop();
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let (child, release) = (Rc::new(Cell::new(-1)), Rc::new(Cell::new(None)));
    let (copied, of_task) = (child.clone(), release.clone());
    let mut task = event_loop.spawn(async move {
        copied.set(fork());
        let release = of_task.take();
        if copied.get() == 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::alarm(30) };
            // The drop of a sender takes a lock.
            mem::forget(release);
        }
    });
    assert!(foreign.poll(Pin::new(&mut task)).is_pending());
    foreign.while_it_is_locked(|locked| {
        release.set(Some(locked));
        let ran = event_loop.turn(Some(Duration::ZERO));
        if child.get() == 0 {
            report(&theirs, || {
                is_refused(ran);
                drop(event_loop);
            });
        }
        ran.unwrap();
    });
    verdict(child.get(), ours, theirs);
    assert_eq!(foreign.woken(), 1, "in the parent");
}
