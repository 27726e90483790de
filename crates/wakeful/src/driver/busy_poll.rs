//! The kernel's own busy polling of network cards, for one epoll (Linux 6.9).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The settings of [`IdlePolicy::KernelBusyPoll`](crate::IdlePolicy::KernelBusyPoll). The loop
/// passes them to its epoll with `EPIOCSPARAMS`. This needs Linux 6.9 or newer, built with
/// CONFIG_NET_RX_BUSY_POLL. Without it, building the loop fails with a clear error.
///
/// For low latency on real network cards combine it with *IRQ suspension* (Linux 6.13). Set
/// `gro-flush-timeout`, `defer-hard-irqs` and `irq-suspend-timeout` of the card's queue (netlink,
/// `netdev` family; see the kernel's `Documentation/networking/napi.rst`), and
/// [`prefer`](Self::prefer) here. As long as waits find events, the card's interrupts stay off.
/// When no events arrive, the kernel turns them on again, and the loop sleeps. This works only for
/// an epoll whose sockets all come from one queue, so use one loop per queue (`SO_INCOMING_NAPI_ID`
/// returns the queue).
///
/// It has no effect on loopback, on Unix sockets, on timers and on wakes from other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    time: Duration,
    budget: u16,
    prefer: bool,
}

impl BusyPoll {
    pub(crate) const DEFAULT: Self =
        Self { time: Duration::from_micros(64), budget: 8, prefer: false };

    /// Returns the default settings: 64 µs, 8 packets, [`prefer`](Self::prefer) off.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Sets how long a wait busy-polls before it sleeps, in whole microseconds (default 64 µs), up
    /// to 35 minutes. With a longer time, building the loop fails. 0 turns busy-polling off.
    #[must_use]
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the maximum number of packets that a poll takes (default 8). More than 64 need
    /// CAP_NET_ADMIN.
    #[must_use]
    pub const fn budget(mut self, packets: u16) -> Self {
        self.budget = packets;
        self
    }

    /// Sets whether the card's interrupts stay off while the loop polls (default `false`). See [IRQ
    /// suspension](Self).
    #[must_use]
    pub const fn prefer(mut self, prefer: bool) -> Self {
        self.prefer = prefer;
        self
    }

    /// Has the kernel busy-poll for `epoll`, and reads the settings back, in case the kernel
    /// accepts the call and ignores it.
    pub(super) fn apply(self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let microseconds = u32::try_from(self.time.as_micros()).ok();
        let mut params = libc::epoll_params {
            busy_poll_usecs: microseconds
                .filter(|&time| time <= i32::MAX as u32)
                .ok_or_else(too_long)?,
            busy_poll_budget: self.budget,
            prefer_busy_poll: self.prefer.into(),
            __pad: 0,
        };
        // SAFETY: the kernel reads one `epoll_params` from the pointer.
        let set = unsafe { libc::ioctl(epoll.as_raw_fd(), libc::EPIOCSPARAMS, &raw const params) };
        if set != 0 {
            return Err(explain(&io::Error::last_os_error()));
        }
        params = libc::epoll_params {
            busy_poll_usecs: 0,
            busy_poll_budget: 0,
            prefer_busy_poll: 0,
            __pad: 0,
        };
        // SAFETY: the kernel writes one `epoll_params` to the pointer.
        let got = unsafe { libc::ioctl(epoll.as_raw_fd(), libc::EPIOCGPARAMS, &raw mut params) };
        if got != 0 {
            return Err(explain(&io::Error::last_os_error()));
        }
        let kept = Some(params.busy_poll_usecs) == microseconds
            && params.busy_poll_budget == self.budget
            && params.prefer_busy_poll == u8::from(self.prefer);
        if kept {
            Ok(())
        } else {
            Err(io::Error::other("the kernel did not keep the settings of its busy polling"))
        }
    }
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn too_long() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the kernel busy-polls for at most 35 minutes at a time",
    )
}

fn explain(error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
            "this kernel cannot busy-poll for an epoll: it takes Linux 6.9 with CONFIG_NET_RX_BUSY_POLL"
        }
        Some(libc::EPERM) => "a budget of more than 64 packets needs CAP_NET_ADMIN",
        _ => "the kernel refused to busy-poll",
    };
    io::Error::new(error.kind(), format!("{why} ({error})"))
}
