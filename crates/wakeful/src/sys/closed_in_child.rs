//! Descriptors that hold CPUs. A forked child must not keep a copy of them, so it closes its
//! copies.
//!
//! An owner publishes the number of its descriptor, with the process, in a place that the child's
//! fork handler reads ([`fork_check`](super::fork_check) calls it). Nothing is locked. A loop that
//! begins or ends a hold does not wait for another thread's fork, and a fork does not wait for a
//! loop.
//!
//! A fork could come at four moments at which the child knows too little:
//! * Between opening and publishing. So the owner compares the count of forks before the opening
//!   with that after the publishing. If another fork has begun, a child may have a copy, and the
//!   owner closes the descriptor before it has requested anything by it. If the counts are the
//!   same, each later fork copies what was published: `SeqCst` puts the store before the load, and
//!   the fork counts itself before it copies the memory.
//! * Between taking back the number and closing. The owner ends its request before it takes the
//!   number back, so the child's copy requests nothing.
//! * After the child's close, when the number may belong to another file. Only the code that takes
//!   the number out of the place may close it, and the child's handler has taken it. The copy of
//!   the owner in the child finds the place empty, and leaves the number alone.
//! * In a child of a bare `clone(2)`, in which no handler runs. A fork of that child finds another
//!   process in the place than its parent, and closes nothing.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use once_cell::race::OnceBox;

use super::before_fork;

/// The place has no owner.
const FREE: u64 = 0;

/// How often a descriptor is opened at most, if the process forks meanwhile each time.
const ATTEMPTS: u32 = 3;

/// The content of a place: the process, which is never 0, and the number of its descriptor.
fn entry(process: u32, fd: RawFd) -> u64 {
    u64::from(process) << 32 | u64::from(fd.cast_unsigned())
}

fn process(entry: u64) -> u32 {
    (entry >> 32) as u32
}

/// Places for numbers. Each owner keeps one until it is dropped.
#[derive(Debug)]
struct Places {
    places: [AtomicU64; 64],
    more: OnceBox<Places>,
}

static PLACES: Places = Places::new();

/// The process that forks. If two threads fork at the same time, both write the same number.
static FORKS: AtomicU32 = AtomicU32::new(0);

impl Places {
    const fn new() -> Self {
        Self { places: [const { AtomicU64::new(FREE) }; 64], more: OnceBox::new() }
    }

