//! The threads that may block, and the queue of work for them.
//!
//! A job waits in the queue only while there is a thread that will take it. One thread stays once
//! there has been one: the last idle thread never ends, and the others end after [`KEEP_ALIVE`]. So
//! a process that reaches its limit of threads later still does its blocking work, if more slowly.
//! While there is no thread at all and none can be started, jobs are refused. While there are jobs
//! for which no thread could be started, the loops that wait for them try again ([`try_again`]).
//!
//! A forked child has none of its parent's threads, and the parent's lock may be locked in it for
//! ever. So the child gets a pool of its own ([`current`]), and never touches the other one.
//!
//! No user code runs under the lock. Starting a thread does. [Errands](super::errands) run without
//! it.

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::errands::Errands;
use super::job::Run;
use super::try_again;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::sys::thread::{
    cpus_of_main_thread, end_in_child, pin_to, start_thread, without_signals,
};

/// How long a thread idles before it ends, if another one idles too.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Another thread is started when there are more than this many jobs for each idle thread. A thread
/// that takes a job checks this, too, so that jobs after a long job do not wait for it.
const JOBS_FOR_AN_IDLE_THREAD: usize = 5;

/// After a thread could not be started, this much time passes until the next attempt, and until the
/// next line in the log. Errands are repeated as often.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

const DEFAULT_MAX_THREADS: usize = 500;

/// See the [module](self).
pub(super) struct Pool {
    process: Process,
    /// The CPUs on which the thread that made the pool was allowed to run. A loop that is pinned
    /// passes its mask on to threads that it starts, and these may outlive it.
    cpus: Vec<usize>,
    max_threads: usize,
    start: fn(&'static Pool) -> io::Result<()>,
    /// Set once a thread has started: from then on there is always one.
    has_thread: AtomicBool,
    /// Whether the last attempt to start a thread failed.
    is_short: AtomicBool,
    pub(super) errands: Errands,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// The queue is ordered by number, so that an aborted job can be taken out of the middle.
    queue: BTreeMap<u64, Arc<dyn Run>>,
    next_number: u64,
    threads: usize,
    /// How many of `threads` are idle. A thread that was started and does not run yet counts as
    /// idle.
    idle: usize,
    /// When the last attempt to start a thread failed.
    failed_at: Option<Instant>,
    /// Whether no thread should wait for work any more, because the process ends with its last
    /// thread.
    keeps_no_thread: bool,
}

impl State {
    /// A thread could not be started just now, so another attempt would fail as well.
    fn is_paused(&self) -> bool {
        self.failed_at.is_some_and(|at| at.elapsed() < PAUSE)
    }

    /// Is this job queued, and may no thread be free for it? Each idle thread takes at least one.
    fn may_wait_long(&self, number: u64) -> bool {
        self.queue.len() > self.idle && self.queue.contains_key(&number)
    }
}

/// This process's pool. The first call makes it, without a thread.
///
/// # Errors
/// Forks cannot be detected (no memory).
pub(super) fn current() -> io::Result<&'static Pool> {
    find(|process| !process.is_forked(), Process::current)
}

/// The pool of the process that built a loop. Unlike [`current`] this also recognises a child of a
/// bare `clone(2)`.
pub(super) fn of(process: &Process) -> io::Result<&'static Pool> {
    find(|pool| pool.is_same(process), || Ok(*process))
}

/// The last pool that was made, by [`find`].
static CURRENT: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

fn published(pool: *mut Pool) -> Option<&'static Pool> {
    // SAFETY: null, or a pool that was published by `Release` in `find`, and no published one is
    // ever freed.
    unsafe { pool.as_ref() }
}

/// Ends the main thread of a forked child, which is a copy of one of its parent's threads. The
/// process ends with its last thread. If it has a pool, only the child's own code can have started
/// the threads, and they end when their work is done.
pub(crate) fn end_main_of_child() -> ! {
    keep_no_thread();
    end_in_child()
}

fn keep_no_thread() {
    if let Some(pool) = published(CURRENT.load(Ordering::Acquire))
        && !pool.is_forked()
    {
        pool.state().keeps_no_thread = true;
        pool.work.notify_all();
    }
}

