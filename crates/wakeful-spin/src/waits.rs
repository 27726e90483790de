//! The waits of a program. Each can be made in three ways: as the program makes it, without
//! waiting, and for what is left of its timeout.
//!
//! Pointers of the program go to the kernel, which checks them, so EFAULT is returned as without
//! this crate. This crate reads the program's memory only after the kernel, or libc by contract,
//! has read it.
#![allow(unsafe_code)]

use std::ptr::{null, null_mut};
use std::time::Duration;

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec};

use crate::errno::{Answer, answer};
use crate::real;

const NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// A wait of the program. Nothing in it has to be dropped.
pub(crate) trait Wait {
    /// Returns `None` if the wait must not spin: because a spin could see nothing that the program
    /// asks for, because the wait does not wait at all, or because its timeout is invalid.
    fn limit(&self) -> Option<Limit>;

    /// Makes the program's call, unchanged.
    fn as_asked(&self) -> Answer;

    /// Asks without waiting, and without a look at signals that the thread's mask blocks.
    fn ask(&self) -> Answer;

    /// Returns the mask that the program wants in force during the wait, if it is not the thread's.
    /// May be called only after `ask` has returned 0, because the kernel has read the mask then.
    fn mask(&self) -> Option<sigset_t>;

    /// Asks without waiting, with this mask in force. Returns EINTR if a signal's handler has run.
    /// Setting the mask, looking and restoring the mask are one step, as in `ppoll(2)`.
    fn look(&self, mask: &sigset_t) -> Answer;

    /// Whether the wait may be called in every signal handler (signal-safety(7)).
    fn is_for_handlers(&self) -> bool;

    /// Waits with this mask for the given time. `None` means for ever.
    fn sleep(&self, left: Option<Duration>, mask: &sigset_t) -> Answer;
}

/// How long a program waits at most. `None` means for ever.
pub(crate) type Limit = Option<Duration>;

/// `epoll_wait`, `epoll_pwait` and `epoll_pwait2`.
#[derive(Clone, Copy)]
pub(crate) struct Epoll {
    pub(crate) epoll: c_int,
    pub(crate) events: *mut epoll_event,
    pub(crate) most: c_int,
    pub(crate) timeout: Timeout,
    pub(crate) mask: *const sigset_t,
}

#[derive(Clone, Copy)]
pub(crate) enum Timeout {
    Milliseconds(c_int),
    /// The timeout of `epoll_pwait2`. Null means for ever.
    Time(*const timespec),
}

impl Wait for Epoll {
    #[inline]
    fn limit(&self) -> Option<Limit> {
        let time = match self.timeout {
            Timeout::Milliseconds(time) => return limit_of(time),
            Timeout::Time(time) if time.is_null() => return Some(None),
            Timeout::Time(time) => time,
        };
        // The kernel reads the time first and then returns EBADF, so it never waits. If it returns
        // EFAULT, the program's own call returns that, too. This is the bare system call, because
        // libc's `epoll_pwait2` might read the time itself.
        // SAFETY: no descriptor is passed, so no event is written, and the kernel checks the time.
        let looked = unsafe { real::epoll_pwait2_now(-1, self.events, 1, time, null()) };
        if answer(looked) != Err(libc::EBADF) {
            return None;
        }
        // SAFETY: the kernel has just read the time from there.
        limit_in(unsafe { *time })
    }

    fn as_asked(&self) -> Answer {
        let Self { epoll, events, most, mask, .. } = *self;
        // SAFETY: these are the program's arguments.
        answer(unsafe {
            match self.timeout {
                // A seccomp filter may permit only the program's own call.
                Timeout::Milliseconds(time) if mask.is_null() => {
                    real::epoll_wait(epoll, events, most, time)
                }
                Timeout::Milliseconds(time) => real::epoll_pwait(epoll, events, most, time, mask),
                Timeout::Time(time) => real::epoll_pwait2(epoll, events, most, time, mask),
            }
        })
    }

    #[inline]
    fn ask(&self) -> Answer {
        // SAFETY: these are the program's arguments, with another timeout.
        answer(unsafe { real::epoll_pwait_now(self.epoll, self.events, self.most, 0, self.mask) })
    }

    fn mask(&self) -> Option<sigset_t> {
        mask_at(self.mask)
    }

    #[inline]
    fn look(&self, mask: &sigset_t) -> Answer {
        // SAFETY: these are the program's arguments, with another timeout.
        let asked = unsafe { real::epoll_pwait_now(self.epoll, self.events, self.most, 0, null()) };
        match answer(asked) {
            // `epoll_pwait` looks for signals only if it has to wait, but `ppoll` always does. This
            // `ppoll` has no descriptor, because some files (a trigger of /proc/pressure, a perf
            // event) report only once that they are ready. They must report it to the program.
            // SAFETY: no descriptor is passed, and `mask` is a valid mask.
            Ok(0) => answer(unsafe { real::ppoll_now(null_mut(), 0, Some(NOW), mask) }),
            found => found,
        }
    }

