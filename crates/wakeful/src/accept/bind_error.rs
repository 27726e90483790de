//! Why a server cannot listen on an address, in words that say what to do.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::net::ListenAddr;
use crate::sys::limits::code;

/// The first port that needs no privilege, unless `net.ipv4.ip_unprivileged_port_start` says
/// otherwise.
const FIRST_FREE_PORT: u16 = 1024;

/// The error that users see. Its source is the kernel's error.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct CannotListen {
    why: &'static str,
    #[source]
    cause: io::Error,
}

/// Adds the reason in words to `error`, if `addr` tells it. The kind of the error stays.
pub(super) fn explain(addr: &ListenAddr, error: io::Error) -> io::Error {
    // The kind of EPERM is the same, but EPERM is a call that is refused, and the error's text
    // names the call.
    let is_denied = code(&error) == Some(Errno::ACCESS);
    let why = match (error.kind(), addr) {
        (ErrorKind::AddrInUse, ListenAddr::Tcp(_)) => {
            "the address is in use: is another server running there? (`ss -ltnp` lists them)"
        }
        (ErrorKind::AddrInUse, ListenAddr::Abstract(_)) => {
            "the address is in use: is another server running there? (`ss -lxp` lists them)"
        }
        (ErrorKind::AddrInUse, ListenAddr::Unix(_)) => {
            "the file exists: another server listens on it, or it is not a socket"
        }
        (ErrorKind::AddrNotAvailable, _) => "the address is not one of this machine's",
        (ErrorKind::PermissionDenied, ListenAddr::Tcp(addr))
            if is_denied && (1..FIRST_FREE_PORT).contains(&addr.port()) =>
        {
            "permission denied: a port below 1024 needs root or CAP_NET_BIND_SERVICE"
        }
        (ErrorKind::PermissionDenied, ListenAddr::Unix(_)) if is_denied => {
            "permission denied: may this user write to the directory?"
        }
        (ErrorKind::NotFound, ListenAddr::Unix(_)) => "the directory does not exist",
        _ => return error,
    };
    io::Error::new(error.kind(), CannotListen { why, cause: error })
}

/// Like [`explain`], with the address in the text, and with the address among `others` that
/// conflicts with it.
pub(super) fn explain_beside<'a>(
    addr: &ListenAddr,
    others: impl IntoIterator<Item = &'a ListenAddr>,
    error: &io::Error,
) -> io::Error {
    let is_in_use = error.kind() == ErrorKind::AddrInUse;
    let in_its_way = others.into_iter().find(|other| is_in_use && other.overlaps(addr));
    let text = match in_its_way {
        Some(ours) => format!("cannot listen on {addr}: this server already listens on {ours}"),
        None => format!("cannot listen on {addr}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    fn explained(addr: &str, errno: Errno) -> io::Error {
        explain(&addr.parse().unwrap(), errno.into())
    }

    #[test]
    fn an_error_says_what_to_do_and_keeps_its_kind_and_cause() {
        for (addr, errno, says) in [
            ("127.0.0.1:80", Errno::ADDRINUSE, "another server"),
            ("127.0.0.1:80", Errno::ACCESS, "CAP_NET_BIND_SERVICE"),
            ("127.0.0.1:80", Errno::ADDRNOTAVAIL, "not one of this machine's"),
            ("unix:/a", Errno::ACCESS, "write to the directory"),
            ("unix:/a/b", Errno::NOENT, "does not exist"),
        ] {
            let error = explained(addr, errno);
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.kind(), io::Error::from(errno).kind());
            let cause = error.get_ref().and_then(std::error::Error::source).unwrap();
            assert_eq!(cause.to_string(), io::Error::from(errno).to_string());
        }
    }

    #[test]
    fn what_the_address_does_not_tell_stays() {
        for (addr, errno) in [
            ("127.0.0.1:80", Errno::PERM),
            ("127.0.0.1:8080", Errno::ACCESS),
            ("127.0.0.1:80", Errno::NOENT),
            ("unix:/a", Errno::MFILE),
        ] {
            assert_eq!(explained(addr, errno).raw_os_error(), Some(errno.raw_os_error()));
        }
    }
}