/// The last pool that was made, if it is this process's; otherwise a new one.
fn find(
    is_here: impl Fn(&Process) -> bool,
    process: impl FnOnce() -> io::Result<Process>,
) -> io::Result<&'static Pool> {
    let found = CURRENT.load(Ordering::Acquire);
    if let Some(pool) = published(found)
        && is_here(&pool.process)
    {
        return Ok(pool);
    }
    let new = Box::into_raw(Box::new(Pool::new(process()?, start)));
    match CURRENT.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was made above, and is never freed.
        Ok(_) => Ok(unsafe { &*new }),
        Err(other) => {
            // SAFETY: it was made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: another thread of this process has published it, and it is never freed.
            Ok(unsafe { &*other })
        }
    }
}

/// Called when a loop starts: from now on there is a thread for blocking work, if one can be
/// started.
#[inline]
pub(crate) fn keep_a_thread(process: &Process) {
    // So only the start of the first loop takes the lock, and logs a failure.
    if let Ok(pool) = of(process)
        && !pool.has_thread.load(Ordering::Relaxed)
    {
        pool.start_first();
    }
}

fn start(pool: &'static Pool) -> io::Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    without_signals(|| start_thread(&format!("blocking-{number}"), || pool.serve())).map(drop)
}

fn max_threads() -> usize {
    let text = std::env::var("BLOCKING_MAX_THREADS").ok();
    let number = text.and_then(|text| text.parse::<usize>().ok());
    number.map_or(DEFAULT_MAX_THREADS, |number| number.clamp(1, 10_000))
}

