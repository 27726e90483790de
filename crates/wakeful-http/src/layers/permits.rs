//! A number of permits, and a queue of the tasks that wait for one.
//!
//! One word has the number of free permits, and whether a task waits. While no task waits, permits
//! are taken and returned by a compare-and-swap of that word. A task waits only while fewer permits
//! are free than it needs. Permits that come back then go to the first task in the queue, as soon
//! as they are enough for it, so no later task can overtake it, even one that needs fewer.
//!
//! **The invariant.** WAITED is set if and only if a task is in the queue, and then fewer permits
//! are free than the first task needs. WAITED is set and cleared only under the queue's lock, and
//! while it is set, the number of free permits changes only under that lock. So:
//!
//! * A task that finds too few permits locks the queue, and looks again, because a permit may have
//!   come back. It sets WAITED by a compare-and-swap from a word with too few. A permit that comes
//!   back before that is found. A permit that comes back after that finds WAITED.
//! * A thread that gives permits back and finds WAITED locks the queue. If the last waiter has left
//!   meanwhile, WAITED is clear, and the permits stay in the word.
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
pub(crate) struct Permits {
    word: CachePadded<AtomicUsize>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The waiting tasks by their tickets. The lowest ticket came first. A task that is given its
    /// permits is taken out.
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    needed: usize,
    waker: Waker,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        let free = count.min(usize::MAX / ONE) * ONE;
        Self { word: CachePadded::new(AtomicUsize::new(free)), queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `count` permits if so many are free.
    fn takes_free(&self, count: usize) -> bool {
        let take = |word: usize| {
            let left = word.checked_sub(count * ONE);
            left.filter(|_| word & WAITED == 0)
        };
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }

    /// Takes `count` permits if so many are free, and no task waits.
    pub(crate) fn try_take(self: &Arc<Self>, count: usize) -> Option<Permit> {
        self.takes_free(count).then(|| self.permit(count))
    }

    /// Makes `count` more permits.
    pub(crate) fn add(&self, count: usize) {
        self.give_back(count);
    }

    fn permit(self: &Arc<Self>, count: usize) -> Permit {
        Permit { permits: self.clone(), count, home: ProcessMark::new() }
    }

    fn give_back(&self, count: usize) {
        let give = |word: usize| (word & WAITED == 0).then_some(word + count * ONE);
        if self.word.fetch_update(Ordering::Release, Ordering::Relaxed, give).is_err() {
            self.hand_on(count);
        }
    }

    /// Gives permits to waiting tasks.
    #[cold]
    fn hand_on(&self, count: usize) {
        let queue = self.queue();
        self.word.fetch_add(count * ONE, Ordering::Release);
        self.serve(queue);
    }

    /// Gives the free permits to the first tasks of the queue.
    fn serve<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) {
        while let Some(waker) = self.give_to_first(&mut queue) {
            let goes_on = self.is_enough_for_first(&queue);
            drop(queue);
            foreign_code::wake(waker);
            if !goes_on {
                // Whoever gives permits back from now on serves the queue.
                return;
            }
            queue = self.queue();
        }
    }

    fn is_enough_for_first(&self, queue: &Queue) -> bool {
        let free = self.word.load(Ordering::Relaxed) / ONE;
        queue.waiting.first_key_value().is_some_and(|(_, first)| first.needed <= free)
    }

    /// Takes the first task out of the queue, with its permits, if they are free.
    fn give_to_first(&self, queue: &mut Queue) -> Option<Waker> {
        let given = queue.waiting.first_entry().and_then(|first| {
            // Another thread may not take permits while WAITED is set.
            let take = |word: usize| word.checked_sub(first.get().needed * ONE);
            let taken = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
            taken.is_ok().then(|| first.remove().waker)
        });
        if queue.waiting.is_empty() {
            self.word.fetch_and(!WAITED, Ordering::Relaxed);
        }
        given
    }

    /// Takes permits that have come back meanwhile, or joins the queue.
    fn take_or_join(&self, needed: usize, waker: Waker) -> Result<(), u64> {
        let mut queue = self.queue();
        // While this holds the lock, and nobody waits, other threads may change the word.
        while queue.waiting.is_empty() {
            let word = self.word.load(Ordering::Relaxed);
            if self.takes_free(needed) {
                drop(queue);
                foreign_code::discard(Some(waker));
                return Ok(());
            }
            let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            if word < needed * ONE
                && self.word.compare_exchange(word, word | WAITED, set, failed).is_ok()
            {
                break;
            }
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.insert(ticket, Waiting { needed, waker });
        Err(ticket)
    }

    /// Returns whether `ticket` still waits. If so, `waker` replaces its previous waker.
    fn still_waits(&self, ticket: u64, waker: Waker) -> bool {
        let replaced = {
            let mut queue = self.queue();
            match queue.waiting.get_mut(&ticket) {
                Some(waiting) => Ok(std::mem::replace(&mut waiting.waker, waker)),
                None => Err(waker),
            }
        };
        let waits = replaced.is_ok();
        let (Ok(unused) | Err(unused)) = replaced;
        foreign_code::discard(Some(unused));
        waits
    }

    /// Removes `ticket` from the queue. It may have been given its permits before.
    #[cold]
    fn leave(&self, ticket: u64, needed: usize) {
        let mut queue = self.queue();
        let Some(left) = queue.waiting.remove(&ticket) else {
            drop(queue);
            return self.give_back(needed);
        };
        // The next task may need fewer.
        self.serve(queue);
        foreign_code::discard(Some(left.waker));
    }
}

/// Gives its permits back when it is dropped, on any thread.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    count: usize,
    /// The process that took the permits. In a forked child they are not given back, because the
    /// lock may be locked for ever.
    home: ProcessMark,
}

