//! The task in memory: a header that handles and wakers on any thread may use, and a stage that
//! belongs to the loop's thread.

use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use atomic_waker::AtomicWaker;

use super::Queue;
use super::header::{Header, NO_PLACE, Vtable, drop_reference};
use super::id::Id;
use super::join_error::JoinError;
use super::local::{self, Local};
use super::queued::Queued;
use super::state::{Start, State};
use super::waker::raw_waker;
use crate::priority::Priority;
use crate::ready_queue::{Kind, Node, Order};
use crate::sys::panics;
use crate::sys::sync::UnsafeCell;

#[repr(C)]
struct Task<F: Future> {
    header: Header,
    /// Until the task is complete, only the loop's thread may use this. Afterwards it belongs to
    /// the owner of the output, which `State` tells.
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Output(Result<F::Output, JoinError>),
    Empty,
}

/// Makes a task of `future`. The task is scheduled, but in no queue yet. It has two references: the
/// loop's and its handle's.
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

/// Takes the future out of a task that no loop has seen yet, and frees the task.
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
        Kind {
            priority,
            run: Self::run,
            discard: Self::discard,
            leave: Self::leave,
            order: Self::order,
        }
    }

    /// [`Kind::run`]: polls the task once.
    unsafe fn run(node: NonNull<Node>) {
        local::with_current(|local| {
            local.set_running(Some(Id::of(node.cast())));
            // SAFETY: the caller's promise, on the thread of the task's loop.
            unsafe { Self::run_on(local, node) };
            local.set_running(None);
        });
    }

    /// The task may be freed here, so no reference to it may outlive its use.
    #[inline(always)]
    unsafe fn run_on(local: &Local, node: NonNull<Node>) {
        let task = node.cast::<Self>();
        // SAFETY: nodes of this kind are the first field of a `Task<F>`; the loop's reference keeps
        // it alive until `finish`.
        let header = || unsafe { &task.as_ref().header };
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
                    Stage::Output(_) | Stage::Empty => unreachable!("a complete task is not run"),
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
    }

    /// [`Kind::discard`]: drops the task, because its queue ends with the task in it.
    unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: as in `run`.
        if unsafe { node.cast::<Header>().as_ref() }.place.get() == NO_PLACE {
            // No loop has met it, so none would end it.
            // SAFETY: as in `run`.
            unsafe { Self::cancel(node.cast()) };
        }
    }

    /// [`Kind::leave`]: the loop meets the task, if it has not, and so ends it with the others.
    unsafe fn leave(node: NonNull<Node>) {
        // SAFETY: as in `run`.
        let header = unsafe { node.cast::<Header>().as_ref() };
        if header.place.get() == NO_PLACE {
            local::with_current(|local| header.place.set(local.adopt(node.cast())));
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
            local::with_current(|local| {
                let outer = local.set_running(Some(Id::of(header)));
                Self::finish(header.cast(), cancelled, local);
                local.set_running(outer);
            });
        }
    }

    /// Drops the future, leaves the output to the handle or drops it too, and gives up the loop's
    /// reference. The task may be gone afterwards.
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
                // The handle gets the first panic, so this one is swallowed.
                panics::swallow(payload);
            } else {
                // The panic also replaces the result of an aborted task, because the task did not
                // end as it was asked to.
                let lost = std::mem::replace(&mut output, Err(JoinError::panicked(payload)));
                panics::discard(lost);
            }
        }
        replace(Stage::Output(output));
        local.disown(header().place.get());
        if header().state.finish() {
            local.wake_joiner(header());
        } else if let Some(payload) = replace(Stage::Empty) {
            // Nobody will take the output, and it has panicked in its drop.
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
            // `abandon` has left the future in its pinned place.
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

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
