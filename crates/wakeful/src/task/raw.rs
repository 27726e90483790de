//! The task in memory: a header that everybody may hold, and a stage that the loop's thread owns.

use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use atomic_waker::AtomicWaker;

use super::Queue;
use super::join::JoinError;
use super::local::{self, Local};
use super::queued::Queued;
use super::state::{Start, State};
use crate::priority::Priority;
use crate::ready_queue::{Kind, Node, Order};
use crate::sys::panics;
use crate::sys::sync::UnsafeCell;

/// What every task starts with, whatever its future.
#[repr(C)]
pub(super) struct Header {
    /// First, so that a pointer to the node is one to the header and to the task.
    queued: Queued,
    pub(super) state: State,
    queue: Arc<Queue>,
    vtable: &'static Vtable,
    /// Its place among the loop's tasks. The loop's thread alone looks at it.
    place: Cell<usize>,
    pub(super) joiner: AtomicWaker,
}

/// The loop has not met the task yet: it was spawned from another thread.
const NO_PLACE: usize = usize::MAX;

struct Vtable {
    /// Ends the task without polling it.
    cancel: unsafe fn(NonNull<Header>),
    /// Moves the output into an `Option<Result<F::Output, JoinError>>`, if it is still there.
    take_output: unsafe fn(NonNull<Header>, *mut ()),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Task<F: Future> {
    header: Header,
    /// Until the task is complete, the loop's thread alone touches it; then whoever `State` says
    /// has the output.
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Output(Result<F::Output, JoinError>),
    Empty,
}

/// Makes a task of `future`. It is scheduled, in no queue yet, and has two references: the loop's and
/// its handle's.
pub(super) fn allocate<F: Future + 'static>(
    priority: Priority,
    future: F,
    queue: Arc<Queue>,
    spawned_at: &'static Location<'static>,
) -> NonNull<Header> {
    let kind = match priority {
        Priority::Normal => Task::<F>::NORMAL,
        Priority::High => Task::<F>::HIGH,
    };
    let task = Task {
        header: Header {
            queued: Queued::new(kind, spawned_at),
            state: State::new(),
            queue,
            vtable: Task::<F>::VTABLE,
            place: Cell::new(NO_PLACE),
            joiner: AtomicWaker::new(),
        },
        stage: UnsafeCell::new(Stage::Future(future)),
    };
    NonNull::from(Box::leak(Box::new(task))).cast()
}

/// Takes the future of a task that no loop has met back out, and frees the task.
///
/// # Safety
/// `allocate::<F>` made the task, it is in no queue, and both references are the caller's.
pub(super) unsafe fn deallocate<F: Future>(header: NonNull<Header>) -> F {
    // SAFETY: the caller's promise.
    let task = unsafe { Box::from_raw(header.cast::<Task<F>>().as_ptr()) };
    let stage = task.stage.with_mut(|stage| {
        // SAFETY: the box is ours alone.
        std::mem::replace(unsafe { &mut *stage }, Stage::Empty)
    });
    match stage {
        Stage::Future(future) => future,
        Stage::Output(_) | Stage::Empty => unreachable!("the task has not run"),
    }
}

impl<F: Future> Task<F> {
    const NORMAL: &'static Kind = &Self::kind(Priority::Normal);
    const HIGH: &'static Kind = &Self::kind(Priority::High);
    const VTABLE: &'static Vtable =
        &Vtable { cancel: Self::cancel, take_output: Self::take_output, free: Self::free };

    const fn kind(priority: Priority) -> Kind {
        Kind { priority, run: Self::run, discard: Self::discard, order: Self::order }
    }

