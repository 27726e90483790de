//! One value per loop, in a type that any thread may hold.
//!
//! Each [`PerLoop`] has an index, by which each loop finds its value in a list
//! (`event_loop/loop_values.rs`). A use takes no lock and hashes nothing. When the last clone is
//! gone, the loops drop their values, and the index is free again.

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use once_cell::race::OnceBox;

use crate::event_loop::{Inner, LoopHandle, Refused, current, explain_missing};
use crate::sys::fork_check::Process;

/// Holds one value for each loop.
///
/// A function makes the value, once on each loop, at the first use there. The value need not be
/// `Send`: it never leaves its loop. The `PerLoop` itself is `Clone`, `Send` and `Sync`, as
/// frameworks require (for example axum, for its `State`).
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use wakeful::{LoopGroup, PerLoop};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let requests: PerLoop<Rc<Cell<u32>>> = PerLoop::new(Rc::default);
/// let group = LoopGroup::builder().loops(2).build()?;
/// for handle in group.handles() {
///     let requests = requests.clone();
///     let seen = handle.post_and_wait(move || {
///         requests.with(|requests| requests.set(requests.get() + 1));
///         requests.get().get()
///     });
///     assert_eq!(seen?, 1, "each loop counts for itself");
/// }
/// group.shutdown(std::time::Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
///
/// [`with`](Self::with) also works in a handler whose future must be `Send`. To hold the value
/// across an `await` there, call [`get`](Self::get) within [`on_this_loop`](crate::on_this_loop).
///
/// # When the value is dropped
/// A value is dropped on its loop: when the last clone of the `PerLoop` is gone (at once on this
/// thread's loop, by a message on the others), or at the loop's end, after its tasks and callbacks.
/// At the loop's end, the newest value is dropped first. An `Rc` from [`get`](Self::get) keeps the
/// value alive for longer, on that thread. A panic in the value's destructor is caught, and counted
/// in [`LoopMetrics::panics`](crate::LoopMetrics::panics).
///
/// # Fork
/// In a forked child the values of the parent's loops cannot be used, and are never dropped:
/// [`try_with`](Self::try_with) returns [`PerLoopError::WrongProcess`] there. A loop that the child
/// builds makes its own value, which is dropped at the end of that loop.
pub struct PerLoop<T: 'static> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    index: Index,
    /// The number of this `PerLoop`. No other one ever gets it.
    number: u64,
    make: Box<dyn Fn() -> T + Send + Sync>,
    homes: Arc<Homes>,
}

impl<T> PerLoop<T> {
    /// Makes a `PerLoop`. `make` will create each value on its loop; this call creates none.
    ///
    /// The first use on a loop runs `make`, so it must not block. If it panics, that use panics,
    /// and the next use calls it again.
    #[must_use]
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let shared = Shared {
            index: Index::take(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            make: Box::new(make),
            homes: Arc::new(Homes::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Calls `f` with this loop's value. The first use creates it.
    ///
    /// `f` may use this or another `PerLoop` again.
    ///
    /// # Panics
    /// If [`try_with`](Self::try_with) would return an error; if `make` panics.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.get())
    }

    /// Like [`with`](Self::with), with errors instead of panics.
    ///
    /// ```
    /// use wakeful::{PerLoop, PerLoopError};
    ///
    /// let numbers = PerLoop::new(|| 42);
    /// assert_eq!(numbers.try_with(|number| *number), Err(PerLoopError::NoLoop));
    /// wakeful::block_on(async {
    ///     assert_eq!(numbers.try_with(|number| *number), Ok(42));
    /// });
    /// ```
    ///
    /// # Errors
    /// No loop runs on this thread; the loop belongs to the parent of this forked process; `make`
    /// itself asks for the value; or the loop is ending and drops its values.
    ///
    /// # Panics
    /// If `make` panics.
    pub fn try_with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, PerLoopError> {
        Ok(f(&*self.try_get()?))
    }

    /// Returns this loop's value. The first use creates it. It may be held across an `await`, but
    /// it is not `Send`.
    ///
    /// # Panics
    /// The same as for [`with`](Self::with).
    #[must_use]
    #[track_caller]
    pub fn get(&self) -> Rc<T> {
        // This is no closure, because a closure would be the caller that a panic names.
        match self.try_get() {
            Ok(value) => value,
            Err(error) => refused(error),
        }
    }

    /// Like [`get`](Self::get), with errors instead of panics.
    ///
    /// # Errors
    /// The same as for [`try_with`](Self::try_with).
    ///
    /// # Panics
    /// If `make` panics.
    pub fn try_get(&self) -> Result<Rc<T>, PerLoopError> {
        let inner = current().ok_or(PerLoopError::NoLoop)?;
        if inner.handle().process().is_forked() {
            return Err(PerLoopError::WrongProcess);
        }
        match inner.values().get(self.shared.index.0, self.shared.number) {
            Some(value) => Ok(value.downcast().expect("the number is that of one type")),
            None => self.make(&inner),
        }
    }

    #[cold]
    fn make(&self, inner: &Inner) -> Result<Rc<T>, PerLoopError> {
        let Shared { index, number, make, homes } = &*self.shared;
        let (handle, weak) = (inner.handle().clone(), Arc::downgrade(homes));
        let ended = move || weak.upgrade().into_iter().for_each(|homes| homes.remove(&handle));
        let value = inner.values().make(index.0, *number, make, ended)?;
        homes.add(inner.handle());
        Ok(value)
    }
}

#[cold]
#[track_caller]
fn refused(error: PerLoopError) -> ! {
    match error {
        PerLoopError::NoLoop => panic!("a `PerLoop` was used, but {}", explain_missing(NO_LOOP)),
        error => panic!("{error}"),
    }
}

const NO_LOOP: &str = "no event loop runs on this thread: use it within `wakeful::block_on`, a task of a loop, or a \
                       closure sent by a `LoopHandle`";

impl<T> Clone for PerLoop<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

// After a panic of the program's code it is still usable.
impl<T> std::panic::UnwindSafe for PerLoop<T> {}
impl<T> std::panic::RefUnwindSafe for PerLoop<T> {}

impl<T> fmt::Debug for PerLoop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerLoop")
            .field("of", &std::any::type_name::<T>())
            .field("index", &self.shared.index.0)
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (index, number) = (self.index.0, self.number);
        let here = current();
        for home in self.homes.take() {
            match &here {
                Some(inner) if inner.handle().is_same(&home) => {
                    inner.values().remove(index, number);
                }
                // A loop that has ended has dropped its value already.
                _ => drop(home.post(move || {
                    if let Some(inner) = current() {
                        inner.values().remove(index, number);
                    }
                })),
            }
        }
    }
}