    fn take(&self, entry: u64) -> &AtomicU64 {
        let take = |place: &&AtomicU64| {
            place.compare_exchange(FREE, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        match self.places.iter().find(take) {
            Some(place) => place,
            None => self.more.get_or_init(|| Box::new(Self::new())).take(entry),
        }
    }

    /// Empties all places, and calls `close` with the numbers of `parent`.
    fn clear(&self, parent: u32, mut close: impl FnMut(RawFd)) {
        let mut places = Some(self);
        while let Some(Self { places: here, more }) = places {
            for place in here {
                let entry = place.swap(FREE, Ordering::SeqCst);
                if entry != FREE && process(entry) == parent {
                    close((entry as u32).cast_signed());
                }
            }
            places = more.get();
        }
    }
}

/// The handler in the parent, before it forks.
pub(super) fn before() {
    FORKS.store(std::process::id(), Ordering::SeqCst);
}

/// The handler in the child. It calls `close` with the number of each copy that the child has. If
/// it is called twice, it finds none the second time.
pub(super) fn in_child(close: impl FnMut(RawFd)) {
    PLACES.clear(FORKS.load(Ordering::SeqCst), close);
}

/// A descriptor, or what owns one. See the [module](self).
#[derive(Debug)]
pub(crate) struct ClosedInChild<T> {
    value: ManuallyDrop<T>,
    place: &'static AtomicU64,
    entry: u64,
}

impl<T: AsFd> ClosedInChild<T> {
    /// Opens a descriptor by `open`. [`Process::current`](super::fork_check::Process::current) must
    /// have been called before. `None`: the process is forking, so a child might have a copy. Never
    /// waits.
    ///
    /// # Errors
    /// The errors of `open`.
    pub(crate) fn open<E>(mut open: impl FnMut() -> Result<T, E>) -> Result<Option<Self>, E> {
        for _ in 0..ATTEMPTS {
            let Some(forks) = before_fork::count_unless_forking() else { break };
            let opened = Self::publish(open()?, &PLACES);
            if before_fork::count_unless_forking() == Some(forks) {
                return Ok(Some(opened));
            }
            // Nothing was requested by the descriptor yet.
            opened.close_after(|_| ());
        }
        Ok(None)
    }

    fn publish(value: T, places: &'static Places) -> Self {
        let entry = entry(std::process::id(), value.as_fd().as_raw_fd());
        Self { value: ManuallyDrop::new(value), place: places.take(entry), entry }
    }

    /// The descriptor, unless this is a forked child, which has closed its copy. This is one load.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        (self.place.load(Ordering::Relaxed) == self.entry).then_some(&self.value)
    }
}

impl<T> ClosedInChild<T> {
    /// Calls `end` to end what was requested by the descriptor, for all of its copies, and closes
    /// it. In another process than the owner's it does nothing.
    pub(crate) fn close_after(self, end: impl FnOnce(&T)) {
        let Self { value, place, entry } = self;
        if process(entry) != std::process::id() || place.load(Ordering::Relaxed) != entry {
            return;
        }
        end(&value);
        let taken = place.compare_exchange(entry, FREE, Ordering::SeqCst, Ordering::Relaxed);
        if taken.is_ok() {
            drop(ManuallyDrop::into_inner(value));
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::cell::Cell;
    use std::os::fd::OwnedFd;

    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn is_open(fd: RawFd) -> bool {
        std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
    }

    #[test]
    fn the_child_gets_each_number_once_and_the_owner_leaves_it_alone() {
        static PLACES: Places = Places::new();
        let owners: Vec<_> = (0..100).map(|_| ClosedInChild::publish(null(), &PLACES)).collect();
        let mut numbers: Vec<_> =
            owners.iter().map(|owner| owner.get().unwrap().as_raw_fd()).collect();
        let mut closed = Vec::new();
        PLACES.clear(std::process::id(), |fd| closed.push(fd));
        numbers.sort_unstable();
        closed.sort_unstable();
        assert_eq!(closed, numbers);
        PLACES.clear(std::process::id(), |_| unreachable!("they are taken"));
        for owner in owners {
            assert!(owner.get().is_none());
            // By now the number may belong to another file.
            owner.close_after(|_| ());
        }
        assert!(numbers.iter().all(|fd| is_open(*fd)));
    }

    #[test]
    fn a_number_of_another_process_than_the_parent_is_left_alone() {
        static PLACES: Places = Places::new();
        let owner = ClosedInChild::publish(null(), &PLACES);
        PLACES.clear(std::process::id() + 1, |_| unreachable!("a bare clone's parent's"));
        assert!(owner.get().is_none());
    }

    #[test]
    fn what_is_closed_is_no_longer_published_and_its_place_is_free() {
        static PLACES: Places = Places::new();
        for _ in 0..1000 {
            let owner = ClosedInChild::publish(null(), &PLACES);
            owner.close_after(|_| ());
        }
        PLACES.clear(std::process::id(), |_| unreachable!("it is closed"));
        assert!(PLACES.more.get().is_none());
    }

    #[test]
    fn what_is_opened_while_the_process_forks_is_closed_again() {
        let opened = Cell::new(0);
        let fork_meanwhile = || {
            opened.set(opened.get() + 1);
            before_fork::before();
            let fd = null();
            before_fork::after();
            Ok::<_, ()>(fd)
        };
        assert!(ClosedInChild::open(fork_meanwhile).unwrap().is_none());
        assert_eq!(opened.get(), ATTEMPTS);
        before_fork::before();
        let open = || -> Result<OwnedFd, ()> { unreachable!("not within a fork") };
        assert!(ClosedInChild::open(open).unwrap().is_none());
        before_fork::after();
        // Other tests fork, too.
        let open = || Ok::<_, ()>(null());
        while ClosedInChild::open(open).unwrap().map(|it| it.close_after(|_| ())).is_none() {}
    }
}
