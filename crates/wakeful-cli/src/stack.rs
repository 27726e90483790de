//! A program with a small stack (`ulimit -s 64`).
//!
//! The kernel lets the main thread's stack grow up to RLIMIT_STACK, and kills whoever goes beyond.
//! What describes all options (clap) takes most of 64 KiB in an optimised build, and more in
//! another one. A thread has the stack that its starter asks for, so there everything runs on one,
//! and the main thread waits for it. The limit stays as it is: a command that the program starts
//! inherits it. Only a server raises it, because the master of `--workers` must not start a thread.

use std::panic::resume_unwind;
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// With as much, everything runs where it is.
const ENOUGH: u64 = 1 << 20;
/// As the standard library gives other threads.
const OWN: usize = 2 << 20;

/// Calls `f` with a stack that is large enough. Where no thread can be started, that is this one's
/// all the same.
#[inline(never)]
pub(crate) fn with_room<T: Send + 'static>(f: fn() -> T) -> T {
    // Where the kernel does not tell the limit, it is the usual one.
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

/// The line for a user whose limit leaves no room for a master: it must not start a thread.
///
/// # Errors
/// That line.
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

/// A server's main thread may have a larger stack, if the hard limit allows that.
fn may_grow(hard: u64) -> bool {
    let is_server = std::env::args_os().nth(1).is_some_and(|command| command == "serve");
    is_server && hard >= ENOUGH && setrlimit(Resource::RLIMIT_STACK, ENOUGH, hard).is_ok()
}
