//! The task's life under every order of its threads: who queues it, who drops its output, who frees
//! it.
//!
//! The first models have the state alone. The others combine it with the real ready queue, as
//! `raw.rs` does: the loop runs what it takes, wakers wake and are dropped, and the task's memory
//! keeps the queue alive.

use super::*;
use crate::priority::Priority;
use crate::ready_queue::loom_tests::{ModelBell, ModelQueue, Seen, check};
use crate::ready_queue::{Kind, Node, Order};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize as Count, Ordering::SeqCst};
use loom::thread;
use std::ptr::NonNull;

/// A wake that comes at any moment of a poll leads to one more poll, which sees what the waker
/// wrote before.
#[test]
fn loom_a_wake_during_a_poll_is_not_lost() {
    check(None, || {
        let task = Arc::new((State::new(), Count::new(0), Count::new(0)));
        assert_eq!(task.0.start(), Start::Poll);
        let waker = thread::spawn({
            let task = task.clone();
            move || {
                task.1.store(1, Relaxed);
                if task.0.wake() {
                    task.2.fetch_add(1, SeqCst); // "queued"
                }
            }
        });
        let seen_in_poll = task.1.load(Relaxed) == 1;
        let again = task.0.pause();
        waker.join().unwrap();
        let queued = task.2.load(SeqCst) + usize::from(again);
        assert_eq!(queued, 1, "exactly one more poll, seen in the first or not: {seen_in_poll}");
        assert_eq!(task.0.start(), Start::Poll);
        assert_eq!(task.1.load(Relaxed), 1);
    });
}

/// The output is dropped by exactly one side, and freed by exactly one.
#[test]
fn loom_output_and_memory_have_one_owner() {
    check(None, || {
        let task = Arc::new((State::new(), UnsafeCell::new(0), Count::new(0)));
        assert_eq!(task.0.start(), Start::Poll);
        let drop_output = |task: &(State, UnsafeCell<i32>, Count)| {
            // SAFETY: none needed beyond the model's: loom reports a race.
            task.1.with_mut(|output| unsafe {
                assert_eq!(*output, 7);
                *output = 0;
            });
        };
        let free = |task: &(State, UnsafeCell<i32>, Count)| {
            if task.0.drop_reference() {
                task.2.fetch_add(1, SeqCst);
            }
        };
        let handle = thread::spawn({
            let task = task.clone();
            move || {
                if task.0.drop_handle() {
                    drop_output(&task);
                }
                free(&task);
            }
        });
        // SAFETY: as above.
        task.1.with_mut(|output| unsafe { *output = 7 });
        if !task.0.finish() {
            drop_output(&task);
        }
        free(&task);
        handle.join().unwrap();
        // SAFETY: as above.
        task.1.with(|output| assert_eq!(unsafe { *output }, 0));
        assert_eq!(task.2.load(SeqCst), 1);
    });
}

/// A model of `raw::Header`.
#[repr(C)]
struct Task {
    node: Node,
    state: State,
    queue: Arc<ModelQueue>,
    /// What each waker did before it woke, for the poll to see.
    done: [Count; 2],
    /// Only the loop, and the thread that frees the task, may use this. Loom reports any other
    /// thread.
    polls: UnsafeCell<usize>,
    tally: std::sync::Arc<Tally>,
}

/// Numbers that are counted over one execution, and are no part of the model.
#[derive(Default)]
struct Tally {
    pushes: std::sync::atomic::AtomicUsize,
    refused: std::sync::atomic::AtomicUsize,
    freed: std::sync::atomic::AtomicUsize,
    coalesced: std::sync::atomic::AtomicUsize,
}

static TASK: Kind = Kind {
    priority: Priority::Normal,
    run: no_run,
    discard: no_run,
    leave: no_run,
    order: |_| Order::Any,
};

unsafe fn no_run(_: NonNull<Node>) {
    unreachable!("the models run their tasks themselves");
}

/// One reference, like that of a waker or of the loop.
#[derive(Clone, Copy)]
struct Reference(NonNull<Task>);

impl Reference {
    /// A task that has run once and is idle, with two references: the loop's and the first waker's.
    fn idle_task(queue: &Arc<ModelQueue>) -> (Self, std::sync::Arc<Tally>) {
        let tally = std::sync::Arc::<Tally>::default();
        let task = Box::new(Task {
            node: Node::new(&TASK),
            state: State::new(),
            queue: queue.clone(),
            done: [Count::new(0), Count::new(0)],
            polls: UnsafeCell::new(0),
            tally: tally.clone(),
        });
        assert_eq!(task.state.start(), Start::Poll);
        assert!(!task.state.pause());
        (Self(NonNull::from(Box::leak(task))), tally)
    }

    fn task(&self) -> &Task {
        // SAFETY: the reference keeps it.
        unsafe { self.0.as_ref() }
    }

