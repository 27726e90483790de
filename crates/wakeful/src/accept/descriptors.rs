//! How many connections the process's limit of open descriptors allows.

use std::fs::read_dir;
use std::io;
use std::os::fd::AsRawFd;

use rustix::event::{EventfdFlags, eventfd};
use wakeful_awake::keeper_protocol;

use crate::sys::limits;

/// The least that is kept back: a sixteenth of the free descriptors, or `ENOUGH` if that is less.
const SHARE: usize = 16;
const ENOUGH: usize = 64;

/// If the user allows more connections than there are descriptors for, all else may use one part in
/// this many of those that are free.
const TOO_FEW: usize = 8;

/// The limit to assume if the kernel does not tell it: Linux's initial one.
const USUAL: usize = 1024;

/// Says how many of the process's descriptors a server keeps free. It is a setting of
/// [`ConnectionServer`](super::ConnectionServer::descriptors).
///
/// A server without [`max_connections`](super::ConnectionServer::max_connections) opens as many
/// connections as `RLIMIT_NOFILE` (`ulimit -n`) allows:
///
/// > (limit - open at the start - kept back) / (1 + `per_connection`), but at least 1
///
/// Here "open at the start" is what the process has open when all loops have started, and one more
/// for each loop if there is a keeper of CPUs (`wakeful keeper`), to which the loops may connect.
/// "Kept back" is the larger of `spare` and a sixteenth of the descriptors that are free at the
/// start (at most 64). Further connections wait in the kernel's backlog until one closes, and the
/// log says so. Without this limit, connections would use up all descriptors, and no descriptor
/// would be left to serve them.
///
/// If `RLIMIT_NOFILE` is raised while the server runs (`prlimit`), the server allows more
/// connections: while connections wait, it reads the limit when one closes, at most once a second.
/// The server does not notice if the limit is lowered. Descriptors may then run out, and accepting
/// pauses. A draining server raises the soft limit to the hard one if it cannot accept the waiting
/// connections otherwise.
///
/// Each server counts only its own connections. In a process with several servers, set
/// `max_connections` for all servers but one, and add these numbers to the `spare` of that one.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`per_connection`](Self::per_connection) | 0 | any |
/// | [`spare`](Self::spare) | 16 | any |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed settings"]
pub struct Descriptors {
    per_connection: usize,
    spare: usize,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self { per_connection: 0, spare: 16 }
    }
}

impl Descriptors {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many descriptors a connection may need besides its own socket, such as a file that
    /// it reads, or a connection to a backend.
    pub fn per_connection(mut self, descriptors: usize) -> Self {
        self.per_connection = descriptors;
        self
    }

    /// Sets how many descriptors the rest of the process may open while the server runs. The server
    /// keeps more free if a sixteenth of the free descriptors (at most 64) is more than that.
    pub fn spare(mut self, descriptors: usize) -> Self {
        self.spare = descriptors;
        self
    }

    /// Adds `descriptors` to [`spare`](Self::spare).
    pub fn also_spare(self, descriptors: usize) -> Self {
        let spare = self.spare.saturating_add(descriptors);
        self.spare(spare)
    }

