//! Errors of sockets that are due to a lack of something, and which limit to raise.

use std::io;

use rustix::io::Errno;

/// If something is lacking, adds to the error what it is.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let how = match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => "each connection takes one: raise RLIMIT_NOFILE (ulimit -n)",
        Some(Errno::NFILE) => "raise fs.file-max",
        Some(Errno::ADDRNOTAVAIL) => {
            "no local port may be left for connections to this address: raise \
             net.ipv4.ip_local_port_range"
        }
        Some(Errno::AGAIN) => "the server's backlog is full",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {how}"))
}

/// Whether connecting failed only for now: the server's backlog is full, or this side has no
/// descriptor, local port or memory left. It does not mean that the server is gone. The error must
/// not be [explained](explain) yet.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::AGAIN
                | Errno::MFILE
                | Errno::NFILE
                | Errno::ADDRNOTAVAIL
                | Errno::NOBUFS
                | Errno::NOMEM
                // The limit of what epoll sets may watch: epoll_ctl(2).
                | Errno::NOSPC
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_is_explained() {
        let text = |errno: Errno| explain(errno.into()).to_string();
        assert!(text(Errno::MFILE).contains("ulimit -n"));
        assert!(text(Errno::NFILE).contains("fs.file-max"));
        assert!(text(Errno::ADDRNOTAVAIL).contains("ip_local_port_range"));
        assert!(text(Errno::AGAIN).contains("backlog is full"));
        let refused = explain(Errno::CONNREFUSED.into());
        assert_eq!(refused.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }

    #[test]
    fn a_lack_on_this_side_or_a_full_backlog_is_not_the_servers_end() {
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS] {
            assert!(is_temporary(&errno.into()), "{errno}");
        }
        for errno in [Errno::CONNREFUSED, Errno::NOENT, Errno::HOSTUNREACH] {
            assert!(!is_temporary(&errno.into()), "{errno}");
        }
    }
}