impl Permit {
    /// Gives all but `count` permits back.
    pub(crate) fn keep(&mut self, count: usize) {
        let surplus = self.count.saturating_sub(count);
        self.count -= surplus;
        if surplus > 0 && !self.home.is_forked() {
            self.permits.give_back(surplus);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// Waits for permits. If it is dropped, it leaves the queue, and passes permits that it was given
/// to the next task.
#[derive(Debug)]
pub(crate) struct Acquire {
    permits: Arc<Permits>,
    needed: usize,
    ticket: Option<u64>,
    /// The process that has the ticket.
    home: ProcessMark,
}

impl Acquire {
    /// Waits for one permit.
    pub(super) fn new(permits: Arc<Permits>) -> Self {
        Self::several(permits, 1)
    }

    /// Waits for `needed` permits at once. If there will never be so many, it waits for ever.
    pub(crate) fn several(permits: Arc<Permits>, needed: usize) -> Self {
        Self { permits, needed, ticket: None, home: ProcessMark::new() }
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        match this.ticket {
            None if this.permits.takes_free(this.needed) => {}
            None => {
                let waker = cx.waker().clone();
                if let Err(ticket) = this.permits.take_or_join(this.needed, waker) {
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
        Poll::Ready(this.permits.permit(this.needed))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && !self.home.is_forked()
        {
            self.permits.leave(ticket, self.needed);
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
            Self::who_needs(1, permits)
        }

        fn who_needs(count: usize, permits: &Arc<Permits>) -> Self {
            Self { acquire: Acquire::several(permits.clone(), count), woken: Arc::default() }
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
    fn who_needs_many_is_not_overtaken_by_who_needs_few() {
        let permits = Arc::new(Permits::new(4));
        let mut held = permits.try_take(3).expect("they are free");
        let (mut many, mut few) = (Someone::who_needs(3, &permits), Someone::of(&permits));
        assert!(many.poll().is_none() && few.poll().is_none());
        assert!(permits.try_take(1).is_none(), "it is kept for the first one");
        held.keep(2);
        assert!(!many.is_woken() && !few.is_woken());
        held.keep(1);
        assert!(many.is_woken() && !few.is_woken());
        drop(held);
        assert!(few.is_woken());
        let (many, few) = (many.poll().expect("given"), few.poll().expect("given"));
        drop((many, few));
        assert_eq!(free(&permits), 4);
    }

    #[test]
    fn who_needed_many_and_leaves_lets_those_behind_have_what_is_free() {
        let permits = Arc::new(Permits::new(3));
        let held = permits.try_take(1).expect("it is free");
        let mut many = Someone::who_needs(3, &permits);
        assert!(many.poll().is_none());
        let mut few = [(); 3].map(|()| Someone::of(&permits));
        assert!(few.iter_mut().all(|one| one.poll().is_none()));
        drop(many);
        let woken: Vec<_> = few.iter().map(Someone::is_woken).collect();
        assert_eq!(woken, [true, true, false]);
        permits.add(1);
        assert!(few.iter().all(Someone::is_woken));
        drop((held, few));
        assert_eq!(free(&permits), 4);
    }

    #[test]
    fn a_permit_that_another_thread_drops_goes_to_the_first() {
        let permits = Arc::new(Permits::new(3));
        let held = permits.try_take(3).expect("they are free");
        let mut first = Someone::who_needs(3, &permits);
        assert!(first.poll().is_none());
        // As in a panic of the thread that has it.
        let panicked = thread::spawn(move || {
            let _held = held;
            std::panic::resume_unwind(Box::new("its body is dropped"));
        });
        assert!(panicked.join().is_err());
        assert!(first.is_woken() && first.poll().is_some());
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

    /// Threads take permits, stop waiting, and give permits back, at once or one after the other.
    /// There are never more in use than there are, nobody waits for ever, and all come back.
    #[test]
    fn permits_hold_under_contention() {
        const PERMITS: usize = 4;
        let permits = Arc::new(Permits::new(PERMITS));
        let (in_use, rounds) = (AtomicUsize::new(0), 20_000);
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let (permits, in_use) = (&permits, &in_use);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    for _ in 0..rounds {
                        let count = random.usize(1..=3);
                        let mut someone = Someone::who_needs(count, permits);
                        let gives_up = random.u8(..4) == 0;
                        let permit = loop {
                            match someone.poll() {
                                None if gives_up => break None,
                                None => thread::yield_now(),
                                permit => break permit,
                            }
                        };
                        let Some(mut permit) = permit else { continue };
                        let before = in_use.fetch_add(count, Ordering::SeqCst);
                        assert!(before + count <= PERMITS);
                        if random.bool() {
                            thread::yield_now();
                        }
                        in_use.fetch_sub(count - 1, Ordering::SeqCst);
                        permit.keep(1);
                        in_use.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(free(&permits), PERMITS);
    }
}
