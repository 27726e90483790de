//! Descriptors of which a forked child must not keep a copy: the child closes the published number.
//!
//! Between the moment when a descriptor is opened and the moment when its number is published a
//! child would not know of it. So opening and publishing is one step for the handlers of a fork:
//! they wait for it, and no such step begins while the process forks. One step takes some
//! microseconds, so both sides yield in the meantime, and no lock can be left locked in a child.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread::yield_now;

/// 1 while a thread opens; and 2 for each thread that forks.
static GATE: AtomicU32 = AtomicU32::new(0);
const OPENS: u32 = 1;
const FORKS: u32 = 2;

/// Where the number of a descriptor is for a forked child; -1 is none.
pub(crate) type Published = &'static AtomicI32;

/// Opens, and publishes the number that `number` says, if there is a place for it.
pub(crate) fn open<T, E>(
    published: Option<Published>,
    open: impl FnOnce() -> Result<T, E>,
    number: impl FnOnce(&T) -> i32,
) -> Result<T, E> {
    let Some(published) = published else { return open() };
    while GATE.compare_exchange_weak(0, OPENS, Ordering::Acquire, Ordering::Relaxed).is_err() {
        yield_now();
    }
    let _opened = Opened;
    let opened = open()?;
    published.store(number(&opened), Ordering::Relaxed);
    Ok(opened)
}

/// Opens the gate again, also after a panic.
struct Opened;

impl Drop for Opened {
    fn drop(&mut self) {
        GATE.fetch_sub(OPENS, Ordering::Release);
    }
}

/// Before a fork.
pub(crate) fn before_fork() {
    loop {
        let gate = GATE.load(Ordering::Relaxed);
        let enter = |gate| {
            GATE.compare_exchange_weak(gate, gate + FORKS, Ordering::Acquire, Ordering::Relaxed)
        };
        if gate & OPENS == 0 && enter(gate).is_ok() {
            return;
        }
        yield_now();
    }
}

/// After a fork, in the parent.
pub(crate) fn after_fork() {
    GATE.fetch_sub(FORKS, Ordering::Release);
}

/// After a fork, in the child: no other thread is there.
pub(crate) fn in_child() {
    GATE.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_opened_and_published_between_forks() {
        static NUMBER: AtomicI32 = AtomicI32::new(-1);
        let opened: Result<i32, ()> = open(Some(&NUMBER), || Ok(7), |number| *number);
        assert_eq!((opened, NUMBER.load(Ordering::Relaxed)), (Ok(7), 7));
        let failed: Result<i32, ()> = open(Some(&NUMBER), || Err(()), |number| *number);
        assert_eq!((failed, NUMBER.load(Ordering::Relaxed)), (Err(()), 7));
        before_fork();
        before_fork();
        after_fork();
        let opening =
            std::thread::spawn(|| open::<_, ()>(Some(&NUMBER), || Ok(8), |number| *number));
        for _ in 0..1000 {
            yield_now();
            assert_eq!(NUMBER.load(Ordering::Relaxed), 7);
        }
        after_fork();
        assert_eq!(opening.join().unwrap(), Ok(8));
        assert_eq!(NUMBER.load(Ordering::Relaxed), 8);
    }
}