    /// Like `raw::wake`.
    fn wake(&self, waker: usize) {
        let task = self.task();
        task.done[waker].store(1, Relaxed);
        if task.state.wake() {
            task.tally.pushes.fetch_add(1, Relaxed);
            // SAFETY: idle until now, so in no queue; the loop's reference keeps it.
            let refused = unsafe { task.queue.push(self.0.cast()) }.is_err();
            task.tally.refused.fetch_add(usize::from(refused), Relaxed);
        } else {
            task.tally.coalesced.fetch_add(1, Relaxed);
        }
    }

    /// Like `raw::drop_reference`.
    fn give_up(self) {
        let tally = self.task().tally.clone();
        if self.task().state.drop_reference() {
            tally.freed.fetch_add(1, Relaxed);
            // SAFETY: that was the last reference.
            let task = unsafe { Box::from_raw(self.0.as_ptr()) };
            task.polls.with_mut(|_| ());
        }
    }

    /// One poll: the part of `raw::Task::run` that other threads can notice. Returns whether both
    /// wakers have been seen.
    fn poll(&self) -> bool {
        // SAFETY: the loop's thread; loom reports another one.
        self.task().polls.with_mut(|polls| unsafe { *polls += 1 });
        self.task().done.iter().all(|done| done.load(Relaxed) == 1)
    }

    fn polls(&self) -> usize {
        // SAFETY: as in `poll`.
        self.task().polls.with(|polls| unsafe { *polls })
    }

    /// Changes the state like `raw::Task::finish`.
    fn finish(self) {
        // The state of the models' task has a handle that nobody holds. The reference that was the
        // handle's is a waker's here.
        self.task().state.finish();
        self.give_up();
    }
}

/// Two threads wake one task. There is one push for each time that the task goes from idle to
/// scheduled. A wake that finds it scheduled leaves the push to the other thread, and the poll sees
/// what both threads did.
#[test]
fn loom_one_task_woken_by_two_threads_is_queued_once() {
    let seen = Seen::default();
    let coalesced = seen.clone();
    check(Some(4), move || {
        let queue = Arc::new(ModelQueue::new(ModelBell::new()));
        let (task, tally) = Reference::idle_task(&queue);
        task.task().state.add_reference();
        let wakers = [0, 1].map(|number| {
            thread::spawn(move || {
                task.wake(number);
                task.give_up();
            })
        });
        let mut polled_again = 0;
        let mut ready = None;
        loop {
            ready = ready.or_else(|| {
                let mut drained = queue.drain();
                let node = drained.next();
                assert!(drained.next().is_none(), "one task, queued once");
                node
            });
            if let Some(node) = ready.take() {
                assert_eq!(node.cast(), task.0);
                assert_eq!(task.task().state.start(), Start::Poll);
                if task.poll() {
                    break;
                }
                if task.task().state.pause() {
                    polled_again += 1;
                    ready = Some(node);
                }
            } else if queue.try_sleep() {
                queue.wait_for_bell();
            }
        }
        let polls = task.polls();
        task.finish();
        for waker in wakers {
            waker.join().unwrap();
        }
        assert_eq!(polls, tally.pushes.load(Relaxed) + polled_again, "a poll for each push");
        assert_eq!(tally.freed.load(Relaxed), 1);
        coalesced.note(tally.coalesced.load(Relaxed) == 1 && polled_again == 0 && polls == 1);
        assert!(queue.drain().next().is_none(), "a complete task is not queued");
    });
    seen.assert("a wake coalesces into the other thread's");
}

/// The loop ends while a waker fires. The loop closes the queue, drops the future in place, and
/// gives up its references to the task and to the queue. Then the waker's references may be the
/// last ones, and both objects must last until the waker has rung.
#[test]
fn loom_a_waker_fires_while_the_loop_ends() {
    let (after_close, freed_by_waker) = (Seen::default(), Seen::default());
    let seen = (after_close.clone(), freed_by_waker.clone());
    check(None, move || {
        let queue = Arc::new(ModelQueue::new(ModelBell::new()));
        let (task, tally) = Reference::idle_task(&queue);
        let waker = thread::spawn({
            let tally = tally.clone();
            move || {
                task.wake(0);
                let before = tally.freed.load(Relaxed);
                task.give_up();
                tally.freed.load(Relaxed) > before
            }
        });
        queue.try_sleep();
        let taken = queue.close().count();
        task.task().state.seize();
        task.finish();
        drop(queue);
        freed_by_waker.note(waker.join().unwrap());
        let refused = tally.refused.load(Relaxed);
        assert_eq!(tally.pushes.load(Relaxed), taken + refused);
        assert_eq!(tally.freed.load(Relaxed), 1);
        after_close.note(refused == 1);
    });
    seen.0.assert("a push is refused");
    seen.1.assert("the waker frees the task, and the queue with it");
}
