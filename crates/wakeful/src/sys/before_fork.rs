//! Sockets whose options must not reach a forked child.
//!
//! A child has a copy of each descriptor, so an option that one process sets is set for both. The
//! parent cannot know what a child does with its copy, and a parent that is killed cannot undo
//! anything. So a temporary option ends before the fork: the `prepare` handler of
//! `pthread_atfork(3)` removes it. The handlers of [`fork_check`](super::fork_check) call the
//! functions of this module. (Descriptors that hold CPUs are not closed before a fork, but in the
//! child: [`closed_in_child`](super::closed_in_child).)
//!
//! The lock is held across the fork, so the child never finds it locked by a thread that the child
//! does not have. For the same reason it is held while signal handlers are registered and
//! unregistered: a child might otherwise find their list in the middle of a change.
//!
//! A fork also waits for threads of this crate that start or end:
//! [`thread_edges`](super::thread_edges).
//!
//! Handlers of the program itself run between [`before`] and [`after`] if they were registered
//! earlier, because `prepare` handlers run in reverse order. Functions of this crate that they call
//! find that their own thread has the lock, and do not take it again. A temporary option waits for
//! the end of the fork. Two things remain for the program to avoid. A `prepare` handler must not
//! wait for another thread that begins or ends to watch for signals, or binds a listener: that
//! thread waits for the end of the fork. And a `child` handler that runs before [`after`] cannot
//! tell the child from its parent yet: it must leave loops, and what belongs to them, alone.
//!
//! No handler runs for `posix_spawn(3)`, `vfork(2)` and `clone(2)`. The first two, and so
//! `std::process::Command`, end in an `exec`, which closes the child's copy: every socket of this
//! crate is close-on-exec. After a bare `clone(2)` the child shares the options that the parent has
//! set.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The function that undoes the option.
type Undo = fn(&OwnedFd);

/// How many forks this process has begun, plus how many have ended, so that it is odd during a
/// fork. It changes only under the lock. A descriptor that a handler makes during a fork may have a
/// copy in the child, so its count is past when the fork has ended.
static FORKS: AtomicU32 = AtomicU32::new(0);

static STATE: Mutex<State> = Mutex::new(State { changed: Vec::new() });

struct State {
    changed: Vec<(Weak<OwnedFd>, Undo)>,
}

thread_local! {
    /// The lock, while this thread forks. It has no destructor, so that it exists also while the
    /// thread ends. No user code runs while it is borrowed.
    static FORKING: RefCell<Option<ManuallyDrop<MutexGuard<'static, State>>>> =
        const { RefCell::new(None) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock, unless this thread is forking, and so has it.
fn state_unless_forking() -> Option<MutexGuard<'static, State>> {
    (!is_forking()).then(state)
}

/// Is this thread forking? Functions that the program's handlers call ask this.
pub(crate) fn is_forking() -> bool {
    FORKING.with_borrow(Option::is_some)
}

/// The number of forks when this value was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkCount(u32);

impl ForkCount {
    /// Has there been another fork since? This is one load.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}

/// Must be called after the handlers are registered: by
/// [`Process::fork_count`](super::fork_check::Process::fork_count).
pub(super) fn fork_count() -> ForkCount {
    let _state = state_unless_forking();
    ForkCount(FORKS.load(Ordering::Relaxed))
}

/// Like [`fork_count`], without the lock. `None` while a thread is forking.
pub(super) fn count_unless_forking() -> Option<ForkCount> {
    let count = FORKS.load(Ordering::SeqCst);
    count.is_multiple_of(2).then_some(ForkCount(count))
}

/// Calls `change` with the socket and returns `true`, unless this process has forked since `count`,
/// or this thread is forking. Before the next fork `undo` is called, once for each socket. Both
/// functions may only make system calls.
pub(crate) fn change_until_fork(
    count: ForkCount,
    socket: &Arc<OwnedFd>,
    change: impl FnOnce(&OwnedFd) -> std::io::Result<()>,
    undo: Undo,
) -> std::io::Result<bool> {
    if is_forking() {
        return Ok(false);
    }
    let mut state = state();
    if count.is_past() {
        return Ok(false);
    }
    change(socket)?;
    if !state.changed.iter().any(|(changed, _)| std::ptr::eq(changed.as_ptr(), &**socket)) {
        state.changed.push((Arc::downgrade(socket), undo));
    }
    Ok(true)
}

/// Undoes what [`change_until_fork`] did to the socket, unless that was undone already.
pub(crate) fn undo(socket: &Weak<OwnedFd>) {
    let take = |state: &mut State| {
        let place = state.changed.iter().position(|(changed, _)| changed.ptr_eq(socket));
        place.map(|place| state.changed.swap_remove(place))
    };
    let taken = FORKING.with_borrow_mut(|forking| forking.as_mut().map(|state| take(state)));
    let taken = taken.unwrap_or_else(|| take(&mut state()));
    if let Some((socket, undo)) = taken
        && let Some(socket) = socket.upgrade()
    {
        undo(&socket);
    }
}

/// Calls `f` while no other thread of the process forks. It is for code that takes a lock which a
/// child could find locked for ever. `f` must neither fork nor call this module.
pub(super) fn between_forks<R>(f: impl FnOnce() -> R) -> R {
    let _state = state_unless_forking();
    f()
}

/// The parent's handler before a fork. If it is registered twice, it is called twice.
pub(crate) fn before() {
    if is_forking() {
        return;
    }
    let mut state = state();
    FORKS.fetch_add(1, Ordering::SeqCst);
    for (socket, undo) in state.changed.drain(..) {
        if let Some(socket) = socket.upgrade() {
            undo(&socket);
        }
    }
    FORKING.set(Some(ManuallyDrop::new(state)));
}

/// The handler after a fork, in both processes.
pub(crate) fn after() {
    if let Some(state) = FORKING.take() {
        FORKS.fetch_add(1, Ordering::SeqCst);
        drop(ManuallyDrop::into_inner(state));
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A handler of the program calls this between [`before`] and [`after`].
    #[test]
    fn what_the_thread_that_forks_calls_does_not_wait_for_the_fork() {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let socket = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
            let refused = |count| {
                let change = |_: &OwnedFd| unreachable!("the child would have a copy");
                !change_until_fork(count, &socket, change, |_| ()).unwrap()
            };
            let earlier = fork_count();
            before();
            let during = fork_count();
            assert!(earlier.is_past() && !during.is_past());
            assert!(refused(earlier) && refused(during));
            undo(&Arc::downgrade(&socket));
            let is_inner = between_forks(|| between_forks(is_forking));
            before();
            after();
            after();
            assert!(is_inner && !is_forking());
            assert!(during.is_past(), "it may have been copied");
            done.send(()).unwrap();
        });
        is_done
            .recv_timeout(Duration::from_secs(30))
            .expect("it waits for its own fork, or failed");
    }
}