impl Pool {
    fn new(process: Process, start: fn(&'static Pool) -> io::Result<()>) -> Self {
        Self {
            process,
            cpus: cpus_of_main_thread().unwrap_or_default(),
            max_threads: max_threads(),
            start,
            has_thread: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            errands: Errands::default(),
            state: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is this a fork of the process that has the pool's threads? If so, no other method may be
    /// called.
    pub(super) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// Queues `job` and returns its number.
    ///
    /// # Errors
    /// There is no thread, and none can be started. The job has not been queued.
    pub(super) fn push(&'static self, job: Arc<dyn Run>) -> io::Result<u64> {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.queue.insert(number, job);
        self.work.notify_one();
        let failure = self.grow(&mut state);
        let refused = if state.threads == 0 { state.queue.remove(&number) } else { None };
        drop(state);
        let Some(failure) = failure else { return Ok(number) };
        let error = failure.tell();
        if refused.is_some() { Err(error) } else { Ok(number) }
    }

    /// If the job waits because no thread could be started, has the loop of this thread try again,
    /// even if another loop does, which may end. Returns whether it does.
    pub(super) fn try_again_for(&'static self, number: u64) -> bool {
        // A failure sets this before it wakes the tasks that wait. So a task sees it here if it
        // registered its waker too late to be woken.
        if !self.is_short.load(Ordering::Relaxed) {
            return false;
        }
        let waits = self.state().may_wait_long(number);
        waits && try_again::after_each(PAUSE, self, number + 1)
    }

    /// See [`on_errand`](super::on_errand()).
    pub(super) fn add_errand(&self, errand: impl FnMut() -> bool + Send + 'static) {
        self.errands.add(errand);
        // Also a thread that waits without a limit must see it. Without the lock, such a thread
        // could have found no errand, and not wait yet.
        drop(self.state());
        self.work.notify_all();
    }

    /// Takes a job off the queue, if no thread has begun it.
    pub(super) fn remove(&self, number: u64) -> Option<Arc<dyn Run>> {
        self.state().queue.remove(&number)
    }

    #[cold]
    fn start_first(&'static self) {
        let mut state = self.state();
        // A loop that is driven by another one calls this before each of its turns.
        let is_wanted = state.threads == 0 && !state.is_paused();
        let failure = if is_wanted { self.start_another(&mut state) } else { None };
        drop(state);
        if let Some(failure) = failure {
            failure.tell();
        }
    }

    /// Starts another thread if there are too many jobs for the idle ones.
    fn grow(&'static self, state: &mut State) -> Option<Failure> {
        let is_enough = state.queue.len() <= state.idle * JOBS_FOR_AN_IDLE_THREAD
            || state.threads >= self.max_threads;
        if state.failed_at.is_some() && state.queue.len() <= state.idle && !state.is_paused() {
            // No job waits for another thread any more. The next failure is a first one again.
            state.failed_at = None;
            self.is_short.store(false, Ordering::Relaxed);
        }
        // Without any thread, another attempt is made in any case.
        if is_enough || (state.threads > 0 && state.is_paused()) {
            return None;
        }
        self.start_another(state)
    }

    fn start_another(&'static self, state: &mut State) -> Option<Failure> {
        match (self.start)(self) {
            Ok(()) => {
                state.threads += 1;
                state.idle += 1;
                state.failed_at = None;
                self.is_short.store(false, Ordering::Relaxed);
                self.has_thread.store(true, Ordering::Relaxed);
                None
            }
            Err(error) => {
                let is_news = !state.is_paused();
                // Jobs that are queued later are cared for when they are queued.
                let is_first = state.failed_at.is_none();
                let waiting = is_first.then(|| state.queue.values().cloned().collect());
                if is_news {
                    state.failed_at = Some(Instant::now());
                    self.is_short.store(true, Ordering::Relaxed);
                }
                let (threads, waiting) = (state.threads, waiting.unwrap_or_default());
                Some(Failure { error, is_news, threads, waiting })
            }
        }
    }

    /// Ends this thread if user code has forked on it, and has returned in the child, where this is
    /// the main thread. No work comes there, and the locks may stay locked for ever.
    fn end_if_in_child(&self) {
        if self.is_forked() {
            end_main_of_child();
        }
    }

    /// The work of one thread.
    fn serve(&'static self) {
        // If the CPUs of the mask are gone, the present mask is as good.
        let _ = pin_to(self.cpus.iter().copied());
        let mut state = self.state();
        loop {
            while let Some((_, job)) = state.queue.pop_first() {
                state.idle -= 1;
                let failure = self.grow(&mut state);
                drop(state);
                if let Some(failure) = failure {
                    failure.tell();
                }
                self.end_if_in_child();
                job.run(&|| self.is_forked());
                self.end_if_in_child();
                // If nobody wants the outcome, it is dropped with the job.
                panics::discard(job);
                self.end_if_in_child();
                state = self.state();
                state.idle += 1;
            }
            if state.keeps_no_thread {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
            if self.errands.are_due() {
                drop(state);
                self.errands.run();
                state = self.state();
                // Meanwhile a job may have come.
                continue;
            }
            if state.idle == 1 && !self.errands.are_left() {
                // Other threads, when they become idle, see this one waiting, and end.
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = if state.idle == 1 { PAUSE } else { KEEP_ALIVE };
            let waited = self.work.wait_timeout(state, pause);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if time.timed_out() && state.queue.is_empty() && state.idle > 1 {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }
}

impl try_again::Queue for Pool {
    fn attempt(&'static self, end: u64) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = self.state();
        let jobs_wait = state.queue.range(..end).next().is_some();
        let failure = if jobs_wait { self.grow(&mut state) } else { None };
        let has_idle_thread = state.idle > 0;
        drop(state);
        if let Some(failure) = failure {
            failure.tell();
        }
        if !has_idle_thread {
            self.errands.run_if_due();
        }
        jobs_wait || self.errands.are_left()
    }
}

/// A failed attempt to start a thread.
struct Failure {
    error: io::Error,
    is_news: bool,
    threads: usize,
    /// The jobs that were queued before.
    waiting: Vec<Arc<dyn Run>>,
}

impl Failure {
    /// Wakes the tasks that wait for the jobs, so that their loops try again, and logs the failure.
    /// Returns the error. Must be called without the lock, because subscribers and wakers are user
    /// code. The subscriber comes last: if it blocks, only this thread waits.
    fn tell(self) -> io::Error {
        let Self { error, is_news, threads, waiting } = self;
        for job in waiting {
            job.wake_waiter();
            // An abort may have left the rest of the job to this one.
            panics::discard(job);
        }
        if is_news && threads == 0 {
            panics::log!(warn, %error, "cannot start a thread for blocking work: there is none, so the work is refused");
        } else if is_news {
            panics::log!(warn, %error, threads, "cannot start another thread for blocking work: the work waits until a running thread is free");
        }
        error
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no system calls for forks and CPUs.
mod tests {
    use std::sync::mpsc;
    use std::task::{Wake, Waker};

    use super::super::job::{Job, Join};
    use super::*;
    use crate::sys::held_log::HeldLog;

    type Start = fn(&'static Pool) -> io::Result<()>;

    fn pool(start: Start) -> &'static Pool {
        Box::leak(Box::new(Pool::new(Process::current().unwrap(), start)))
    }

    fn job<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Arc<dyn Run> {
        Arc::new(Job::new(f))
    }

    fn refused(_: &'static Pool) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// The numbers of threads and of idle threads.
    fn counts(pool: &Pool) -> (usize, usize) {
        let state = pool.state();
        (state.threads, state.idle)
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn without_any_thread_a_job_is_refused_and_not_queued() {
        let pool = pool(refused);
        let held = Arc::new(());
        let holds = held.clone();
        assert!(pool.push(job(move || drop(holds))).is_err());
        assert!(pool.state().queue.is_empty());
        assert_eq!((counts(pool), Arc::strong_count(&held)), ((0, 0), 1));
    }

    #[test]
    fn jobs_without_a_thread_of_their_own_wait_for_the_one_there_is() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
            0 => start(pool),
            _ => refused(pool),
        });
        let (hold, held) = mpsc::channel::<()>();
        let (ran, runs) = mpsc::channel();
        pool.push(job(move || held.recv().is_err())).unwrap();
        until("the thread has begun", || counts(pool) == (1, 0));
        let since = Instant::now();
        for number in 0..100 {
            let ran = ran.clone();
            pool.push(job(move || ran.send(number).unwrap())).unwrap();
        }
        // There is one attempt after each pause. (The crate `blocking` would try for ever.)
        let pauses = since.elapsed().as_secs() as usize;
        assert!(ATTEMPTS.load(Ordering::Relaxed) <= 3 + pauses, "{ATTEMPTS:?}");
        drop((hold, ran));
        assert_eq!(runs.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        until("it idles", || counts(pool) == (1, 1));
    }

    #[test]
    fn while_a_job_waits_for_a_thread_its_loop_tries_again() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
            1 => refused(pool),
            _ => start(pool),
        });
        let (hold, held) = mpsc::channel::<()>();
        pool.push(job(move || held.recv().is_err())).unwrap();
        until("the thread has begun", || counts(pool) == (1, 0));
        let (ran, runs) = mpsc::channel();
        let ran = job(move || ran.send(()).unwrap());
        assert!(!pool.try_again_for(pool.push(ran.clone()).unwrap()), "there is no loop here");
        crate::block_on(async {
            assert!(pool.try_again_for(1));
            let start = Instant::now();
            while runs.try_recv().is_err() {
                assert!(start.elapsed() < Duration::from_secs(60), "there was no other attempt");
                crate::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!pool.try_again_for(1), "it is not queued any more");
        });
        drop((hold, ran));
    }

    #[test]
    fn who_waits_for_a_job_behind_a_long_one_hears_that_no_thread_could_be_started() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
            0 => start(pool),
            _ => refused(pool),
        });
        pool.start_first();
        until("it idles", || counts(pool) == (1, 1));
        let (hold, held) = mpsc::channel::<()>();
        let woken = Arc::new(AtomicBool::new(false));
        let behind = Arc::new(Job::new(|| ()));
        assert!(behind.poll(&Waker::from(Arc::new(Sets(woken.clone())))).is_pending());
        let mut state = pool.state();
        // Both are queued before the thread can take one.
        state.queue.insert(0, job(move || held.recv().is_err()));
        state.queue.insert(1, behind);
        drop(state);
        pool.work.notify_one();
        until("it is woken", || woken.load(Ordering::Relaxed));
        assert_eq!(counts(pool), (1, 0));
        crate::block_on(async { assert!(pool.try_again_for(1)) });
        drop(hold);
    }

    #[test]
    fn a_log_line_that_blocks_keeps_no_other_task_from_hearing_that_there_is_no_thread() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
            0 => start(pool),
            _ => refused(pool),
        });
        let (hold, held) = mpsc::channel::<()>();
        pool.push(job(move || held.recv().is_err())).unwrap();
        until("the thread has begun", || counts(pool) == (1, 0));
        let woken = Arc::new(AtomicBool::new(false));
        let waits = Arc::new(Job::new(|| ()));
        assert!(waits.poll(&Waker::from(Arc::new(Sets(woken.clone())))).is_pending());
        pool.state().queue.insert(1_000, waits);
        let log = HeldLog::at("cannot start another thread for blocking work");
        std::thread::scope(|scope| {
            let subscribe = log.subscribe();
            scope.spawn(|| {
                subscribe();
                pool.push(job(|| ())).unwrap();
            });
            log.wait();
            let woken = woken.load(Ordering::Relaxed);
            drop((log, hold));
            assert!(woken);
        });
    }

