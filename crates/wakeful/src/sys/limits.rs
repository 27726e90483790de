//! Explains errors. An error that a limit of the system caused says which limit it is, and how to
//! raise it. An error of a refused call (for example, by a seccomp filter) says which call it is.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use rustix::io::Errno;

/// A kernel's error with the limit that caused it, or the call. `raw_os_error` of the outer error
/// is `None`. Find this error by `io::Error::get_ref`, and the kernel's by its
/// [`source`](Error::source).
#[derive(Debug)]
struct Explained {
    why: Cow<'static, str>,
    cause: io::Error,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.why)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// Explains the kernel's error for making or watching a descriptor.
pub(crate) fn explain(errno: Errno) -> io::Error {
    let limit = match errno {
        Errno::NOSPC => {
            "this user's limit of watched descriptors is reached; raise fs.epoll.max_user_watches"
        }
        Errno::MFILE => {
            "this process's limit of open descriptors is reached; raise RLIMIT_NOFILE (ulimit -n)"
        }
        Errno::FBIG => {
            "this process's limit of file sizes is reached, which also holds for shared memory; raise RLIMIT_FSIZE (ulimit -f)"
        }
        Errno::NFILE => "the system's limit of open descriptors is reached; raise fs.file-max",
        _ => return errno.into(),
    };
    because(errno, Cow::Borrowed(limit))
}

/// The error of another library's call that found no descriptors left.
#[cfg(feature = "tokio")]
pub(crate) fn no_descriptors(why: &'static str) -> io::Error {
    because(Errno::MFILE, Cow::Borrowed(why))
}

fn because(errno: Errno, why: Cow<'static, str>) -> io::Error {
    let cause = io::Error::from(errno);
    io::Error::new(cause.kind(), Explained { why, cause })
}

/// Like [`explain`], for an error of the system call `call`. A runtime cannot work without this
/// call, and the administrator who refuses it may not know what it is for.
pub(crate) fn explain_call(call: &'static str) -> impl Fn(Errno) -> io::Error {
    move |errno| match errno {
        Errno::PERM | Errno::NOSYS => {
            let why = format!("the system call {call} is refused, as a seccomp filter does");
            because(errno, Cow::Owned(why))
        }
        // Here ENOSPC means that a disk is full, for example for a Unix socket's file, or that
        // there is no memory.
        Errno::NOSPC if call != "epoll_ctl" => errno.into(),
        _ => explain(errno),
    }
}

/// Like [`explain`], for connect(2) to an internet address.
pub(crate) fn explain_connect(errno: Errno) -> io::Error {
    match errno {
        Errno::ADDRNOTAVAIL => because(
            errno,
            Cow::Borrowed(
                "all local ports are in use for that address (net.ipv4.ip_local_port_range), or this machine has no address to reach it from",
            ),
        ),
        _ => explain(errno),
    }
}

/// Like [`explain_call`], for bind(2) to an internet address.
pub(crate) fn explain_bind(errno: Errno) -> io::Error {
    match errno {
        Errno::ADDRNOTAVAIL => {
            because(errno, Cow::Borrowed("no network interface of this machine has that address"))
        }
        _ => explain_call("bind")(errno),
    }
}

/// Like [`explain`], for an error that may come from the standard library.
pub(crate) fn explain_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => explain(Errno::from_raw_os_error(code)),
        None => error,
    }
}

/// Explains an error of the system call `call`: which limit or which setting is to blame, and what
/// to do. An error that no call has made stays as it is.
pub fn explain_call_error(call: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.raw_os_error() {
        Some(code) => explain_call(call)(Errno::from_raw_os_error(code)),
        None => error,
    }
}

/// Does this error, made by [`explain`] or straight from the kernel, mean a lack of descriptors or
/// memory that may pass?
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC];
    code(error).is_some_and(|code| shortages.contains(&code))
}

/// The kernel's error, even if [`explain`] has added text.
pub(crate) fn code(error: &io::Error) -> Option<Errno> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>());
    Errno::from_io_error(inner.map_or(error, |limit| &limit.cause))
}