    /// [`Kind::run`]: one poll.
    ///
    /// The task may be freed in here, so no reference to it lives longer than its use.
    unsafe fn run(node: NonNull<Node>) {
        let task = node.cast::<Self>();
        // SAFETY: nodes of this kind are the first field of a `Task<F>`; the loop's reference keeps
        // it alive until `finish`.
        let header = || unsafe { &task.as_ref().header };
        local::with_current(|local| {
            if header().place.get() == NO_PLACE {
                header().place.set(local.adopt(node.cast()));
            }
            if header().state.start() == Start::Cancel {
                // SAFETY: started, so RUNNING, on the loop's thread.
                unsafe { Self::finish(task, Err(JoinError::cancelled()), local) };
                return;
            }
            // SAFETY: a borrowed waker: it is never dropped, and the task outlives it.
            let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(node.cast())) });
            let mut cx = Context::from_waker(&waker);
            let poll = || {
                // SAFETY: the state is RUNNING, so the stage is ours; the future never moves.
                unsafe {
                    task.as_ref().stage.with_mut(|stage| match &mut *stage {
                        Stage::Future(future) => Pin::new_unchecked(future).poll(&mut cx),
                        Stage::Output(_) | Stage::Empty => {
                            unreachable!("a complete task is not run")
                        }
                    })
                }
            };
            let output = match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Pending) => {
                    if header().state.pause() {
                        local.push(node);
                    }
                    return;
                }
                Ok(Poll::Ready(output)) => Ok(output),
                Err(payload) => {
                    panics::advise(&*payload);
                    Err(JoinError::panicked(payload))
                }
            };
            // SAFETY: RUNNING, on the loop's thread.
            unsafe { Self::finish(task, output, local) };
        });
    }

    /// [`Kind::discard`]: a queue ends with this task in it.
    unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: as in `run`.
        if unsafe { node.cast::<Header>().as_ref() }.place.get() == NO_PLACE {
            // No loop has met it, so none would end it.
            // SAFETY: as in `run`.
            unsafe { Self::cancel(node.cast()) };
        }
    }

    /// [`Kind::order`].
    unsafe fn order(node: NonNull<Node>) -> Order {
        // SAFETY: as in `run`.
        let place = unsafe { node.cast::<Header>().as_ref() }.place.get();
        if place == NO_PLACE { Order::AsQueued } else { Order::Any }
    }

    unsafe fn cancel(header: NonNull<Header>) {
        // SAFETY: the caller's promise; the loop's reference keeps the task alive until `finish`.
        unsafe {
            header.as_ref().state.seize();
            let cancelled = Err(JoinError::cancelled());
            local::with_current(|local| Self::finish(header.cast(), cancelled, local));
        }
    }

    /// Drops the future, leaves the output to the handle or drops it too, and gives the loop's
    /// reference up: the task may be gone afterwards.
    ///
    /// # Safety
    /// On the loop's thread, state RUNNING.
    unsafe fn finish(task: NonNull<Self>, mut output: Result<F::Output, JoinError>, local: &Local) {
        // SAFETY: alive by the loop's reference, which goes last.
        let header = || unsafe { &task.as_ref().header };
        let replace = |new: Stage<F>| {
            // SAFETY: RUNNING, or complete without a handle: the stage is ours. The future is
            // pinned: it is dropped where it is, never moved out.
            let dropped = unsafe {
                task.as_ref().stage.with_mut(|stage| {
                    let dropped = catch_unwind(AssertUnwindSafe(|| stage.drop_in_place()));
                    stage.write(new);
                    dropped
                })
            };
            dropped.err()
        };
        if let Some(payload) = replace(Stage::Empty) {
            if output.as_ref().is_err_and(JoinError::is_panic) {
                // The handle is told of the first panic.
                panics::swallow(payload);
            } else {
                // Also of an aborted task: it did not end as it was asked to.
                let lost = std::mem::replace(&mut output, Err(JoinError::panicked(payload)));
                panics::discard(lost);
            }
        }
        replace(Stage::Output(output));
        local.disown(header().place.get());
        if header().state.finish() {
            panics::contain(|| header().joiner.wake());
        } else if let Some(payload) = replace(Stage::Empty) {
            // Nobody will ask, and the output panicked in its drop.
            panics::swallow(payload);
        }
        // SAFETY: the loop's reference, of which there is no use after this.
        unsafe { drop_reference(task.cast()) };
    }

    unsafe fn take_output(header: NonNull<Header>, into: *mut ()) {
        // SAFETY: the handle calls this, with the type that the task was made with.
        let (task, into) = unsafe {
            let into = into.cast::<Option<Result<F::Output, JoinError>>>();
            (header.cast::<Self>().as_ref(), &mut *into)
        };
        // SAFETY: complete, and the handle asks: the stage is its own.
        *into = task.stage.with_mut(|stage| unsafe {
            // `abandon` has left the future where it is pinned.
            if matches!(*stage, Stage::Future(_)) {
                return Some(Err(JoinError::cancelled()));
            }
            match std::mem::replace(&mut *stage, Stage::Empty) {
                Stage::Output(output) => Some(output),
                Stage::Future(_) | Stage::Empty => None,
            }
        });
    }

    unsafe fn free(header: NonNull<Header>) {
        // SAFETY: the last reference is gone, so the future is too (the loop gives its reference up
        // after dropping it), and the output was the handle's or dropped.
        drop(unsafe { Box::from_raw(header.cast::<Self>().as_ptr()) });
    }
}

