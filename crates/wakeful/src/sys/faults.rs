//! Faults that are injected for the torture test (`wakeful-torture`): what a kernel may answer at
//! any time, and seldom does. Compiled with the feature `faults` only; without it there is not even
//! a branch.
//!
//! A thread asks for them by [`inject`]; from then on its sockets' reads and writes are made
//! shorter, answered by EAGAIN or EINTR, or reset, and its loop's waits are interrupted, each with
//! a probability of its own and by random numbers from a seed.
//!
//! **An edge for each lie.** A loop that was told EAGAIN, or saw a short transfer, waits for the
//! kernel's next edge. The kernel does not know of the lie and has no reason to report an edge, so
//! the loop would rightly wait for ever. So after each lie the registration is renewed
//! (`EPOLL_CTL_MOD`), and the kernel checks the descriptor again and reports it if it is ready. To
//! the loop it looks as if the bytes had come just after the lie, which is a race that happens with
//! a real kernel, too.
//!
//! **A reset is real.** The connection is dissolved (`connect` with AF_UNSPEC, connect(2)): the
//! peer gets a RST, and our own next call gets the kernel's ECONNRESET or EPIPE. A Unix socket has
//! no RST, and is shut down in both directions. In both cases the socket's cookie is recorded, so
//! that a test can distinguish it from a reset that was not injected ([`was_reset`]).

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::io::Errno;

/// How often each fault happens. A value of `n` means in 1 of `n` calls, and 0 means never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A read or a write transfers only a part of its buffer.
    pub short: u32,
    /// An operation fails with EAGAIN without having been tried.
    pub would_block: u32,
    /// An operation, or a loop's wait, fails with EINTR.
    pub interrupted: u32,
    /// A connection is reset before a read or a write.
    pub reset: u32,
}

/// How many faults there were, on all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// See [`Faults::short`].
    pub short: u64,
    /// See [`Faults::would_block`].
    pub would_block: u64,
    /// See [`Faults::interrupted`]: operations.
    pub interrupted: u64,
    /// See [`Faults::interrupted`]: waits.
    pub interrupted_waits: u64,
    /// See [`Faults::reset`].
    pub reset: u64,
}

struct Layer {
    faults: Faults,
    random: u64,
    /// Whether the running operation got less than it asked for, so that an edge must follow.
    owes_an_edge: bool,
}

thread_local! {
    static LAYER: RefCell<Option<Layer>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Counted {
    short: AtomicU64,
    would_block: AtomicU64,
    interrupted: AtomicU64,
    interrupted_waits: AtomicU64,
    reset: AtomicU64,
}

static COUNTED: LazyLock<Counted> = LazyLock::new(Counted::default);
/// The cookies of the sockets that were reset and that no test has asked about yet.
static RESET: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Injects faults on this thread from now on, at random by `seed`.
pub fn inject(seed: u64, faults: Faults) {
    LAYER.set(Some(Layer { faults, random: seed, owes_an_edge: false }));
}

/// Returns how many faults were injected since the process began.
#[must_use]
pub fn counts() -> FaultCounts {
    FaultCounts {
        short: COUNTED.short.load(Relaxed),
        would_block: COUNTED.would_block.load(Relaxed),
        interrupted: COUNTED.interrupted.load(Relaxed),
        interrupted_waits: COUNTED.interrupted_waits.load(Relaxed),
        reset: COUNTED.reset.load(Relaxed),
    }
}

/// Returns whether an injected fault has reset this socket. Each reset is reported only once.
#[must_use]
pub fn was_reset(socket: impl AsFd) -> bool {
    rustix::net::sockopt::socket_cookie(socket)
        .is_ok_and(|cookie| RESET.lock().unwrap_or_else(PoisonError::into_inner).remove(&cookie))
}

impl Layer {
    /// The generator splitmix64 (Steele, Lea, Flood). It is written here, so that a seed repeats
    /// its faults with every version of every dependency.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.next().is_multiple_of(u64::from(one_in))
    }
}

