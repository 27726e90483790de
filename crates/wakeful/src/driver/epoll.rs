//! One function for each system call, and nothing else.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use crate::sys::failures;
use crate::sys::limits::explain_call;
use crate::sys::panics;

/// How long a wait may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Does not wait: reports what is ready.
    Zero,
    /// Waits until this much time has passed, and never less.
    After(Duration),
    /// Waits until something happens.
    Never,
}

impl From<Option<Duration>> for Timeout {
    fn from(limit: Option<Duration>) -> Self {
        match limit {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Zero,
            Some(limit) => Self::After(limit),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC).map_err(explain_call("epoll_create1"))?))
    }

    pub(super) fn add(
        &self,
        fd: BorrowedFd<'_>,
        flags: EventFlags,
        token: u64,
    ) -> rustix::io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(token), flags)
    }

    /// Has the kernel check a registered descriptor again. If it is ready, that is a new edge.
    pub(super) fn edge_again(
        &self,
        fd: BorrowedFd<'_>,
        flags: EventFlags,
        token: u64,
    ) -> rustix::io::Result<()> {
        epoll::modify(&self.0, fd, EventData::new_u64(token), flags)
    }

    /// An error means that the descriptor is not registered (any more), so there is nothing to
    /// remove.
    pub(super) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Appends up to `batch` events to the empty `events`.
    #[inline(always)] // Every turn is one of its callers.
    pub(super) fn wait(
        &self,
        events: &mut Vec<Event>,
        batch: usize,
        timeout: Timeout,
    ) -> rustix::io::Result<()> {
        debug_assert!(events.is_empty());
        #[cfg(feature = "faults")]
        // A wait that does not sleep is not interrupted.
        if timeout != Timeout::Zero && crate::sys::faults::interrupts_wait() {
            return Err(Errno::INTR);
        }
        let limit = match timeout {
            Timeout::Zero => Some(Timespec::default()),
            Timeout::Never => None,
            Timeout::After(limit) => match Timespec::try_from(limit) {
                Ok(limit) if PWAIT2_EXISTS.load(Ordering::Relaxed) => {
                    match self.pwait2(events, batch, &limit) {
                        // This is Linux before 5.11, or a seccomp profile that does not know the
                        // call.
                        Err(Errno::NOSYS | Errno::PERM) => {
                            PWAIT2_EXISTS.store(false, Ordering::Relaxed);
                            panics::log!(
                                info,
                                "this kernel lacks epoll_pwait2: timers round up to 1 ms"
                            );
                            Some(limit)
                        }
                        done => return done,
                    }
                }
                Ok(limit) => Some(limit),
                // A timeout of more than 292 billion years is no limit.
                Err(_) => None,
            },
        };
        // If there is no timeout, or it is zero or a whole number of milliseconds, this is
        // `epoll_pwait`, which every kernel has. It rounds up.
        epoll::wait(&self.0, spare_capacity(events), limit.map(whole_milliseconds).as_ref())?;
        Ok(())
    }

    /// `epoll_pwait2`, the wait with a nanosecond timeout (Linux 5.11).
    fn pwait2(
        &self,
        events: &mut Vec<Event>,
        batch: usize,
        limit: &Timespec,
    ) -> rustix::io::Result<()> {
        const {
            assert!(size_of::<Event>() == size_of::<libc::epoll_event>());
            assert!(size_of::<Timespec>() == 16, "the kernel's __kernel_timespec");
        }
        failures::at(failures::Call::PreciseWait)?;
        // `room` never exceeds the capacity, because the kernel writes up to `room` events.
        let room = batch.min(events.capacity());
        // SAFETY: `events` is empty and has room for `room` events, in the kernel's layout (rustix
        // hands the same type to the kernel; its size is checked above). The kernel reads `limit`
        // and no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                room as libc::c_int,
                ptr::from_ref(limit),
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match usize::try_from(count) {
            Ok(count) => {
                debug_assert!(count <= room);
                // SAFETY: the kernel wrote that many events.
                unsafe { events.set_len(count) };
                Ok(())
            }
            Err(_) => {
                Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
            }
        }
    }
}

