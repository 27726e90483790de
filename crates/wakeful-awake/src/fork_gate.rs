//! Descriptors of which a forked child must not keep a copy: the child closes the published number.
//!
//! A child would not know of a descriptor between its opening and the publication of its number,
//! and between the withdrawal of the number and the close. So each of these is one step for the
//! fork handlers: they wait until the step is over, and no step begins while the process forks. A
//! step takes some microseconds, so both sides yield a few times while they wait, and then sleep.
//!
//! Each word names its process. In some children no handler runs: those of a bare `clone(2)`, and
//! of a fork that began before the handlers were registered. Such a child finds its parent's
//! process in the word, and ignores the word. So it never waits for a gate that another process
//! closed, and never closes a number that may belong to another file by now.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{sleep, yield_now};
use std::time::Duration;

/// The gate, with its process. The count is 1 while a thread opens or closes, plus 2 for each
/// thread that forks.
static GATE: AtomicU64 = AtomicU64::new(NOBODY);
const OPENS: u32 = 1;
const FORKS: u32 = 2;

const MOST_YIELDS: u32 = 10;
const PAUSE: Duration = Duration::from_micros(20);

/// The process that forks.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// The word of no process.
pub(crate) const NOBODY: u64 = 0;

/// The place where a forked child finds the number of a descriptor.
pub(crate) type Place = &'static AtomicU64;

/// The places of several descriptors.
pub(crate) type Places = &'static [AtomicU64];

/// The value of this process in a word that a forked child may find.
pub(crate) fn word(said: u32) -> u64 {
    u64::from(process::id()) << 32 | u64::from(said)
}

/// The value that this process has stored. `None`: there is none, or another process stored it.
pub(crate) fn said(word: u64) -> Option<u32> {
    (of(word) == process::id()).then_some(word as u32)
}

fn of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Waits until `may_enter` allows it for the gate, and adds `step`.
fn enter(step: u32, may_enter: impl Fn(u32) -> bool) {
    let mut yields = 0;
    loop {
        let gate = GATE.load(Ordering::Relaxed);
        let inside = said(gate).unwrap_or(0);
        let (entered, relaxed) = (word(inside + step), Ordering::Relaxed);
        if may_enter(inside)
            && GATE.compare_exchange_weak(gate, entered, Ordering::Acquire, relaxed).is_ok()
        {
            return;
        }
        // If this thread has a real-time policy, only its sleep gives the CPU to a thread that has
        // none.
        if yields < MOST_YIELDS {
            yields += 1;
            yield_now();
        } else {
            sleep(PAUSE);
        }
    }
}

/// A step between forks. It ends when this is dropped, even after a panic.
struct Step;

impl Step {
    fn enter() -> Self {
        enter(OPENS, |inside| inside == 0);
        Self
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        GATE.fetch_sub(OPENS.into(), Ordering::Release);
    }
}

/// The owner of a descriptor that a forked child closes, if there is a place for its number.
#[derive(Debug)]
pub(crate) struct Gated<T> {
    /// Present until the drop.
    value: Option<T>,
    published: Option<(Place, u64)>,
}

impl<T: AsFd> Gated<T> {
    /// Opens the descriptor, and publishes its number.
    pub(crate) fn open<E>(
        place: Option<Place>,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<Self, E> {
        let Some(place) = place else {
            return Ok(Self { value: Some(open()?), published: None });
        };
        let _step = Step::enter();
        let value = open()?;
        let entry = word(value.as_fd().as_raw_fd().cast_unsigned());
        place.store(entry, Ordering::Relaxed);
        Ok(Self { value: Some(value), published: Some((place, entry)) })
    }
}

impl<T> Deref for Gated<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the drop")
    }
}

impl<T> DerefMut for Gated<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until the drop")
    }
}

impl<T> Drop for Gated<T> {
    fn drop(&mut self) {
        let Some((place, entry)) = self.published else { return };
        if said(entry).is_none() {
            // This is a copy of the value in a child. The number may belong to another file by now.
            return std::mem::forget(self.value.take());
        }
        let _step = Step::enter();
        let _ = place.compare_exchange(entry, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
        drop(self.value.take());
    }
}

/// The handler before a fork.
pub(crate) fn before_fork() {
    PARENT.store(process::id(), Ordering::Relaxed);
    enter(FORKS, |inside| inside & OPENS == 0);
}

/// The handler after a fork, in the parent.
pub(crate) fn after_fork() {
    GATE.fetch_sub(FORKS.into(), Ordering::Release);
}

/// The handler after a fork, in the child, which has no other thread. Returns the copy to close.
pub(crate) fn in_child(place: Place) -> Option<RawFd> {
    GATE.store(NOBODY, Ordering::Relaxed);
    let entry = place.load(Ordering::Relaxed);
    if entry == NOBODY {
        // Most places are free. A store would make the kernel copy their page.
        return None;
    }
    place.store(NOBODY, Ordering::Relaxed);
    let is_parents = of(entry) == PARENT.load(Ordering::Relaxed);
    is_parents.then_some((entry as u32).cast_signed())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    /// There is only one gate, so tests run one at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn null() -> std::io::Result<File> {
        File::open("/dev/null")
    }

