//! EPOLLEXCLUSIVE, and kernels without it.
//!
//! Linux has it since 4.5. Older kernels silently ignore the flag, and other implementations of
//! Linux's interface refuse it. There a shared listener is watched without the flag: a connection
//! wakes all sleeping loops, one of them gets it, and the others find nothing.
//!
//! Some listeners are watched without it on purpose. If the kernel has just woken a process for a
//! connection, and that process is killed before it accepts, the connection stays in the backlog.
//! The kernel wakes no other process for it until another connection comes. If the process is the
//! worker of a master, the master tells the other workers. Without a master, the kernel wakes all
//! processes for each connection.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, Result};

use super::epoll::Epoll;
use crate::sys::panics;

const UNKNOWN: u8 = 0;
const EXISTS: u8 = 1;
const MISSING: u8 = 2;

/// The process finds this out by its first shared listener.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Watches `fd` without EPOLLEXCLUSIVE, even if `flags` contain it.
pub(super) fn add_without(
    epoll: &Epoll,
    fd: BorrowedFd<'_>,
    flags: EventFlags,
    token: u64,
) -> Result<()> {
    epoll.add(fd, flags - EventFlags::EXCLUSIVE, token)
}

/// Watches `fd` with EPOLLEXCLUSIVE, which `flags` contain, or without it if the kernel does not
/// have it.
pub(super) fn add(epoll: &Epoll, fd: BorrowedFd<'_>, flags: EventFlags, token: u64) -> Result<()> {
    if STATE.load(Ordering::Relaxed) == UNKNOWN {
        // A kernel that knows the flag refuses it together with RDHUP (epoll_ctl(2)).
        match add_as_told(epoll, fd, flags | EventFlags::RDHUP, token) {
            Ok(()) => {
                epoll.remove(fd);
                give_up("the kernel ignores it");
            }
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    if STATE.load(Ordering::Relaxed) == MISSING {
        return add_without(epoll, fd, flags, token);
    }
    match add_as_told(epoll, fd, flags, token) {
        Err(Errno::INVAL) => {
            add_without(epoll, fd, flags, token)?;
            give_up("the kernel refuses it");
            Ok(())
        }
        Ok(()) => {
            STATE.store(EXISTS, Ordering::Relaxed);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn give_up(why: &'static str) {
    if STATE.swap(MISSING, Ordering::Relaxed) != MISSING {
        panics::log!(
            warn,
            why,
            "this kernel lacks EPOLLEXCLUSIVE: a connection wakes every sleeping loop"
        );
    }
}

#[cfg(not(debug_assertions))]
fn add_as_told(epoll: &Epoll, fd: BorrowedFd<'_>, flags: EventFlags, token: u64) -> Result<()> {
    epoll.add(fd, flags, token)
}

/// Debug builds behave as on such a kernel if `WAKEFUL_EPOLLEXCLUSIVE` is `refused` or `ignored`.
#[cfg(debug_assertions)]
fn add_as_told(epoll: &Epoll, fd: BorrowedFd<'_>, flags: EventFlags, token: u64) -> Result<()> {
    use std::sync::OnceLock;
    static TOLD: OnceLock<Option<String>> = OnceLock::new();
    match TOLD.get_or_init(|| std::env::var("WAKEFUL_EPOLLEXCLUSIVE").ok()).as_deref() {
        Some("refused") => Err(Errno::INVAL),
        Some("ignored") => epoll.add(fd, flags - EventFlags::EXCLUSIVE, token),
        _ => epoll.add(fd, flags, token),
    }
}