    #[test]
    fn each_loop_has_one_timer_for_all_jobs_that_it_waits_for() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match ATTEMPTS.fetch_add(1, Ordering::Relaxed) {
            0 => start(pool),
            _ => refused(pool),
        });
        let (hold, held) = mpsc::channel::<()>();
        pool.push(job(move || held.recv().is_err())).unwrap();
        until("the thread has begun", || counts(pool) == (1, 0));
        let numbers: Vec<_> = (0..10).map(|_| pool.push(job(|| ())).unwrap()).collect();
        for _ in 0..2 {
            crate::block_on(async {
                assert!(numbers.iter().all(|number| pool.try_again_for(*number)));
                let timers = crate::event_loop::of_current(|inner| inner.timers().borrow().len());
                assert_eq!(timers, Some(1));
            });
        }
        drop(hold);
    }

    struct Sets(Arc<AtomicBool>);

    impl Wake for Sets {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_loop_that_takes_turns_without_a_thread_does_not_try_for_each() {
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| {
            ATTEMPTS.fetch_add(1, Ordering::Relaxed);
            refused(pool)
        });
        let since = Instant::now();
        (0..100).for_each(|_| pool.start_first());
        let pauses = since.elapsed().as_secs() as usize;
        assert!(ATTEMPTS.load(Ordering::Relaxed) <= 1 + pauses, "{ATTEMPTS:?}");
    }

    #[test]
    fn each_thread_ends_but_the_last_one() {
        let pool = pool(start);
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..20 {
            let held = held.clone();
            pool.push(job(move || drop(held.lock().map(|held| held.recv())))).unwrap();
        }
        // Each thread takes one job, and checks for those after it.
        until("all have begun", || counts(pool) == (20, 0));
        drop(hold);
        until("one is left", || counts(pool) == (1, 1));
        let (ran, runs) = mpsc::channel();
        pool.push(job(move || ran.send(()).unwrap())).unwrap();
        runs.recv().unwrap();
        assert_eq!(counts(pool).0, 1);
    }

    #[test]
    fn an_aborted_job_leaves_the_queue_at_once() {
        let one = Pool { max_threads: 1, ..Pool::new(Process::current().unwrap(), start) };
        let pool: &'static Pool = Box::leak(Box::new(one));
        let (hold, held) = mpsc::channel::<()>();
        let (ran, runs) = mpsc::channel();
        pool.push(job(move || held.recv().is_err())).unwrap();
        until("the thread has begun", || counts(pool) == (1, 0));
        let numbers: Vec<_> = (0..3)
            .map(|number| {
                let ran = ran.clone();
                pool.push(job(move || ran.send(number).unwrap())).unwrap()
            })
            .collect();
        assert!(pool.remove(numbers[1]).is_some() && pool.remove(numbers[1]).is_none());
        assert_eq!(pool.state().queue.len(), 2);
        drop((hold, ran));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [0, 2]);
    }
}
