//! A number of permits, and a queue of the tasks that wait for one.
//!
//! One word has the number of free permits, and whether a task waits. While no task waits, a permit
//! is taken and returned by a compare-and-swap of that word. A task waits only while no permit is
//! free. A permit that comes back then goes to the first task in the queue, not to the word, so no
//! later task can overtake it.
//!
//! **The invariant.** WAITED is set if and only if a task is in the queue, and then no permit is
//! free. WAITED is set and cleared only under the queue's lock. So:
//!
//! * A task that finds no permit locks the queue, and looks again, because a permit may have come
//!   back. It sets WAITED by a compare-and-swap from "none free". A permit that comes back before
//!   that is found. A permit that comes back after that finds WAITED.
//! * A thread that gives a permit back and finds WAITED locks the queue. If the last waiter has
//!   left meanwhile, WAITED is clear, and the permit goes to the word.
//!
//! Wakers are foreign code: they are cloned, dropped and woken while no lock is held.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;
use wakeful::process::ProcessMark;

use crate::foreign_code;

/// Set while a task waits.
const WAITED: usize = 1;
/// The value of one free permit.
const ONE: usize = 2;

#[derive(Debug)]
pub(super) struct Permits {
    word: CachePadded<AtomicUsize>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The waiting tasks by their tickets. The lowest ticket came first. A task that is given a
    /// permit is taken out.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
}

