//! Standard output and standard error.

use std::io;
use std::os::fd::AsFd;

use crate::fs::File;

/// Opens standard output. This changes none of its flags.
///
/// Writes run on the [blocking pool](crate::task::spawn_blocking), so a slow reader blocks a thread
/// of the pool, and not the loop. This holds even if another holder of the same open file has set
/// `O_NONBLOCK`. [`File::write_all`] returns when the kernel has the bytes. These bytes and the
/// buffered bytes of `print!` may come out in any order. For logs see [`wakeful::log`](crate::log).
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     wakeful::io::stdout()?.write_all(b"hello\n").await
/// })
/// # }
/// ```
///
/// # Threads
/// It needs no loop. Each returned handle uses a descriptor until it is dropped. The writes of two
/// handles are not ordered.
///
/// # Errors
/// Standard output is closed; no descriptors are left.
pub fn stdout() -> io::Result<File> {
    duplicate(std::io::stdout())
}

/// Opens standard error. See [`stdout`].
///
/// # Errors
/// Standard error is closed; no descriptors are left.
pub fn stderr() -> io::Result<File> {
    duplicate(std::io::stderr())
}

fn duplicate(fd: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(fd.as_fd().try_clone_to_owned()?.into()))
}