/// Should a fault happen now? `false` on a thread that injects nothing.
fn happens(
    which: impl FnOnce(&Faults) -> u32,
    counter: impl FnOnce(&Counted) -> &AtomicU64,
) -> bool {
    let happens = LAYER.with_borrow_mut(|layer| {
        layer.as_mut().is_some_and(|layer| {
            let one_in = which(&layer.faults);
            layer.happens(one_in)
        })
    });
    if happens {
        counter(&COUNTED).fetch_add(1, Relaxed);
    }
    happens
}

/// Runs an operation on a descriptor, or returns an error instead of running it. `edge_again` makes
/// the kernel check the descriptor again.
pub(crate) fn disturb<R>(
    operation: impl FnOnce() -> Result<R, Errno>,
    edge_again: impl FnOnce(),
) -> Result<R, Errno> {
    if happens(|faults| faults.interrupted, |counted| &counted.interrupted) {
        return Err(Errno::INTR);
    }
    if happens(|faults| faults.would_block, |counted| &counted.would_block) {
        edge_again();
        return Err(Errno::AGAIN);
    }
    let done = operation();
    let owes = |layer: &mut Option<Layer>| {
        layer.as_mut().is_some_and(|layer| std::mem::take(&mut layer.owes_an_edge))
    };
    if LAYER.with_borrow_mut(owes) {
        edge_again();
    }
    done
}

/// Should the wait that is about to begin be interrupted?
pub(crate) fn interrupts_wait() -> bool {
    happens(|faults| faults.interrupted, |counted| &counted.interrupted_waits)
}

/// How many of the `length` bytes of a read or write, or of its slices, may be tried: at least one.
pub(crate) fn shorten(length: usize) -> usize {
    if length < 2 || !happens(|faults| faults.short, |counted| &counted.short) {
        return length;
    }
    LAYER.with_borrow_mut(|layer| {
        let Some(layer) = layer else { return length };
        layer.owes_an_edge = true;
        let random = layer.next();
        // The result may have every size, and is often tiny.
        let most = if random & 3 == 0 { length.min(9) } else { length };
        1 + usize::try_from((random >> 2) % (most as u64 - 1)).unwrap_or(0)
    })
}

/// Resets the connection, if a fault should happen now.
pub(crate) fn perhaps_reset(socket: BorrowedFd<'_>) {
    if !happens(|faults| faults.reset, |counted| &counted.reset) {
        return;
    }
    if let Ok(cookie) = rustix::net::sockopt::socket_cookie(socket) {
        RESET.lock().unwrap_or_else(PoisonError::into_inner).insert(cookie);
    }
    if rustix::net::connect_unspec(socket).is_err() {
        // If the peer has reset the connection already, nothing is left to shut down.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asked_for_none_has_no_faults() {
        std::thread::spawn(|| {
            assert_eq!(shorten(100), 100);
            assert!(!interrupts_wait());
            assert_eq!(disturb(|| Ok(1), || unreachable!("nobody lied")), Ok(1));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn whoever_lies_has_the_kernel_look_again() {
        std::thread::spawn(|| {
            let mut looks = 0;
            inject(1, Faults { would_block: 1, ..Faults::default() });
            assert_eq!(disturb(|| Ok(1), || looks += 1), Err(Errno::AGAIN));
            assert_eq!(looks, 1);
            inject(1, Faults { short: 1, ..Faults::default() });
            assert_eq!(disturb(|| Ok(shorten(100) < 100), || looks += 1), Ok(true));
            assert_eq!(looks, 2);
            // A transfer of one byte cannot be shortened.
            assert_eq!(disturb(|| Ok(shorten(1)), || looks += 1), Ok(1));
            assert_eq!(looks, 2);
        })
        .join()
        .unwrap();
    }
}