/// The soft and the hard limit of open descriptors. (rustix assumes that this call cannot fail, and
/// reads memory that the kernel has not written.)
///
/// # Errors
/// The call is refused.
pub(crate) fn of_descriptors() -> io::Result<libc::rlimit> {
    // SAFETY: see `read`.
    read(|limit| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit) })
}

/// Returns the soft limit of address space in bytes, or `None` if there is no limit.
///
/// # Errors
/// The call is refused.
pub(crate) fn of_address_space() -> io::Result<Option<u64>> {
    // SAFETY: see `read`.
    let limit = read(|limit| unsafe { libc::getrlimit(libc::RLIMIT_AS, limit) })?.rlim_cur;
    Ok((limit != libc::RLIM_INFINITY).then_some(limit))
}

/// Returns the soft limit of file sizes in bytes, or `None` if there is no limit.
///
/// # Errors
/// The call is refused.
pub fn of_file_sizes() -> io::Result<Option<u64>> {
    // SAFETY: see `read`.
    let limit = read(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) })?.rlim_cur;
    Ok((limit != libc::RLIM_INFINITY).then_some(limit))
}

/// Returns the limit that `call` writes. The pointer that it gets is valid for reads and writes.
fn read(call: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    if call(&raw mut limit) != 0 { Err(last_error_of("prlimit64")) } else { Ok(limit) }
}

/// Changes the limit of open descriptors for this process.
///
/// # Errors
/// The call is refused; the hard limit is lower.
pub(crate) fn set_for_descriptors(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: the kernel reads `limit`.
    let refused = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0;
    if refused { Err(last_error_of("prlimit64")) } else { Ok(()) }
}

fn last_error_of(call: &'static str) -> io::Error {
    let error = io::Error::last_os_error();
    Errno::from_io_error(&error).map_or(error, explain_call(call))
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_refused_is_named() {
        for errno in [Errno::PERM, Errno::NOSYS] {
            let error = explain_call("eventfd2")(errno);
            assert!(error.to_string().contains("eventfd2"), "{error}");
            assert_eq!((code(&error), error.kind()), (Some(errno), io::Error::from(errno).kind()));
        }
        let limit = explain_call("eventfd2")(Errno::MFILE);
        assert!(limit.to_string().contains("RLIMIT_NOFILE"), "{limit}");
    }

    #[test]
    fn a_full_disk_is_no_limit_of_watched_descriptors() {
        let full = explain_call("bind")(Errno::NOSPC);
        assert!(!full.to_string().contains("max_user_watches"), "{full}");
        assert_eq!(code(&full), Some(Errno::NOSPC));
        let watches = explain_call("epoll_ctl")(Errno::NOSPC);
        assert!(watches.to_string().contains("max_user_watches"), "{watches}");
    }

    #[test]
    fn a_connection_without_a_local_port_names_their_range() {
        let error = explain_connect(Errno::ADDRNOTAVAIL);
        assert!(error.to_string().contains("ip_local_port_range"), "{error}");
        assert_eq!(code(&error), Some(Errno::ADDRNOTAVAIL));
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        let refused = explain_connect(Errno::CONNREFUSED);
        assert_eq!(refused.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }

    #[test]
    fn limits_are_named_and_other_errors_kept() {
        for (errno, name) in [
            (Errno::NOSPC, "max_user_watches"),
            (Errno::MFILE, "RLIMIT_NOFILE"),
            (Errno::NFILE, "fs.file-max"),
        ] {
            let error = explain(errno);
            assert!(error.to_string().contains(name), "{error}");
            assert!(is_shortage(&error));
        }
        let explained = explain_error(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(explained.to_string().contains("RLIMIT_NOFILE"), "{explained}");
        assert_eq!(explain_error(explained).to_string(), explain(Errno::MFILE).to_string());
        let other = explain(Errno::BADF);
        assert_eq!(other.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert!(!is_shortage(&other));
    }
}
