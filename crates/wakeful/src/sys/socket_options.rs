//! Options of sockets that neither rustix nor socket2 has: see tcp(7) and socket(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, socklen_t};

/// Sets an option of TCP that is an `int`.
///
/// # Errors
/// Kernel errors.
pub(crate) fn set(socket: impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    set_of(socket, (libc::IPPROTO_TCP, option), value)
}

/// Sets an option, of a level, that is an `int`.
///
/// # Errors
/// Kernel errors.
pub(crate) fn set_of(
    socket: impl AsFd,
    (level, option): (c_int, c_int),
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads an int, which is there.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length_of::<c_int>(),
        )
    } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns an option of TCP that is an `int`.
///
/// # Errors
/// Kernel errors.
pub(crate) fn get(socket: impl AsFd, option: c_int) -> io::Result<c_int> {
    get_of(socket, (libc::IPPROTO_TCP, option))
}

/// Returns an option, of a level, that is an `int`.
///
/// # Errors
/// Kernel errors.
pub(crate) fn get_of(socket: impl AsFd, option: (c_int, c_int)) -> io::Result<c_int> {
    let value = read::<c_int>(socket, option)?;
    // SAFETY: every pattern of bytes is an int.
    Ok(unsafe { value.assume_init() })
}

/// Returns what the kernel knows of a connection or of a listener. Fields that an older kernel does
/// not know are 0.
///
/// # Errors
/// Kernel errors: it is not a TCP socket.
pub(crate) fn tcp_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let info = read::<libc::tcp_info>(socket, (libc::IPPROTO_TCP, libc::TCP_INFO))?;
    // SAFETY: every pattern of bytes is one of these integers.
    Ok(unsafe { info.assume_init() })
}

/// Writes the statements of the socket's filter of the classic BPF (socket(7)) to `program`, and
/// returns how many there are: 0 without a filter.
///
/// # Errors
/// Kernel errors: a filter that has more statements than `program` (`EINVAL`), an older kernel than
/// Linux 3.8, or a filter of another kind.
pub(crate) fn filter(socket: impl AsFd, program: &mut [libc::sock_filter]) -> io::Result<usize> {
    // For this option the kernel counts statements, not bytes (`sk_get_filter`). With a length of 0
    // it returns only the number.
    let mut length = socklen_t::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most `length` statements, for which there is room, and `length`.
    // Every pattern of bytes is a statement.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            program.as_mut_ptr().cast(),
            &raw mut length,
        )
    } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

/// Reads an option into zeroed memory. The kernel writes as many bytes as it knows.
fn read<T>(socket: impl AsFd, (level, option): (c_int, c_int)) -> io::Result<MaybeUninit<T>> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = length_of::<T>();
    // SAFETY: the kernel writes `length` bytes at most, which there are.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn length_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).expect("a few hundred bytes")
}