    fn number(place: Place) -> Option<i32> {
        said(place.load(Ordering::Relaxed)).map(u32::cast_signed)
    }

    #[test]
    fn a_descriptor_is_opened_and_published_between_forks() {
        static PLACE: AtomicU64 = AtomicU64::new(NOBODY);
        let _alone = alone();
        let failed: Result<Gated<File>, ()> = Gated::open(Some(&PLACE), || Err(()));
        assert!(failed.is_err());
        assert_eq!(number(&PLACE), None);
        before_fork();
        before_fork();
        after_fork();
        let opening = std::thread::spawn(|| Gated::open(Some(&PLACE), null).unwrap());
        for _ in 0..1000 {
            yield_now();
            assert_eq!(number(&PLACE), None);
        }
        after_fork();
        let opened = opening.join().unwrap();
        assert_eq!(number(&PLACE), Some(opened.as_fd().as_raw_fd()));
    }

    #[test]
    fn a_descriptor_is_taken_back_and_closed_between_forks() {
        static PLACE: AtomicU64 = AtomicU64::new(NOBODY);
        let _alone = alone();
        let opened = Gated::open(Some(&PLACE), null).unwrap();
        let fd = opened.as_fd().as_raw_fd();
        before_fork();
        let closing = std::thread::spawn(move || drop(opened));
        for _ in 0..1000 {
            yield_now();
            assert_eq!(number(&PLACE), Some(fd));
        }
        after_fork();
        closing.join().unwrap();
        assert_eq!(number(&PLACE), None);
    }

    #[test]
    fn a_child_closes_its_parent_s_number_once_and_no_other_process_s() {
        static PLACE: AtomicU64 = AtomicU64::new(NOBODY);
        let _alone = alone();
        let opened = Gated::open(Some(&PLACE), null).unwrap();
        let fd = opened.as_fd().as_raw_fd();
        before_fork();
        assert_eq!([in_child(&PLACE), in_child(&PLACE)], [Some(fd), None]);
        // In a grandchild, whose parent ran no handler.
        PLACE.store(u64::from(process::id() + 1) << 32 | 7, Ordering::Relaxed);
        before_fork();
        assert_eq!(in_child(&PLACE), None);
    }

    #[test]
    fn a_gate_that_another_process_closed_is_open() {
        let _alone = alone();
        for inside in [OPENS, FORKS] {
            GATE.store(u64::from(process::id() + 1) << 32 | u64::from(inside), Ordering::Relaxed);
            drop(Step::enter());
            before_fork();
            after_fork();
        }
    }

    /// Yielding would be no use to a thread of a real-time policy. A yield is no voluntary switch.
    #[test]
    fn who_waits_for_long_sleeps() {
        let _alone = alone();
        let step = Step::enter();
        let (tell, told) = std::sync::mpsc::channel();
        let forking = std::thread::spawn(move || {
            let directory = std::fs::read_link("/proc/thread-self").unwrap();
            let status = std::path::Path::new("/proc").join(directory).join("status");
            tell.send((status.clone(), sleeps(&status))).unwrap();
            before_fork();
            after_fork();
        });
        let (status, before) = told.recv().unwrap();
        let start = std::time::Instant::now();
        while sleeps(&status) < before + 3 {
            assert!(start.elapsed() < Duration::from_secs(20), "it only yields");
        }
        drop(step);
        forking.join().unwrap();
    }

    fn sleeps(status: &std::path::Path) -> u64 {
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn the_copy_of_an_owner_in_another_process_closes_nothing() {
        static PLACE: AtomicU64 = AtomicU64::new(NOBODY);
        let _alone = alone();
        let mut opened = Gated::open(Some(&PLACE), null).unwrap();
        let fd = opened.as_fd().as_raw_fd();
        opened.published = Some((&PLACE, u64::from(process::id() + 1) << 32));
        drop(opened);
        assert!(std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok());
    }
}
