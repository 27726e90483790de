//! The kernel's own busy polling of network cards, for one epoll (Linux 6.9).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::idle::BusyPoll;

/// Sets it, and reads it back: a kernel that takes the call and does nothing would be found out.
pub(super) fn set(epoll: BorrowedFd<'_>, wanted: BusyPoll) -> io::Result<()> {
    let microseconds = u32::try_from(wanted.time.as_micros()).ok();
    let mut params = libc::epoll_params {
        busy_poll_usecs: microseconds
            .filter(|&time| time <= i32::MAX as u32)
            .ok_or_else(too_long)?,
        busy_poll_budget: wanted.budget,
        prefer_busy_poll: wanted.prefer.into(),
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
        && params.busy_poll_budget == wanted.budget
        && params.prefer_busy_poll == u8::from(wanted.prefer);
    if kept {
        Ok(())
    } else {
        Err(io::Error::other("the kernel did not keep the settings of its busy polling"))
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