impl Permits {
    pub(super) fn new(count: usize) -> Self {
        let free = count.min(usize::MAX / ONE) * ONE;
        Self { word: CachePadded::new(AtomicUsize::new(free)), queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit if one is free.
    fn takes_free(&self) -> bool {
        let take = |word: usize| (word & WAITED == 0).then(|| word.checked_sub(ONE)).flatten();
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self) {
        let give = |word: usize| (word & WAITED == 0).then_some(word + ONE);
        if self.word.fetch_update(Ordering::Release, Ordering::Relaxed, give).is_err() {
            self.hand_on();
        }
    }

    /// Gives a permit to the first waiting task.
    #[cold]
    fn hand_on(&self) {
        let mut queue = self.queue();
        let first = queue.waiting.pop_first();
        if first.is_none() {
            // The last waiting task has left meanwhile, and cleared WAITED.
            self.word.fetch_add(ONE, Ordering::Release);
        } else if queue.waiting.is_empty() {
            self.word.fetch_and(!WAITED, Ordering::Relaxed);
        }
        drop(queue);
        if let Some((_, waker)) = first {
            foreign_code::wake(waker);
        }
    }

    /// Takes a permit that has come back meanwhile, or joins the queue.
    fn take_or_join(&self, waker: Waker) -> Result<(), u64> {
        let mut queue = self.queue();
        // While this holds the lock, other threads change the word only from "none free" to more.
        while queue.waiting.is_empty() {
            if self.takes_free() {
                drop(queue);
                foreign_code::discard(Some(waker));
                return Ok(());
            }
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.word.compare_exchange(0, WAITED, set, failed).is_ok() {
                break;
            }
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.insert(ticket, waker);
        Err(ticket)
    }

    /// Returns whether `ticket` still waits. If so, `waker` replaces its previous waker.
    fn still_waits(&self, ticket: u64, waker: Waker) -> bool {
        let replaced = {
            let mut queue = self.queue();
            match queue.waiting.get_mut(&ticket) {
                Some(place) => Ok(std::mem::replace(place, waker)),
                None => Err(waker),
            }
        };
        let waits = replaced.is_ok();
        let (Ok(unused) | Err(unused)) = replaced;
        foreign_code::discard(Some(unused));
        waits
    }

    /// Removes `ticket` from the queue. It may have been given a permit before.
    #[cold]
    fn leave(&self, ticket: u64) {
        let mut queue = self.queue();
        let waited = queue.waiting.remove(&ticket);
        if waited.is_some() && queue.waiting.is_empty() {
            self.word.fetch_and(!WAITED, Ordering::Relaxed);
        }
        drop(queue);
        match waited {
            None => self.give_back(),
            waker => foreign_code::discard(waker),
        }
    }
}

/// Gives its permit back when it is dropped, on any thread.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Arc<Permits>,
    /// The process that took the permit. In a forked child it is not given back, because the lock
    /// may be locked for ever.
    home: ProcessMark,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.home.is_forked() {
            self.permits.give_back();
        }
    }
}

/// Waits for a permit. If it is dropped, it leaves the queue, and passes a permit that it was given
/// to the next task.
#[derive(Debug)]
pub(super) struct Acquire {
    permits: Arc<Permits>,
    ticket: Option<u64>,
    /// The process that has the ticket.
    home: ProcessMark,
}

impl Acquire {
    pub(super) fn new(permits: Arc<Permits>) -> Self {
        Self { permits, ticket: None, home: ProcessMark::new() }
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        match this.ticket {
            None if this.permits.takes_free() => {}
            None => {
                if let Err(ticket) = this.permits.take_or_join(cx.waker().clone()) {
                    this.ticket = Some(ticket);
                    this.home = ProcessMark::new();
                    return Poll::Pending;
                }
            }
            Some(ticket) => {
                if this.permits.still_waits(ticket, cx.waker().clone()) {
                    return Poll::Pending;
                }
                this.ticket = None;
            }
        }
        Poll::Ready(Permit { permits: this.permits.clone(), home: ProcessMark::new() })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && !self.home.is_forked()
        {
            self.permits.leave(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task that waits, or has a permit.
    struct Someone {
        acquire: Acquire,
        woken: Arc<Woken>,
    }

    impl Someone {
        fn of(permits: &Arc<Permits>) -> Self {
            Self { acquire: Acquire::new(permits.clone()), woken: Arc::default() }
        }

        fn poll(&mut self) -> Option<Permit> {
            let waker = Waker::from(self.woken.clone());
            match Pin::new(&mut self.acquire).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(permit) => Some(permit),
                Poll::Pending => None,
            }
        }

        fn is_woken(&self) -> bool {
            self.woken.0.load(Ordering::Relaxed) > 0
        }
    }

    fn free(permits: &Permits) -> usize {
        let word = permits.word.load(Ordering::Relaxed);
        assert_eq!(word & WAITED != 0, !permits.queue().waiting.is_empty());
        word / ONE
    }

    #[test]
    fn who_came_first_is_next_and_who_comes_later_is_not_faster() {
        let permits = Arc::new(Permits::new(1));
        let held = Someone::of(&permits).poll().expect("it is free");
        let (mut first, mut second) = (Someone::of(&permits), Someone::of(&permits));
        assert!(first.poll().is_none() && second.poll().is_none());
        drop(held);
        assert!(first.is_woken() && !second.is_woken());
        assert!(Someone::of(&permits).poll().is_none(), "it is the first one's");
        assert!(second.poll().is_none(), "it is the first one's");
        let held = first.poll().expect("it was given");
        drop(held);
        assert!(second.poll().is_some());
        assert_eq!(free(&permits), 1);
    }

    #[test]
    fn who_leaves_the_queue_holds_nobody_up_whether_it_waits_or_was_given_one() {
        let permits = Arc::new(Permits::new(1));
        let held = Someone::of(&permits).poll().expect("it is free");
        let [mut first, mut second, mut third] = [(); 3].map(|()| Someone::of(&permits));
        assert!([&mut first, &mut second, &mut third].iter_mut().all(|it| it.poll().is_none()));
        drop(first);
        drop(held);
        assert!(second.is_woken() && !third.is_woken());
        drop(second);
        assert!(third.is_woken());
        drop(third);
        assert_eq!(free(&permits), 1);
        assert!(Someone::of(&permits).poll().is_some());
    }

    #[test]
    fn the_waker_of_the_last_poll_is_woken() {
        let permits = Arc::new(Permits::new(1));
        let held = Someone::of(&permits).poll().expect("it is free");
        let mut waiting = Someone::of(&permits);
        assert!(waiting.poll().is_none());
        let before = std::mem::take(&mut waiting.woken);
        assert!(waiting.poll().is_none());
        drop(held);
        assert!(waiting.is_woken() && before.0.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn without_permits_all_wait() {
        let permits = Arc::new(Permits::new(0));
        let mut waiting = Someone::of(&permits);
        assert!(waiting.poll().is_none());
        drop(waiting);
        assert_eq!(free(&permits), 0);
        assert!(Someone::of(&Arc::new(Permits::new(usize::MAX))).poll().is_some());
    }

    #[test]
    fn a_drop_in_a_forked_child_waits_for_no_lock() {
        let permits = Arc::new(Permits::new(1));
        let mut held = Someone::of(&permits).poll().expect("it is free");
        let mut waiting = Someone::of(&permits);
        assert!(waiting.poll().is_none());
        (held.home, waiting.acquire.home) = (ProcessMark::of_parent(), ProcessMark::of_parent());
        // The lock is held as by another thread of the parent at the fork.
        let locked = permits.queue();
        foreign_code::drops_without_waiting((held, waiting));
        drop(locked);
        assert_eq!(free(&permits), 0);
    }

    /// Threads take permits, stop waiting, and give permits back. There are never more holders than
    /// permits, nobody waits for ever, and all permits come back.
    #[test]
    fn permits_hold_under_contention() {
        const PERMITS: usize = 2;
        let permits = Arc::new(Permits::new(PERMITS));
        let (holders, rounds) = (AtomicUsize::new(0), 20_000);
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let (permits, holders) = (&permits, &holders);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    for _ in 0..rounds {
                        let mut someone = Someone::of(permits);
                        let gives_up = random.u8(..4) == 0;
                        let permit = loop {
                            match someone.poll() {
                                None if gives_up => break None,
                                None => thread::yield_now(),
                                permit => break permit,
                            }
                        };
                        if permit.is_some() {
                            assert!(holders.fetch_add(1, Ordering::SeqCst) < PERMITS);
                            if random.bool() {
                                thread::yield_now();
                            }
                            holders.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(free(&permits), PERMITS);
    }
}