/// The error of a [`PerLoop`] that has no value on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerLoopError {
    /// No loop runs on this thread.
    #[error("no event loop runs on this thread, so a `PerLoop` has no value here")]
    NoLoop,
    /// This process was forked from the loop's process.
    #[error(
        "the event loop runs in the process that this one was forked from: build a new loop in the child"
    )]
    WrongProcess,
    /// The function that makes the value asks for the value.
    #[error("the function that makes a `PerLoop`'s value uses that `PerLoop` itself")]
    IsBeingMade,
    /// The loop is ending, and has dropped its values.
    #[error(
        "a `PerLoop` was used by a destructor while the event loop drops its values at its end"
    )]
    LoopEnded,
}

impl From<Refused> for PerLoopError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::IsBeingMade => Self::IsBeingMade,
            Refused::Ended => Self::LoopEnded,
        }
    }
}

/// The loops that have a value, for the end of the last clone.
struct Homes {
    handles: Mutex<Vec<LoopHandle>>,
    /// `None`: forks cannot be detected, and so no loop can be built.
    process: Option<Process>,
}

impl Homes {
    fn new() -> Self {
        Self { handles: Mutex::default(), process: Process::current().ok() }
    }

    /// `None` in a forked child, where a thread that does not exist may hold the lock.
    fn lock(&self) -> Option<MutexGuard<'_, Vec<LoopHandle>>> {
        let is_here = self.process.is_some_and(|process| !process.is_forked());
        is_here.then(|| self.handles.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, home: &LoopHandle) {
        if let Some(mut handles) = self.lock() {
            handles.push(home.clone());
        }
    }

    fn remove(&self, home: &LoopHandle) {
        if let Some(mut handles) = self.lock() {
            handles.retain(|handle| !handle.is_same(home));
        }
    }

    fn take(&self) -> Vec<LoopHandle> {
        self.lock().map(|mut handles| std::mem::take(&mut *handles)).unwrap_or_default()
    }
}

/// A number that no other `PerLoop` has at the same time. It is small if there are few.
struct Index(usize);

/// The indices that are taken: one bit for each. There is no lock, so that a forked child never
/// waits.
struct Indices {
    taken: AtomicU64,
    next: OnceBox<Self>,
}

static INDICES: Indices = Indices::new();

impl Indices {
    const fn new() -> Self {
        Self { taken: AtomicU64::new(0), next: OnceBox::new() }
    }
}

impl Index {
    fn take() -> Self {
        let (mut indices, mut first) = (&INDICES, 0);
        loop {
            let free = (!indices.taken.load(Ordering::Relaxed)).trailing_zeros();
            if free == u64::BITS {
                indices = indices.next.get_or_init(|| Box::new(Indices::new()));
                first += u64::BITS as usize;
            } else if indices.taken.fetch_or(1 << free, Ordering::Relaxed) & (1 << free) == 0 {
                return Self(first + free as usize);
            }
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let bits = u64::BITS as usize;
        let mut indices = &INDICES;
        for _ in 0..self.0 / bits {
            indices = indices.next.get_or_init(|| Box::new(Indices::new()));
        }
        indices.taken.fetch_and(!(1 << (self.0 % bits)), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_again_and_never_twice_at_a_time() {
        let many: Vec<_> = (0..200).map(|_| Index::take()).collect();
        let mut numbers: Vec<_> = many.iter().map(|index| index.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 200);
        let highest = numbers[199];
        drop(many);
        // Other tests take some indices meanwhile, but never that many.
        assert!(Index::take().0 < highest);
    }
}
