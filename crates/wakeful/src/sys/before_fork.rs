//! Sockets whose options must not reach a forked child.
//!
//! A child has a copy of each descriptor, so an option that one process sets is set for both. The
//! parent cannot know what a child does with its copy, and a parent that is killed takes nothing
//! back. So a temporary option ends before the fork: the `prepare` handler of `pthread_atfork(3)`
//! takes it off. The handlers of [`fork_check`](super::fork_check) call the functions of this
//! module.
//!
//! The lock is held across the fork. Neither process finds it locked by a thread that it lacks. For
//! the same reason it is held while signal handlers are registered and unregistered: `signal-hook`
//! has a lock of its own, which a child would find locked for ever.
//!
//! No handler runs for `posix_spawn(3)`, `vfork(2)` and `clone(2)`. The first two, and so
//! `std::process::Command`, end in an `exec`, which closes the child's copy: every socket of this
//! crate is close-on-exec. After a bare `clone(2)` the child shares what the parent has set.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What undoes the option.
type Undo = fn(&OwnedFd);

/// How many forks this process has begun or comes from. Changed under the lock only.
static FORKS: AtomicU32 = AtomicU32::new(0);

static STATE: Mutex<State> = Mutex::new(State { changed: Vec::new() });

struct State {
    changed: Vec<(Weak<OwnedFd>, Undo)>,
}

thread_local! {
    /// The lock, while this thread forks.
    static FORKING: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many forks there were when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkCount(u32);

impl ForkCount {
    /// Has there been another one since? One load.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}

/// To be asked once the handlers are registered: by
/// [`Process::fork_count`](super::fork_check::Process::fork_count).
pub(super) fn fork_count() -> ForkCount {
    let _state = state();
    ForkCount(FORKS.load(Ordering::Relaxed))
}

/// Calls `change` with the socket and returns `true`, unless this process has forked since `count`.
/// Before the next fork `undo` is called, once for each socket. Both make system calls only.
pub(crate) fn change_until_fork(
    count: ForkCount,
    socket: &Arc<OwnedFd>,
    change: impl FnOnce(&OwnedFd) -> std::io::Result<()>,
    undo: Undo,
) -> std::io::Result<bool> {
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

/// Undoes what [`change_until_fork`] did to the socket, if it is still so.
pub(crate) fn undo(socket: &Weak<OwnedFd>) {
    let taken = {
        let mut state = state();
        let place = state.changed.iter().position(|(changed, _)| changed.ptr_eq(socket));
        place.map(|place| state.changed.swap_remove(place))
    };
    if let Some((socket, undo)) = taken
        && let Some(socket) = socket.upgrade()
    {
        undo(&socket);
    }
}

/// Calls `f` while no other thread of the process forks. For what takes a lock that a child would
/// wait for in vain. `f` neither forks nor calls what is in this module.
pub(super) fn between_forks<R>(f: impl FnOnce() -> R) -> R {
    let _state = state();
    f()
}

/// In the parent, before it forks. Registered twice, it is called twice.
pub(super) fn before() {
    if FORKING.try_with(|forking| forking.borrow().is_some()).unwrap_or(false) {
        return;
    }
    let mut state = state();
    FORKS.fetch_add(1, Ordering::Relaxed);
    for (socket, undo) in state.changed.drain(..) {
        if let Some(socket) = socket.upgrade() {
            undo(&socket);
        }
    }
    // A thread that ends has no such place any more. It forks without the lock.
    let _ = FORKING.try_with(|forking| forking.replace(Some(state)));
}

/// In both processes, after the fork.
pub(super) fn after() {
    let _ = FORKING.try_with(RefCell::take);
}
