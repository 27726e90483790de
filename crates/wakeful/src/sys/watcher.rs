//! Finds the epoll that watches a descriptor, by `/proc`. It is for the epoll of another runtime,
//! which does not give access to it.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::duplicate::duplicate;

/// How many descriptors are searched.
const FAR: i32 = 4096;

/// Returns a duplicate of an epoll that was made recently and watches `watched`. `None`: there is
/// none, or `/proc` does not show it (it is not mounted, or this is a sandbox).
///
/// Searches the descriptors below `watched`, the nearest first, because an epoll that was made just
/// before is among them.
pub(crate) fn epoll_that_watches(watched: BorrowedFd<'_>) -> Option<OwnedFd> {
    let watched = watched.as_raw_fd();
    let near = ((watched - FAR).max(0)..watched).rev();
    near.filter(|fd| is_epoll(*fd)).find_map(|fd| {
        let epoll = duplicate(fd).ok()?;
        // This check comes after the duplication, because before, the number may have become
        // another descriptor's.
        watches(epoll.as_raw_fd(), watched).then_some(epoll)
    })
}

fn is_epoll(fd: i32) -> bool {
    let link = fs::read_link(format!("/proc/thread-self/fd/{fd}"));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventpoll]")
}

fn watches(epoll: i32, watched: i32) -> bool {
    let info = fs::read_to_string(format!("/proc/thread-self/fdinfo/{epoll}"));
    info.is_ok_and(|info| {
        let mut targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let is_it = |target: &str| target.split_whitespace().next()?.parse().ok();
        targets.any(|target| is_it(target) == Some(watched))
    })
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::epoll;

    use super::*;

    #[test]
    fn the_epoll_of_several_is_found() {
        let [others, right] = [(); 2].map(|()| epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let [unwatched, watched] = [(); 2]
            .map(|()| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
        let add = |epoll: &OwnedFd, fd: &OwnedFd| {
            epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        };
        add(&others, &unwatched);
        add(&right, &watched);
        let found = epoll_that_watches(watched.as_fd()).unwrap();
        // It is the same epoll, because an entry that is added to one is seen in the other.
        let third = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        add(&right, &third);
        assert!(watches(found.as_raw_fd(), third.as_raw_fd()));
        let nobody = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(epoll_that_watches(nobody.as_fd()).is_none());
    }
}
