//! A program with a small stack (`ulimit -s 64`).
//!
//! The kernel lets the main thread's stack grow up to RLIMIT_STACK, and kills a process that needs
//! more. clap's description of all options takes most of 64 KiB in an optimised build, and more in
//! other builds. A new thread has the stack that its starter asks for. So with a small limit
//! everything runs on a new thread, and the main thread waits for it. The limit stays as it is,
//! because a command that the program starts inherits it. Only a server raises it, because the
//! master of `--workers` must not start a thread.

use std::panic::resume_unwind;
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// With at least this much, everything runs on the main thread.
const ENOUGH: u64 = 1 << 20;
/// The size that the standard library gives to threads.
const OWN: usize = 2 << 20;

/// Calls `f` with a stack that is large enough. If no thread can be started, `f` runs on this one.
#[inline(never)]
pub(crate) fn with_room<T: Send + 'static>(f: fn() -> T) -> T {
    // If the kernel does not tell the limit, it is assumed to be the usual one.
    let (soft, hard) = getrlimit(Resource::RLIMIT_STACK).unwrap_or((ENOUGH, ENOUGH));
    if soft >= ENOUGH || may_grow(hard) {
        return f();
    }
    let room = thread::Builder::new().name("wakeful-main".to_owned()).stack_size(OWN);
    match room.spawn(f) {
        Ok(thread) => thread.join().unwrap_or_else(|payload| resume_unwind(payload)),
        Err(_) => f(),
    }
}

/// Checks that the stack has room for a master, which must not start a thread.
///
/// # Errors
/// A line for the user.
pub(crate) fn has_room_for_a_master() -> Result<(), String> {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((soft, hard)) if soft < ENOUGH => Err(format!(
            "--workers needs a stack of {} KiB, and the hard limit is {} KiB (ulimit -Hs)",
            ENOUGH >> 10,
            hard >> 10,
        )),
        _ => Ok(()),
    }
}

/// Tries to raise the limit for a server's main thread, if the hard limit allows that.
fn may_grow(hard: u64) -> bool {
    let is_server = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
    is_server && hard >= ENOUGH && setrlimit(Resource::RLIMIT_STACK, ENOUGH, hard).is_ok()
}