/// Ends a task at its loop's end.
///
/// # Safety
/// The task is one of the loop's, and this is the loop's thread.
pub(super) unsafe fn cancel(header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    unsafe { (header.as_ref().vtable.cancel)(header) }
}

/// Ends a task at the end of an inherited loop, in a forked child. Its future is never dropped: it
/// may own a lock that a thread of the parent held at the fork. So it stays where it is pinned,
/// because the loop's reference is never given up.
///
/// # Safety
/// The task is one of `local`'s, and this is the loop's thread.
pub(super) unsafe fn abandon(header: NonNull<Header>, local: &Local) {
    // SAFETY: the loop's reference keeps the task alive, for ever.
    let header = unsafe { header.as_ref() };
    header.state.seize();
    local.disown(header.place.get());
    if header.state.finish() {
        panics::contain(|| header.joiner.wake());
    }
}

/// Moves the output of a complete task out, if it is still there.
///
/// # Safety
/// The task is complete, has an output of type `T`, and the caller is its only handle.
pub(super) unsafe fn take_output<T>(header: NonNull<Header>) -> Option<Result<T, JoinError>> {
    let mut output = None;
    // SAFETY: the caller's promise.
    unsafe { (header.as_ref().vtable.take_output)(header, (&raw mut output).cast()) };
    output
}

/// Gives a reference up, and frees the task if it was the last one.
///
/// # Safety
/// `header` came from [`allocate`], and the reference is the caller's to give up.
pub(super) unsafe fn drop_reference(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive until here.
    unsafe {
        if header.as_ref().state.drop_reference() {
            (header.as_ref().vtable.free)(header);
        }
    }
}

/// Wakes the task. From its own loop's thread that is one atomic operation on its state.
///
/// # Safety
/// `header` came from [`allocate`], and the caller has a reference to the task.
pub(super) unsafe fn wake(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive.
    unsafe {
        if header.as_ref().state.wake() {
            queue(header);
        }
    }
}

/// Asks for the task's end.
///
/// # Safety
/// As for [`wake`].
pub(super) unsafe fn abort(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive.
    unsafe {
        if header.as_ref().state.abort() {
            queue(header);
        }
    }
}

/// # Safety
/// As for [`wake`], and the state just went from idle to SCHEDULED.
unsafe fn queue(header: NonNull<Header>) {
    // A refusal means that the loop has ended: the task is a shell, or will be in a moment.
    // SAFETY: the caller's SCHEDULED means that the node is in no queue; the loop's reference keeps
    // the task, and the caller's keeps the queue until the bell is rung.
    let _ = unsafe { local::schedule(&header.as_ref().queue, header.cast()) };
}

/// A waker's data is the pointer that [`allocate`] returned, unchanged. A pointer made from a
/// `&Header` would not do: the loop runs and frees the whole task through the pointer that a wake queues.
fn raw_waker(header: NonNull<Header>) -> RawWaker {
    RawWaker::new(header.as_ptr().cast_const().cast(), vtable())
}

/// Is it a task's own? Its clone, its drop, and waking by it run nobody's code.
pub(super) fn is_own(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), vtable())
}

fn vtable() -> &'static RawWakerVTable {
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake_by_value, wake_by_ref, drop);

    /// # Safety
    /// `data` is that of a task's waker, which keeps the task alive.
    unsafe fn header_of(data: *const ()) -> NonNull<Header> {
        // SAFETY: `raw_waker` made it from a `NonNull`.
        unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
    }
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the waker that is cloned keeps the task alive.
        let header = unsafe { header_of(data) };
        // SAFETY: as above.
        unsafe { header.as_ref() }.state.add_reference();
        raw_waker(header)
    }
    unsafe fn wake_by_value(data: *const ()) {
        // SAFETY: as in `clone`; the reference is given up after its last use.
        unsafe {
            wake_by_ref(data);
            drop(data);
        }
    }
    unsafe fn wake_by_ref(data: *const ()) {
        // SAFETY: as in `clone`.
        unsafe { wake(header_of(data)) };
    }
    unsafe fn drop(data: *const ()) {
        // SAFETY: as in `clone`; the waker's reference goes here.
        unsafe { drop_reference(header_of(data)) };
    }

    &VTABLE
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