    /// Returns how many descriptors this process may have open (the soft limit of `RLIMIT_NOFILE`),
    /// or `None` if there is no limit. If the system call is refused (for example, by a seccomp
    /// filter), it returns 1,024.
    #[must_use]
    pub fn limit() -> Option<usize> {
        match limits::of_descriptors() {
            Ok(limit) if limit.rlim_cur == libc::RLIM_INFINITY => None,
            Ok(limit) => Some(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)),
            Err(_) => Some(USUAL),
        }
    }

    /// Raises this process's soft limit to the hard limit. Call it before a server starts: a
    /// running server notices the new limit only when a connection closes.
    ///
    /// # Errors
    /// The system call is refused (for example, by a seccomp filter).
    pub fn raise_limit() -> io::Result<()> {
        let limit = limits::of_descriptors()?;
        if limit.rlim_cur == limit.rlim_max {
            return Ok(());
        }
        limits::set_for_descriptors(libc::rlimit { rlim_cur: limit.rlim_max, ..limit })
    }

    /// Returns how many descriptors are left for what the connections open, such as files and
    /// connections to backends, and for the rest of the program: all that are free now, except one
    /// for each connection. `max_connections` is the server's
    /// [limit](super::ConnectionServer::max_connections), if you set one. Without one, the result
    /// is `per_connection` times the number of connections that the server admits, and what is kept
    /// back. If there are not enough descriptors for `max_connections`, the result is an eighth of
    /// those that are free. If the process has no limit, it is `None`.
    ///
    /// If a connection may open more than `per_connection` at a time (as with HTTP/2, where each of
    /// its requests may open something), limit what all of them open together to this number, less
    /// what the server's loops (four for each) and the rest of the program will open. Requests
    /// beyond that limit should wait.
    #[must_use]
    pub fn beside_connections(self, max_connections: impl Into<Option<usize>>) -> Option<usize> {
        Self::limit().map(|limit| self.beside(max_connections.into(), limit, open()))
    }

    fn beside(self, max_connections: Option<usize>, limit: usize, open: usize) -> usize {
        let free = limit.saturating_sub(open);
        let connections = max_connections.unwrap_or_else(|| self.connections(limit, open));
        // If there cannot be so many connections, accepting may fail in any case.
        free.saturating_sub(connections).max(free / TOO_FEW)
    }

    fn kept(self, free: usize) -> usize {
        self.spare.max((free / SHARE).min(ENOUGH))
    }

    /// How many connections may be open in a process whose limit is `limit` descriptors, and which
    /// has `open` descriptors without the connections.
    pub(super) fn connections(self, limit: usize, open: usize) -> usize {
        let free = limit.saturating_sub(open);
        (free.saturating_sub(self.kept(free)) / self.per_connection.saturating_add(1)).max(1)
    }
}

/// How many descriptors are open. Without `/proc` it is the lowest free number, because the kernel
/// gives that number first.
pub(super) fn open() -> usize {
    match read_dir("/proc/self/fd") {
        // One of the entries is the descriptor of the directory itself.
        Ok(entries) => entries.count().saturating_sub(1),
        Err(_) => eventfd(0, EventfdFlags::CLOEXEC)
            .ok()
            .and_then(|fd| usize::try_from(fd.as_raw_fd()).ok())
            .unwrap_or(0),
    }
}

/// How many connections to the machine's keeper of CPUs `loops` loops may open later: one for each,
/// if there is a keeper.
pub(super) fn of_keeper(loops: usize) -> usize {
    let is_there = keeper_protocol::socket_path().is_some_and(|path| path.exists());
    if is_there { loops } else { 0 }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_connections_need_and_what_is_kept_back_fit_into_the_limit() {
        let files = Descriptors::new().per_connection(1);
        for (limit, open) in [(64, 14), (1024, 20), (1 << 20, 100)] {
            for descriptors in [files, Descriptors::default()] {
                let connections = descriptors.connections(limit, open);
                let needed = open + connections * (1 + descriptors.per_connection);
                assert!(needed + descriptors.spare <= limit, "{connections} of {limit}");
                assert!(needed + limit / 8 + 17 >= limit, "{connections} of {limit}: too few");
            }
        }
    }

    #[test]
    fn what_is_left_beside_connections_is_what_is_kept_back_for_them_and_what_is_spare() {
        let files = Descriptors::new().per_connection(1);
        for (limit, open) in [(64, 14), (1024, 20), (1 << 20, 100)] {
            let connections = files.connections(limit, open);
            let beside = files.beside(None, limit, open);
            assert_eq!(open + connections + beside, limit);
            assert!(beside >= connections + files.spare, "{beside} of {limit}");
            assert_eq!(files.beside(Some(10), limit, open), limit - open - 10);
        }
        // More connections than the process may have.
        assert_eq!(files.beside(Some(1000), 64, 14), 6);
    }

    #[test]
    fn a_server_with_too_few_descriptors_serves_one_connection_at_a_time() {
        assert_eq!(Descriptors::default().connections(20, 20), 1);
        assert_eq!(Descriptors::new().per_connection(usize::MAX).spare(0).connections(64, 10), 1);
    }
}
