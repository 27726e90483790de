//! A child process that runs a piece of a test and says how it went.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wakeful::{EventLoop, Hook};

/// How a process is copied.
pub(crate) type Copy = fn() -> libc::pid_t;

pub(crate) fn fork() -> libc::pid_t {
    // SAFETY: the child runs what the tests below give it, which needs no lock that another thread
    // may hold, and ends by `_exit`. The C library's allocator is made ready for forks by itself.
    unsafe { libc::fork() }
}

/// Forks. Returns in the parent the status with which the child has ended. A child that hangs is
/// killed by SIGALRM.
pub(crate) fn fork_and_wait() -> i32 {
    let (child, mut status) = (fork(), 0);
    // SAFETY: our own child, and a place for its status.
    unsafe {
        if child == 0 {
            libc::alarm(30);
        } else {
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
    }
    status
}

/// A hook that writes to a socket once, before the loop parks, and then forks.
pub(crate) struct ForkingHook {
    parent: u32,
    status: Rc<Cell<Option<i32>>>,
    _hook: Hook,
}

impl ForkingHook {
    pub(crate) fn add(event_loop: &EventLoop, mut peer: StdUnixStream) -> Self {
        let status = Rc::new(Cell::new(None));
        let hook = event_loop.before_park({
            let status = status.clone();
            move || {
                if status.get().is_none() {
                    // The event is there, and nobody has asked for it.
                    peer.write_all(b"x").unwrap();
                    status.set(Some(fork_and_wait()));
                }
            }
        });
        Self { parent: std::process::id(), status, _hook: hook }
    }

    /// Returns what the loop's run returned in the parent. Asserts that the child's run was an
    /// error. The child ends here.
    pub(crate) fn in_parent<T>(&self, ran: io::Result<T>) -> T {
        if std::process::id() != self.parent {
            // SAFETY: the child ends here, without running what its parent has registered.
            unsafe { libc::_exit(ran.is_ok().into()) };
        }
        assert_eq!(self.status.get(), Some(0), "the child's run is an error");
        ran.unwrap()
    }
}

/// As `fork`, behind the C library's back: no handler of `pthread_atfork` runs.
pub(crate) fn bare_clone() -> libc::pid_t {
    // SAFETY: as for `fork`; without a new stack and without shared memory that is what it is.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    libc::pid_t::try_from(child).expect("a process id")
}

pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the child: calls `f`, tells the parent by the pipe how it went, and ends. A child that hangs
/// is killed by SIGALRM.
pub(crate) fn report(mut pipe: &StdUnixStream, f: impl FnOnce()) -> ! {
    // SAFETY: no memory is involved.
    unsafe { libc::alarm(30) };
    let failed = catch_unwind(AssertUnwindSafe(f)).err();
    let text = failed.map_or("ok".to_owned(), |payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        text.unwrap_or("(not a text)").to_owned()
    });
    let _ = pipe.write_all(text.as_bytes());
    // SAFETY: the child ends here, without running what its parent has registered for the end.
    unsafe { libc::_exit(0) }
}

/// In the parent: what the child said, once it has ended.
pub(crate) fn verdict(child: libc::pid_t, mut ours: StdUnixStream, theirs: StdUnixStream) {
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(text, "ok", "in the child, which ended with status {status:#x}");
}

/// Runs `f` in a child, which must not fail.
pub(crate) fn in_child_of(copy: Copy, f: impl FnOnce()) {
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    match copy() {
        0 => report(&theirs, f),
        child => verdict(child, ours, theirs),
    }
}

pub(crate) fn in_child(f: impl FnOnce()) {
    in_child_of(fork, f);
}

/// Like `in_child`, but `f` owns the child's copy of `value`, and may drop it.
pub(crate) fn in_child_with<T>(value: &mut T, f: impl FnOnce(T)) {
    // SAFETY: the child has one owner of the value, `f`: it ends within, and the borrow it came by
    // is not used again.
    in_child(|| f(unsafe { ptr::read(value) }));
}