    fn is_for_handlers(&self) -> bool {
        false
    }

    fn sleep(&self, left: Option<Duration>, mask: &sigset_t) -> Answer {
        let Self { epoll, events, most, .. } = *self;
        let Some(left) = left else {
            // SAFETY: these are the program's arguments, with the mask that is in force.
            return answer(unsafe { real::epoll_pwait(epoll, events, most, -1, mask) });
        };
        let time = timespec_of(left);
        // Without libc's function it would be no cancellation point.
        if real::libc_has_epoll_pwait2() {
            // SAFETY: as above, and `time` is a valid time.
            let slept =
                answer(unsafe { real::epoll_pwait2(epoll, events, most, &raw const time, mask) });
            if matches!(slept, Ok(_) | Err(libc::EINTR)) {
                return slept;
            }
        }
        // `epoll_pwait2` needs Linux 5.11 and glibc 2.35, and a seccomp filter may refuse it. This
        // sleep is never shorter than the one that was asked for. If the arguments are wrong, it
        // returns the same error again.
        let milliseconds = left.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX);
        // SAFETY: as above.
        answer(unsafe { real::epoll_pwait(epoll, events, most, milliseconds, mask) })
    }
}

/// `poll` and `ppoll`.
#[derive(Clone, Copy)]
pub(crate) struct Poll {
    pub(crate) fds: *mut pollfd,
    pub(crate) count: nfds_t,
    pub(crate) timeout: PollTimeout,
    pub(crate) mask: *const sigset_t,
}

#[derive(Clone, Copy)]
pub(crate) enum PollTimeout {
    /// The timeout of `poll`.
    Milliseconds(c_int),
    /// The timeout of `ppoll`. `None` means for ever.
    Time(Option<timespec>),
}

impl Wait for Poll {
    #[inline]
    fn limit(&self) -> Option<Limit> {
        // The program waits for no descriptor, so the wait is only a sleep.
        if self.count == 0 {
            return None;
        }
        match self.timeout {
            PollTimeout::Milliseconds(time) => limit_of(time),
            PollTimeout::Time(None) => Some(None),
            PollTimeout::Time(Some(time)) => limit_in(time),
        }
    }

    fn as_asked(&self) -> Answer {
        // SAFETY: these are the program's arguments.
        answer(unsafe {
            match &self.timeout {
                PollTimeout::Milliseconds(time) => real::poll(self.fds, self.count, *time),
                PollTimeout::Time(time) => {
                    let time = time.as_ref().map_or(null(), |time| &raw const *time);
                    real::ppoll(self.fds, self.count, time, self.mask)
                }
            }
        })
    }

    #[inline]
    fn ask(&self) -> Answer {
        // SAFETY: these are the program's arguments, with another timeout.
        answer(unsafe { real::ppoll_now(self.fds, self.count, Some(NOW), self.mask) })
    }

    fn mask(&self) -> Option<sigset_t> {
        mask_at(self.mask)
    }

    #[inline]
    fn look(&self, mask: &sigset_t) -> Answer {
        // SAFETY: these are the program's arguments, with another timeout and a mask.
        answer(unsafe { real::ppoll_now(self.fds, self.count, Some(NOW), mask) })
    }

    fn is_for_handlers(&self) -> bool {
        true
    }

    fn sleep(&self, left: Option<Duration>, mask: &sigset_t) -> Answer {
        let left = left.map(timespec_of);
        let left = left.as_ref().map_or(null(), |left| &raw const *left);
        // SAFETY: these are the program's arguments, with another timeout and a mask.
        answer(unsafe { real::ppoll(self.fds, self.count, left, mask) })
    }
}

fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn limit_of(milliseconds: c_int) -> Option<Limit> {
    match u64::try_from(milliseconds) {
        Ok(0) => None,
        Ok(time) => Some(Some(Duration::from_millis(time))),
        Err(_) => Some(None),
    }
}

fn limit_in(time: timespec) -> Option<Limit> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|part| *part < 1_000_000_000)?;
    let time = Duration::new(seconds, nanoseconds);
    (!time.is_zero()).then_some(Some(time))
}

fn mask_at(mask: *const sigset_t) -> Option<sigset_t> {
    if mask.is_null() {
        return None;
    }
    let mut read = std::mem::MaybeUninit::<sigset_t>::zeroed();
    // Only eight bytes are read, because the program need not have more there.
    // SAFETY: the kernel has read as many bytes from there. All zeros is a valid set.
    unsafe {
        std::ptr::copy_nonoverlapping(mask.cast::<u8>(), read.as_mut_ptr().cast(), 8);
        Some(read.assume_init())
    }
}