/// The process finds this out by the first wait that needs the call.
static PWAIT2_EXISTS: AtomicBool = AtomicBool::new(true);

/// For tests that change what the process has found out. They run one at a time, each from the
/// initial state.
#[cfg(all(test, not(wakeful_loom)))]
pub(crate) fn alone_with_pwait2() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    PWAIT2_EXISTS.store(true, Ordering::Relaxed);
    alone
}

/// Rounds up to whole milliseconds, to no more than `epoll_wait` can express (24 days). A wait that
/// ends early is followed by another one.
fn whole_milliseconds(limit: Timespec) -> Timespec {
    let up = limit.tv_nsec + 999_999;
    let (seconds, milliseconds) = (limit.tv_sec.min(2_000_000), up / 1_000_000);
    Timespec { tv_sec: seconds + milliseconds / 1_000, tv_nsec: milliseconds % 1_000 * 1_000_000 }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timerfd that makes an epoll descriptor readable at a deadline. Any thread may arm it, and
/// arming it wakes nobody.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(Self(timer.map_err(explain_call("timerfd_create"))?))
    }

    /// Arms the timer to fire once, `after` from now. Zero fires at once. `None` disarms the timer.
    pub(crate) fn arm(&self, after: Option<Duration>) -> io::Result<()> {
        let value = match after {
            None => Timespec::default(),
            Some(after) => Timespec::try_from(after.max(Duration::from_nanos(1)))
                .unwrap_or(Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 }),
        };
        let spec = Itimerspec { it_interval: Timespec::default(), it_value: value };
        let set = rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec);
        set.map(drop).map_err(explain_call("timerfd_settime"))
    }
}

impl From<OwnedFd> for Timer {
    /// Wraps a timer that another process has made.
    fn from(timer: OwnedFd) -> Self {
        Self(timer)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;
    use std::time::Instant;

    #[test]
    fn whole_milliseconds_rounds_up_and_does_not_overflow() {
        let of = |tv_sec, tv_nsec| {
            let rounded = whole_milliseconds(Timespec { tv_sec, tv_nsec });
            (rounded.tv_sec, rounded.tv_nsec)
        };
        assert_eq!(of(0, 0), (0, 0));
        assert_eq!(of(0, 1), (0, 1_000_000));
        assert_eq!(of(0, 1_000_000), (0, 1_000_000));
        assert_eq!(of(1, 999_999_999), (2, 0));
        assert_eq!(of(i64::MAX, 999_999_999), (2_000_001, 0));
    }

    #[test]
    fn no_wait_ends_early_with_or_without_pwait2() {
        let _alone = alone_with_pwait2();
        let epoll = Epoll::new().unwrap();
        let mut events = Vec::with_capacity(1);
        let limit = Duration::from_micros(300);
        for exists in [true, false] {
            PWAIT2_EXISTS.store(exists, Ordering::Relaxed);
            let start = Instant::now();
            epoll.wait(&mut events, 1, Timeout::After(limit)).unwrap();
            assert!(start.elapsed() >= limit);
        }
        PWAIT2_EXISTS.store(true, Ordering::Relaxed);
    }

    #[test]
    fn the_kernel_is_given_no_more_room_than_there_is() {
        let epoll = Epoll::new().unwrap();
        let flags = EventfdFlags::CLOEXEC;
        let ready = [(); 4].map(|()| rustix::event::eventfd(1, flags).unwrap());
        ready.iter().for_each(|fd| epoll.add(fd.as_fd(), EventFlags::IN, 0).unwrap());
        for timeout in [Timeout::Zero, Timeout::After(Duration::from_secs(1))] {
            let mut events = Vec::with_capacity(2);
            let room = events.capacity();
            epoll.wait(&mut events, ready.len(), timeout).unwrap();
            assert_eq!((events.len(), events.capacity()), (room, room));
        }
    }
}
